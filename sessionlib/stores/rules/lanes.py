"""Lanes: where each keeps its hold and its work, and what every lane does alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from sessionlib.errors import LeaseLost
from sessionlib.stores.contract import Grant, Lane, Refusal, Snapshot
from sessionlib.stores.rules.operation import Operation, due_kind
from sessionlib.stores.rules.reading import snapshot
from sessionlib.stores.rules.state import Hold, Job, JobLane, Tries


class Keeper(Protocol):
    """Knows where a session keeps what is at work in one lane."""

    def hold(self, op: Operation) -> Hold: ...
    def set_hold(self, op: Operation, hold: Hold) -> None: ...

    def work_id(self, op: Operation) -> str:
        """The work that was begun (turn, job) or waits (rotation); "" without any."""
        ...

    def tries(self, op: Operation) -> Tries:
        """Of that work; there must be some."""
        ...

    def set_tries(self, op: Operation, tries: Tries) -> None: ...


class TurnKeeper:
    """The head names the turn, which stands beside it."""

    def hold(self, op: Operation) -> Hold:
        return op.head.hold

    def set_hold(self, op: Operation, hold: Hold) -> None:
        op.update(hold=hold)

    def work_id(self, op: Operation) -> str:
        return op.head.work

    def tries(self, op: Operation) -> Tries:
        return op.require_turn(op.head.work).tries

    def set_tries(self, op: Operation, tries: Tries) -> None:
        op.shelf.put_turn(replace(op.require_turn(op.head.work), tries=tries))


class RotationKeeper:
    """The rotation stands in the head, with all that is known of it."""

    def hold(self, op: Operation) -> Hold:
        return op.head.rotation.hold if op.head.rotation else Hold()

    def set_hold(self, op: Operation, hold: Hold) -> None:
        op.update(rotation=replace(op.require_rotation(), hold=hold))

    def work_id(self, op: Operation) -> str:
        return op.head.rotation.rotation_id if op.head.rotation else ""

    def tries(self, op: Operation) -> Tries:
        return op.require_rotation().tries

    def set_tries(self, op: Operation, tries: Tries) -> None:
        op.update(rotation=replace(op.require_rotation(), tries=tries))


class JobKeeper:
    """The head's field of the lane's name names the job, which stands beside it."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def _kept(self, op: Operation) -> JobLane:
        kept: JobLane = getattr(op.head, self._lane)
        return kept

    def hold(self, op: Operation) -> Hold:
        return self._kept(op).hold

    def set_hold(self, op: Operation, hold: Hold) -> None:
        op.update(**{self._lane: replace(self._kept(op), hold=hold)})

    def work_id(self, op: Operation) -> str:
        return self._kept(op).work

    def tries(self, op: Operation) -> Tries:
        return op.require_job(self._lane, self.work_id(op)).tries

    def set_tries(self, op: Operation, tries: Tries) -> None:
        op.shelf.put_job(replace(op.require_job(self._lane, self.work_id(op)), tries=tries))


KEEPERS: dict[Lane, Keeper] = {
    Lane.TURN: TurnKeeper(),
    Lane.ROTATION: RotationKeeper(),
    Lane.HANDOFF: JobKeeper(Lane.HANDOFF),
    Lane.DIGEST: JobKeeper(Lane.DIGEST),
}


def work_id(op: Operation, lane: Lane) -> str:
    return KEEPERS[lane].work_id(op)


def tries(op: Operation, lane: Lane) -> Tries:
    return KEEPERS[lane].tries(op)


def set_tries(op: Operation, lane: Lane, tries: Tries) -> None:
    KEEPERS[lane].set_tries(op, tries)


def bar(op: Operation, lane: Lane, token: str) -> Refusal | None:
    """Why *token* cannot have the lane whatever waits there: the session is gone, or another has a live lease."""
    if op.is_gone:
        return Refusal.GONE
    hold = KEEPERS[lane].hold(op)
    return Refusal.HELD if hold.token != token and hold.is_live(op.now) else None


def has(op: Operation, lane: Lane, token: str) -> bool:
    """Whether the lane was given to *token* already."""
    return KEEPERS[lane].hold(op).token == token


def require_held(op: Operation, grant: Grant) -> None:
    """Raises LeaseLost unless the grant's token and work are the lane's."""
    if op.is_gone or not grant.token or not has(op, grant.lane, grant.token):
        raise LeaseLost(op.session_id, grant.lane)
    if work_id(op, grant.lane) != grant.work_id:
        raise LeaseLost(op.session_id, grant.lane)


def extend_lease(op: Operation, lane: Lane, token: str) -> None:
    """Give the lane to *token* for a lease from now; its due member stands at the lease's end."""
    KEEPERS[lane].set_hold(op, Hold(token=token, lease=op.now + op.limits.lease_seconds))
    op.due(due_kind(lane), work_id(op, lane), after=op.limits.lease_seconds)


def give_back(op: Operation, lane: Lane, *, after: float) -> None:
    """Leave the lane; its work is due *after* so many seconds."""
    KEEPERS[lane].set_hold(op, Hold())
    op.due(due_kind(lane), work_id(op, lane), after=after)


def grant(op: Operation, lane: Lane, tries: Tries, known: Snapshot | None, **of_the_lane: Any) -> Grant:
    """What the holder of a lane is told: what all lanes have, and what only this one has."""
    return Grant(
        session_id=op.session_id,
        lane=lane,
        token=KEEPERS[lane].hold(op).token,
        work_id=work_id(op, lane),
        deadline=tries.deadline,
        now=op.now,
        attempt=tries.attempts,
        snapshot=snapshot(op, known),
        steps=tuple(op.shelf.steps(lane)),
        step_base=tries.step_base,
        **of_the_lane,
    )


def unfinished_job_id(op: Operation, lane: Lane) -> str | None:
    """The job that began, or else the first that waits."""
    return work_id(op, lane) or op.shelf.next_job_id(lane)


def leave(op: Operation, job: Job) -> None:
    """Take a job that ends out of its lane, with its steps and due member."""
    op.shelf.drop_due(due_kind(job.lane), job.job_id)
    op.shelf.drop_steps(job.lane)
    op.update(**{job.lane: JobLane()})
