"""tiers: one running record per tier; a record that outgrows its tier moves into the next (spec/tiers A8).

The tiers of a layout are its records: the record of tier i, if there is one, has `tier` i. Blank answers empty a tier;
in a rotation none arrives, since the extractive summarizer answers instead.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator

from sessionlib.entries import render
from sessionlib.layout import Method, Record, framing_tokens, make_record
from sessionlib.policies.ageing import Tally, cut_record, unsupported_in
from sessionlib.policies.contract import Accepted, Consolidating, Origin, Rotated, RotationPlan
from sessionlib.policies.figures import AgeingFigures, Fraction, Shares, Tokens
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.transcript import Transcript

Ageing = Generator[ConsolidationRequest, Accepted, None]
Recording = Generator[ConsolidationRequest, Accepted, Record | None]


def _require_shrinking(shares: tuple[float, ...]) -> tuple[float, ...]:
    if len(shares) < 2:
        raise ValueError("there must be tier 0 and at least one coarser tier, or nothing can age")
    if any(coarser > finer for finer, coarser in pairwise(shares)):
        raise ValueError("a coarser tier must not have more room than the one before it")
    return shares


class Tiers(AgeingFigures):
    """The policy of spec/tiers A8. A frozen configuration value; tier 0, the verbatim tail, comes first."""

    kind: Literal["tiers"] = "tiers"
    tier_fractions: Annotated[tuple[Fraction, ...], AfterValidator(_require_shrinking)] = (0.10, 0.043, 0.032, 0.025)
    """Shares of the effective window; the coarse ones are 0.10 in the proportions of the spec's 1200, 900 and 700."""
    tier_tokens: Annotated[tuple[Tokens, ...], AfterValidator(_require_shrinking)] | None = None
    """Budgets in tokens of text, in place of the fractions."""

    def shares(self, effective_tokens: int, framing: int) -> Shares:
        tier_tokens = self.tier_tokens or tuple(
            max(1, math.floor(effective_tokens * fraction)) for fraction in self.tier_fractions
        )
        return Shares(
            tail_tokens=tier_tokens[0],
            record_tokens=sum(tier_tokens[1:]) + framing * len(tier_tokens[1:]),
            tier_tokens=tier_tokens,
        )

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:  # noqa: ARG002 - every policy's
        """Anything smaller than its source: what a tier cannot hold moves on."""
        return 1.0

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Age what overflows tier 0 through the tiers. The same layout, and no call, if nothing does."""
        tally = Tally(plan, self.saturation_ratio)
        cascade = _Cascade(plan, tally)
        retained, overflow = overflowing(plan)
        if overflow:
            last_seq = overflow.next_seq - 1
            yield from cascade.age(1, _Material(render(overflow.entries), overflow.first_seq, last_seq))
        records = cascade.records()
        is_changed = overflow or records != plan.layout.records
        return Rotated(
            layout=replace(plan.layout, records=records, live=retained) if is_changed else plan.layout,
            saturations=tuple(tally.saturations),
            consolidation_count=tally.consolidation_count,
        )


def overflowing(plan: RotationPlan) -> tuple[Transcript, Transcript]:
    """What tier 0 retains, and what overflows it.

    If the provider reported that the line is passed and nothing overflows, everything does: our estimate may not veto
    a measured alarm, and how much of it to believe cannot be told in the provider's tokens.
    """
    live = plan.layout.live
    split = live.split_at_budget(plan.budgets.tail_tokens)
    if not split.overflow and plan.origin is Origin.REPORTED:
        split = live.split_at_budget(0)
    return split.retained, split.overflow


@dataclass(frozen=True, slots=True)
class _Material:
    """Text on its way into a tier, and the entries it stands for."""

    text: str
    first_seq: int
    last_seq: int
    rewrite_count: int = 0
    unsupported_values: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: Record) -> _Material:
        span = record.first_seq, record.last_seq
        return cls(record.text, *span, record.rewrite_count, record.unsupported_values)


@dataclass(slots=True)
class _Cascade:
    """The coarse tiers of one rotation while they age."""

    plan: RotationPlan
    tally: Tally
    tiers: dict[int, Record] = field(init=False)

    def __post_init__(self) -> None:
        self.tiers = {}
        for record in self.plan.layout.records:
            self._join(record)

    @property
    def coarsest(self) -> int:
        return len(self.plan.budgets.tier_tokens) - 1

    def _join(self, newer: Record) -> None:
        """Take over a record; those of a policy that keeps several to a tier become one text."""
        tier = min(newer.tier, self.coarsest)
        older = self.tiers.get(tier)
        if older is None and tier == newer.tier:
            self.tiers[tier] = newer
        else:
            material = _Material.of(older or newer)
            text = f"{older.text}\n{newer.text}" if older else newer.text
            values = unsupported_in(text, material.unsupported_values, newer.unsupported_values)
            joined = replace(material, text=text, last_seq=newer.last_seq, unsupported_values=values)
            self.tiers[tier] = self._make(tier, joined, newer.method)

    def age(self, tier: int, material: _Material) -> Ageing:
        """Fold *material* into a tier; if the result does not fit, the older record moves on and makes room.

        The record that moves is always the older one, so coarser always means older. At the coarsest tier it is let go
        whole: records are the front of the prompt, and shaving them would move it at every rotation.
        """
        previous = self.tiers.get(tier)
        merged = yield from self._recorded(tier, material, previous)
        if merged is None or self._fits(merged):
            self._store(tier, merged)
            return
        if previous is None:
            self._store_cut(merged)
            return
        if tier < self.coarsest:
            yield from self.age(tier + 1, _Material.of(previous))
        alone = yield from self._recorded(tier, material, None)
        if alone is None or self._fits(alone):
            self._store(tier, alone)
        else:
            self._store_cut(alone)

    def records(self) -> tuple[Record, ...]:
        """The tiers' records, coarsest first, each within its budget even if that has shrunk since."""
        for record in list(self.tiers.values()):
            if not self._fits(record):
                self._store_cut(record)
        return tuple(self.tiers[tier] for tier in sorted(self.tiers, reverse=True))

    def _recorded(self, tier: int, material: _Material, previous: Record | None) -> Recording:
        """Ask for the record of *material*, or of *previous* with it; None if the answer is blank."""
        oldest = _Material.of(previous) if previous else material
        answer = yield from self.tally.ask(
            ConsolidationRequest(
                tier=tier,
                first_seq=oldest.first_seq,
                last_seq=material.last_seq,
                material=material.text,
                previous_record=previous.text if previous else "",
                budget_tokens=self.plan.budgets.tier_tokens[tier],
            )
        )
        if not answer.text:
            return None
        source_tokens = self._tokens(material.text) + (self._tokens(previous.text) if previous else 0)
        rewritten = replace(
            oldest,
            text=answer.text,
            last_seq=material.last_seq,
            rewrite_count=oldest.rewrite_count + answer.rewrite_count,
            unsupported_values=unsupported_in(
                answer.text, answer.unsupported_values, oldest.unsupported_values, material.unsupported_values
            ),
        )
        return self._make(tier, rewritten, answer.method, source_tokens)

    def _store(self, tier: int, record: Record | None) -> None:
        if record is None:
            self.tiers.pop(tier, None)
        else:
            self.tiers[tier] = record

    def _store_cut(self, record: Record) -> None:
        """Store the newest text of a record that its tier cannot hold, and report it."""
        budget_tokens, text_tokens = self.plan.budgets.tier_tokens[record.tier], self._tokens(record.text)
        self.tally.over_budget(record.tier, record.source_tokens, text_tokens)
        self._store(record.tier, cut_record(record, budget_tokens, budget_tokens + self._framing, self.plan))

    def _make(self, tier: int, material: _Material, method: Method, source_tokens: int = 0) -> Record:
        return make_record(
            self.plan.counter,
            material.text,
            material.first_seq,
            material.last_seq,
            show_span=self.plan.show_span,
            tier=tier,
            rewrite_count=material.rewrite_count,
            method=method,
            source_tokens=source_tokens or self._tokens(material.text),
            unsupported_values=material.unsupported_values,
        )

    def _fits(self, record: Record) -> bool:
        """Whether a record is within its tier's budget, its seeded size within that and the framing."""
        budget_tokens = self.plan.budgets.tier_tokens[record.tier]
        return self._tokens(record.text) <= budget_tokens and record.tokens <= budget_tokens + self._framing

    @property
    def _framing(self) -> int:
        return framing_tokens(self.plan.counter, show_span=self.plan.show_span)

    def _tokens(self, text: str) -> int:
        return self.plan.counter.text(text)
