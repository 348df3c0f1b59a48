"""Whether a session's history is what was fed: every entry once, in order, byte for byte."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sessionlib.entries import Entry
from sessionlib.recordings import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs, in entries. An entry that was changed is lost, and what it became is foreign."""

    lost: int
    doubled: int
    foreign: int
    out_of_order: int
    """How many entries would have to move."""


def recorded_entries(recording: Recording) -> Iterator[Entry]:
    """The entries that a session has after the recording was played through it."""
    for turn in recording.turns:
        yield Entry.user(turn.input)
        for played in turn.rounds:
            yield from played.reply().entries()
            names = {call.call_id: call.name for call in played.calls}
            for call_id, text in played.results:
                yield Entry.tool_result(call_id, text, names[call_id])


def compared(expected: Sequence[Entry], found: Sequence[Entry]) -> Comparison:
    """Compare entry by entry; of equal ones the first found is the first expected."""
    waiting: dict[Entry, deque[int]] = defaultdict(deque)
    for position, entry in enumerate(expected):
        waiting[entry].append(position)
    positions: list[int] = []
    doubled = foreign = 0
    for entry in found:
        if entry not in waiting:
            foreign += 1
        elif not waiting[entry]:
            doubled += 1
        else:
            positions.append(waiting[entry].popleft())
    return Comparison(
        lost=len(expected) - len(positions),
        doubled=doubled,
        foreign=foreign,
        out_of_order=len(positions) - _longest_rise(positions),
    )


def _longest_rise(positions: Sequence[int]) -> int:
    """Length of the longest rising subsequence: what can stay where it is."""
    tails: list[int] = []
    for position in positions:
        at = bisect_left(tails, position)
        tails[at : at + 1] = [position]
    return len(tails)
