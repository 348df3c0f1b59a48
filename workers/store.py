"""RedisStore: the scripts of `workers/lua` as the typed methods of SessionStore, on Redis 7 or Valkey."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

from sessionlib.codec import encode, entries_digest, plain
from sessionlib.errors import InvalidInput, TurnConflict
from sessionlib.ids import require_id
from sessionlib.steps import EffectResult
from sessionlib.stores import checks
from sessionlib.stores.contract import (
    JOB_LANES,
    THREAD_HINT,
    Adopted,
    Adoption,
    AgentRef,
    Committed,
    DueItem,
    DueKind,
    Grant,
    Handle,
    Lane,
    Limits,
    Opened,
    OpenRequest,
    Refusal,
    RoundCommit,
    Snapshot,
    SubmitRequest,
    Submitted,
    TurnState,
)
from workers import wire
from workers.connection import client_for
from workers.jobs import StoreJobs
from workers.reads import StoreReads
from workers.scripted import require_reply
from workers.settings import Settings


class RedisStore(StoreReads, StoreJobs):
    """Sessions on a server. One a process is enough: threads share its connections."""

    @classmethod
    def connect(cls, settings: Settings, connections: int | None = None) -> Self:
        """The store that *settings* name, with their number of connections at most, or with fewer.

        Nothing is sent before the first call, but for a cluster, which is asked for its nodes. Raises InvalidInput, and
        StoreUnavailable for a cluster.
        """
        client = client_for(
            settings.store_url,
            sentinel_name=settings.sentinel_name,
            connections=min(connections or settings.store_connections, settings.store_connections),
        )
        limits = Limits(
            lease_seconds=settings.lease_seconds,
            idempotency_seconds=settings.idempotency_seconds,
            sweep_first_seconds=settings.sweep_seconds,
            journal_seconds=settings.journal_seconds,
        )
        return cls(client, namespace=settings.namespace, partitions=settings.partitions, limits=limits)

    def open(self, request: OpenRequest) -> Opened:
        checks.check_open(request)
        digest = entries_digest(request.history) if request.history else ""
        pairs = zip(request.history, request.sizes, strict=True)
        code, *reply = self._run(
            "open",
            request.session_id,
            request.agent.name,
            request.agent.digest,
            "1" if request.agent.is_pinned else "",
            request.agent_json,
            digest,
            sum(request.sizes),
            request.line_tokens,
            wire.seconds(request.retention_seconds),
            "1" if request.journal.on_close else "",
            "1" if request.journal.on_rotation else "",
            wire.seconds(request.journal.idle_seconds),
            *(wire.element(entry, tokens, f"history:{digest}") for entry, tokens in pairs),
        )
        if code == InvalidInput.code.encode():
            raise InvalidInput("history", digest, "must be absent, or what the session was opened with")
        require_reply(b"opened", code, request.session_id, reply)
        is_new, name, agent_digest, pinned, rotation = reply
        agent = AgentRef(name=name.decode(), digest=agent_digest.decode(), is_pinned=pinned == b"1")
        return Opened(is_new=is_new == 1, agent=agent, rotation_id=rotation.decode() or None)

    def submit(self, request: SubmitRequest) -> Submitted:
        checks.check_submit(request)
        code, *reply = self._run(
            "submit",
            request.session_id,
            request.turn_id,
            request.input.digest,
            wire.call_ids(call_id for call_id, _ in request.input.results),
            encode(request.input),
            request.busy,
            wire.seconds(request.timeout_seconds),
            wire.seconds(request.open_calls_seconds),
            "1" if request.is_own else "",
            "1" if request.is_streamed else "",
        )
        if code == TurnConflict.code.encode():
            raise TurnConflict(request.session_id, request.turn_id)
        if code == InvalidInput.code.encode():
            raise InvalidInput("results", [call_id for call_id, _ in request.input.results], reply[0].decode())
        require_reply(b"submitted", code, request.session_id, reply)
        state, is_new, is_dispatched, length = reply
        return Submitted(
            state=TurnState(state.decode()),
            is_new=is_new == 1,
            is_dispatched=is_dispatched == 1,
            queue_length=length,
        )

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        checks.check_token(token)
        script = "begin_job" if lane in JOB_LANES else "begin"
        reply = self._run(script, session_id, lane, token, *wire.known_arguments(session_id, known), own_turn_id)
        if reply[0] != b"granted":
            return Refusal(reply[0].decode())
        return wire.read_grant(session_id, lane, reply, known)

    def save_step(
        self, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None = None
    ) -> int:
        checks.check_step(grant, handle)
        return int(self._held("save_step", grant, position, wire.step(name, result), wire.handle_line(handle))[0])

    def renew(self, grant: Grant) -> None:
        self._held("renew", grant)

    def emit(self, grant: Grant, kind: str, data: dict[str, Any]) -> None:
        self._held(*_emission(grant, kind, data))

    def emit_all(self, events: Sequence[tuple[Grant, str, dict[str, Any]]]) -> Sequence[bool]:
        return self._hold_each([_emission(*event) for event in events])

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        checks.check_commit(commit)
        answer, step = commit.answer, commit.last_step
        calls = answer.open_calls if answer else ()
        epoch, layout_token, next_turn, rotation, disposal = self._held(
            "commit",
            grant,
            commit.commit_token,
            commit.round,
            commit.epoch,
            sum(commit.sizes),
            commit.input_index,
            "1" if commit.closes_calls else "",
            repr(commit.calibration),
            commit.line_tokens,
            encode(commit.trim),
            encode(commit.room),
            *wire.handle_arguments(commit.handle),
            encode(commit.window) if commit.window else "",
            wire.json_text(plain(answer)) if answer else "",
            wire.lines(calls),
            wire.call_ids(call.call_id for call in calls),
            *(
                wire.element(entry, tokens, commit.commit_token)
                for entry, tokens in zip(commit.entries, commit.sizes, strict=True)
            ),
            before=("save_step", wire.step_arguments(step)) if step else None,
        )
        return Committed(
            epoch=int(epoch),
            layout_token=layout_token.decode(),
            next_turn_id=next_turn.decode() or None,
            rotation_id=rotation.decode() or None,
            disposal=disposal == b"1",
        )

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        checks.check_adoption(adoption)
        is_adopted, epoch, rotation, disposal = self._held(
            "adopt",
            grant,
            adoption.layout_token,
            adoption.first_seq,
            adoption.dropped_count,
            adoption.old_layout_token,
            adoption.tail_seq,
            adoption.tail_token,
            wire.lines(adoption.records),
            sum(record.tokens for record in adoption.records),
            adoption.chunk,
            adoption.line_tokens,
            wire.json_text(adoption.figures),
            encode(adoption.room),
            *wire.postings_arguments(adoption),
        )
        return Adopted(
            is_adopted=is_adopted == 1,
            epoch=int(epoch),
            rotation_id=rotation.decode() or None,
            disposal=disposal == b"1",
        )

    def release(self, grant: Grant) -> None:
        self._run("release", grant.session_id, grant.lane, grant.token, grant.work_id)

    def fail(self, grant: Grant, code: str, reason: str, retry_seconds: float | None = None) -> str | None:
        if retry_seconds is not None:
            checks.check_seconds("retry_seconds", retry_seconds)
        (next_turn,) = self._held("fail", grant, code, reason, wire.seconds(retry_seconds))
        return next_turn.decode() or None

    def cancel(self, session_id: str, turn_id: str) -> TurnState:
        code, *reply = self._run("cancel", session_id, require_id("turn_id", turn_id))
        if code == InvalidInput.code.encode():
            raise InvalidInput("turn_id", turn_id, "must name a turn of the session")
        require_reply(b"state", code, session_id, reply)
        return TurnState(reply[0].decode())

    def request_rotation(self, session_id: str, reason: str) -> str:
        return str(self._known("request_rotation", session_id, reason).decode())

    def cancel_rotation(self, session_id: str) -> bool:
        return bool(self._known("cancel_rotation", session_id))

    def write_note(self, grant: Grant, name: str, text: str, *, key: str, append: bool = False) -> int:
        checks.check_note(grant, name, text, key)
        is_hint = "1" if name == THREAD_HINT else ""
        size, limit = self._held("write_note", grant, name, text, key, "1" if append else "", is_hint)
        if limit:
            raise checks.note_refusal(limit.decode(), self.limits, size)
        return int(size)

    def lift_brake(self, session_id: str) -> bool:
        return bool(self._known("lift_brake", session_id))

    def close(self, session_id: str, *, now: bool = False) -> None:
        self._known("close", session_id, "1" if now else "")

    def purge(self, session_id: str, batch: int = 1_000) -> bool:
        return bool(self._run("purge", session_id, batch))

    def due(self, partition: int, limit: int = 100) -> Sequence[DueItem]:
        self._require_partition(partition)
        members = self.scripts.run("due", self.keys.of_partition(partition), limit)
        parts = [member.decode().split("|", 2) for member in members]  # an orphan's id may hold anything
        return [DueItem(session_id=session_id, kind=DueKind(kind), id=work_id) for kind, session_id, work_id in parts]

    def close_open_calls(self, session_id: str) -> None:
        self._run("close_open_calls", session_id)

    def disposed(self, session_id: str, handle: str) -> None:
        self._run("disposed", session_id, json.dumps(handle))

    def let_go(self, session_id: str, orphan_id: str) -> None:
        checks.check_text("orphan_id", orphan_id)
        self._run("let_go", session_id, orphan_id)


def _emission(grant: Grant, kind: str, data: dict[str, Any]) -> tuple[str, Grant, str, str]:
    checks.check_data("data", data)
    if grant.lane is not Lane.TURN:
        raise InvalidInput("lane", grant.lane, "must be the turn lane: no other has an event stream")
    return "emit", grant, kind, wire.json_text(data)
