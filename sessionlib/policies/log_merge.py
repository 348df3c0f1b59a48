"""log_merge: one budget for all records; neighbours are merged like the digits of a binary counter.

What keeps a fact is how seldom it is rewritten (spec/retention). Merging only the finest neighbours, each time into
about one of them, rewrites the oldest text a number of times that grows with the logarithm of the rotations, and
leaves the oldest records, at the front of the prompt, alone.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Literal

from sessionlib.entries import render
from sessionlib.errors import InvalidInput
from sessionlib.layout import Record, framing_tokens, make_record
from sessionlib.policies.ageing import Tally, cut_record, newest_text, unsupported_in
from sessionlib.policies.contract import Accepted, Consolidating, Rotated, RotationPlan
from sessionlib.policies.figures import AgeingFigures, Fraction, Shares, Tokens
from sessionlib.policies.tail import choose_tail
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.transcript import Transcript

FRESH_DIVISOR = 3
"""A fresh record is asked for, and extracted, within a third of the record budget."""

ACCEPTED_DIVISOR = 2
"""A fresh record that a summarizer made larger than that is accepted up to half of the budget.

Asking again shows everything again, and costs as much as the first answer: with a summarizer three times as wordy that
made 1.8 times the tokens (docs/retention.md). Above a half the oldest text would be rewritten more often: 28 times in
400 rotations where records of up to a half make it 17.
"""

MERGED_DIVISOR = 5
"""A merged record may take a fifth of the record budget, so that there is always a pair to choose from.

