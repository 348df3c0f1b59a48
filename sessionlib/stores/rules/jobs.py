"""What the lanes for jobs do alike: begin, settle, fail. A job reads the session and changes nothing of it."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.stores.contract import Grant, JobSettled, JobState, Lane, Refusal, Settled, Snapshot
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.digests import fail_digest, settle_digest
from sessionlib.stores.rules.handoffs import fail_handoff, settle_handoff
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import Job, JobLane
from sessionlib.stores.rules.tries import ENDED_PER_BEGIN, Ending, granted, obstacle


def begin(op: Operation, lane: Lane, token: str, known: Snapshot | None) -> Grant | Refusal:
    barred = lanes.bar(op, lane, token)
    if barred:
        return barred
    if lanes.has(op, lane, token):
        return _grant(op, op.require_job(lane, lanes.work_id(op, lane)), known)
    for _ in range(ENDED_PER_BEGIN):
        job_id = lanes.unfinished_job_id(op, lane)
        if job_id is None:
            return Refusal.NOTHING
        job = op.require_job(lane, job_id)
        stop = obstacle(op, job.tries)
        if stop is Refusal.NOTHING:
            return Refusal.NOTHING
        if isinstance(stop, Ending):
            fail_job(op, job, stop.code, stop.reason)
        else:
            return _grant(op, _taken(op, job, token), known)
    return Refusal.NOTHING


def _taken(op: Operation, job: Job, token: str) -> Job:
    """Grant the lane to *token* for this job; the job as it is now."""
    tries = granted(job.tries, op.now + job.timeout_seconds)
    job = replace(job, state=JobState.RUNNING, tries=tries)
    op.shelf.put_job(job)
    op.update(**{job.lane: JobLane(work=job.job_id)})
    lanes.extend_lease(op, job.lane, token)
    return job


def _grant(op: Operation, job: Job, known: Snapshot | None) -> Grant:
    return lanes.grant(
        op,
        job.lane,
        job.tries,
        known,
        request=job.request,
        reason=job.reason,
        first_seq=job.first_seq,
        last_seq=job.last_seq,
    )


def settle(op: Operation, grant: Grant, settled: Settled) -> JobSettled:
    return _SETTLE[grant.lane](op, grant, settled)


def fail_job(op: Operation, job: Job, code: str, reason: str) -> None:
    """End a job without result."""
    _FAIL[job.lane](op, job, code, reason)


_SETTLE = {Lane.HANDOFF: settle_handoff, Lane.DIGEST: settle_digest}
_FAIL = {Lane.HANDOFF: fail_handoff, Lane.DIGEST: fail_digest}
