"""A session's life: open, close, open calls that wait too long, purge."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.codec import entries_digest
from sessionlib.errors import InvalidInput, SessionBusy, SessionClosed
from sessionlib.stores.contract import AgentRef, DueKind, Opened, OpenRequest, SessionState
from sessionlib.stores.rules.ending import (
    abandon_calls,
    fail_turn,
    has_results_turn,
    make_next_due,
    rest,
    unfinished_turns,
)
from sessionlib.stores.rules.handles import leave_orphans
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.rotations import cancel_rotation, request_rotation
from sessionlib.stores.rules.state import Head, LiveEntry


def open_session(op: Operation, request: OpenRequest) -> Opened:
    head = op.stored_head
    digest = entries_digest(request.history) if request.history else ""
    if head is None:
        _create(op, request)
        is_new = True
    else:
        if head.purged:
            raise SessionBusy(op.session_id, "it is being purged")
        _require_confirmable(op, head, digest)
        _follow(op, head.agent, request)
        is_new = False
    if digest and op.head.history_digest != digest:
        _take_over(op, request, digest)
    return Opened(is_new=is_new, agent=op.head.agent, rotation_id=op.head.rotation_requested_by(f"history:{digest}"))


def _create(op: Operation, request: OpenRequest) -> None:
    op.create(
        Head(
            agent=request.agent,
            sized_by=request.agent.digest,
            journal=request.journal,
            retention_seconds=request.retention_seconds,
        )
    )
    op.shelf.put_agent(request.agent.digest, request.agent_json)
    op.audit("opened", agent=request.agent.name, digest=request.agent.digest)


def _require_confirmable(op: Operation, head: Head, digest: str) -> None:
    if head.state is SessionState.CLOSED:
        raise SessionClosed(op.session_id)
    if digest and digest != head.history_digest and (head.history_digest or head.next_seq > 1):
        raise InvalidInput(
            "history", digest, "must be absent, or what the session was opened with, once it has entries"
        )


def _follow(op: Operation, agent: AgentRef, request: OpenRequest) -> None:
    """A new agent version applies from the next turn, unless the session is pinned to the old."""
    if agent.is_pinned:
        return
    if request.agent.is_pinned:
        op.update(agent=replace(agent, is_pinned=True))
    elif (request.agent.name, request.agent.digest) != (agent.name, agent.digest):
        op.update(agent=request.agent, journal=request.journal)
        op.shelf.put_agent(request.agent.digest, request.agent_json)
        op.audit("agent_version", agent=request.agent.name, digest=request.agent.digest)


def _take_over(op: Operation, request: OpenRequest, digest: str) -> None:
    """Make a conversation that began elsewhere the session's first live entries."""
    token = f"history:{digest}"
    op.shelf.append_live(
        [
            LiveEntry(seq, entry, tokens, token)
            for seq, (entry, tokens) in enumerate(zip(request.history, request.sizes, strict=True), start=1)
        ]
    )
    op.update(
        history_digest=digest,
        next_seq=len(request.history) + 1,
        live_tokens=sum(request.sizes),
        tail_token=token,
    )
    if op.head.live_tokens >= request.line_tokens:
        request_rotation(op, "history", token)


def close(op: Operation, *, now: bool) -> None:
    if op.head.state is SessionState.OPEN:
        op.update(state=SessionState.CLOSED)
        op.audit("closed")
        rest(op)
    if now:
        for turn in unfinished_turns(op):
            fail_turn(op, turn, "closed", "its session was closed")
        cancel_rotation(op)


def close_open_calls(op: Operation) -> None:
    if op.is_gone or has_results_turn(op):
        return
    if op.head.calls_wait:
        abandon_calls(op, "timeout")
        make_next_due(op)


def let_go(op: Operation, orphan_id: str) -> None:
    """Whatever has become of the session: an orphan is none of it."""
    op.shelf.drop_due(DueKind.ORPHAN, orphan_id)


def purge(op: Operation, batch: int) -> bool:
    """One bounded step of deleting a session; the tombstone goes last."""
    if op.stored_head is None:
        return True
    if not op.stored_head.purged:
        _entomb(op)
    if not op.shelf.erase(batch):
        return False
    op.shelf.drop_due(DueKind.RETENTION, "")
    op.drop_head()
    return True


def _entomb(op: Operation) -> None:
    """Refuse everything from now on; the reaper finishes what this caller does not. What providers hold for the session
    must not stay behind: it is due by itself."""
    op.shelf.count_unfinished(-(op.shelf.inbox_count() + bool(op.head.work)))
    op.shelf.drop_all_due()
    leave_orphans(op)
    op.due(DueKind.RETENTION)
    op.update(purged=True)
