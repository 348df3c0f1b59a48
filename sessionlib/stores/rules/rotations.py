"""The rotation lane: request, begin, adopt, cancel. It never touches the turn lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sessionlib.layout import Carried
from sessionlib.stores.contract import (
    Adopted,
    Adoption,
    Chunk,
    DueKind,
    Grant,
    Lane,
    Postings,
    PostingsRef,
    Refusal,
    Snapshot,
    Trim,
)
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.capturing import capture_now
from sessionlib.stores.rules.handles import retire_handle
from sessionlib.stores.rules.operation import Operation, dumps
from sessionlib.stores.rules.state import Rotation
from sessionlib.stores.rules.tries import Ending, granted, obstacle

OUTCOMES_KEPT = 20
"""Rotation outcomes kept for the next answer; older ones stay in the audit."""

NO_GAIN = "no_gain"
"""Code of a rotation that freed nothing."""

NO_GAIN_LIMIT = 2
"""Rotations running that freed nothing before the line is left alone for a while (DESIGN 6)."""


def request_rotation(op: Operation, reason: str, by: str = "") -> str:
    """The pending rotation's id, requested now if there was none. Back-off does not matter here."""
    pending = op.head.rotation
    if pending is not None:
        return pending.rotation_id
    count = op.head.rotation_count + 1
    rotation = Rotation(rotation_id=f"r{count}", reason=reason, requested_by=by)
    op.update(rotation=rotation, rotation_count=count)
    op.due(DueKind.ROTATION, rotation.rotation_id)
    return rotation.rotation_id


def check_line(op: Operation, line_tokens: int, by: str) -> None:
    """Request a rotation in *by*'s name, if the line is reached, none is pending and no back-off holds."""
    head = op.head
    if head.conversation_tokens >= line_tokens and head.rotation is None and head.backoff_until <= op.now:
        request_rotation(op, "line", by)


def begin(op: Operation, token: str, known: Snapshot | None) -> Grant | Refusal:
    barred = lanes.bar(op, Lane.ROTATION, token)
    if barred:
        return barred
    rotation = op.head.rotation
    if rotation is None:
        return Refusal.NOTHING
    if rotation.hold.token == token:
        return _grant(op, known)
    stop = obstacle(op, rotation.tries)
    if isinstance(stop, Ending):
        fail_rotation(op, stop.code)
        return Refusal.NOTHING
    if stop is not None:
        return stop
    if not rotation.is_claimed:
        rotation = replace(rotation, boundary_seq=op.head.next_seq - 1)
    tries = granted(rotation.tries, op.now + op.limits.rotation_seconds)
    op.update(rotation=replace(rotation, tries=tries))
    lanes.extend_lease(op, Lane.ROTATION, token)
    return _grant(op, known)


def _grant(op: Operation, known: Snapshot | None) -> Grant:
    rotation = op.require_rotation()
    return lanes.grant(
        op, Lane.ROTATION, rotation.tries, known, boundary_seq=rotation.boundary_seq, reason=rotation.reason
    )


def adopt(op: Operation, grant: Grant, adoption: Adoption) -> Adopted:
    if not op.is_gone and op.head.layout_token == adoption.layout_token:
        return _adopted(op, adoption, is_adopted=True)
    lanes.require_held(op, grant)
    if not _is_current(op, adoption):
        _clear(op)
        op.audit("rotation_stale", rotation_id=grant.work_id)
        check_line(op, adoption.line_tokens, adoption.layout_token)
        return _adopted(op, adoption, is_adopted=False)
    tokens_before = op.head.conversation_tokens
    _replace_prefix(op, adoption)
    retire_handle(op)
    _judge_gain(op, tokens_before - op.head.conversation_tokens)
    figures = {**adoption.figures, "epoch": op.head.epoch, "rotation_id": grant.work_id, "reason": grant.reason}
    op.update(outcomes=(*op.head.outcomes, dumps(figures))[-OUTCOMES_KEPT:])
    op.audit("rotated", **figures)
    _clear(op)
    if op.head.journal.on_rotation:
        capture_now(op)
    check_line(op, adoption.line_tokens, adoption.layout_token)
    return _adopted(op, adoption, is_adopted=True)


