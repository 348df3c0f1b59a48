"""The small world that is explored: who takes part, what they remember, and what one moment of it looks like.

Three turns of one session (the second has two rounds, in each of which it saves a step and lengthens a note), two
workers a lane, hints in flight, a caller who submits in order. A rotation of a window with records begins a
fresh one, without any. Time is abstracted to what the rules compare: the clock stands still at `NOW`, a lease
is live or has lapsed, a due member lies ahead until the reaper looks at it.
"""

from __future__ import annotations

from typing import NamedTuple

from sessionlib.entries import Entry
from sessionlib.stores.contract import Lane, Limits

SESSION = "s"
LANES = (Lane.TURN, Lane.ROTATION)
NOW = 1_000.0
"""The clock, in seconds."""
LIMITS = Limits()
LINE_TOKENS = 30
"""Reached by the second turn's first round: its rotation can be adopted inside that turn."""
ENTRY_TOKENS = 10
RECORD_TOKENS = 1

FIRST_LIFE, SECOND_LIFE = "g0", "g1"
"""The session as it was opened, and as it was opened again after a purge. Named in every message and entry."""
SUBMITTED = {FIRST_LIFE: ("t1", "t2", "t3"), SECOND_LIFE: ("t2",)}
"""Turn ids that the caller submits, in this order."""
ROUND_COUNT = {"t1": 1, "t2": 2, "t3": 1}
STEPPING = frozenset({"t2"})
"""Turns that save a step in each round."""
NOTE = "note"
"""The note that they lengthen with it."""

KILL, EXPIRY, LOST, DOUBLED, NO_REPLY, PURGE, RESTORE = FAULTS = (
    "kill",
    "expiry",
    "lost message",
    "doubled message",
    "lost reply",
    "purge",
    "restore",
)
"""What may go wrong, each once on a path."""

MOST_HINTS = 2
"""Hints in flight a lane. A third would be taken like the second."""

FRESH = "fresh"
"""The token that a worker just made up: unlike any other."""

OPENED = "@"
"""Stands in a lane's token between what its holder made up and the time at which the session was opened."""

COUNTED = "count-"
"""Begins a token that is a number, which means something: it keeps its name where others are named anew."""


class Asking(NamedTuple):
    """A worker that sent `begin` and has no answer: it will send it again."""

    token: str


class TurnJob(NamedTuple):
    """What a worker of the turn lane remembers of its grant."""

    token: str
    turn_id: str
    message: str
    round: int
    position: int
    """Of the next step, counted over the whole turn."""
    is_saved: bool
    """The round's step is saved."""
    pending: str = ""
    """Commit token of a commit that was sent and not answered."""


class RotationJob(NamedTuple):
    """What a worker of the rotation lane remembers of its grant."""

    token: str
    rotation_id: str
    first_seq: int
    texts: tuple[str, ...]
    """Of the entries that will leave."""
    records: tuple[tuple[int, int], ...]
    """Spans of the records that it saw."""
    old_layout_token: str
    tail_seq: int
    """The newest live entry that it saw."""
    tail_token: str
    position: int
    is_saved: bool
    pending: str = ""
    """Layout token of an adoption that was sent and not answered."""


Job = TurnJob | RotationJob
Worker = Asking | TurnJob | RotationJob | None
"""What a worker remembers; None if it is idle."""


Crew = tuple[tuple[Worker, ...], ...]
"""All workers by lane, in the order of `LANES`. Those of a lane are alike: they stand in a fixed order of memories."""


class State(NamedTuple):
    """One moment of everything. Equal stores have equal numbers, and so have equal crews."""

    store: int
    backup: int
    """A copy of the store taken earlier on the path; -1 without."""
    crew: int
    hints: tuple[int, int]
    """Messages in flight by lane. What they name is for the operator's eyes: begin grants whatever is next."""
    faults_left: tuple[str, ...]
    resend: str = ""
    """A turn whose submit was not answered: the caller sends it again."""


def message(life: str, turn_id: str) -> str:
    return f"{life}/{turn_id}"


def note_text(step_count: int) -> str:
    """The note after so many saved steps."""
    return "".join(f"after step {position}\n" for position in range(step_count))


def step_name(round_number: int) -> str:
    return f"model:{round_number}"


def round_texts(text: str, number: int) -> tuple[str, ...]:
    """Texts of the entries that a round of the turn with this message records."""
    answer = f"{text}.{number}"
    return (text, answer) if number == 0 else (answer,)


def round_entries(text: str, number: int) -> tuple[Entry, ...]:
    first, *rest = round_texts(text, number)
    return (Entry.user(first), *map(Entry.assistant, rest)) if number == 0 else (Entry.assistant(first),)
