"""Recorded sessions, read into one shape that can be replayed turn by turn.

Formats, told apart by what the file holds, never by its name:

- `openai_chat`: chat messages as a JSON list, as `{"messages": […]}` (with `system` beside it, if any), or as JSONL,
  one message a line. Content may be a string or a list of parts, Anthropic's content blocks included.
- `claude_code`: a session file of Claude Code, JSONL with one content block or message a line.
- `claude_code_events`: `{"events": […]}`, the same, reduced to messages and compact boundaries.
- `tau_bench`: `{"system": …, "sessions": [{"id", "episodes": […]}]}`; a session's episodes are joined, oldest first.
- `locomo`: `{"conversations": [{"id", "entries": […]}]}`, dialogues of two people; the second speaks for the assistant.

What becomes what. Everything that is made up, moved or left out is counted in `Recording.skipped` by its reason.

- A *round* is one API message: lines that share its id form one round, however its results are mixed in between. Its
  texts are joined by a blank line; its results stand in the order of its calls.
- A *turn* is an input and rounds up to the first without calls, as the engine plays it.
- User messages in a row are one input, joined by a blank line. A message that comes while calls run waits for the next
  round of another API message. Messages that nothing answers, at the end, are dropped.
- An assistant message with no input before it (the first, or one after an answer) gets the input "(continue)".
- A turn that ends in calls (interrupted, or cut off) gets the answer "(no answer was recorded)".
- A call without result gets "(no result was recorded)"; a result without a call, or a second one, is dropped.
- A call id that was used before gets a number at its end, and so does the result that belongs to it. A call of the
  first chat API has none and is named for its function.
- The first system or developer message of a chat becomes the instructions, later ones are dropped. The system lines of
  Claude Code are notices to its user and are dropped.
- Recorded compactions are dropped, boundary and summary: who replays keeps a history of their own. So are side chains,
  meta lines, lines written twice, API errors, thinking, blank texts.
- An image becomes "[image]", with its caption if it has one; other parts that are not text are dropped.
- Usage that is repeated on several lines of one API message counts once, with the largest completion.
- Lines of an edited Claude Code session are read in the file's order, abandoned branches included.

Anything else that is not as the format says is refused with InvalidInput, which names source, place and rule.
"""

from __future__ import annotations

from sessionlib.recordings.reading import read_recording
from sessionlib.recordings.values import (
    CONTINUE,
    NO_ANSWER,
    NO_RESULT,
    RecordedRound,
    RecordedTurn,
    Recording,
    Skip,
)

__all__ = [
    "CONTINUE",
    "NO_ANSWER",
    "NO_RESULT",
    "RecordedRound",
    "RecordedTurn",
    "Recording",
    "Skip",
    "read_recording",
]
