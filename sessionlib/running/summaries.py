"""Run a session's next handoff or digest: capture, ask, settle. Publish what the agent's journal is to have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from sessionlib.codec import decode, encode
from sessionlib.entries import Entry
from sessionlib.errors import Cancelled, ProviderUnavailable
from sessionlib.handoffs import Handoff, HandoffTask
from sessionlib.jobs import Job, JobOutcome, digest_evidence, handoff_evidence, summarize
from sessionlib.running.engine import (
    Engine,
    Held,
    Ran,
    StepLog,
    TimeLeft,
    new_token,
    observer_of,
    patiently,
    run_granted,
)
from sessionlib.starts import all_entries
from sessionlib.steps import Capture, Captured, Effect, EffectResult, SummaryCall, drive
from sessionlib.stores.contract import Grant, Lane, SessionStore, Settled
from sessionlib.summaries.admission import usable_tokens
from sessionlib.summaries.contract import Fault, Settlement, Workload
from sessionlib.summaries.evidence import Evidence
from sessionlib.summaries.model import ANY_MARKER
from sessionlib.summaries.prompts import compose
from sessionlib.summaries.purposes import Purpose
from sessionlib.summaries.validation import is_empty_digest
from sessionlib.workloads import WorkloadKind


def run_handoff(engine: Engine, session_id: str) -> Ran:
    """Run the session's next handoff. As `run_turn` otherwise."""
    return run_granted(
        engine, session_id, Lane.HANDOFF, None, lambda grant, held: HandoffRun(engine, grant, held).run()
    )


def run_digest(engine: Engine, session_id: str) -> Ran:
    """Run the session's digest. As `run_turn` otherwise."""
    return run_granted(engine, session_id, Lane.DIGEST, None, lambda grant, held: DigestRun(engine, grant, held).run())


def publish_digests(store: SessionStore, session_id: str) -> int:
    """Put what was accepted into the agent's journal; how many. What fails stays due, and asks no model again."""
    waiting = store.unpublished(session_id)
    agent_name = store.view(session_id).agent.name if waiting else ""
    for entry in waiting:
        store.publish(agent_name, entry)
        store.published(session_id, entry.digest_id)
    return len(waiting)


class _JobRun(ABC):
    """One granted job. Subclasses say what it is about and what becomes of its text."""

    purpose: Purpose
    kind: WorkloadKind

    def __init__(self, engine: Engine, grant: Grant, held: Held) -> None:
        self._engine, self._grant, self._held = engine, grant, held
        self._time = TimeLeft(grant, held)
        self._observe = observer_of(engine, grant)
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._counter = self._agent.own_counter
        self._steps = StepLog(engine, grant)

    def run(self) -> Ran:
        job = self._job()
        saved = dict(self._grant.steps)
        outcome = drive(summarize(job), lambda effect: self._perform(job, effect), saved, self._steps.save)
        settlement = outcome.settlement
        if settlement.fault is not None:
            self._observe("failed", fault=settlement.fault)
            self._engine.store.fail(self._grant, f"summary_{settlement.fault}", settlement.reason)
            return Ran(work_id=self._grant.work_id, status="failed")
        settled = self._engine.store.settle(self._grant, self._settled(outcome))
        self._observe("summarized", tokens=settlement.completion_tokens, model=settlement.model)
        return Ran(work_id=self._grant.work_id, status="done", settled=settled)

    @abstractmethod
    def _job(self) -> Job: ...

    @abstractmethod
    def _evidence(self, workload: Workload, capture: Capture, job: Job) -> tuple[Evidence, int]:
        """What the job is made from, and the last entry that it covers."""

    @abstractmethod
    def _settled(self, outcome: JobOutcome) -> Settled: ...

    def _perform(self, job: Job, effect: Effect) -> EffectResult:
        match effect:
            case Capture():
                self._observe("capture", first_seq=effect.first_seq, last_seq=effect.last_seq)
                workload = self._engine.catalog.workload(self._agent, self.kind)
                evidence, last_seq = self._evidence(workload, effect, job)
                return Captured(evidence=evidence, workload=workload, first_seq=effect.first_seq, last_seq=last_seq)
            case SummaryCall():
                self._observe("summary", purpose=effect.request.purpose)
                return self._ask(effect)
            case _:
                raise TypeError(f"a job does not do {effect.name}")

    def _ask(self, call: SummaryCall) -> Settlement:
        """One summary, settled. Raises ProviderUnavailable and Cancelled for what is no verdict on the evidence."""
        for attempt in patiently(self._time.is_over):
            with attempt:
                workload = replace(
                    call.workload, timeout_seconds=min(call.workload.timeout_seconds, self._time.seconds())
                )
                generator = self._engine.catalog.generator(workload, self._counter)
                settlement = generator.generate(call.request, lambda: self._held.is_lost)
                if settlement.fault is Fault.CANCELLED:
                    raise Cancelled(settlement.reason)
                if settlement.is_transient:
                    raise ProviderUnavailable(settlement.reason, settlement.retry_after_seconds)
                return settlement
        raise AssertionError("unreachable: the last attempt raises")

    def _fits(self, workload: Workload, job: Job, evidence: Evidence) -> bool:
        """Whether there is room for it, by admission's estimate and by the agent's own counter, as far as that is
        believed: code takes more tokens than four characters a token say, and another model's tokens are others."""
        if evidence.is_blank:
            return True
        request = job.request(evidence)
        if not self._engine.catalog.generator(workload, self._counter).admits(request):
            return False
        if workload.summarizer == "extractive":
            return True
        ratio = max(self._counter.error_ratio, self._grant.snapshot.calibration)
        prompt = compose(request, ANY_MARKER)
        tokens = self._counter.text(prompt.instructions) + self._counter.text(prompt.document)
        return tokens * ratio <= usable_tokens(workload.window_tokens)


