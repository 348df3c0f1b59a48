"""The turn lane: submit, begin, commit, cancel."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.codec import plain
from sessionlib.errors import InvalidInput, LeaseLost, SessionBusy, SessionClosed, TurnConflict
from sessionlib.stores.contract import (
    Busy,
    Committed,
    DueKind,
    Grant,
    Lane,
    Refusal,
    RoundCommit,
    SessionState,
    Snapshot,
    SubmitRequest,
    Submitted,
    TurnState,
)
from sessionlib.stores.rules import handles, lanes
from sessionlib.stores.rules.ending import (
    abandon_calls,
    answer_turn,
    cancel_turn,
    fail_turn,
    has_results_turn,
    may_begin,
    next_turn_id,
    unfinished_turns,
)
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.room import keep_room
from sessionlib.stores.rules.rotations import check_line
from sessionlib.stores.rules.state import LiveEntry, Tries, Turn
from sessionlib.stores.rules.tries import ENDED_PER_BEGIN, Ending, granted, obstacle

FORGOTTEN_PER_SUBMIT = 16
"""Turns past their idempotency time that one `submit` deletes: more than it adds, so they cannot pile up."""


def submit(op: Operation, request: SubmitRequest) -> Submitted:
    head, turn = op.head, op.turn(request.turn_id)
    if turn is not None:
        if turn.digest != request.input.digest:
            raise TurnConflict(op.session_id, request.turn_id)
        return _submitted(op, turn, is_new=False)
    if head.state is SessionState.CLOSED:
        raise SessionClosed(op.session_id)
    _admit(op, request)
    op.shelf.forget_turns(op.now - op.limits.idempotency_seconds, FORGOTTEN_PER_SUBMIT)
    if request.busy is Busy.INTERRUPT and not request.input.results:
        for unfinished in unfinished_turns(op):
            cancel_turn(op, unfinished, "interrupted", "a newer message took its place")
        abandon_calls(op, "interrupted")
    return _enqueue(op, request)


def _admit(op: Operation, request: SubmitRequest) -> None:
    """Raises InvalidInput for results that nobody waits for, SessionBusy by policy or limit."""
    head, results = op.head, request.input.results
    count = _unfinished_count(op)
    if results:
        _require_open_calls(op, {call_id for call_id, _ in results})
    if request.busy is Busy.REJECT and count:
        raise SessionBusy(op.session_id, f"it has {count} unfinished turns")
    if request.busy is Busy.REJECT and head.calls_wait and not results:
        raise SessionBusy(op.session_id, "open calls wait for their results")
    if count >= op.limits.inbox_limit:
        raise SessionBusy(op.session_id, f"{count} turns are unfinished, its limit")
    if op.shelf.unfinished() >= op.limits.queued_limit:
        raise SessionBusy(op.session_id, f"{op.limits.queued_limit} turns of its partition are unfinished, the limit")


def _require_open_calls(op: Operation, call_ids: set[str]) -> None:
    open_ids = {call.call_id for call in op.head.open_calls}
    if not op.head.calls_wait or call_ids != open_ids:
        waiting = ", ".join(sorted(open_ids)) if op.head.calls_wait else "none"
        raise InvalidInput("results", sorted(call_ids), f"must be for exactly the calls that wait ({waiting})")
    if has_results_turn(op):
        raise InvalidInput("results", sorted(call_ids), "must not be given twice: a turn with these results is queued")


def _enqueue(op: Operation, request: SubmitRequest) -> Submitted:
    turn = Turn(
        turn_id=request.turn_id,
        digest=request.input.digest,
        result_ids=tuple(call_id for call_id, _ in request.input.results),
        timeout_seconds=request.timeout_seconds,
        open_calls_seconds=request.open_calls_seconds,
        is_own=request.is_own,
        is_streamed=request.is_streamed,
        tries=Tries(deadline=op.now + request.timeout_seconds if request.is_own else 0.0),
        submitted=op.now,
    )
    op.shelf.put_turn(turn)
    op.shelf.put_input(turn.turn_id, request.input)
    op.shelf.push(turn.turn_id, front=bool(turn.result_ids))
    op.shelf.count_unfinished(1)
    op.event(turn.turn_id, "queued")
    op.update()
    submitted = _submitted(op, turn, is_new=True)
    op.due(DueKind.TURN, turn.turn_id, after=0.0 if submitted.is_dispatched else op.limits.sweep_first_seconds)
    return submitted


def _submitted(op: Operation, turn: Turn, *, is_new: bool) -> Submitted:
    return Submitted(
        state=turn.state, is_new=is_new, is_dispatched=may_begin(op, turn), queue_length=_unfinished_count(op)
    )


def _unfinished_count(op: Operation) -> int:
    return op.shelf.inbox_count() + bool(op.head.work)


def begin(op: Operation, token: str, known: Snapshot | None, own_turn_id: str) -> Grant | Refusal:
    barred = lanes.bar(op, Lane.TURN, token)
    if barred:
        return barred
    if op.head.hold.token == token:
        return _grant(op, known)
    for _ in range(ENDED_PER_BEGIN):
        turn_id = op.head.work or op.shelf.inbox_front()
        if turn_id is None:
            return Refusal.NOTHING
        turn = op.require_turn(turn_id)
        stop = _calls_bar(op, turn) or obstacle(op, turn.tries) or _owner_bar(turn, own_turn_id)
        if stop is Refusal.NOTHING:
            return Refusal.NOTHING
        if isinstance(stop, Ending):
            fail_turn(op, turn, stop.code, stop.reason)
        else:
            _take(op, turn, token)
            return _grant(op, known)
    return Refusal.NOTHING


def _calls_bar(op: Operation, turn: Turn) -> Ending | Refusal | None:
    """What open calls mean for a turn that has not begun: while they wait, only their results may go on."""
    if turn.state is TurnState.RUNNING:
        return None
    if not turn.result_ids:
        return Refusal.NOTHING if op.head.calls_wait else None
    if op.head.calls_wait and {call.call_id for call in op.head.open_calls} == set(turn.result_ids):
        return None
    return Ending("calls_closed", "the calls that its results are for were closed before it began")


def _owner_bar(turn: Turn, own_turn_id: str) -> Refusal | None:
    """A caller gets the turn that it runs itself and no other; a worker gets every other."""
    if turn.is_own or own_turn_id:
        return None if turn.turn_id == own_turn_id else Refusal.NOTHING
    return None


def _take(op: Operation, turn: Turn, token: str) -> None:
    """Grant the lane to *token* for this turn, which sizes its entries for the agent version of now."""
    if op.head.sized_by != op.head.agent.digest:
        op.update(sized_by=op.head.agent.digest, sized_from_seq=op.head.next_seq)
    if turn.state is TurnState.QUEUED:
        op.shelf.pull(turn.turn_id)
        op.update(work=turn.turn_id)
    tries = granted(turn.tries, op.now + turn.timeout_seconds)
    op.shelf.put_turn(replace(turn, state=TurnState.RUNNING, tries=tries))
    lanes.extend_lease(op, Lane.TURN, token)
    op.event(turn.turn_id, "started", attempt=tries.attempts)


def _grant(op: Operation, known: Snapshot | None) -> Grant:
    turn = op.require_turn(op.head.work)
    return lanes.grant(
        op,
        Lane.TURN,
        turn.tries,
        known,
        input=op.shelf.input(turn.turn_id),
        first_round=turn.rounds,
        input_seq=turn.input_seq,
        is_streamed=turn.is_streamed,
    )


def commit(op: Operation, grant: Grant, commit: RoundCommit) -> Committed:
    turn = None if op.is_gone else op.turn(grant.work_id)
    if turn is not None and turn.commit_token == commit.commit_token:
        return _committed(op, commit)
    lanes.require_held(op, grant)
    if turn is None or turn.rounds != commit.round:
        raise LeaseLost(op.session_id, grant.lane)
    turn = _record_round(op, turn, commit)
    op.event(
        turn.turn_id,
        "round",
        round=commit.round,
        tokens=sum(commit.sizes),
        epoch=commit.epoch,
        trim=plain(commit.trim),
    )
    if commit.answer is None:
        op.shelf.put_turn(turn)
        lanes.extend_lease(op, Lane.TURN, grant.token)
    else:
        answer_turn(op, turn, commit.answer)
    check_line(op, commit.line_tokens, commit.commit_token)
    return _committed(op, commit)


def _record_round(op: Operation, turn: Turn, commit: RoundCommit) -> Turn:
    """Append the entries and bring the head up to date; the turn as it is after this round."""
    head = op.head
    first_seq, last_seq = head.next_seq, head.next_seq + len(commit.entries) - 1
    op.shelf.append_live(
        [
            LiveEntry(first_seq + index, entry, tokens, commit.commit_token)
            for index, (entry, tokens) in enumerate(zip(commit.entries, commit.sizes, strict=True))
        ]
    )
    if commit.closes_calls:
        op.update(open_calls=(), abandoned="")
        op.shelf.drop_due(DueKind.OPEN_CALLS, "")
    op.update(
        next_seq=last_seq + 1,
        live_tokens=head.live_tokens + sum(commit.sizes),
        tail_token=commit.commit_token,
        calibration=max(head.calibration, commit.calibration),
        window=commit.window or head.window,
    )
    if commit.epoch == head.epoch:  # what a turn learned about an older one is not stored
        op.update(trim=commit.trim)
        keep_room(op, commit.room)
    handles.keep_handle(op, turn, commit)
    saved_count = op.shelf.step_count(Lane.TURN)
    op.shelf.drop_steps(Lane.TURN)
    return replace(
        turn,
        handles=(),
        tries=replace(turn.tries, progress=True, step_base=turn.tries.step_base + saved_count),
        rounds=turn.rounds + 1,
        commit_token=commit.commit_token,
        first_seq=turn.first_seq or first_seq,
        last_seq=last_seq,
        input_seq=first_seq + commit.input_index if turn.rounds == 0 and commit.input_index >= 0 else turn.input_seq,
    )


def _committed(op: Operation, commit: RoundCommit) -> Committed:
    head = op.head
    return Committed(
        epoch=head.epoch,
        layout_token=head.layout_token,
        next_turn_id=next_turn_id(op),
        rotation_id=head.rotation_requested_by(commit.commit_token),
        disposal=head.has_due_disposal,
    )


def cancel(op: Operation, turn_id: str) -> TurnState:
    turn = op.turn(turn_id) if op.head else None
    if turn is None:
        raise InvalidInput("turn_id", turn_id, "must name a turn of the session")
    if turn.state.is_finished:
        return turn.state
    cancel_turn(op, turn, "cancelled", "it was cancelled")
    return TurnState.CANCELLED