def _is_current(op: Operation, adoption: Adoption) -> bool:
    """Whether the store still has exactly what the rotation was computed from."""
    head = op.head
    if head.live_from != adoption.first_seq or head.layout_token != adoption.old_layout_token:
        return False
    if adoption.postings and not _fit(adoption.postings, adoption.merged_count, op.shelf.postings_index()):
        return False
    if adoption.tail_seq == 0:
        return adoption.dropped_count == 0
    last_seq = adoption.first_seq + adoption.dropped_count - 1
    return last_seq <= adoption.tail_seq and op.shelf.live_token(adoption.tail_seq) == adoption.tail_token


def _fit(postings: Postings, merged_count: int, stored: Sequence[PostingsRef]) -> bool:
    """Whether they have what they take the place of in their span, and nothing that stays."""
    if merged_count > len(stored):
        return False
    kept, merged = stored[: len(stored) - merged_count], stored[len(stored) - merged_count :]
    return all(ref.last_seq < postings.first_seq for ref in kept[-1:]) and all(
        ref.first_seq >= postings.first_seq for ref in merged[:1]
    )


def _replace_prefix(op: Operation, adoption: Adoption) -> None:
    """Archive chunk and its postings in, records in, prefix out, epoch + 1."""
    head = op.head
    live_from = adoption.first_seq + adoption.dropped_count
    carried = _carried_input(op, live_from)
    dropped_tokens = 0
    if adoption.dropped_count:
        chunk = Chunk(first_seq=head.live_from, last_seq=live_from - 1, epoch=head.epoch + 1, data=adoption.chunk)
        op.shelf.append_chunk(chunk)
        if adoption.postings:
            op.shelf.put_postings(adoption.postings, adoption.merged_count)
        dropped_tokens = op.shelf.drop_live(live_from)
    op.shelf.put_layout(adoption.records, carried)
    op.update(
        epoch=head.epoch + 1,
        layout_token=adoption.layout_token,
        live_from=live_from,
        live_tokens=head.live_tokens - dropped_tokens,
        record_tokens=sum(record.tokens for record in adoption.records),
        carried_tokens=carried.tokens if carried else 0,
        trim=Trim(),
        room=adoption.room,
    )


def _carried_input(op: Operation, live_from: int) -> Carried | None:
    """The running turn's input, if its entry is not live any more: what the agent was asked stays in its window."""
    turn = op.require_turn(op.head.work) if op.head.work else None
    if turn is None or not 0 < turn.input_seq < live_from:
        return None
    leaving = op.shelf.live_entry(turn.input_seq)
    if leaving is not None:
        return Carried(leaving.seq, leaving.entry, leaving.tokens)
    return op.shelf.layout()[1]


def _judge_gain(op: Operation, gain_tokens: int) -> None:
    if gain_tokens > 0:
        op.update(no_gain_count=0)
    else:
        _count_no_gain(op)


def _count_no_gain(op: Operation) -> None:
    count = op.head.no_gain_count + 1
    op.update(no_gain_count=count)
    if count >= NO_GAIN_LIMIT:
        _back_off(op, NO_GAIN)


def _back_off(op: Operation, code: str) -> None:
    op.update(backoff_until=op.now + op.limits.no_gain_backoff_seconds, backoff_reason=code)


def fail_rotation(op: Operation, code: str) -> None:
    """End the pending rotation; nothing but the request is changed. The line is left alone for a while."""
    op.audit("rotation_failed", id=lanes.work_id(op, Lane.ROTATION), code=code)
    _clear(op)
    if code == NO_GAIN:
        _count_no_gain(op)
    else:
        _back_off(op, code)


def cancel_rotation(op: Operation) -> bool:
    if op.head.rotation is None:
        return False
    op.audit("rotation_cancelled", id=op.head.rotation.rotation_id)
    _clear(op)
    return True


def _clear(op: Operation) -> None:
    """Drop the pending rotation with its lane, steps and due member."""
    op.shelf.drop_due(DueKind.ROTATION, lanes.work_id(op, Lane.ROTATION))
    op.shelf.drop_steps(Lane.ROTATION)
    op.update(rotation=None)


def _adopted(op: Operation, adoption: Adoption, *, is_adopted: bool) -> Adopted:
    head = op.head
    return Adopted(
        is_adopted=is_adopted,
        epoch=head.epoch,
        rotation_id=head.rotation_requested_by(adoption.layout_token),
        disposal=head.has_due_disposal,
    )
