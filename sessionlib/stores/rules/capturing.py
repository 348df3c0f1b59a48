"""When a stretch is to be captured, and how long a closed session is kept for what is still to be done with it."""

from __future__ import annotations

from sessionlib.stores.contract import DueKind, SessionState
from sessionlib.stores.rules.operation import Operation

KEEPING_KINDS = (DueKind.TURN, DueKind.HANDOFF, DueKind.DIGEST, DueKind.CAPTURE, DueKind.PUBLICATION)
"""What a closed session is kept for."""


def capture_now(op: Operation) -> None:
    """A stretch is finished: it is due for a digest, if there is anything that no digest covers."""
    if op.head.next_seq - 1 > op.head.digested_seq:
        make_capture_due(op)


def capture_when_idle(op: Operation, idle_seconds: float) -> None:
    """The stretch will be finished if nobody speaks for so long; what is due already stays due."""
    if not op.shelf.is_overdue(DueKind.CAPTURE, op.now):
        make_capture_due(op, after=idle_seconds)


def make_capture_due(op: Operation, *, after: float = 0.0) -> None:
    op.due(DueKind.CAPTURE, after=after)
    suspend_retention(op)


def begin_retention(op: Operation) -> None:
    """A closed session with nothing unfinished is kept for its retention time from now on, if it has one."""
    head = op.head
    if head.state is not SessionState.CLOSED or head.retention_seconds is None:
        return
    if not op.shelf.has_due(DueKind.RETENTION, *KEEPING_KINDS):
        op.due(DueKind.RETENTION, after=head.retention_seconds)


def suspend_retention(op: Operation) -> None:
    """A closed session has something unfinished again: its retention begins anew when that has ended."""
    if op.head.state is SessionState.CLOSED:
        op.shelf.drop_due(DueKind.RETENTION, "")
