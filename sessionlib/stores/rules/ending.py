"""How a turn ends, whatever ends it, and which turn may begin next."""

from __future__ import annotations

import json
from dataclasses import replace

from sessionlib.codec import plain
from sessionlib.stores.contract import DELTA, Answer, DueKind, Lane, SessionState, TurnState
from sessionlib.stores.rules.capturing import begin_retention, capture_now, capture_when_idle
from sessionlib.stores.rules.handles import free_disposals, let_go_of_untaken
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import Hold, Turn


def answer_turn(op: Operation, turn: Turn, answer: Answer) -> None:
    """End a turn with its answer: it takes the rotation outcomes since the last, and its open calls wait."""
    outcomes = op.head.outcomes
    figures = [json.loads(outcome) for outcome in outcomes]
    op.update(outcomes=())
    if answer.open_calls:
        op.update(open_calls=answer.open_calls, abandoned="")
        op.due(DueKind.OPEN_CALLS, after=turn.open_calls_seconds)
    _finish(op, replace(turn, state=TurnState.ANSWERED, answer=answer, rotations=outcomes))
    op.event(turn.turn_id, "answered", answer=plain(answer), rotations=figures)
    if op.head.journal.idle_seconds is not None:
        capture_when_idle(op, op.head.journal.idle_seconds)
    _go_on(op, turn)


def fail_turn(op: Operation, turn: Turn, code: str, reason: str) -> None:
    _finish(op, replace(turn, state=TurnState.FAILED, error_code=code, error=reason))
    op.event(turn.turn_id, "failed", code=code, reason=reason)
    op.audit("turn_failed", turn_id=turn.turn_id, code=code)
    _go_on(op, turn, code)


def cancel_turn(op: Operation, turn: Turn, code: str, reason: str) -> None:
    _finish(op, replace(turn, state=TurnState.CANCELLED, error_code=code, error=reason))
    op.event(turn.turn_id, "cancelled", code=code)
    _go_on(op, turn, code)


def unfinished_turns(op: Operation) -> list[Turn]:
    """Every unfinished turn, the running one last: ended in this order, none is made due on the way."""
    running = [op.head.work] if op.head.work else []
    return [op.require_turn(turn_id) for turn_id in (*op.shelf.inbox(), *running)]


def has_results_turn(op: Operation) -> bool:
    """Whether a turn with results is unfinished: it runs, or stands at the front."""
    first = op.head.work or op.shelf.inbox_front()
    return first is not None and bool(op.require_turn(first).result_ids)


def abandon_calls(op: Operation, reason: str) -> None:
    """The open calls will get no results; the next turn closes them and says so. Nothing if none wait."""
    if op.head.calls_wait:
        op.update(abandoned=reason)
        op.shelf.drop_due(DueKind.OPEN_CALLS, "")


def may_begin(op: Operation, turn: Turn) -> bool:
    """The lane has no work, the turn is at the front, and open calls do not bar it."""
    if op.head.work or turn.state is not TurnState.QUEUED or op.shelf.inbox_front() != turn.turn_id:
        return False
    return bool(turn.result_ids) or not op.head.calls_wait


def next_turn_id(op: Operation) -> str | None:
    """The front of the inbox, if it may begin now."""
    front = None if op.head.work else op.shelf.inbox_front()
    return front if front and may_begin(op, op.require_turn(front)) else None


def make_next_due(op: Operation) -> None:
    front = next_turn_id(op)
    if front:
        op.due(DueKind.TURN, front)


def _finish(op: Operation, turn: Turn) -> None:
    """Take a turn out of lane, inbox and due. Its input, which may be large, stands in history if it came that far."""
    op.shelf.put_turn(replace(turn, finished=op.now, handles=()))
    op.shelf.drop_input(turn.turn_id)
    op.shelf.drop_due(DueKind.TURN, turn.turn_id)
    op.shelf.count_unfinished(-1)
    if op.head.work == turn.turn_id:
        op.shelf.drop_steps(Lane.TURN)
        op.update(work="", hold=Hold())
    else:
        op.shelf.pull(turn.turn_id)


def _go_on(op: Operation, turn: Turn, code: str = "") -> None:
    """What the end of a turn sets free. Its last event stands already: no later one takes the number of a delta."""
    op.shelf.drop_events(turn.turn_id, DELTA)
    let_go_of_untaken(op, turn)
    if turn.result_ids and turn.rounds == 0:
        abandon_calls(op, code)
    free_disposals(op, turn.turn_id)
    make_next_due(op)
    if op.head.state is SessionState.CLOSED:
        rest(op)


def rest(op: Operation) -> None:
    """Nothing will come any more to a closed session without unfinished turns: its last stretch is finished."""
    if op.head.work or op.shelf.inbox_front() is not None:
        return
    if op.head.journal.on_close:
        capture_now(op)
    begin_retention(op)
