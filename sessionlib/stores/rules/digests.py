"""Digests: one at a time of what is finished and not yet digested; each is accepted once, for good."""

from __future__ import annotations

from sessionlib.errors import InvalidInput
from sessionlib.stores.contract import DueKind, Grant, JobSettled, Lane, Settled
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.capturing import begin_retention, make_capture_due, suspend_retention
from sessionlib.stores.rules.journal import keep
from sessionlib.stores.rules.operation import Operation, dumps
from sessionlib.stores.rules.state import Job, StoredDigest


def capture(op: Operation, reason: str) -> str | None:
    """The unfinished digest, requested now if there is none and anything to digest."""
    first_seq = op.head.digested_seq + 1
    unfinished = lanes.unfinished_job_id(op, Lane.DIGEST)
    if unfinished:
        return unfinished
    op.shelf.drop_due(DueKind.CAPTURE, "")
    last_seq = _last_finished_seq(op)
    if last_seq < first_seq:
        begin_retention(op)
        return None
    return _request(op, reason, first_seq, last_seq)


def _last_finished_seq(op: Operation) -> int:
    """The last entry before those of the running turn."""
    running = op.require_turn(op.head.work) if op.head.work else None
    first_of_running = running.first_seq if running else 0
    return (first_of_running or op.head.next_seq) - 1


def _request(op: Operation, reason: str, first_seq: int, last_seq: int) -> str:
    count = op.head.digest_count + 1
    job = Job(
        job_id=f"d{count}",
        lane=Lane.DIGEST,
        reason=reason,
        first_seq=first_seq,
        last_seq=last_seq,
        timeout_seconds=op.limits.digest_seconds,
        submitted=op.now,
    )
    op.update(digest_count=count)
    op.shelf.put_job(job)
    op.due(DueKind.DIGEST, job.job_id)
    suspend_retention(op)
    op.audit("digest_requested", digest_id=job.job_id, reason=reason, first_seq=first_seq, last_seq=last_seq)
    return job.job_id


def settle_digest(op: Operation, grant: Grant, settled: Settled) -> JobSettled:
    if not op.is_gone and op.head.digest_settled == settled.settle_token:
        return _settled(op)
    lanes.require_held(op, grant)
    job = op.require_job(Lane.DIGEST, grant.work_id)
    if not job.first_seq <= settled.last_seq <= job.last_seq:
        raise InvalidInput("last_seq", settled.last_seq, f"must be within {job.first_seq} to {job.last_seq}")
    _accept(op, job, settled)
    _drop(op, job)
    op.update(digested_seq=settled.last_seq, digest_failures=0, digest_settled=settled.settle_token)
    if not settled.is_empty:
        op.due(DueKind.PUBLICATION)
    if settled.last_seq < job.last_seq or op.shelf.is_overdue(DueKind.CAPTURE, op.now):
        make_capture_due(op)
    begin_retention(op)
    return _settled(op)


def _accept(op: Operation, job: Job, settled: Settled) -> None:
    """Into the session's journal, and its figures into the audit."""
    digest = StoredDigest(
        session_id=op.session_id,
        digest_id=job.job_id,
        first_seq=job.first_seq,
        last_seq=settled.last_seq,
        text=settled.result,
        at=op.now,
        is_published=settled.is_empty,
        figures=dumps(settled.figures),
    )
    keep(op.shelf.journal, digest, op.now, op.limits)
    span = {"digest_id": job.job_id, "first_seq": job.first_seq, "last_seq": settled.last_seq}
    op.audit("digested", **{**settled.figures, **span, "is_empty": settled.is_empty})


def _settled(op: Operation) -> JobSettled:
    return JobSettled(
        capture=op.shelf.is_overdue(DueKind.CAPTURE, op.now), publication=op.shelf.has_due(DueKind.PUBLICATION)
    )


def fail_digest(op: Operation, job: Job, code: str, reason: str) -> None:
    """The stretch is captured again later, or left out if that happened too often."""
    _drop(op, job)
    op.audit("digest_failed", digest_id=job.job_id, code=code, reason=reason)
    failures = op.head.digest_failures + 1
    if failures < op.limits.digest_tries:
        op.update(digest_failures=failures)
        make_capture_due(op, after=op.limits.digest_retry_seconds)
    else:
        op.update(digested_seq=job.last_seq, digest_failures=0)
        op.audit("digest_dropped", digest_id=job.job_id, first_seq=job.first_seq, last_seq=job.last_seq)
        begin_retention(op)


def _drop(op: Operation, job: Job) -> None:
    """A digest that ended is no job any more: what was accepted stands in the journal."""
    lanes.leave(op, job)
    op.shelf.drop_job(job.lane, job.job_id)
