"""Handoffs: accepted like turns, one after the other, from an open or a closed session."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.errors import HandoffConflict, InvalidInput, SessionBusy
from sessionlib.stores.contract import DueKind, Grant, HandoffRequest, JobSettled, JobState, JobView, Lane, Settled
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.capturing import begin_retention, suspend_retention
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.reading import job_view
from sessionlib.stores.rules.state import Job

UNFINISHED_LIMIT = 100
"""Unfinished handoffs of one session: each costs a model call, and a caller that asks for more is in a loop."""

FORGOTTEN_PER_REQUEST = 16
"""Jobs past their idempotency time that one request deletes: more than it adds, so they cannot pile up."""


def request_handoff(op: Operation, request: HandoffRequest) -> JobView:
    head, known = op.head, op.job(Lane.HANDOFF, request.job_id)
    if known is not None:
        if known.digest != request.digest:
            raise HandoffConflict(op.session_id, request.job_id)
        return job_view(known)
    if head.next_seq == 1:
        raise InvalidInput("session_id", op.session_id, "has no entries yet: there is nothing to hand off")
    queued_count = op.shelf.queued_job_count(Lane.HANDOFF)
    if queued_count + bool(head.handoff.work) >= UNFINISHED_LIMIT:
        raise SessionBusy(op.session_id, f"{UNFINISHED_LIMIT} handoffs are unfinished, its limit")
    op.shelf.forget_jobs(op.now - op.limits.idempotency_seconds, FORGOTTEN_PER_REQUEST)
    return job_view(_enqueue(op, request, is_first=not head.handoff.work and not queued_count))


def _enqueue(op: Operation, request: HandoffRequest, *, is_first: bool) -> Job:
    job = Job(
        job_id=request.job_id,
        lane=Lane.HANDOFF,
        request=request.request,
        digest=request.digest,
        first_seq=1,
        last_seq=op.head.next_seq - 1,
        timeout_seconds=request.timeout_seconds,
        submitted=op.now,
    )
    op.shelf.drop_job(job.lane, job.job_id)  # one that is past its time: a new one queues at the end
    op.shelf.put_job(job)
    op.due(DueKind.HANDOFF, job.job_id, after=0.0 if is_first else op.limits.sweep_first_seconds)
    suspend_retention(op)
    return job


def settle_handoff(op: Operation, grant: Grant, settled: Settled) -> JobSettled:
    job = None if op.is_gone else op.job(Lane.HANDOFF, grant.work_id)
    if job is not None and job.state is JobState.DONE and job.settle_token == settled.settle_token:
        return JobSettled(next_job_id=_next_job_id(op))
    lanes.require_held(op, grant)
    job = op.require_job(Lane.HANDOFF, grant.work_id)
    figures = {**settled.figures, "job_id": job.job_id, "first_seq": job.first_seq, "last_seq": job.last_seq}
    op.audit("handed_off", **figures)
    _finish(op, replace(job, state=JobState.DONE, result=settled.result, settle_token=settled.settle_token))
    return JobSettled(next_job_id=_next_job_id(op))


def fail_handoff(op: Operation, job: Job, code: str, reason: str) -> None:
    op.audit("handoff_failed", job_id=job.job_id, code=code, reason=reason)
    _finish(op, replace(job, state=JobState.FAILED, error_code=code, error=reason))


def _finish(op: Operation, job: Job) -> None:
    """Keep what is known of it; the next that waits is due."""
    lanes.leave(op, job)
    op.shelf.put_job(replace(job, finished=op.now))
    next_job_id = _next_job_id(op)
    if next_job_id:
        op.due(DueKind.HANDOFF, next_job_id)
    begin_retention(op)


def _next_job_id(op: Operation) -> str | None:
    """The first that waits, if it may begin now."""
    return None if op.head.handoff.work else op.shelf.next_job_id(Lane.HANDOFF)
