"""Run a session's pending rotation: begin, consolidate, adopt. Let go of provider sessions that nobody uses."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from sessionlib.archive import pack
from sessionlib.errors import (
    InvalidInput,
    ProviderError,
)
from sessionlib.policies.contract import Opening, Origin
from sessionlib.policies.work_room import shows_hint
from sessionlib.policies.work_room_state import opened
from sessionlib.recount import recounted
from sessionlib.rooms import is_used_up
from sessionlib.rotation import plan_for, rotate
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.running.engine import (
    Engine,
    Held,
    Ran,
    StepLog,
    new_token,
    observer_of,
    patiently,
    run_granted,
)
from sessionlib.running.history import indexed
from sessionlib.running.openings import opening_of
from sessionlib.steps import WORKLOAD_STEP, Consolidation, Effect, EffectResult, drive
from sessionlib.stores.contract import (
    Adoption,
    Grant,
    Lane,
    Room,
    Snapshot,
)
from sessionlib.stores.orphans import orphan_of
from sessionlib.summaries.contract import Summarizer, Workload
from sessionlib.window import Budgets
from sessionlib.window_facts import learned
from sessionlib.workloads import WorkloadKind

log = logging.getLogger(__name__)


def run_rotation(engine: Engine, session_id: str, known: Snapshot | None = None) -> Ran:
    """Run the session's pending rotation. As `run_turn` otherwise."""
    return run_granted(
        engine, session_id, Lane.ROTATION, known, lambda grant, held: RotationRun(engine, grant, held).run()
    )


def run_disposals(engine: Engine, session_id: str) -> int:
    """Let the provider forget the sessions that nobody uses any more; how many.

    Raises ProviderError, or InvalidInput for a provider that is not in the catalog, when all were tried: what failed
    stays due.
    """
    count, failure = 0, None
    for handle in engine.store.handles_to_dispose(session_id):
        try:
            engine.catalog.provider(handle.provider).dispose(handle.handle, handle.parent)
        except (ProviderError, InvalidInput) as exc:
            failure = exc
            continue
        engine.store.disposed(session_id, handle.handle)
        count += 1
    if failure is not None:
        raise failure
    return count


def run_orphan(engine: Engine, session_id: str, orphan_id: str) -> None:
    """Let the provider forget what it held for a session that was purged.

    Raises ProviderError, or InvalidInput for a provider that is not in the catalog: it stays due.
    """
    handle = orphan_of(orphan_id)
    engine.catalog.provider(handle.provider).dispose(handle.handle, handle.parent)
    engine.store.let_go(session_id, orphan_id)


