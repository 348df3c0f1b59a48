"""The tiers of slots while one rotation ages them: what arrives is placed, what is full is folded, the oldest goes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from sessionlib.entries import render
from sessionlib.layout import Level, Record, framing_tokens, make_record, seeded_record
from sessionlib.policies.ageing import Tally, cut_record, unsupported_in
from sessionlib.policies.contract import Accepted, RotationPlan, Saturation, SaturationReason
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.transcript import Transcript

SLOTS_PER_TIER = 4
"""Records that a tier holds; the next to arrive makes them one record of the next tier (spec/tiers A15)."""

TIER_COUNT = 3
"""Tiers of records (spec/tiers A15): all are full after 4 + 16 + 64 rotations."""

Recording = Generator[ConsolidationRequest, Accepted, Record | None]
Ageing = Generator[ConsolidationRequest, Accepted, None]


@dataclass(slots=True)
class Shelf:
    """The slots of each tier, oldest first."""

    plan: RotationPlan
    tally: Tally
    level: Level
    tiers: dict[int, list[Record]] = field(init=False)

    def __post_init__(self) -> None:
        """Take over the records that are there: whatever policy made them, a coarser one is an older one."""
        self.tiers = {tier: [] for tier in range(1, TIER_COUNT + 1)}
        tier = 1
        for record in reversed(self.plan.layout.records):
            tier = min(TIER_COUNT, max(tier, record.tier))
            self.tiers[tier].insert(0, self._in_tier(record, tier))

    @property
    def records(self) -> tuple[Record, ...]:
        """All slots as they are seeded, oldest first."""
        return tuple(record for tier in sorted(self.tiers, reverse=True) for record in self.tiers[tier])

    def tidy(self) -> Ageing:
        """Bring each tier down to its number of slots: a policy that does not count may have left more."""
        for tier in range(1, TIER_COUNT + 1):
            slots = self.tiers[tier]
            excess = len(slots) - SLOTS_PER_TIER
            if excess <= 0:
                continue
            peers, coarser = slots[: excess + 1], min(tier + 1, TIER_COUNT)
            folded = yield from self._folded(coarser, peers)
            if folded:
                del slots[: len(peers)]
                self.tiers[coarser].insert(0 if coarser == tier else len(self.tiers[coarser]), folded)

    def record(self, older: Transcript) -> Recording:
        """Record *older* in a slot of tier 1, in one request; None if there is nothing to say or nothing to gain.

        Entries that got no record stay verbatim: that is no loss.
        """
        text_tokens = min(self._text_tokens, older.tokens - self._framing - 1)
        if text_tokens < 1:
            return None
        material, span = render(older.entries), (older.first_seq, older.next_seq - 1)
        fresh = yield from self._recorded(1, material, span, text_tokens)
        if fresh is None or fresh.tokens >= older.tokens:
            return None
        yield from self._place(1, fresh)
        return fresh

    def let_go(self) -> None:
        """The oldest slot of all, so of the coarsest tier that has any, leaves with nothing in its place."""
        self._let_go_of(self.records[0].tier)

    def fit(self) -> Ageing:
        """Condense slots that are above their size, the largest first, until all are within the records' budget.

        Slots that are made here are within it; another policy's, or those of a larger window, may not be.
        """
        large = [record for record in self.records if record.tokens > self._slot_tokens]
        for record in sorted(large, key=lambda record: record.tokens, reverse=True):
            if sum(kept.tokens for kept in self.records) <= self.plan.budgets.record_tokens:
                return
            slots = self.tiers[record.tier]
            at = slots.index(record)
            condensed = (yield from self._folded(record.tier, [record])) or self._cut(record)
            slots[at : at + 1] = [condensed] if condensed else []

    def _place(self, tier: int, arriving: Record) -> Ageing:
        """Put a record at the newest end of a tier; a full one makes room first."""
        slots = self.tiers[tier]
        if len(slots) >= SLOTS_PER_TIER:
            yield from self._make_room(tier)
        slots.append(arriving)

    def _make_room(self, tier: int) -> Ageing:
        """Fold a full tier into one slot of the next. The coarsest is a ring: its oldest slot goes.

        A tier is cleared only for a record that was written: where there is none, it lets go of its oldest as well.
        """
        folded = None
        if tier < TIER_COUNT:
            folded = yield from self._folded(tier + 1, self.tiers[tier])
        if folded is None:
            self._let_go_of(tier)
        else:
            self.tiers[tier].clear()
            yield from self._place(tier + 1, folded)

    def _let_go_of(self, tier: int) -> None:
        leaving = self.tiers[tier].pop(0)
        self.tally.saturations.append(Saturation(SaturationReason.MATERIAL_DROPPED, tier, leaving.tokens, 0))

    def _folded(self, tier: int, peers: Sequence[Record]) -> Recording:
        """One record in the place of *peers*; None if the answer is blank."""
        material = "\n".join(record.text for record in peers)
        span = peers[0].first_seq, peers[-1].last_seq
        return (yield from self._recorded(tier, material, span, self._text_tokens, peers))

    def _recorded(
        self, tier: int, material: str, span: tuple[int, int], text_tokens: int, peers: Sequence[Record] = ()
    ) -> Recording:
        """Ask once for the record of *material*; what is above the size of a slot is cut to its newest text."""
        first_seq, last_seq = span
        answer = yield from self.tally.ask(
            ConsolidationRequest(
                tier=tier,
                first_seq=first_seq,
                last_seq=last_seq,
                material=material,
                budget_tokens=text_tokens,
                level=self.level,
            )
        )
        if not answer.text:
            return None
        record = make_record(
            self.plan.counter,
            answer.text,
            first_seq,
            last_seq,
            show_span=self.plan.show_span,
            tier=tier,
            rewrite_count=answer.rewrite_count + (peers[0].rewrite_count if peers else 0),
            method=answer.method,
            source_tokens=self.plan.counter.text(material),
            unsupported_values=unsupported_in(
                answer.text, answer.unsupported_values, *(peer.unsupported_values for peer in peers)
            ),
        )
        return record if record.tokens <= self._slot_tokens else self._cut(record)

    def _cut(self, record: Record) -> Record | None:
        """The newest text of a record that is above the size of a slot, which is reported."""
        self.tally.over_budget(record.tier, record.source_tokens, self.plan.counter.text(record.text))
        return cut_record(record, self._text_tokens, self._slot_tokens, self.plan)

    def _in_tier(self, record: Record, tier: int) -> Record:
        if record.tier == tier:
            return record
        moved = replace(record, tier=tier)
        seeded = seeded_record(moved, show_span=self.plan.show_span)
        return replace(moved, tokens=self.plan.counter.entry(seeded))

    @property
    def _slot_tokens(self) -> int:
        """What a slot may take as it is seeded."""
        return self.plan.budgets.record_tokens // (SLOTS_PER_TIER * TIER_COUNT)

    @property
    def _text_tokens(self) -> int:
        return self._slot_tokens - self._framing

    @property
    def _framing(self) -> int:
        return framing_tokens(self.plan.counter, show_span=self.plan.show_span)