Measured over 400 rotations with merges at 0.5 to 0.6: with thirds and fifths the oldest text is rewritten 15 times at
most; without these limits, and fresh records of half the budget, 28 times at 0.5 and 400 times at 0.6.
"""

LEAST_FRAMINGS = 4
"""The record budget holds at least this many times the framing of a record: two of them, half of each text."""

Merging = Generator[ConsolidationRequest, Accepted, tuple[Record, ...]]


class LogMerge(AgeingFigures):
    """The default policy. A frozen configuration value."""

    kind: Literal["log_merge"] = "log_merge"
    tail_fraction: Fraction = 0.10
    tail_tokens: Tokens | None = None
    """What stays verbatim, in tokens, in place of the fraction."""
    record_fraction: Fraction = 0.20
    """All records as seeded. The grid of docs/retention.md, a window of 32,000: records of 0.20 still tell 80 % of what
    was decided, of 0.10 69 %, of 0.30 no more; a turn costs 3 % more than with 0.10."""
    record_tokens: Tokens | None = None
    """All records as seeded, in tokens, in place of the fraction."""
    merge_ratio: Fraction = 0.6
    """What a merged record may be at most, as a share of its source: at 0.75 the oldest text is rewritten ever more
    often (DESIGN 6)."""

    def shares(self, effective_tokens: int, framing: int) -> Shares:
        """Raises InvalidInput for an absolute record budget that holds little but framing."""
        least_tokens = LEAST_FRAMINGS * framing
        if self.record_tokens is not None and self.record_tokens < least_tokens:
            raise InvalidInput("record_tokens", self.record_tokens, f"must be at least {least_tokens}")
        return Shares(
            tail_tokens=self.tail_tokens or math.floor(effective_tokens * self.tail_fraction),
            record_tokens=self.record_tokens or max(math.floor(effective_tokens * self.record_fraction), least_tokens),
        )

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:
        """A merge may take its request's budget; a fresh record more, if the summarizer made it so."""
        allowed_tokens = request.budget_tokens
        if request.tier == 1:
            allowed_tokens = max(allowed_tokens, _text_cap(plan, ACCEPTED_DIVISOR))
        return min(1.0, allowed_tokens / plan.counter.text(request.material))

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Consolidate what leaves the tail, then merge until the records fit. Keeps verbatim what has no record."""
        tally = Tally(plan, self.saturation_ratio)
        split = choose_tail(plan)
        fresh = yield from _fresh_record(plan, tally, split.overflow)
        records = yield from self._fitted(plan, tally, [*plan.layout.records, *fresh])
        live = split.retained if fresh else plan.layout.live
        is_changed = records != plan.layout.records
        return Rotated(
            layout=replace(plan.layout, records=records, live=live) if is_changed else plan.layout,
            saturations=tuple(tally.saturations),
            consolidation_count=tally.consolidation_count,
        )

    def _fitted(self, plan: RotationPlan, tally: Tally, records: list[Record]) -> Merging:
        """Merge neighbours until the records fit their budget; a single one that does not is condensed by itself."""
        budget_tokens = plan.budgets.record_tokens
        while sum(record.tokens for record in records) > budget_tokens and len(records) > 1:
            at = next_pair(records)
            records[at : at + 2] = [(yield from self._merged(plan, tally, records[at : at + 2]))]
        if records and records[0].tokens > budget_tokens:
            records = yield from self._condensed(plan, tally, records[0])
        return tuple(records)

    def _merged(
        self, plan: RotationPlan, tally: Tally, peers: Sequence[Record]
    ) -> Generator[ConsolidationRequest, Accepted, Record]:
        """One record in the place of *peers*, one tier above them, whatever the summarizer answers."""
        material = "\n".join(record.text for record in peers)
        source_tokens = plan.counter.text(material)
        allowed_tokens = max(1, min(math.floor(source_tokens * self.merge_ratio), _text_cap(plan, MERGED_DIVISOR)))
        tier = max(record.tier for record in peers) + 1
        answer = yield from tally.ask(
            ConsolidationRequest(
                tier=tier,
                first_seq=peers[0].first_seq,
                last_seq=peers[-1].last_seq,
                material=material,
                budget_tokens=allowed_tokens,
            )
        )
        if not answer.text:
            tally.over_budget(tier, source_tokens, allowed_tokens)
        text = answer.text or newest_text(material, allowed_tokens, plan.counter) or peers[-1].text
        return make_record(
            plan.counter,
            text,
            peers[0].first_seq,
            peers[-1].last_seq,
            show_span=plan.show_span,
            tier=tier,
            rewrite_count=peers[0].rewrite_count + answer.rewrite_count,
            method=answer.method,
            source_tokens=source_tokens,
            unsupported_values=unsupported_in(
                text, answer.unsupported_values, *(record.unsupported_values for record in peers)
            ),
        )

    def _condensed(
        self, plan: RotationPlan, tally: Tally, record: Record
    ) -> Generator[ConsolidationRequest, Accepted, list[Record]]:
        """A record within the whole budget, in the place of one that alone is above it: the budget has shrunk."""
        condensed = yield from self._merged(plan, tally, [record])
        tally.over_budget(condensed.tier, plan.counter.text(record.text), plan.counter.text(condensed.text))
        budget_tokens = plan.budgets.record_tokens
        fitting = cut_record(condensed, plan.counter.text(condensed.text), budget_tokens, plan)
        return [fitting] if fitting else []


def next_pair(records: Sequence[Record]) -> int:
    """Position of the neighbours to merge next: the pair with the lowest highest tier, the oldest such pair."""
    return min(range(len(records) - 1), key=lambda at: max(records[at].tier, records[at + 1].tier))


def _fresh_record(
    plan: RotationPlan, tally: Tally, overflow: Transcript
) -> Generator[ConsolidationRequest, Accepted, tuple[Record, ...]]:
    """The record of what leaves the tail; none if there is nothing that a record would be smaller than."""
    framing = framing_tokens(plan.counter, show_span=plan.show_span)
    allowed_tokens = min(_text_cap(plan, FRESH_DIVISOR), overflow.tokens - framing - 1)
    if allowed_tokens < 1:
        return ()
    material = render(overflow.entries)
    request = ConsolidationRequest(
        tier=1,
        first_seq=overflow.first_seq,
        last_seq=overflow.next_seq - 1,
        material=material,
        budget_tokens=allowed_tokens,
    )
    answer = yield from tally.ask(request)
    if not answer.text:
        return ()
    record = make_record(
        plan.counter,
        answer.text,
        request.first_seq,
        request.last_seq,
        show_span=plan.show_span,
        rewrite_count=answer.rewrite_count,
        method=answer.method,
        source_tokens=plan.counter.text(material),
        unsupported_values=answer.unsupported_values,
    )
    return (record,) if record.tokens < overflow.tokens else ()


def _text_cap(plan: RotationPlan, divisor: int) -> int:
    """The most that the text of a record may take, in tokens: its part of the budget, less its framing."""
    framing = framing_tokens(plan.counter, show_span=plan.show_span)
    return max(plan.budgets.record_tokens // divisor, 2 * framing) - framing
