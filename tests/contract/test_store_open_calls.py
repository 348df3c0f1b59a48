"""Contract of open calls: a turn that ended in calls which the caller must answer."""

from __future__ import annotations

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, SessionBusy
from sessionlib.stores.contract import Busy, DueKind, Refusal, TurnState
from tests.contract.arena import SESSION, Arena, calls
from tests.contract.conftest import MakeArena


@pytest.fixture
def waiting(arena: Arena) -> Arena:
    """A session whose last turn left the calls c1 and c2 open."""
    arena.answer("t1", "hello", "c1", "c2")
    return arena


def close_calls(arena: Arena, turn_id: str, *open_ids: str) -> None:
    """Run the turn that closes the open calls."""
    grant = arena.begin()
    assert grant.work_id == turn_id
    entries = [Entry.tool_result(call.call_id, "result") for call in grant.snapshot.open_calls]
    arena.finish(
        grant,
        *open_ids,
        entries=(*entries, Entry.assistant("done")),
        sizes=(1,) * (len(entries) + 1),
        input_index=-1,
        closes_calls=True,
    )


def state_of(arena: Arena, turn_id: str) -> tuple[TurnState, str]:
    view = arena.store.turn(SESSION, turn_id)
    assert view is not None
    return view.state, view.error_code


def test_open_calls_are_seen(waiting: Arena) -> None:
    """In the answer, the snapshot and the view."""
    assert waiting.store.snapshot(SESSION).open_calls == calls("c1", "c2")
    assert waiting.store.view(SESSION).open_calls == calls("c1", "c2")
    view = waiting.store.turn(SESSION, "t1")
    assert view is not None
    assert view.answer is not None
    assert view.answer.open_calls == calls("c1", "c2")


def test_message_waits_behind_open_calls(waiting: Arena) -> None:
    """It is queued, not dispatched, and not granted."""
    assert not waiting.submit("t2").is_dispatched
    assert waiting.try_begin() is Refusal.NOTHING


def test_results_go_first(waiting: Arena) -> None:
    """The turn with the results overtakes messages that wait."""
    waiting.submit("t2")
    assert waiting.submit_results("r1", "c1", "c2").is_dispatched
    grant = waiting.begin()
    assert grant.input is not None
    assert (grant.work_id, dict(grant.input.results)["c2"]) == ("r1", "result of c2")


def test_closed_calls_let_messages_go_on(waiting: Arena) -> None:
    """After the results turn the message that waited is next."""
    waiting.submit("t2")
    waiting.submit_results("r1", "c1", "c2")
    close_calls(waiting, "r1")
    assert waiting.store.snapshot(SESSION).open_calls == ()
    assert waiting.begin().work_id == "t2"


def test_a_results_turn_may_open_calls_again(waiting: Arena) -> None:
    """The new calls wait in their turn."""
    waiting.submit_results("r1", "c1", "c2")
    close_calls(waiting, "r1", "c3")
    assert waiting.store.snapshot(SESSION).open_calls == calls("c3")
    assert waiting.submit_results("r2", "c3").is_dispatched


def test_calls_opened_by_a_results_turn_are_due_after_their_time(waiting: Arena) -> None:
    """They wait no longer than others."""
    waiting.submit_results("r1", "c1", "c2", open_calls_seconds=60.0)
    close_calls(waiting, "r1", "c3")
    waiting.advance(61.0)
    assert waiting.swept(DueKind.OPEN_CALLS) == [""]


@pytest.mark.parametrize("call_ids", [("c1",), ("c1", "c2", "c3"), ("c1", "other")])
def test_results_for_other_calls_are_refused(waiting: Arena, call_ids: tuple[str, ...]) -> None:
    """Results must be for exactly the open calls."""
    with pytest.raises(InvalidInput):
        waiting.submit_results("r1", *call_ids)
    assert waiting.store.view(SESSION).queued == ()


def test_results_without_open_calls_are_refused(arena: Arena) -> None:
    """Nobody waits for them."""
    with pytest.raises(InvalidInput):
        arena.submit_results("r1", "c1")


def test_results_under_two_turn_ids_are_refused(waiting: Arena) -> None:
    """One results turn at a time, queued or running."""
    waiting.submit_results("r1", "c1", "c2")
    with pytest.raises(InvalidInput):
        waiting.submit_results("r2", "c1", "c2")
    waiting.begin()
    with pytest.raises(InvalidInput):
        waiting.submit_results("r2", "c1", "c2")


def test_results_sent_twice_are_one_turn(waiting: Arena) -> None:
    """The same id with the same results is the same turn."""
    assert [waiting.submit_results("r1", "c1", "c2").is_new for _ in range(2)] == [True, False]


def test_reject_refuses_a_message_while_calls_wait(waiting: Arena) -> None:
    """For `reject` a session with open calls is busy; their results are welcome."""
    with pytest.raises(SessionBusy):
        waiting.submit("t2", busy=Busy.REJECT)
    assert waiting.submit_results("r1", "c1", "c2", busy=Busy.REJECT).is_new


