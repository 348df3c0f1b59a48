"""Contract of `due`: sweeping what is overdue, doubling, mending."""

from __future__ import annotations

from sessionlib.stores.contract import DueKind
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena


def test_swept_thing_comes_again_later(make_arena: MakeArena) -> None:
    """A hint that was lost is given again after the first sweep time, then after twice that, up to the last."""
    arena = make_arena(sweep_first_seconds=60.0, sweep_last_seconds=120.0)
    arena.open()
    arena.submit("t1")
    assert arena.swept(DueKind.TURN) == ["t1"]
    for pause in (60.0, 120.0, 120.0):
        arena.advance(pause - 20.0)
        assert arena.sweep() == []
        arena.advance(21.0)
        assert arena.swept(DueKind.TURN) == ["t1"]


def test_begin_resets_the_doubling(make_arena: MakeArena) -> None:
    """Work whose worker died is looked at closely again."""
    arena = make_arena(sweep_first_seconds=60.0, sweep_last_seconds=6_000.0)
    arena.open()
    arena.submit("t1")
    arena.sweep()
    arena.advance(61.0)
    arena.sweep()
    arena.begin()
    arena.expire()
    assert arena.swept(DueKind.TURN) == ["t1"]
    arena.advance(61.0)
    assert arena.swept(DueKind.TURN) == ["t1"]


def test_turn_made_due_resets_the_doubling(make_arena: MakeArena) -> None:
    """A turn that waited long behind another is looked at closely once it may begin."""
    arena = make_arena(sweep_first_seconds=60.0, sweep_last_seconds=6_000.0)
    arena.open()
    arena.submit("t1")
    grant = arena.begin()
    arena.submit("t2")
    for pause in (61.0, 61.0, 121.0):
        arena.advance(pause)
        arena.sweep()
    arena.finish(grant)
    assert arena.swept(DueKind.TURN) == ["t2"]
    arena.advance(61.0)
    assert arena.swept(DueKind.TURN) == ["t2"]


def test_running_turn_is_not_due(arena: Arena) -> None:
    """Its due member stands at its lease's end."""
    arena.submit("t1")
    arena.begin()
    assert arena.sweep() == []


def test_limit_and_order(make_arena: MakeArena) -> None:
    """The longest overdue come first, at most as many as asked for; the rest with the next sweep."""
    arena = make_arena()
    for number in range(3):
        arena.open(f"s{number}")
        arena.submit("t1", session_id=f"s{number}")
        arena.advance(0.005)
    assert [item.session_id for item in arena.store.due(0, limit=2)] == ["s0", "s1"]
    assert [item.session_id for item in arena.store.due(0, limit=2)] == ["s2"]


def test_every_unfinished_thing_is_due_once(arena: Arena) -> None:
    """One member each, however often its operations were sent."""
    for _ in range(2):
        arena.submit("t1")
        arena.store.request_rotation(SESSION, "test")
    assert sorted((item.kind.value, item.id) for item in arena.sweep()) == [("rotation", "r1"), ("turn", "t1")]


def test_finished_things_are_due_no_more(make_arena: MakeArena) -> None:
    """Whatever ended them."""
    arena = make_arena(sweep_last_seconds=60.0)
    arena.open()
    for turn_id in ("t1", "t2", "t3"):
        arena.submit(turn_id)
    arena.finish(arena.begin())
    arena.store.cancel(SESSION, "t3")
    arena.store.fail(arena.begin(), "provider_rejected", "bad key")
    arena.advance(300.0)
    assert arena.sweep() == []
