"""A rotation as a generator: asks a policy what to consolidate, gets it done, and says what came of it.

Around each of the policy's requests stand redaction (of what is shown and of what comes back), chunking (everything
that is removed is shown, in parts that fit the summarizer's window), acceptance (an answer is valid, smaller than its
source and no larger than the policy takes) and escalation (once more, terser; then the extractive summarizer).
"""

from __future__ import annotations

import math
from collections import Counter as Occurrences
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from sessionlib.entries import require_encodable
from sessionlib.errors import Cancelled, InvalidInput, ProviderRejected
from sessionlib.layout import Layout, Method, Record
from sessionlib.ledger_record import ledger_after, ledger_tokens, without_ledger
from sessionlib.policies.contract import Accepted, Opening, Origin, Policy, Rotated, RotationPlan
from sessionlib.policies.output_contract import new_fault
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.steps import Consolidation, Steps
from sessionlib.summaries.chunks import Measure, Shown, next_chunk
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest, Fault
from sessionlib.summaries.extractive import extract as extract_sentences
from sessionlib.summaries.grounding import unsupported_values
from sessionlib.summaries.redaction import Redacted
from sessionlib.summaries.redaction import redact as redact_secrets
from sessionlib.tokens import Counter
from sessionlib.transcript import closed_boundary
from sessionlib.window import Budgets

Extract = Callable[[str, int, Measure], str]
"""Shortens a text to a budget in tokens, without a model; never blank for a text that is not."""

Redact = Callable[[str], Redacted]
"""Replaces the secrets in a text, and counts them."""

SHOWN_FRACTION = 0.5
"""Share of the summarizer's window for what it is shown; the rest is its prompt and answer (spec/summaries C5)."""

EXTRACTIVE_RATIO = 0.5
"""What the extractive summarizer leaves of a source: below what a policy takes, so that it ends the escalation."""

ROUNDING = 1e-6
"""A budget divided by a source and multiplied by it again may fall a hair short of itself."""


def plan_for(
    layout: Layout,
    boundary_seq: int,
    *,
    budgets: Budgets,
    counter: Counter,
    show_span: bool,
    origin: Origin = Origin.ESTIMATED,
    opening: Opening | None = None,
    carries_ledger: bool = False,
) -> RotationPlan:
    """A plan for the part of *layout* up to *boundary_seq* and before any open call; later entries just stay."""
    live = layout.live
    boundary = closed_boundary(live.entries, boundary_seq + 1 - live.first_seq)
    older, _later = live.split_at(boundary)
    return RotationPlan(
        layout=layout.with_live(older),
        budgets=budgets,
        counter=counter,
        show_span=show_span,
        origin=origin,
        opening=opening or Opening(),
        carries_ledger=carries_ledger,
    )


def rotate(
    plan: RotationPlan,
    policy: Policy,
    *,
    summarizer_window_tokens: int,
    cancelled: Callable[[], bool],
    extract: Extract = extract_sentences,
    redact: Redact = redact_secrets,
) -> Steps[RotationOutcome]:
    """Rotate by *policy*; yields `Consolidation` effects. A rotation that would shorten nothing changes nothing, nor
    does one whose layout breaks the output contract.

    Raises Cancelled before and after any effect, and with nothing to do; lets out what an effect raises.
    """
    _stop_if_cancelled(cancelled)
    shown_tokens = max(1, math.floor(summarizer_window_tokens * SHOWN_FRACTION))
    aged, ledger = without_ledger(plan.layout)
    plan = _with_room_for(ledger, plan)
    consolidations = _Consolidations(
        plan=replace(plan, layout=aged),
        policy=policy,
        shown_tokens=shown_tokens,
        cancelled=cancelled,
        extract=extract,
        redact=redact,
    )
    rotated = yield from _decided(consolidations)
    before, after = plan.layout, _with_ledger(plan, rotated.layout, ledger)
    is_changed = rotated.layout is not aged
    fault = new_fault(before, after) if is_changed else ""
    is_noop = bool(fault) or not is_changed or after.conversation_tokens >= before.conversation_tokens
    layout = before if is_noop else after
    return RotationOutcome(
        layout=layout,
        tokens_before=before.conversation_tokens,
        dropped_count=len(before.live) - len(layout.live),
        dropped_tokens=before.live.tokens - layout.live.tokens,
        saturations=rotated.saturations,
        consolidation_count=consolidations.calls.total(),
        prompt_tokens=consolidations.prompt_tokens,
        completion_tokens=consolidations.completion_tokens,
        methods=tuple(consolidations.methods),
        faults=tuple(consolidations.faults),
        redaction_count=consolidations.redaction_count,
        is_noop=is_noop,
        layout_fault=fault,
    )