class HandoffRun(_JobRun):
    """An account of the session as it stands, for another agent."""

    purpose, kind = Purpose.HANDOFF, WorkloadKind.HANDOFF

    def _job(self) -> Job:
        grant, task = self._grant, decode(HandoffTask, self._grant.request)
        name = f"{grant.session_id}/{grant.work_id}"
        return Job(
            purpose=self.purpose,
            name=name,
            first_seq=grant.first_seq,
            last_seq=grant.last_seq,
            focus=task.task,
            guidance=task.guidance,
        )

    def _evidence(self, workload: Workload, capture: Capture, job: Job) -> tuple[Evidence, int]:
        layout = self._grant.snapshot.layout
        live = layout.live.entries[: max(0, capture.last_seq + 1 - layout.live.first_seq)]
        carried: tuple[Entry, ...] = (layout.carried.entry,) if layout.carried else ()
        evidence = handoff_evidence(
            layout.records,
            (*carried, *live),
            self._agent.instruction_tools,
            lambda evidence: self._fits(workload, job, evidence),
        )
        return evidence, capture.last_seq

    def _settled(self, outcome: JobOutcome) -> Settled:
        grant, settlement = self._grant, outcome.settlement
        handoff = Handoff(
            session_id=grant.session_id,
            handoff_id=grant.work_id,
            task=decode(HandoffTask, grant.request).task,
            text=settlement.text,
            first_seq=outcome.captured.first_seq,
            last_seq=outcome.captured.last_seq,
            unsupported_values=settlement.unsupported_values,
            **_figures(outcome),
        )
        return Settled(settle_token=new_token(), result=encode(handoff), figures=_audited(outcome))


class DigestRun(_JobRun):
    """What was done and learned in a finished stretch, for the journal."""

    purpose, kind = Purpose.DIGEST, WorkloadKind.DIGEST

    def _job(self) -> Job:
        grant = self._grant
        name = f"{grant.session_id}/{grant.work_id}"
        return Job(purpose=self.purpose, name=name, first_seq=grant.first_seq, last_seq=grant.last_seq)

    def _evidence(self, workload: Workload, capture: Capture, job: Job) -> tuple[Evidence, int]:
        entries = all_entries(self._engine.store, self._grant.snapshot, capture.first_seq, capture.last_seq)
        evidence, count = digest_evidence(
            entries, self._agent.instruction_tools, lambda evidence: self._fits(workload, job, evidence)
        )
        return evidence, capture.first_seq + count - 1

    def _settled(self, outcome: JobOutcome) -> Settled:
        return Settled(
            settle_token=new_token(),
            result=outcome.settlement.text,
            last_seq=outcome.captured.last_seq,
            is_empty=is_empty_digest(outcome.settlement.text),
            figures=_audited(outcome),
        )


def _figures(outcome: JobOutcome) -> dict[str, Any]:
    """Who made a summary, and what it took."""
    evidence, settlement = outcome.captured.evidence, outcome.settlement
    return {
        "provider": settlement.provider,
        "model": settlement.model,
        "effort": settlement.effort,
        "prompt_tokens": settlement.prompt_tokens,
        "cached_tokens": settlement.cached_tokens,
        "completion_tokens": settlement.completion_tokens,
        "redaction_count": evidence.redaction_count + settlement.redaction_count,
        "omitted_characters": evidence.omitted_characters,
    }


def _audited(outcome: JobOutcome) -> dict[str, Any]:
    """Figures only: unsupported values are content, so they are counted."""
    return {**_figures(outcome), "unsupported_count": len(outcome.settlement.unsupported_values)}
