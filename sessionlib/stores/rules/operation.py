"""Operation: one session, one transaction, one moment; what the rules share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sessionlib.errors import StoreCorrupt, UnknownSession
from sessionlib.stores.contract import DueKind, Lane, Limits
from sessionlib.stores.rules.shelf import Shelf
from sessionlib.stores.rules.state import Head, Job, Rotation, StoredEvent, Turn


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

    def lane_token(self, token: str) -> str:
        """The token of a `begin` as a lane keeps it: with the time at which the session was opened.

        A begin that is sent again may find its session purged and opened anew, with the same work ids. What is granted
        to it then must not pass for what it was granted before, should a copy of the store bring that session back.
        """
        return token if self.is_gone else f"{token}@{self.head.created:.6f}"

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
        return None if turn and self._is_forgotten(turn) else turn

    def require_turn(self, turn_id: str) -> Turn:
        """A turn that the head or the inbox names. Raises StoreCorrupt if it is not there."""
        turn = self.shelf.turn(turn_id)
        if turn is None:
            raise StoreCorrupt(f"session {self.session_id} names turn {turn_id}, which is not there")
        return turn

    def job(self, lane: Lane, job_id: str) -> Job | None:
        """A job that is remembered, as `turn`."""
        job = self.shelf.job(lane, job_id)
        return None if job and self._is_forgotten(job) else job

    def require_job(self, lane: Lane, job_id: str) -> Job:
        """A job that the head or its queue names. Raises StoreCorrupt if it is not there."""
        job = self.shelf.job(lane, job_id)
        if job is None:
            raise StoreCorrupt(f"session {self.session_id} names {lane} {job_id}, which is not there")
        return job

    def _is_forgotten(self, work: Turn | Job) -> bool:
        return work.state.is_finished and work.finished + self.limits.idempotency_seconds <= self.now

    def require_rotation(self) -> Rotation:
        """The pending rotation, where there must be one. Raises StoreCorrupt."""
        if self.head.rotation is None:
            raise StoreCorrupt(f"session {self.session_id} has a rotation at work but none pending")
        return self.head.rotation

    def event(self, turn_id: str, kind: str, /, **data: Any) -> None:
        self.shelf.append_event(turn_id, StoredEvent(kind, dumps(data), self.now))

    def newest_event(self, turn_id: str, kind: str) -> dict[str, Any] | None:
        """Data of the turn's newest event of that kind, if it has one."""
        event = self.shelf.newest_event(turn_id, kind)
        return None if event is None else json.loads(event.data)

    def audit(self, kind: str, /, **data: Any) -> None:
        self.shelf.append_audit(StoredEvent(kind, dumps(data), self.now), self.limits.audit_limit)

    def due(self, kind: DueKind, work_id: str = "", *, after: float = 0.0) -> None:
        """Make a thing due *after* so many seconds."""
        self.shelf.put_due(kind, work_id, self.now + after)


def due_kind(lane: Lane) -> DueKind:
    """Of the due members of a lane's work: they are called alike."""
    return DueKind(lane)


def dumps(data: Any) -> str:
    """Figures and events as JSON in ASCII. Raises ValueError for NaN and infinities."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
