"""Transcript: a run of entries with their sequence numbers and sizes; appending and splitting make new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sessionlib.entries import OUTPUT_KINDS, Entry, EntryKind
from sessionlib.errors import InvalidInput


@dataclass(frozen=True)
class Transcript:
    """Entries `first_seq, first_seq + 1, …`, each with its size in tokens as it is sent."""

    entries: tuple[Entry, ...] = ()
    sizes: tuple[int, ...] = ()
    first_seq: int = 1

    def __post_init__(self) -> None:
        if len(self.entries) != len(self.sizes):
            raise InvalidInput("sizes", len(self.sizes), f"must be one for each of {len(self.entries)} entries")

    @cached_property
    def tokens(self) -> int:
        """Sum of the sizes, in tokens."""
        return sum(self.sizes)

    @property
    def next_seq(self) -> int:
        """The sequence number that the next entry gets."""
        return self.first_seq + len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entries: Sequence[Entry], sizes: Sequence[int]) -> Transcript:
        """A transcript with *entries* at its end; this very one when there are none."""
        for entry in entries:
            if not isinstance(entry, Entry):
                raise InvalidInput("entries", entry, "must hold entries only")
        if not entries:
            return self
        return Transcript((*self.entries, *entries), (*self.sizes, *sizes), self.first_seq)

    def split_at(self, index: int) -> tuple[Transcript, Transcript]:
        """What lies before position *index* (0 = the oldest), and the rest."""
        older = Transcript(self.entries[:index], self.sizes[:index], self.first_seq)
        return older, Transcript(self.entries[index:], self.sizes[index:], self.first_seq + index)

    def split_at_budget(self, budget_tokens: int) -> Split:
        """Keep the longest suffix of at most *budget_tokens* in which every result has its call.

        Never skips over an entry that does not fit. Returns this very transcript when nothing overflows.
        Raises InvalidInput for a negative budget.
        """
        if budget_tokens < 0:
            raise InvalidInput("budget_tokens", budget_tokens, "must not be negative")
        boundary, kept_tokens = len(self.entries), 0
        while boundary and kept_tokens + self.sizes[boundary - 1] <= budget_tokens:
            boundary -= 1
            kept_tokens += self.sizes[boundary]
        boundary = paired_boundary(self.entries, boundary)
        if boundary == 0:
            return Split(self, Transcript(first_seq=self.first_seq))
        overflow, retained = self.split_at(boundary)
        return Split(retained, overflow)


@dataclass(frozen=True, slots=True)
class Split:
    """`overflow` then `retained` is the whole transcript, in order."""

    retained: Transcript
    overflow: Transcript = field(default_factory=Transcript)


def parts_opaque(entries: Sequence[Entry], boundary: int) -> bool:
    """Whether *boundary* lies between an opaque item and the output that it belongs to: providers refuse one alone."""
    return (
        0 < boundary < len(entries)
        and entries[boundary - 1].kind is EntryKind.OPAQUE
        and entries[boundary].kind in OUTPUT_KINDS
    )


def paired_boundary(entries: Sequence[Entry], boundary: int) -> int:
    """The first position at or after *boundary* from which every tool result has its call earlier in the run, and
    which parts no opaque item from its output."""
    while True:
        while parts_opaque(entries, boundary):
            boundary += 1
        seen: set[str | None] = set()
        for position in range(boundary, len(entries)):
            entry = entries[position]
            if entry.kind is EntryKind.TOOL_CALL:
                seen.add(entry.tool_call_id)
            elif entry.kind is EntryKind.TOOL_RESULT and entry.tool_call_id not in seen:
                boundary = position + 1
                break
        else:
            return boundary


def closed_boundary(entries: Sequence[Entry], limit: int) -> int:
    """The last position at most *limit* before which every call has its result: no boundary passes an open call, nor
    parts an opaque item from its output.

    A call that stays unanswered although a user message follows will never be answered; it closes nothing off.
    """
    answered_at = _answer_positions(entries)
    boundary, last_answer = 0, -1
    for position in range(min(limit, len(entries))):
        last_answer = max(last_answer, answered_at.get(position, position))
        if last_answer <= position and not parts_opaque(entries, position + 1):
            boundary = position + 1
    return boundary


def _answer_positions(entries: Sequence[Entry]) -> dict[int, int]:
    """Where each call, by its position, is answered: the end of the run while it is open, itself if it never will."""
    answered_at: dict[int, int] = {}
    pending: dict[str | None, int] = {}
    for position, entry in enumerate(entries):
        if entry.kind is EntryKind.TOOL_CALL:
            pending[entry.tool_call_id] = position
            answered_at[position] = len(entries)
        elif entry.kind is EntryKind.TOOL_RESULT and entry.tool_call_id in pending:
            answered_at[pending.pop(entry.tool_call_id)] = position
        elif entry.kind is EntryKind.USER:
            answered_at.update((call, call) for call in pending.values())
    return answered_at


def round_starts(entries: Sequence[Entry]) -> tuple[int, ...]:
    """Positions at which a round begins: model output that follows a user message or a tool result.

    A user message counts to the round that answers it.
    """
    starts: list[int] = []
    previous: EntryKind | None = None
    for position, entry in enumerate(entries):
        is_output = entry.kind in OUTPUT_KINDS
        follows_output = previous in OUTPUT_KINDS
        follows_user = previous is EntryKind.USER
        if (entry.kind is EntryKind.USER and previous is not EntryKind.USER) or (
            is_output and not follows_output and not follows_user
        ):
            starts.append(position)
        previous = entry.kind
    return tuple(starts)
