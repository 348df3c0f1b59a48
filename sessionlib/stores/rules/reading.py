"""What can be asked of a session; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.layout import Layout
from sessionlib.stores.contract import (
    Chunk,
    ChunkRef,
    Event,
    Handle,
    JobView,
    Lane,
    PostingsRef,
    SessionView,
    Snapshot,
    TurnView,
)
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import Head, Job, StoredEvent
from sessionlib.transcript import Transcript


def snapshot(op: Operation, known: Snapshot | None = None) -> Snapshot:
    """The session as it is now; of what *known* has already, nothing is read again."""
    head = op.head
    return Snapshot(
        session_id=op.session_id,
        agent=head.agent,
        epoch=head.epoch,
        layout=_layout(op, head, known),
        layout_token=head.layout_token,
        tail_token=head.tail_token,
        calibration=head.calibration,
        window=head.window,
        trim=head.trim,
        handle=head.handle,
        room=head.room,
        open_calls=head.open_calls,
        abandoned=head.abandoned,
        sized_from_seq=head.sized_from_seq if head.sized_by == head.agent.digest else head.next_seq,
    )


def _layout(op: Operation, head: Head, known: Snapshot | None) -> Layout:
    if known is not None and known.session_id != op.session_id:
        known = None
    if known is not None and known.layout_token == head.layout_token and known.epoch == head.epoch:
        records, carried = known.layout.records, known.layout.carried
    else:
        records, carried = op.shelf.layout()
    return Layout(records, carried, _live(op, head, known))


def _live(op: Operation, head: Head, known: Snapshot | None) -> Transcript:
    """Live entries: the part of *known* that is still live, and what was appended since."""
    cached = known.layout.live if known is not None and _is_prefix(op, head, known) else Transcript(first_seq=1)
    if not cached.first_seq <= head.live_from <= cached.next_seq:
        cached = Transcript(first_seq=head.live_from)
    _, kept = cached.split_at(head.live_from - cached.first_seq)
    if kept.next_seq == head.next_seq:
        return kept if len(kept) < len(cached) else cached
    newer = op.shelf.live(kept.next_seq)
    return kept.append([item.entry for item in newer], [item.tokens for item in newer])


def _is_prefix(op: Operation, head: Head, known: Snapshot) -> bool:
    """Whether the newest entry that *known* has is the store's, by its commit token, not by its number."""
    next_seq = known.layout.live.next_seq
    if next_seq == head.next_seq:
        return known.tail_token == head.tail_token
    return bool(known.layout.live) and op.shelf.live_token(next_seq - 1) == known.tail_token


def turn_view(op: Operation, turn_id: str) -> TurnView | None:
    turn = None if op.is_gone else op.turn(turn_id)
    if turn is None:
        return None
    return TurnView(
        turn_id=turn.turn_id,
        state=turn.state,
        answer=turn.answer,
        error_code=turn.error_code,
        error=turn.error,
        rotations=tuple(json.loads(outcome) for outcome in turn.rotations),
        attempt=turn.tries.attempts,
        round_count=turn.rounds,
        first_seq=turn.first_seq,
        last_seq=turn.last_seq,
        submitted_at=turn.submitted,
        finished_at=turn.finished,
    )


def job(op: Operation, lane: Lane, job_id: str) -> JobView | None:
    found = None if op.is_gone else op.job(lane, job_id)
    return job_view(found) if found else None


def job_view(job: Job) -> JobView:
    return JobView(
        job_id=job.job_id,
        lane=job.lane,
        state=job.state,
        first_seq=job.first_seq,
        last_seq=job.last_seq,
        result=job.result,
        error_code=job.error_code,
        error=job.error,
        attempt=job.tries.attempts,
        submitted_at=job.submitted,
        finished_at=job.finished,
    )


def session_view(op: Operation) -> SessionView:
    head = op.head
    return SessionView(
        session_id=op.session_id,
        state=head.state,
        agent=head.agent,
        epoch=head.epoch,
        next_seq=head.next_seq,
        live_from=head.live_from,
        live_tokens=head.live_tokens,
        record_tokens=head.record_tokens,
        carried_tokens=head.carried_tokens,
        calibration=head.calibration,
        window=head.window,
        trim=head.trim,
        queued=tuple(op.shelf.inbox()),
        running=head.work or None,
        rotation_id=head.rotation.rotation_id if head.rotation else None,
        rotation_state=_rotation_state(head, op.now),
        open_calls=head.open_calls,
        created_at=head.created,
        updated_at=head.updated,
        archived_bytes=op.shelf.archived_bytes(),
        room=head.room,
    )


def _rotation_state(head: Head, now: float) -> str:
    if head.rotation is not None:
        return "running" if head.rotation.hold.is_live(now) else "pending"
    return f"backing off: {head.backoff_reason}" if head.backoff_until > now else ""


def handles_to_dispose(op: Operation) -> tuple[Handle, ...]:
    if op.is_gone:
        return ()
    due = (disposal for disposal in op.head.disposals if not disposal.waits_for)
    return tuple(replace(disposal.handle, parent=disposal.until) for disposal in due)


def events(op: Operation, turn_id: str, after: str, limit: int) -> Sequence[Event]:
    if op.is_gone or op.turn(turn_id) is None:
        return ()
    return _events(op.shelf.events(turn_id, event_number(after), limit))


def audit(op: Operation, after: str, limit: int) -> Sequence[Event]:
    return () if op.is_gone else _events(op.shelf.audit(event_number(after), limit))


def event_number(event_id: str) -> int:
    """The number behind an event's id; 0 for "". Raises InvalidInput."""
    if event_id and not (event_id.isascii() and event_id.isdigit()):
        raise InvalidInput("after", event_id, "must be the id of an event")
    return int(event_id or 0)


def _events(numbered: Sequence[tuple[int, StoredEvent]]) -> Sequence[Event]:
    return [
        Event(id=str(number), kind=event.kind, data=json.loads(event.data), at=event.at) for number, event in numbered
    ]


def chunks(op: Operation, first_seq: int, last_seq: int | None) -> Sequence[Chunk]:
    return () if op.is_gone else op.shelf.chunks(first_seq, last_seq)


def archive_index(op: Operation, limit: int) -> Sequence[ChunkRef]:
    return () if op.is_gone else op.shelf.chunk_index(limit)


def postings_index(op: Operation) -> Sequence[PostingsRef]:
    return () if op.is_gone else op.shelf.postings_index()


def postings(op: Operation, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
    if op.is_gone:
        return [b""] * len(wanted)
    return [op.shelf.postings_part(last_seq, part) or b"" for last_seq, part in wanted]


def agent_json(op: Operation) -> str:
    description = op.shelf.agent(op.head.agent.digest)
    if description is None:
        raise StoreCorrupt(f"session {op.session_id} follows agent {op.head.agent.name}, which is not there")
    return description
