"""Contract of turns that their callers run themselves."""

from __future__ import annotations

from sessionlib.stores.contract import Grant, Lane, Refusal, TurnState
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena


def begin_own(arena: Arena, turn_id: str) -> Grant | Refusal:
    return arena.store.begin(SESSION, Lane.TURN, arena.token(), own_turn_id=turn_id)


def test_no_worker_gets_a_callers_own_turn(arena: Arena) -> None:
    """It waits for its caller, also when it was begun and given back."""
    arena.submit("t1", is_own=True)
    assert arena.try_begin() is Refusal.NOTHING
    grant = begin_own(arena, "t1")
    assert isinstance(grant, Grant)
    arena.store.release(grant)
    assert arena.try_begin() is Refusal.NOTHING
    assert isinstance(begin_own(arena, "t1"), Grant)


def test_a_caller_gets_no_other_turn(arena: Arena) -> None:
    """It waits behind the turns before its own, and takes none of them."""
    arena.submit("t1")
    arena.submit("t2", is_own=True)
    assert begin_own(arena, "t2") is Refusal.NOTHING
    arena.finish(arena.begin())
    grant = begin_own(arena, "t2")
    assert isinstance(grant, Grant)
    assert grant.work_id == "t2"


def test_own_turn_is_committed_like_any(arena: Arena) -> None:
    """The same lease, token and order; the turn behind it is a worker's again."""
    arena.submit("t1", is_own=True)
    arena.submit("t2")
    grant = begin_own(arena, "t1")
    assert isinstance(grant, Grant)
    assert arena.finish(grant).next_turn_id == "t2"
    assert arena.begin().work_id == "t2"


def test_own_turn_of_a_caller_that_never_came_ends_at_its_deadline(make_arena: MakeArena) -> None:
    """Its deadline counts from submit: a dead caller holds up the turns behind it for a bounded time."""
    arena = make_arena()
    arena.open()
    arena.submit("t1", is_own=True, timeout_seconds=60.0)
    arena.submit("t2")
    assert arena.try_begin() is Refusal.NOTHING
    arena.advance(61.0)
    assert arena.begin().work_id == "t2"
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.state, view.error_code) == (TurnState.FAILED, "deadline")