class RotationRun:
    """One granted rotation."""

    def __init__(self, engine: Engine, grant: Grant, held: Held) -> None:
        self._engine, self._grant, self._held = engine, grant, held
        self._observe = observer_of(engine, grant)
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._counter = self._agent.own_counter
        self._snapshot = recounted(grant.snapshot, self._agent, self._counter)
        self._steps = StepLog(engine, grant)
        self._is_reset = self._agent.policy.kind == "work_room"

    def run(self) -> Ran:
        if self._is_uncalled_for():
            return self._dropped()
        outcome = self._decided()
        if outcome.layout_fault:
            return self._let_be(f"invalid_layout:{outcome.layout_fault.replace(' ', '_')}", outcome.layout_fault)
        if outcome.is_noop:
            return self._let_be("no_gain", "the rotation would shorten nothing")
        adopted = self._engine.store.adopt(self._grant, self._adoption(outcome))
        if adopted.is_adopted:
            self._tell_hint(outcome)
        self._observe(
            "adopted" if adopted.is_adopted else "stale",
            epoch=adopted.epoch,
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            consolidation_count=outcome.consolidation_count,
        )
        return Ran(
            work_id=self._grant.work_id,
            status="adopted" if adopted.is_adopted else "stale",
            rotation_id=adopted.rotation_id,
            disposal=adopted.disposal,
        )

    def _is_uncalled_for(self) -> bool:
        """Whether a line asks for a reset that the window as it is now does not call for: the request was for one that
        is replaced already, or for another policy or version of the agent."""
        is_asked_by_line = self._is_reset and self._grant.reason == "line"
        return is_asked_by_line and not is_used_up(self._agent, self._snapshot, self._budgets)

    def _dropped(self) -> Ran:
        """Drop a request that is void. It counts as no failure: that would hold the reset that is called for next.

        Should the lane be lost by now, another's request may go with it, and the next round makes it again.
        """
        self._observe("dropped", reason="the window is not used up")
        self._engine.store.cancel_rotation(self._grant.session_id)
        return Ran(work_id=self._grant.work_id, status="noop")

    def _let_be(self, code: str, reason: str) -> Ran:
        """End the rotation; nothing but the request is changed."""
        self._observe("failed", code=code, reason=reason)
        self._engine.store.fail(self._grant, code, reason)
        return Ran(work_id=self._grant.work_id, status="noop")

    @cached_property
    def _summarizer(self) -> Summarizer:
        return self._engine.catalog.summarizer(self._workload(), self._counter)

    def _workload(self) -> Workload:
        """Who consolidates: as it was resolved by whoever ran this rotation first.

        Another window would cut other chunks, of which the saved answers are none.
        """
        saved = dict(self._grant.steps).get(WORKLOAD_STEP)
        if isinstance(saved, Workload):
            return saved
        workload = self._engine.catalog.workload(self._agent, WorkloadKind.CONSOLIDATION)
        if workload.summarizer == "model":
            self._steps.save(WORKLOAD_STEP, workload)
        return workload

    def _decided(self) -> RotationOutcome:
        plan = plan_for(
            self._snapshot.layout,
            self._grant.boundary_seq,
            budgets=self._budgets,
            counter=self._counter,
            show_span=self._agent.history_tool,
            origin=self._origin(),
            opening=self._opening,
            carries_ledger=self._agent.carries_ledger,
        )
        steps = rotate(
            plan,
            self._agent.told_policy,
            summarizer_window_tokens=0 if self._is_reset else self._summarizer.window_tokens,
            cancelled=lambda: self._held.is_lost,
        )
        return drive(steps, self._perform, dict(self._grant.steps), self._steps.save)

    @cached_property
    def _opening(self) -> Opening | None:
        """What a fresh window opens with; None where none begins."""
        if not self._is_reset:
            return None
        return opening_of(self._engine.store, self._snapshot, self._grant.boundary_seq)

    @property
    def _budgets(self) -> Budgets:
        known = self._engine.catalog.window(self._agent)
        window = learned(known, self._snapshot.window, self._agent.origin)
        return self._agent.session_budgets(self._counter, self._snapshot.calibration, window)

    def _origin(self) -> Origin:
        """Reported, if only what the provider said of its own count puts the conversation past the line."""
        own_line_tokens = self._agent.budgets(self._counter).line_tokens
        is_own = self._snapshot.layout.conversation_tokens >= own_line_tokens
        return Origin.ESTIMATED if is_own or self._grant.reason != "line" else Origin.REPORTED

    def _perform(self, effect: Effect) -> EffectResult:
        if not isinstance(effect, Consolidation):
            raise TypeError("a rotation only consolidates")
        request = effect.request
        self._observe("consolidation", first_seq=request.first_seq, last_seq=request.last_seq, attempt=effect.attempt)
        for attempt in patiently(lambda: self._held.is_lost):
            with attempt:
                return self._summarizer.consolidate(request, lambda: self._held.is_lost)
        raise AssertionError("unreachable: the last attempt raises")

    def _next_line(self, outcome: RotationOutcome) -> int:
        """From where on the store is to request the next rotation at once: a fresh window says by itself when it is
        used up."""
        line_tokens = self._budgets.line_tokens
        return max(line_tokens, outcome.tokens_after + 1) if self._is_reset else line_tokens

    def _figures(self, outcome: RotationOutcome) -> dict[str, Any]:
        """For audit and answers: a reset names the window that it begins, and what there was no room for in it."""
        number = {"window": self._snapshot.epoch + 2} if self._is_reset else {}
        left_out_tokens = self._left_out_tokens(outcome)
        hint = {"hint_left_out_tokens": left_out_tokens} if left_out_tokens else {}
        return {**outcome.figures(), **number, **hint}

    def _left_out_tokens(self, outcome: RotationOutcome) -> int:
        """What the thread hint takes, if the fresh window had no room for it; else 0."""
        hint = self._opening.hint if self._opening else ""
        return self._counter.text(hint) if hint and not shows_hint(outcome.layout, hint) else 0

    def _tell_hint(self, outcome: RotationOutcome) -> None:
        """The model wrote a hint for this window, and does not get to see it."""
        if left_out_tokens := self._left_out_tokens(outcome):
            figures = {"session_id": self._grant.session_id, "hint_tokens": left_out_tokens}
            log.warning("thread hint left out of a fresh window", extra=figures)

    def _adoption(self, outcome: RotationOutcome) -> Adoption:
        snapshot, live = self._snapshot, self._snapshot.layout.live
        leaving = live.entries[: outcome.dropped_count]
        kept = indexed(self._engine.store, snapshot.session_id, leaving, live.first_seq)
        return Adoption(
            layout_token=new_token(),
            first_seq=live.first_seq,
            dropped_count=outcome.dropped_count,
            dropped_tokens=outcome.dropped_tokens,
            old_layout_token=snapshot.layout_token,
            tail_seq=live.next_seq - 1 if live else 0,
            tail_token=snapshot.tail_token,
            records=outcome.layout.records,
            chunk=pack(leaving) if leaving else b"",
            postings=kept.postings if kept else None,
            merged_count=kept.merged_count if kept else 0,
            line_tokens=self._next_line(outcome),
            room=opened(snapshot.room) if self._is_reset else Room(),
            figures=self._figures(outcome),
        )
