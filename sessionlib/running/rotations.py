"""Run a session's pending rotation: begin, consolidate, adopt. Let go of provider sessions that nobody uses."""

from __future__ import annotations

from sessionlib.archive import pack
from sessionlib.counters import counter_named
from sessionlib.errors import (
    InvalidInput,
    ProviderError,
)
from sessionlib.policies.contract import Origin
from sessionlib.recount import recounted
from sessionlib.rotation import RotationOutcome, plan_for, rotate
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
from sessionlib.steps import WORKLOAD_STEP, Consolidation, Effect, EffectResult, drive
from sessionlib.stores.contract import (
    Adoption,
    Grant,
    Lane,
    Snapshot,
)
from sessionlib.summaries.contract import Workload
from sessionlib.window import Budgets
from sessionlib.workloads import WorkloadKind


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
            engine.catalog.provider(handle.provider).dispose(handle.handle)
        except (ProviderError, InvalidInput) as exc:
            failure = exc
            continue
        engine.store.disposed(session_id, handle.handle)
        count += 1
    if failure is not None:
        raise failure
    return count


class RotationRun:
    """One granted rotation."""

    def __init__(self, engine: Engine, grant: Grant, held: Held) -> None:
        self._engine, self._grant, self._held = engine, grant, held
        self._observe = observer_of(engine, grant)
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._counter = counter_named(self._agent.counter)
        self._snapshot = recounted(grant.snapshot, self._agent, self._counter)
        self._steps = StepLog(engine, grant)
        self._summarizer = engine.catalog.summarizer(self._workload(), self._counter)

    def run(self) -> Ran:
        outcome = self._decided()
        if outcome.is_noop:
            self._engine.store.fail(self._grant, "no_gain", "the rotation would shorten nothing")
            return Ran(work_id=self._grant.work_id, status="noop")
        adopted = self._engine.store.adopt(self._grant, self._adoption(outcome))
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
        )
        steps = rotate(
            plan,
            self._agent.policy,
            summarizer_window_tokens=self._summarizer.window_tokens,
            cancelled=lambda: self._held.is_lost,
        )
        return drive(steps, self._perform, dict(self._grant.steps), self._steps.save)

    @property
    def _budgets(self) -> Budgets:
        return self._agent.session_budgets(self._counter, self._snapshot.calibration)

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

    def _adoption(self, outcome: RotationOutcome) -> Adoption:
        snapshot, live = self._snapshot, self._snapshot.layout.live
        leaving = live.entries[: outcome.dropped_count]
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
            line_tokens=self._budgets.line_tokens,
            figures=outcome.figures(),
        )
