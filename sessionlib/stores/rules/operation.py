"""Operation: one session, one transaction, one moment; what the rules share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sessionlib.errors import LeaseLost, StoreCorrupt, UnknownSession
from sessionlib.stores.contract import DueKind, Grant, Lane, Limits
from sessionlib.stores.rules.shelf import Shelf
from sessionlib.stores.rules.state import Head, Hold, Rotation, StoredEvent, Tries, Turn


class Operation:
    """What one operation reads and writes. The head is written once, by `flush`, if it was changed."""

    def __init__(self, shelf: Shelf, now: float, limits: Limits) -> None:
        self.shelf, self.now, self.limits = shelf, now, limits
        self._head = shelf.head()
        self._is_changed = False

    @property
    def session_id(self) -> str:
        return self.shelf.session_id

    @property
    def stored_head(self) -> Head | None:
        """The head, a tombstone included."""
        return self._head

    @property
    def is_gone(self) -> bool:
        return self._head is None or self._head.purged

    @property
    def head(self) -> Head:
        """Raises UnknownSession, also for a tombstone."""
        if self._head is None or self._head.purged:
            raise UnknownSession(self.session_id)
        return self._head

    def create(self, head: Head) -> None:
        self._head, self._is_changed = replace(head, created=self.now, updated=self.now), True

    def update(self, **changes: Any) -> None:
        """Change fields of the head."""
        self._head, self._is_changed = replace(self.head, updated=self.now, **changes), True

    def drop_head(self) -> None:
        self.shelf.drop_head()
        self._head, self._is_changed = None, False

    def flush(self) -> None:
        if self._is_changed and self._head is not None:
            self.shelf.put_head(self._head)

    def turn(self, turn_id: str) -> Turn | None:
        """A turn that is remembered: its id is forgotten `idempotency_seconds` after it ended."""
        turn = self.shelf.turn(turn_id)
        if turn and turn.state.is_finished and turn.finished + self.limits.idempotency_seconds <= self.now:
            return None
        return turn

    def require_turn(self, turn_id: str) -> Turn:
        """A turn that the head or the inbox names. Raises StoreCorrupt if it is not there."""
        turn = self.shelf.turn(turn_id)
        if turn is None:
            raise StoreCorrupt(f"session {self.session_id} names turn {turn_id}, which is not there")
        return turn

    def require_rotation(self) -> Rotation:
        """The pending rotation, where there must be one. Raises StoreCorrupt."""
        if self.head.rotation is None:
            raise StoreCorrupt(f"session {self.session_id} has a rotation at work but none pending")
        return self.head.rotation

    def event(self, turn_id: str, kind: str, **data: Any) -> None:
        self.shelf.append_event(turn_id, StoredEvent(kind, dumps(data), self.now))

    def audit(self, kind: str, **data: Any) -> None:
        self.shelf.append_audit(StoredEvent(kind, dumps(data), self.now), self.limits.audit_limit)

    def due(self, kind: DueKind, work_id: str = "", *, after: float = 0.0) -> None:
        """Make a thing due *after* so many seconds."""
        self.shelf.put_due(kind, work_id, self.now + after)

    def hold(self, lane: Lane) -> Hold:
        if lane is Lane.TURN:
            return self.head.hold
        return self.head.rotation.hold if self.head.rotation else Hold()

    def work_id(self, lane: Lane) -> str:
        """The work that was begun in a lane (turn) or waits there (rotation); "" without any."""
        if lane is Lane.TURN:
            return self.head.work
        return self.head.rotation.rotation_id if self.head.rotation else ""

    def require_held(self, grant: Grant) -> None:
        """Raises LeaseLost unless the grant's token and work are the lane's."""
        if (
            self.is_gone
            or not grant.token
            or self.hold(grant.lane).token != grant.token
            or self.work_id(grant.lane) != grant.work_id
        ):
            raise LeaseLost(self.session_id, grant.lane)

    def set_hold(self, lane: Lane, hold: Hold) -> None:
        if lane is Lane.TURN:
            self.update(hold=hold)
        else:
            self.update(rotation=replace(self.require_rotation(), hold=hold))

    def tries(self, lane: Lane) -> Tries:
        """Of the lane's work; there must be some."""
        if lane is Lane.TURN:
            return self.require_turn(self.head.work).tries
        return self.require_rotation().tries

    def set_tries(self, lane: Lane, tries: Tries) -> None:
        if lane is Lane.TURN:
            self.shelf.put_turn(replace(self.require_turn(self.head.work), tries=tries))
        else:
            self.update(rotation=replace(self.require_rotation(), tries=tries))

    def extend_lease(self, lane: Lane, token: str) -> None:
        """Give the lane to *token* for a lease from now; its due member stands at the lease's end."""
        self.set_hold(lane, Hold(token=token, lease=self.now + self.limits.lease_seconds))
        self.due(due_kind(lane), self.work_id(lane), after=self.limits.lease_seconds)


def due_kind(lane: Lane) -> DueKind:
    return DueKind.TURN if lane is Lane.TURN else DueKind.ROTATION


def dumps(data: Any) -> str:
    """Figures and events as JSON in ASCII. Raises ValueError for NaN and infinities."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
