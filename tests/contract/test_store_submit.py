"""Contract of `submit` and of the state of a turn before it begins."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sessionlib.errors import SessionBusy, SessionClosed, TurnConflict, UnknownSession
from sessionlib.stores.contract import Busy, DueKind, Refusal, TurnState
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena


def test_first_turn_is_new_and_dispatched(arena: Arena) -> None:
    """A turn of an idle session may begin at once."""
    submitted = arena.submit("t1")
    assert (submitted.state, submitted.is_new, submitted.is_dispatched) == (TurnState.QUEUED, True, True)
    assert submitted.queue_length == 1


def test_second_turn_waits_behind_the_first(arena: Arena) -> None:
    """Only the front of the inbox is dispatched."""
    arena.submit("t1")
    submitted = arena.submit("t2")
    assert (submitted.is_dispatched, submitted.queue_length) == (False, 2)


def test_turn_behind_a_running_one_is_not_dispatched(arena: Arena) -> None:
    """A lane with work starts nothing else; the running turn counts as unfinished."""
    arena.submit("t1")
    arena.begin()
    submitted = arena.submit("t2")
    assert (submitted.is_dispatched, submitted.queue_length) == (False, 2)


def test_submit_makes_a_queued_event(arena: Arena) -> None:
    """A reader sees the turn before anybody works on it."""
    arena.submit("t1")
    assert arena.kinds("t1") == ["queued"]


def test_t15_a_submitted_turn_is_kept_before_it_is_acknowledged(arena: Arena) -> None:
    """What submit answered for can be read and begun, though a rotation is adopted in between."""
    arena.answer("t0")
    arena.submit("t1", "keep me")
    arena.rotate(1)
    grant = arena.begin()
    assert grant.input is not None
    assert (grant.work_id, grant.input.message) == ("t1", "keep me")


def test_t115_a_turn_sent_twice_is_queued_once(arena: Arena) -> None:
    """The second submit of an id finds the first and says that it may begin, as the first did."""
    first, second = arena.submit("t1"), arena.submit("t1")
    assert (second.is_new, second.state, second.is_dispatched) == (False, first.state, True)
    assert arena.store.view(SESSION).queued == ("t1",)
    assert arena.kinds("t1") == ["queued"]


def test_t115_a_turn_sent_again_after_its_end_is_not_run_again(arena: Arena) -> None:
    """A retry after a lost reply finds the first outcome."""
    arena.answer("t1")
    again = arena.submit("t1")
    assert (again.state, again.is_new, again.is_dispatched) == (TurnState.ANSWERED, False, False)
    assert arena.try_begin() is Refusal.NOTHING


def test_t115_same_content_under_another_id_is_another_turn(arena: Arena) -> None:
    """The id decides what is the same turn, not the content."""
    arena.submit("t1", "again")
    assert arena.submit("t2", "again").is_new


def test_turn_id_with_another_input_is_a_conflict(arena: Arena) -> None:
    """One turn id goes with one input; nothing is changed by the attempt."""
    arena.submit("t1", "one")
    with pytest.raises(TurnConflict):
        arena.submit("t1", "two")
    assert arena.store.view(SESSION).queued == ("t1",)


def test_turn_id_is_forgotten_after_its_time(make_arena: MakeArena) -> None:
    """Past the idempotency time an id is as never used."""
    arena = make_arena(idempotency_seconds=60.0)
    arena.open()
    arena.answer("t1", "one")
    arena.advance(61.0)
    assert arena.store.turn(SESSION, "t1") is None
    assert arena.submit("t1", "two").is_new


def test_unfinished_turn_is_never_forgotten(make_arena: MakeArena) -> None:
    """The idempotency time starts when a turn ends."""
    arena = make_arena(idempotency_seconds=60.0)
    arena.open()
    arena.submit("t1")
    arena.advance(61.0)
    assert arena.begin().work_id == "t1"


def test_unknown_session(arena: Arena) -> None:
    """A session must be opened first."""
    with pytest.raises(UnknownSession):
        arena.submit("t1", session_id="other")


def test_closed_session(arena: Arena) -> None:
    """A closed session takes no new turn but still knows the old ones."""
    arena.submit("t1")
    arena.store.close(SESSION)
    with pytest.raises(SessionClosed):
        arena.submit("t2")
    assert not arena.submit("t1").is_new


def test_inbox_limit(arena: Arena) -> None:
    """A session has a bounded number of unfinished turns; one that ends makes room."""
    limit = arena.store.limits.inbox_limit
    for number in range(limit):
        arena.submit(f"t{number}")
    with pytest.raises(SessionBusy):
        arena.submit("over")
    arena.finish(arena.begin())
    assert arena.submit("over").is_new


def test_partition_limit(make_arena: MakeArena) -> None:
    """A partition has a bounded number of unfinished turns, over all its sessions."""
    arena = make_arena(queued_limit=2)
    arena.open("a")
    arena.open("b")
    arena.submit("t1", session_id="a")
    arena.submit("t1", session_id="b")
    with pytest.raises(SessionBusy):
        arena.submit("t2", session_id="a")
    arena.store.cancel("b", "t1")
    assert arena.submit("t2", session_id="a").is_new


def test_reject_refuses_while_a_turn_is_unfinished(arena: Arena) -> None:
    """Busy policy `reject` wants an idle session."""
    arena.submit("t1")
    with pytest.raises(SessionBusy):
        arena.submit("t2", busy=Busy.REJECT)
    arena.finish(arena.begin())
    assert arena.submit("t2", busy=Busy.REJECT).is_dispatched


def test_interrupt_ends_every_unfinished_turn(arena: Arena) -> None:
    """Running and queued turns end as cancelled; the new one may begin at once."""
    arena.submit("t1")
    running = arena.begin()
    arena.submit("t2")
    submitted = arena.submit("t3", busy=Busy.INTERRUPT)
    assert (submitted.is_dispatched, submitted.queue_length) == (True, 1)
    for turn_id in ("t1", "t2"):
        view = arena.store.turn(SESSION, turn_id)
        assert view is not None
        assert (view.state, view.error_code) == (TurnState.CANCELLED, "interrupted")
        assert arena.kinds(turn_id)[-1] == "cancelled"
    assert arena.begin().work_id == "t3"
    assert running.work_id == "t1"


def test_interrupt_sent_twice_interrupts_once(arena: Arena) -> None:
    """The second finds its own turn and does not cancel it."""
    arena.submit("t1")
    arena.submit("t2", busy=Busy.INTERRUPT)
    assert arena.submit("t2", busy=Busy.INTERRUPT).state is TurnState.QUEUED


@pytest.mark.parametrize("make_arena", ["sqlite", "fakeredis", "valkey"], indirect=True)
def test_t26_two_submits_at_once_queue_one_turn(make_arena: MakeArena) -> None:
    """Claiming a turn id is atomic: of many submits at once, one is new. (The memory store is for one thread.)"""
    arena = make_arena()
    arena.open()
    barrier = threading.Barrier(4)

    def submit(number: int) -> bool:
        barrier.wait()
        return arena.submit("t1").is_new

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(submit, range(4))) == 1
    assert arena.store.view(SESSION).queued == ("t1",)


def test_a_turn_that_may_begin_is_due_now(arena: Arena) -> None:
    """If the message is lost, the first sweep finds the turn."""
    arena.submit("t1")
    assert arena.swept(DueKind.TURN) == ["t1"]


def test_a_turn_that_must_wait_is_due_later(make_arena: MakeArena) -> None:
    """A turn behind another is looked at after the first sweep time."""
    arena = make_arena(sweep_first_seconds=30.0)
    arena.open()
    arena.submit("t1")
    arena.begin()
    arena.submit("t2")
    assert arena.swept(DueKind.TURN) == []
    arena.advance(31.0)
    assert arena.swept(DueKind.TURN) == ["t2"]
