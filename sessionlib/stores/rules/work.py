"""What the holder of any lane may do: save steps, renew, emit, give the lane back, fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sessionlib.errors import InvalidInput, LeaseLost
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import DELTA, JOB_LANES, Grant, Handle, Lane
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.ending import fail_turn, next_turn_id
from sessionlib.stores.rules.handles import remember
from sessionlib.stores.rules.jobs import fail_job
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.rotations import fail_rotation
from sessionlib.stores.rules.tries import LONGEST_RETRY_SECONDS, UNCOUNTED_CODES, uncounted


def save_step(
    op: Operation, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None
) -> int:
    lanes.require_held(op, grant)
    tries = lanes.tries(op, grant.lane)
    count = tries.step_base + op.shelf.step_count(grant.lane)
    if position > count:
        raise LeaseLost(op.session_id, grant.lane)
    if position < count:
        return count
    op.shelf.append_step(grant.lane, name, result)
    lanes.set_tries(op, grant.lane, replace(tries, progress=True))
    if handle is not None:
        remember(op, grant.work_id, handle)
    lanes.extend_lease(op, grant.lane, grant.token)
    return count + 1


def renew(op: Operation, grant: Grant) -> None:
    lanes.require_held(op, grant)
    if op.now >= lanes.tries(op, grant.lane).deadline:
        raise LeaseLost(op.session_id, grant.lane)
    lanes.extend_lease(op, grant.lane, grant.token)


def emit(op: Operation, grant: Grant, kind: str, data: dict[str, Any]) -> None:
    if grant.lane is not Lane.TURN:
        raise InvalidInput("lane", grant.lane, "must be the turn lane: other work has no event stream")
    lanes.require_held(op, grant)
    if kind != DELTA or op.newest_event(grant.work_id, kind) != data:
        op.event(grant.work_id, kind, **data)
    lanes.extend_lease(op, grant.lane, grant.token)


def release(op: Operation, grant: Grant) -> None:
    try:
        lanes.require_held(op, grant)
    except LeaseLost:
        return
    lanes.set_tries(op, grant.lane, uncounted(lanes.tries(op, grant.lane)))
    lanes.give_back(op, grant.lane, after=0.0)


def fail(op: Operation, grant: Grant, code: str, reason: str, retry_seconds: float | None) -> str | None:
    lanes.require_held(op, grant)
    if retry_seconds is not None:
        _fail_for_retry(op, grant, code, reason, min(retry_seconds, LONGEST_RETRY_SECONDS))
    else:
        _end(op, grant, code, reason)
    return None if grant.lane in JOB_LANES else next_turn_id(op)


def _end(op: Operation, grant: Grant, code: str, reason: str) -> None:
    match grant.lane:
        case Lane.TURN:
            fail_turn(op, op.require_turn(grant.work_id), code, reason)
        case Lane.ROTATION:
            fail_rotation(op, code)
        case _:
            fail_job(op, op.require_job(grant.lane, grant.work_id), code, reason)


def _fail_for_retry(op: Operation, grant: Grant, code: str, reason: str, retry_seconds: float) -> None:
    tries = lanes.tries(op, grant.lane)
    if code in UNCOUNTED_CODES:
        tries = uncounted(tries)
    lanes.set_tries(op, grant.lane, replace(tries, not_before=op.now + retry_seconds, error_code=code, error=reason))
    lanes.give_back(op, grant.lane, after=retry_seconds)
