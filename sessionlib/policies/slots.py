"""slots: whole rounds and counted slots; a full tier becomes one slot of the next (spec/tiers A15).

Nothing is summarized more than once for each tier, three times in its life, and how much stays verbatim follows from
how soon the window was full again: levels. Where everything is full, the oldest slot leaves, and that is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InvalidInput
from sessionlib.layout import Level, Record, framing_tokens
from sessionlib.policies.ageing import Tally
from sessionlib.policies.contract import Consolidating, Origin, Rotated, RotationPlan
from sessionlib.policies.figures import AgeingFigures, Fraction, Shares, Tokens
from sessionlib.policies.slots_shelf import SLOTS_PER_TIER, TIER_COUNT, Shelf
from sessionlib.policies.tail import choose_tail
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.transcript import Split, round_starts

LEVELS = tuple(Level)
"""From the lowest on."""

QUIET_TAILS = 2
"""Twice as many rounds since the last rotation as stay verbatim relax the level; no more than stay raise it (A15)."""

LEAST_FRAMINGS = 2
"""A slot holds at least twice its framing: half of it is text."""


def escalated(level: Level) -> Level:
    """The next higher level; the highest stays."""
    return LEVELS[min(LEVELS.index(level) + 1, len(LEVELS) - 1)]


def relaxed(level: Level) -> Level:
    """The next lower level; the lowest stays."""
    return LEVELS[max(LEVELS.index(level) - 1, 0)]


def rounds_kept(level: Level, most: int) -> int:
    """Rounds that stay verbatim at a level, of *most* at the lowest: all, a half, a quarter; at least one."""
    return max(1, most >> LEVELS.index(level))


class Slots(AgeingFigures):
    """The policy of spec/tiers A15. A frozen configuration value."""

    kind: Literal["slots"] = "slots"
    verbatim_rounds: Annotated[int, Field(gt=0)] = 20
    """Rounds that stay verbatim; a maximum, not a quota: no more of them than the tail holds."""
    tail_fraction: Fraction = 0.20
    """Twice what other policies keep: at the higher levels a half and a quarter of these rounds stay."""
    tail_tokens: Tokens | None = None
    """What the verbatim rounds may take, in tokens, in place of the fraction."""
    slot_fraction: Fraction = 0.025
    slot_tokens: Tokens | None = None
    """What a slot may take as it is seeded, in tokens, in place of the fraction."""

    def shares(self, effective_tokens: int, framing: int) -> Shares:
        """Raises InvalidInput for an absolute slot that holds little but framing."""
        least_tokens = LEAST_FRAMINGS * framing
        if self.slot_tokens is not None and self.slot_tokens < least_tokens:
            raise InvalidInput("slot_tokens", self.slot_tokens, f"must be at least {least_tokens}")
        slot_tokens = self.slot_tokens or max(math.floor(effective_tokens * self.slot_fraction), least_tokens)
        return Shares(
            tail_tokens=self.tail_tokens or math.floor(effective_tokens * self.tail_fraction),
            record_tokens=slot_tokens * SLOTS_PER_TIER * TIER_COUNT,
        )

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:
        """Each request's budget is the most that its record may take."""
        return min(1.0, request.budget_tokens / plan.counter.text(request.material))

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Record the older rounds in one slot at the settled level. Keeps verbatim what has no record."""
        tally = Tally(plan, self.saturation_ratio)
        rounds = _Rounds.of(plan, self.verbatim_rounds)
        pressure = rounds.pressure
        shelf = Shelf(plan, tally, pressure.level)
        yield from shelf.tidy()
        if pressure.is_beyond_levels:
            shelf.let_go()
        split = rounds.split(pressure.level, framing_tokens(plan.counter, show_span=plan.show_span))
        fresh = yield from shelf.record(split.overflow)
        yield from shelf.fit()
        is_changed = shelf.records != plan.layout.records
        live = split.retained if fresh else plan.layout.live
        records = _stamped(shelf.records, pressure.level, plan.layout.live.next_seq - 1)
        return Rotated(
            layout=replace(plan.layout, records=records, live=live) if is_changed else plan.layout,
            saturations=tuple(tally.saturations),
            consolidation_count=tally.consolidation_count,
        )


def _stamped(records: Sequence[Record], level: Level, seen_seq: int) -> tuple[Record, ...]:
    """The newest record tells the next rotation how hard the window pressed, and up to where this one saw."""
    if not records:
        return ()
    return (*records[:-1], replace(records[-1], level=level, rotated_seq=seen_seq))


@dataclass(frozen=True, slots=True)
class Pressure:
    """The level that a rotation settles on."""

    level: Level
    is_beyond_levels: bool = False
    """The window presses, and there is no higher level: something has to go."""


def settled(level: Level, rounds_since: int, most: int) -> Pressure:
    """The level after *level*, *rounds_since* the last rotation, where *most* rounds stay verbatim at the lowest."""
    if rounds_since <= most:
        return Pressure(escalated(level), is_beyond_levels=level is LEVELS[-1])
    return Pressure(relaxed(level) if rounds_since >= QUIET_TAILS * most else level)


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The live entries as whole rounds."""

    plan: RotationPlan
    starts: tuple[int, ...]
    """Position of the first entry of each."""
    fitting: int
    """How many of the newest the tail has room for."""
    most: int
    """How many of them stay at the lowest level."""

    @classmethod
    def of(cls, plan: RotationPlan, verbatim_rounds: int) -> _Rounds:
        starts = whole_round_starts(plan.layout.live.entries)
        boundary = len(choose_tail(plan).overflow)
        fitting = sum(1 for start in starts if start >= boundary)
        return cls(plan, starts, fitting, max(1, min(verbatim_rounds, fitting)))

    @property
    def pressure(self) -> Pressure:
        """From the level of the last rotation and the rounds since.

        Without one before, or where the line is not passed and somebody asked for this one, nothing presses.
        """
        records, live = self.plan.layout.records, self.plan.layout.live
        newest = records[-1] if records else None
        if newest is None or newest.level is None:
            return Pressure(LEVELS[0])
        if not self._is_due:
            return Pressure(newest.level)
        rounds_since = sum(1 for start in self.starts if live.first_seq + start > newest.rotated_seq)
        return settled(newest.level, rounds_since, self.most)

    @property
    def _is_due(self) -> bool:
        is_past_line = self.plan.layout.conversation_tokens >= self.plan.budgets.line_tokens
        return is_past_line or self.plan.origin is Origin.REPORTED

    def split(self, level: Level, framing: int) -> Split:
        """The rounds that stay, and the older ones: at least one, and as many as a record is smaller than.

        The line is measured in tokens and the tail counted in rounds: a rotation that moves nothing would ride on.
        """
        live = self.plan.layout.live
        kept = min(rounds_kept(level, self.most), self.fitting)
        boundaries = (*self.starts[len(self.starts) - kept :], len(live))
        worthwhile = (at for at in boundaries if sum(live.sizes[:at]) > framing + 1)
        older, retained = live.split_at(next(worthwhile, len(live)))
        return Split(retained, older)


def whole_round_starts(entries: Sequence[Entry]) -> tuple[int, ...]:
    """Positions at which a round begins, the first always at 0; none lies between a call and its result."""
    starts, awaited = frozenset(round_starts(entries)), set[str | None]()
    found: list[int] = []
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        if entry.kind is EntryKind.TOOL_RESULT:
            awaited.add(entry.tool_call_id)
        elif entry.kind is EntryKind.TOOL_CALL:
            awaited.discard(entry.tool_call_id)
        if position == 0 or (position in starts and not awaited):
            found.append(position)
    return tuple(reversed(found))
