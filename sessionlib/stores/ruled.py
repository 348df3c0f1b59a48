"""RuledStore: the SessionStore methods over the rules in Python. A store adds transactions and shelves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sessionlib.errors import InvalidInput, LeaseLost
from sessionlib.ids import require_id
from sessionlib.steps import EffectResult
from sessionlib.stores import checks
from sessionlib.stores.contract import (
    JOB_LANES,
    Adopted,
    Adoption,
    Chunk,
    ChunkRef,
    Committed,
    DueItem,
    Event,
    Grant,
    Handle,
    HandoffRequest,
    JobSettled,
    JobView,
    JournalEntry,
    Lane,
    Limits,
    Opened,
    OpenRequest,
    PostingsRef,
    Refusal,
    RoundCommit,
    SessionView,
    Settled,
    Snapshot,
    SubmitRequest,
    Submitted,
    TurnState,
    TurnView,
)
from sessionlib.stores.rules import (
    digests,
    due,
    handles,
    handoffs,
    jobs,
    journal,
    lifecycle,
    notes,
    reading,
    room,
    rotations,
    turns,
    work,
)
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.shelf import DueShelf, Journal, Shelf


class RuledStore(ABC):
    """Checks what it is given, then runs one rule in one transaction. Reads its clock inside the transaction."""

    partition_count = 1

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits, self._clock = limits, clock

    @abstractmethod
    def _shelf(self, session_id: str, *, write: bool) -> AbstractContextManager[Shelf]:
        """One transaction on one session: kept when the block ends, undone when it raises."""

    @abstractmethod
    def _due_shelf(self) -> AbstractContextManager[DueShelf]:
        """One transaction on the due members."""

    @abstractmethod
    def _agent_journal(self, agent_name: str, *, write: bool) -> AbstractContextManager[Journal]:
        """One transaction on what is published of an agent's sessions."""

    @abstractmethod
    def sessions(self, partition: int, cursor: str = "", limit: int = 100) -> tuple[Sequence[str], str]: ...

    def _require_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partition_count:
            raise InvalidInput("partition", partition, f"must be below {self.partition_count}")

    @contextmanager
    def _operation(self, session_id: str, *, write: bool = True) -> Iterator[Operation]:
        require_id("session_id", session_id)
        with self._shelf(session_id, write=write) as shelf:
            operation = Operation(shelf, self._clock(), self.limits)
            yield operation
            operation.flush()

    def open(self, request: OpenRequest) -> Opened:
        checks.check_open(request)
        with self._operation(request.session_id) as op:
            return lifecycle.open_session(op, request)

    def submit(self, request: SubmitRequest) -> Submitted:
        checks.check_submit(request)
        with self._operation(request.session_id) as op:
            return turns.submit(op, request)

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        checks.check_token(token)
        with self._operation(session_id) as op:
            token = op.lane_token(token)
            if lane in JOB_LANES:
                return jobs.begin(op, lane, token, known)
            if lane is Lane.ROTATION:
                return rotations.begin(op, token, known)
            return turns.begin(op, token, known, own_turn_id)

    def snapshot(self, session_id: str, known: Snapshot | None = None) -> Snapshot:
        with self._operation(session_id, write=False) as op:
            return reading.snapshot(op, known)

    def save_step(
        self, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None = None
    ) -> int:
        checks.check_step(grant, handle)
        with self._disowning(grant, handle), self._operation(grant.session_id) as op:
            return work.save_step(op, grant, position, name, result, handle)

    def renew(self, grant: Grant) -> None:
        with self._operation(grant.session_id) as op:
            work.renew(op, grant)

    def emit(self, grant: Grant, kind: str, data: dict[str, Any]) -> None:
        checks.check_data("data", data)
        with self._operation(grant.session_id) as op:
            work.emit(op, grant, kind, data)

    def emit_all(self, events: Sequence[tuple[Grant, str, dict[str, Any]]]) -> Sequence[bool]:
        return [self._is_emitted(*event) for event in events]

    def _is_emitted(self, grant: Grant, kind: str, data: dict[str, Any]) -> bool:
        try:
            self.emit(grant, kind, data)
        except LeaseLost:
            return False
        return True

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        checks.check_commit(commit)
        step = commit.last_step
        with self._disowning(grant, step.handle if step else None), self._operation(grant.session_id) as op:
            if step:
                try:
                    work.save_step(op, grant, step.position, step.name, step.result, step.handle)
                except LeaseLost:  # as for a commit that is sent again; what it may do itself is checked next
                    _disown(op, grant, step.handle)
            return turns.commit(op, grant, commit)

    @contextmanager
    def _disowning(self, grant: Grant, handle: Handle | None) -> Iterator[None]:
        """What a step brought that is refused is nobody's: that must be known though nothing else is written."""
        try:
            yield
        except LeaseLost:
            with self._operation(grant.session_id) as op:
                _disown(op, grant, handle)
            raise

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        checks.check_adoption(adoption)
        with self._operation(grant.session_id) as op:
            return rotations.adopt(op, grant, adoption)

    def release(self, grant: Grant) -> None:
        with self._operation(grant.session_id) as op:
            work.release(op, grant)

    def fail(self, grant: Grant, code: str, reason: str, retry_seconds: float | None = None) -> str | None:
        if retry_seconds is not None:
            checks.check_seconds("retry_seconds", retry_seconds)
        with self._operation(grant.session_id) as op:
            return work.fail(op, grant, code, reason, retry_seconds)

    def cancel(self, session_id: str, turn_id: str) -> TurnState:
        require_id("turn_id", turn_id)
        with self._operation(session_id) as op:
            return turns.cancel(op, turn_id)

    def request_rotation(self, session_id: str, reason: str) -> str:
        with self._operation(session_id) as op:
            return rotations.request_rotation(op, reason)

    def cancel_rotation(self, session_id: str) -> bool:
        with self._operation(session_id) as op:
            return rotations.cancel_rotation(op)

    def request_handoff(self, request: HandoffRequest) -> JobView:
        checks.check_handoff(request)
        with self._operation(request.session_id) as op:
            return handoffs.request_handoff(op, request)

    def capture(self, session_id: str, reason: str) -> str | None:
        checks.check_text("reason", reason)
        with self._operation(session_id) as op:
            return digests.capture(op, reason)

    def settle(self, grant: Grant, settled: Settled) -> JobSettled:
        checks.check_settled(grant, settled)
        with self._operation(grant.session_id) as op:
            return jobs.settle(op, grant, settled)

    def job(self, session_id: str, lane: Lane, job_id: str) -> JobView | None:
        checks.check_job_lane(lane)
        require_id("job_id", job_id)
        with self._operation(session_id, write=False) as op:
            return reading.job(op, lane, job_id)

    def journal(self, session_id: str, limit: int = 1_000) -> Sequence[JournalEntry]:
        checks.check_count("limit", limit)
        with self._operation(session_id, write=False) as op:
            return journal.of_session(op, limit)

    def unpublished(self, session_id: str) -> Sequence[JournalEntry]:
        with self._operation(session_id) as op:
            return journal.unpublished(op)

    def publish(self, agent_name: str, entry: JournalEntry) -> None:
        checks.check_published(agent_name, entry)
        with self._agent_journal(agent_name, write=True) as published:
            journal.publish(published, entry, self._clock(), self.limits)

    def published(self, session_id: str, digest_id: str) -> None:
        require_id("digest_id", digest_id)
        with self._operation(session_id) as op:
            journal.published(op, digest_id)

    def recent_digests(self, agent_name: str, limit: int = 5) -> Sequence[JournalEntry]:
        require_id("agent_name", agent_name)
        checks.check_count("limit", limit)
        with self._agent_journal(agent_name, write=False) as published:
            return journal.newest(published, self._clock(), self.limits, limit)

    def close(self, session_id: str, *, now: bool = False) -> None:
        with self._operation(session_id) as op:
            lifecycle.close(op, now=now)

    def purge(self, session_id: str, batch: int = 1_000) -> bool:
        with self._operation(session_id) as op:
            return lifecycle.purge(op, batch)

    def due(self, partition: int, limit: int = 100) -> Sequence[DueItem]:
        self._require_partition(partition)
        with self._due_shelf() as shelf:
            return due.sweep(shelf, self._clock(), self.limits, limit)

    def close_open_calls(self, session_id: str) -> None:
        with self._operation(session_id) as op:
            lifecycle.close_open_calls(op)

    def handles_to_dispose(self, session_id: str) -> Sequence[Handle]:
        with self._operation(session_id, write=False) as op:
            return reading.handles_to_dispose(op)

    def disposed(self, session_id: str, handle: str) -> None:
        with self._operation(session_id) as op:
            handles.disposed(op, handle)

    def let_go(self, session_id: str, orphan_id: str) -> None:
        checks.check_text("orphan_id", orphan_id)
        with self._operation(session_id) as op:
            lifecycle.let_go(op, orphan_id)

    def turn(self, session_id: str, turn_id: str) -> TurnView | None:
        require_id("turn_id", turn_id)
        with self._operation(session_id, write=False) as op:
            return reading.turn_view(op, turn_id)

    def events(self, session_id: str, turn_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        require_id("turn_id", turn_id)
        checks.check_event_id("after", after)
        with self._operation(session_id, write=False) as op:
            return reading.events(op, turn_id, after, limit)

    def audit(self, session_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        checks.check_event_id("after", after)
        with self._operation(session_id, write=False) as op:
            return reading.audit(op, after, limit)

    def chunks(self, session_id: str, first_seq: int = 1, last_seq: int | None = None) -> Sequence[Chunk]:
        with self._operation(session_id, write=False) as op:
            return reading.chunks(op, first_seq, last_seq)

    def archive_index(self, session_id: str, limit: int = 1_000) -> Sequence[ChunkRef]:
        checks.check_count("limit", limit)
        with self._operation(session_id, write=False) as op:
            return reading.archive_index(op, limit)

    def postings_index(self, session_id: str) -> Sequence[PostingsRef]:
        with self._operation(session_id, write=False) as op:
            return reading.postings_index(op)

    def postings(self, session_id: str, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        checks.check_wanted(wanted)
        with self._operation(session_id, write=False) as op:
            return reading.postings(op, wanted)

    def notes(self, session_id: str) -> Mapping[str, int]:
        with self._operation(session_id, write=False) as op:
            return notes.notes(op)

    def note(self, session_id: str, name: str) -> str | None:
        checks.check_note_name(name)
        with self._operation(session_id, write=False) as op:
            return notes.note(op, name)

    def write_note(self, grant: Grant, name: str, text: str, *, key: str, append: bool = False) -> int:
        checks.check_note(grant, name, text, key)
        with self._operation(grant.session_id) as op:
            return notes.write_note(op, grant, name, text, key, append=append)

    def lift_brake(self, session_id: str) -> bool:
        with self._operation(session_id) as op:
            return room.lift_brake(op)

    def view(self, session_id: str) -> SessionView:
        with self._operation(session_id, write=False) as op:
            return reading.session_view(op)

    def agent_json(self, session_id: str) -> str:
        with self._operation(session_id, write=False) as op:
            return reading.agent_json(op)


def _disown(op: Operation, grant: Grant, handle: Handle | None) -> None:
    if handle is not None:
        handles.disown(op, grant.work_id, handle)
