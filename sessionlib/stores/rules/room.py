"""Where a session under `work_room` stands, and its brake, which an operator may lift."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.stores.contract import Room
from sessionlib.stores.rules.operation import Operation


def keep_room(op: Operation, room: Room) -> None:
    """Store what the turn that runs says of the room."""
    if op.head.lifted_under == op.head.hold.token:
        room = _unbraked(room)  # it may still go by the brake that was lifted since it was granted
    if room.is_braked and not op.head.room.is_braked:
        op.audit("braked", turn_id=op.head.work)
    op.update(room=room)


def lift_brake(op: Operation) -> bool:
    room = op.head.room
    if not room.is_braked:
        return False
    op.update(room=_unbraked(room), lifted_under=op.head.hold.token)
    op.audit("brake_lifted")
    return True


def _unbraked(room: Room) -> Room:
    return replace(room, is_braked=False, breathless_count=0)
