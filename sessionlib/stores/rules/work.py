"""What the holder of either lane may do: save steps, renew, emit, give the lane back, fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sessionlib.errors import InvalidInput, LeaseLost
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import Grant, Lane
from sessionlib.stores.rules.ending import fail_turn, next_turn_id
from sessionlib.stores.rules.operation import Operation, due_kind
from sessionlib.stores.rules.rotations import fail_rotation
from sessionlib.stores.rules.state import Hold
from sessionlib.stores.rules.tries import LONGEST_RETRY_SECONDS, UNCOUNTED_CODES, uncounted


def save_step(op: Operation, grant: Grant, position: int, name: str, result: EffectResult) -> int:
    op.require_held(grant)
    tries = op.tries(grant.lane)
    count = tries.step_base + op.shelf.step_count(grant.lane)
    if position > count:
        raise LeaseLost(op.session_id, grant.lane)
    if position < count:
        return count
    op.shelf.append_step(grant.lane, name, result)
    op.set_tries(grant.lane, replace(tries, progress=True))
    op.extend_lease(grant.lane, grant.token)
    return count + 1


def renew(op: Operation, grant: Grant) -> None:
    op.require_held(grant)
    if op.now >= op.tries(grant.lane).deadline:
        raise LeaseLost(op.session_id, grant.lane)
    op.extend_lease(grant.lane, grant.token)


def emit(op: Operation, grant: Grant, kind: str, data: dict[str, Any]) -> None:
    if grant.lane is not Lane.TURN:
        raise InvalidInput("lane", grant.lane, "must be the turn lane: a rotation has no event stream")
    op.require_held(grant)
    op.event(grant.work_id, kind, **data)
    op.extend_lease(grant.lane, grant.token)


def release(op: Operation, grant: Grant) -> None:
    try:
        op.require_held(grant)
    except LeaseLost:
        return
    op.set_tries(grant.lane, uncounted(op.tries(grant.lane)))
    _give_back(op, grant, after=0.0)


def fail(op: Operation, grant: Grant, code: str, reason: str, retry_seconds: float | None) -> str | None:
    op.require_held(grant)
    if retry_seconds is not None:
        _fail_for_retry(op, grant, code, reason, min(retry_seconds, LONGEST_RETRY_SECONDS))
    elif grant.lane is Lane.TURN:
        fail_turn(op, op.require_turn(grant.work_id), code, reason)
    else:
        fail_rotation(op, code)
    return next_turn_id(op)


def _fail_for_retry(op: Operation, grant: Grant, code: str, reason: str, retry_seconds: float) -> None:
    tries = op.tries(grant.lane)
    if code in UNCOUNTED_CODES:
        tries = uncounted(tries)
    op.set_tries(grant.lane, replace(tries, not_before=op.now + retry_seconds, error_code=code, error=reason))
    _give_back(op, grant, after=retry_seconds)


def _give_back(op: Operation, grant: Grant, *, after: float) -> None:
    op.set_hold(grant.lane, Hold())
    op.due(due_kind(grant.lane), grant.work_id, after=after)