def _with_room_for(ledger: Record | None, plan: RotationPlan) -> RotationPlan:
    """*plan* with a share for a *ledger* that is there and to be carried along, unless its layout could not converge
    then: the share of an agent that keeps one is refused in such a window."""
    budgets = plan.budgets
    if ledger is None or budgets.ledger_tokens or not plan.carries_ledger:
        return plan
    quota_tokens = ledger_tokens(plan.counter, show_span=plan.show_span)
    stretched_tokens = budgets.stretched_tail_tokens - quota_tokens
    if stretched_tokens < budgets.tail_tokens:
        return plan
    return replace(plan, budgets=replace(budgets, ledger_tokens=quota_tokens, stretched_tail_tokens=stretched_tokens))


def _with_ledger(plan: RotationPlan, layout: Layout, ledger: Record | None) -> Layout:
    """What the policy made of the plan, with the ledger as the last of its records, if there is a share for one."""
    live = plan.layout.live
    if not plan.budgets.ledger_tokens:
        return layout
    leaving = live.entries[: len(live) - len(layout.live)]
    kept = ledger_after(ledger, leaving, live.first_seq, counter=plan.counter, show_span=plan.show_span)
    return replace(layout, records=(*layout.records, kept)) if kept else layout


def _decided(consolidations: _Consolidations) -> Steps[Rotated]:
    """The policy's decision, each of its requests settled on the way."""
    deciding = consolidations.policy.rotate(consolidations.plan)
    answer: Accepted | None = None
    while True:
        try:
            request = next(deciding) if answer is None else deciding.send(answer)
        except StopIteration as stop:
            rotated: Rotated = stop.value
            return rotated
        answer = yield from consolidations.settle(request)


