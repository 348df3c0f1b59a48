"""How the fake provider server answers: with an echo, with a record, with a recorded reply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionlib.errors import InvalidInput
from sessionlib.providers.wire_names import to_wire
from sessionlib.summaries.extractive import extract
from sessionlib.summaries.prompts import NO_PREVIOUS_RECORD, TERSE_CLAUSE
from sessionlib.summaries.purposes import EMPTY_BULLET, HEADINGS, Purpose
from sessionlib.tokens import Counter

ECHO_CHARACTERS = 200
"""How much of the newest message an echo repeats."""

_EVIDENCE = re.compile(
    r"^--- (?:evidence item|previous record) (\w+);[^\n]* ---\n(.*?)\n"
    r"--- end (?:of previous record|evidence item) \1 ---$",
    re.MULTILINE | re.DOTALL,
)
_BULLET = re.compile(r"^- (?!\(?none\)?$)", re.MULTILINE)
_PURPOSE = re.compile(r"^Purpose: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model thinks and says: text, and calls as chat completions have them; or a refusal."""

    text: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    refusal: str = ""
    reasoning: str = ""
    is_redacted: bool = False
    """Nobody is shown the reasoning."""

    def message(self) -> dict[str, Any]:
        """As a chat-completions message; `reasoning_content` is what compatible servers call reasoning."""
        content = self.text if self.text or not (self.calls or self.refusal) else None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        further = {"tool_calls": list(self.calls), "refusal": self.refusal, "reasoning_content": self.reasoning}
        return {**message, **{name: value for name, value in further.items() if value}}


def echo(messages: Sequence[Mapping[str, Any]]) -> Answer:
    """Acknowledge the newest message."""
    return Answer(f"Acknowledged: {str(messages[-1].get('content') or '')[:ECHO_CHARACTERS]}")


def record_of(messages: Sequence[Mapping[str, Any]], counter: Counter) -> Answer:
    """A valid summary of the fenced evidence in the newest message (of all of it, if there is no fence).

    Its sentences are as many as models write: 0.30 · I^0.78 tokens for I tokens of evidence, at least 60
    (spec/retention); half of that when it is told to be terse. All stand under one heading.
    """
    document = str(messages[-1].get("content") or "")
    shown = [match[2] for match in _EVIDENCE.finditer(document) if match[2] != NO_PREVIOUS_RECORD]
    evidence = _BULLET.sub("", "\n".join(shown) or document)
    length_tokens = max(60, int(0.30 * counter.text(evidence) ** 0.78))
    if TERSE_CLAUSE in str(messages[0].get("content")):
        length_tokens //= 2
    sentences = extract(evidence, length_tokens, counter)
    return Answer(_under_headings(_purpose_of(document), sentences.split("\n")))


def _purpose_of(document: str) -> Purpose:
    named = _PURPOSE.match(document)
    return Purpose(named[1]) if named and named[1] in set(Purpose) else Purpose.CONTINUATION


def _under_headings(purpose: Purpose, lines: Sequence[str]) -> str:
    """*lines* as bullets under the heading that tells what was done, the other sections empty."""
    filled = "Done" if purpose is Purpose.DIGEST else "Work & Evidence"
    bullets = "\n".join(f"- {line}" for line in lines if line.strip())
    return "\n".join(
        f"## {heading}\n{bullets if heading == filled else EMPTY_BULLET[purpose]}" for heading in HEADINGS[purpose]
    )


def recorded(value: Any) -> Answer:
    """A recorded reply: `{"text": …, "calls": [{"call_id": …, "name": …, "arguments": …}], "refusal": …,
    "reasoning": …, "is_redacted": …}`, each of them optional. Raises InvalidInput."""
    try:
        calls = tuple(
            {
                "id": call["call_id"],
                "type": "function",
                "function": {"name": to_wire(call["name"]), "arguments": call["arguments"]},
            }
            for call in value.get("calls", [])
        )
        texts = [str(value.get(name, "")) for name in ("text", "refusal", "reasoning")]
        return Answer(texts[0], calls, texts[1], texts[2], is_redacted=bool(value.get("is_redacted")))
    except (KeyError, TypeError, AttributeError):
        rule = 'must be like {"text": "…", "calls": [{"call_id": "…", "name": "…", "arguments": "…"}]}'
        raise InvalidInput("answers", value, rule) from None