def test_interrupt_abandons_open_calls(waiting: Arena) -> None:
    """The new message begins at once and is told why the calls have no results."""
    assert waiting.submit("t2", busy=Busy.INTERRUPT).is_dispatched
    grant = waiting.begin()
    assert (grant.work_id, grant.snapshot.abandoned) == ("t2", "interrupted")
    assert grant.snapshot.open_calls == calls("c1", "c2")


def test_interrupt_with_results_interrupts_nothing(waiting: Arena) -> None:
    """Interrupting is for messages: the results are queued like any."""
    waiting.submit_results("r1", "c1", "c2", busy=Busy.INTERRUPT)
    assert waiting.begin().snapshot.abandoned == ""


def test_results_for_abandoned_calls_are_refused(waiting: Arena) -> None:
    """Too late: the next turn closes the calls."""
    waiting.store.close_open_calls(SESSION)
    with pytest.raises(InvalidInput):
        waiting.submit_results("r1", "c1", "c2")


def test_open_calls_are_due_after_their_time(make_arena: MakeArena) -> None:
    """Their time is the turn's that left them open."""
    arena = make_arena()
    arena.open()
    arena.submit("t1", open_calls_seconds=60.0)
    arena.finish(arena.begin(), "c1")
    assert arena.swept(DueKind.OPEN_CALLS) == []
    arena.advance(61.0)
    assert arena.swept(DueKind.OPEN_CALLS) == [""]


def test_answered_calls_are_due_no_more(make_arena: MakeArena) -> None:
    """Their results are committed; nobody looks after them."""
    arena = make_arena()
    arena.open()
    arena.submit("t1", open_calls_seconds=60.0)
    arena.finish(arena.begin(), "c1")
    arena.submit_results("r1", "c1")
    close_calls(arena, "r1")
    arena.advance(61.0)
    assert arena.sweep() == []


def test_open_calls_that_waited_too_long_are_closed(make_arena: MakeArena) -> None:
    """The message that waited is due and is told why; nothing is due for the calls any more. Twice is once."""
    arena = make_arena()
    arena.open()
    arena.submit("t1", open_calls_seconds=30.0)
    arena.finish(arena.begin(), "c1")
    arena.submit("t2")
    for _ in range(2):
        arena.store.close_open_calls(SESSION)
    arena.advance(61.0)
    assert [(item.kind, item.id) for item in arena.sweep()] == [(DueKind.TURN, "t2")]
    assert arena.begin().snapshot.abandoned == "timeout"


def test_message_behind_closed_calls_is_due_at_once(waiting: Arena) -> None:
    """It need not wait for its next sweep."""
    waiting.submit("t2")
    waiting.store.close_open_calls(SESSION)
    assert waiting.swept(DueKind.TURN) == ["t2"]


def test_results_that_came_in_time_are_not_timed_out(waiting: Arena) -> None:
    """A results turn that is queued or runs keeps its calls open."""
    waiting.submit_results("r1", "c1", "c2")
    waiting.store.close_open_calls(SESSION)
    assert waiting.begin().snapshot.abandoned == ""
    waiting.store.close_open_calls(SESSION)
    assert waiting.store.snapshot(SESSION).abandoned == ""


def test_commit_closes_abandoned_calls(waiting: Arena) -> None:
    """The turn that states "no result" clears calls and reason."""
    waiting.submit("t2", busy=Busy.INTERRUPT)
    waiting.finish(waiting.begin(), closes_calls=True)
    snapshot = waiting.store.snapshot(SESSION)
    assert (snapshot.open_calls, snapshot.abandoned) == ((), "")


def test_results_turn_that_fails_abandons_the_calls(waiting: Arena) -> None:
    """Otherwise the session would wait for ever for results that were given."""
    waiting.submit("t2")
    waiting.submit_results("r1", "c1", "c2")
    assert waiting.store.fail(waiting.begin(), "provider_rejected", "bad key") == "t2"
    assert waiting.begin().snapshot.abandoned == "provider_rejected"


def test_results_turn_that_committed_keeps_no_calls(waiting: Arena) -> None:
    """Its first round closed them; ending it later abandons nothing."""
    waiting.submit_results("r1", "c1", "c2")
    grant = waiting.begin()
    waiting.commit(grant, closes_calls=True, input_index=-1)
    waiting.store.fail(grant, "provider_rejected", "bad key")
    snapshot = waiting.store.snapshot(SESSION)
    assert (snapshot.open_calls, snapshot.abandoned) == ((), "")


def test_cancelled_results_turn_abandons_the_calls(waiting: Arena) -> None:
    """Whatever ends it."""
    waiting.submit_results("r1", "c1", "c2")
    waiting.store.cancel(SESSION, "r1")
    assert waiting.store.snapshot(SESSION).abandoned == "cancelled"


def test_dead_lettered_results_turn_abandons_the_calls(make_arena: MakeArena) -> None:
    """The message behind goes on in the same begin."""
    arena = make_arena(lease_seconds=0.1, max_attempts=1)
    arena.open()
    arena.answer("t1", "hello", "c1")
    arena.submit_results("r1", "c1")
    arena.submit("t2")
    arena.begin()
    arena.expire()
    grant = arena.begin()
    assert (grant.work_id, grant.snapshot.abandoned) == ("t2", "dead_lettered")
    assert state_of(arena, "r1") == (TurnState.FAILED, "dead_lettered")