def _stop_if_cancelled(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise Cancelled("the rotation was cancelled")


@dataclass(slots=True, kw_only=True)
class _Consolidations:
    """Settles one rotation's requests, and counts what that took."""

    plan: RotationPlan
    policy: Policy
    shown_tokens: int
    """What one call may show: previous record and material."""
    cancelled: Callable[[], bool]
    extract: Extract
    redact: Redact
    calls: Occurrences[tuple[int, int]] = field(default_factory=Occurrences)
    """Calls by the span that they are for."""
    methods: list[Method] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    redaction_count: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def settle(self, request: ConsolidationRequest) -> Steps[Accepted]:
        """Fold the request's material, chunk by chunk, into one accepted text."""
        request = self._redacted(request)
        source_tokens = self._tokens(request.previous_record) + self._tokens(request.material)
        allowed_tokens = math.floor(self.policy.accepted_ratio(request, self.plan) * source_tokens + ROUNDING)
        folded, rest = _Folded(request.previous_record), request.material
        if self._shown.text(folded.text) > self.shown_tokens // 2:  # a record that large leaves no room beside it
            folded, rest = _Folded(""), f"{request.previous_record}\n{rest}"
        while rest.strip():
            chunk, rest = next_chunk(rest, self.shown_tokens - self._shown.text(folded.text), self._shown)
            if chunk.strip():
                part = replace(request, previous_record=folded.text, material=chunk)
                if rest.strip():  # what is not the last must leave room for the next chunk beside it
                    room_tokens = min(allowed_tokens, self.shown_tokens // 2)
                    folded = yield from self._fold(folded, part, room_tokens, self._shown)
                else:
                    folded = yield from self._fold(folded, part, allowed_tokens, self.plan.counter)
        self.methods.append(folded.method)
        source = f"{request.previous_record}\n{request.material}"
        return Accepted(
            folded.text,
            folded.method,
            folded.rewrite_count,
            folded.said_tokens,
            unsupported_values=unsupported_values(folded.text, source),
        )

    def _redacted(self, request: ConsolidationRequest) -> ConsolidationRequest:
        return replace(
            request, previous_record=self._clean(request.previous_record), material=self._clean(request.material)
        )

    def _clean(self, text: str) -> str:
        redacted = self.redact(text)
        self.redaction_count += redacted.count
        return redacted.text

    def _fold(
        self, folded: _Folded, part: ConsolidationRequest, allowed_tokens: int, measure: Measure
    ) -> Steps[_Folded]:
        """One more chunk folded in: asked for, asked again for something terser, or else extracted.

        What did not fit the summarizer's window is not asked for again: the second request is no smaller.
        """
        source_tokens = measure.text(part.previous_record) + measure.text(part.material)
        allowed_tokens = max(1, min(allowed_tokens, source_tokens - 1))
        answer, method = (yield from self._ask(part)), Method.NORMAL
        said_tokens = self._tokens(answer.text) - (self._tokens(part.previous_record) if folded.rewrite_count else 0)
        refusal = self._refusal(answer, allowed_tokens, measure)
        if refusal and not refusal.startswith(Fault.SIZE):
            answer, method = (yield from self._ask(replace(part, terse=True))), Method.TERSE
            refusal = self._refusal(answer, allowed_tokens, measure)
        text = answer.text
        if refusal:
            target_tokens = min(allowed_tokens, part.budget_tokens, math.floor(source_tokens * EXTRACTIVE_RATIO))
            source = f"{part.previous_record}\n{part.material}".strip()
            text, method = self.extract(source, max(1, target_tokens), measure), Method.EXTRACTIVE
        return _Folded(
            text,
            said_tokens=folded.said_tokens + max(0, said_tokens),
            rewrite_count=folded.rewrite_count + 1,
            method=max(folded.method, method, key=list(Method).index),
        )

    def _ask(self, request: ConsolidationRequest) -> Generator[Consolidation, Any, Consolidated]:
        """One call of the summarizer, named by its span and how many were made for that span before."""
        _stop_if_cancelled(self.cancelled)
        span = (request.first_seq, request.last_seq)
        attempt = self.calls[span]
        self.calls[span] += 1
        result: Consolidated = yield Consolidation(request, attempt)
        _stop_if_cancelled(self.cancelled)
        if not isinstance(result.text, str):
            raise ProviderRejected(f'the summarizer answered nothing for tier {request.tier}; at least "" is due')
        self.prompt_tokens += result.prompt_tokens
        self.completion_tokens += result.completion_tokens
        self.redaction_count += result.redaction_count
        return replace(result, text=self._clean(result.text.strip()))

    def _refusal(self, answer: Consolidated, allowed_tokens: int, measure: Measure) -> str:
        """Why an answer is not accepted, as it is noted; "" if it is."""
        fault = answer.fault or _text_fault(answer.text)
        if not fault and (tokens := measure.text(answer.text)) > allowed_tokens:
            fault = f"{Fault.VALIDATION}: the answer takes {tokens:,} tokens; {allowed_tokens:,} are accepted"
        if fault:
            self.faults.append(fault)
        return fault

    def _tokens(self, text: str) -> int:
        return self.plan.counter.text(text)

    @property
    def _shown(self) -> Shown:
        return Shown(self.plan.counter)


def _text_fault(text: str) -> str:
    if not text:
        return f"{Fault.VALIDATION}: the answer is blank"
    try:
        require_encodable("text", text)
    except InvalidInput:
        return f"{Fault.VALIDATION}: the answer holds a lone surrogate"
    return ""


@dataclass(frozen=True, slots=True)
class _Folded:
    """What the chunks so far became."""

    text: str
    said_tokens: int = 0
    """Tokens that the summarizer said at first, each answer less the record that it was shown."""
    rewrite_count: int = 0
    method: Method = Method.NORMAL
