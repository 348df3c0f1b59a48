"""Contract of orphans: provider sessions that a purged session held are let go of without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from sessionlib.errors import InvalidInput, LeaseLost
from sessionlib.stores.contract import DueKind, Grant
from sessionlib.stores.orphans import orphan_id, orphan_of
from tests.contract.arena import SESSION, Arena, handle
from tests.contract.conftest import MakeArena
from tests.contract.test_store_handles import REPLY, brought, child
from tests.contract.test_store_lifecycle import purge


def swept(arena: Arena) -> list[str]:
    """Ids of the orphans that there are."""
    arena.advance(arena.store.limits.sweep_last_seconds)
    return sorted(arena.swept(DueKind.ORPHAN))


def told(ids: Sequence[str]) -> list[tuple[str, str]]:
    """Each handle with where its disposal stops."""
    return sorted((held.handle, held.parent) for held in map(orphan_of, ids))


def test_the_sessions_handle_goes_with_its_chain(arena: Arena) -> None:
    """The id is the same in every store: where the disposal stops, and the handle as it was committed."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=child("h2", "h1"))
    purge(arena)
    assert swept(arena) == [orphan_id(child("h2", "h1"), "")]


def test_orphans_are_due_at_once(arena: Arena) -> None:
    """With the first call, in the same transaction as the tombstone."""
    arena.answer("t1", handle=handle("h1"))
    assert not arena.store.purge(SESSION, batch=1)
    assert sorted(item.kind for item in arena.sweep()) == [DueKind.ORPHAN, DueKind.RETENTION]


def test_a_session_that_holds_nothing_leaves_none(arena: Arena) -> None:
    """Most providers hold nothing."""
    arena.answer("t1")
    arena.submit("t2")
    purge(arena)
    assert swept(arena) == []


def test_handles_to_dispose_are_orphans(arena: Arena) -> None:
    """A replaced one as a chain, one that no round took over as far as its parent."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=handle("h2"))
    grant = brought(arena, "t3", child("lost", "h2"), child("h3", "h2"))
    arena.finish(grant, handle=child("h3", "h2"))
    purge(arena)
    assert told(swept(arena)) == [("h1", ""), ("h3", ""), ("lost", "h2")]


def test_handle_that_waits_for_a_turn_is_one(arena: Arena) -> None:
    """The turn ends with the session."""
    arena.answer("t1", handle=child("h2", "h1"))
    arena.submit("t2")
    arena.begin()
    arena.rotate(2)
    assert list(arena.store.handles_to_dispose(SESSION)) == []
    purge(arena)
    assert swept(arena) == [orphan_id(child("h2", "h1"), "")]


@pytest.mark.parametrize("is_released", [False, True], ids=["held", "released"])
def test_handle_that_an_unfinished_turn_remembers_is_one(arena: Arena, *, is_released: bool) -> None:
    """Its step brought it, and no round took it over; what it continued is the session's."""
    arena.answer("t1", handle=handle("h1"))
    grant = brought(arena, "t2", child("h2", "h1"))
    arena.submit("t3")
    if is_released:
        arena.store.release(grant)
    purge(arena)
    assert swept(arena) == sorted([orphan_id(handle("h1"), ""), orphan_id(child("h2", "h1"), "h1")])


def test_no_handle_is_left_twice(arena: Arena) -> None:
    """A turn may remember what the session has, or is to let go of already; and a provider may name alike for ever."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=handle("h2"))
    arena.submit("t3")
    arena.rotate(2)
    arena.answer("t3", handle=handle("h2", epoch=1))
    brought(arena, "t4", handle("h1"), handle("h2"), handle("h3"), handle("h3"))
    purge(arena)
    assert told(swept(arena)) == [("h1", ""), ("h2", ""), ("h3", "")]


def test_orphans_outlive_the_session(arena: Arena) -> None:
    """The end of its purge, a new session of its name, and the purge of that one."""
    arena.answer("t1", handle=handle("h1"))
    purge(arena)
    assert told(swept(arena)) == [("h1", "")]
    arena.open()
    arena.answer("t1", handle=handle("n1"))
    assert told(swept(arena)) == [("h1", "")]
    purge(arena)
    assert told(swept(arena)) == [("h1", ""), ("n1", "")]


def test_orphans_keep_no_session(make_arena: MakeArena) -> None:
    """A new session of the name is kept for its retention time, as any."""
    arena = make_arena()
    arena.open()
    arena.answer("t1", handle=handle("h1"))
    purge(arena)
    arena.open(retention_seconds=0.0)
    arena.store.close(SESSION)
    assert arena.swept(DueKind.RETENTION) == [""]


@pytest.mark.parametrize("life", ["tombstone", "gone", "opened anew"])
def test_let_go(arena: Arena, life: str) -> None:
    """The orphan is due no more, whatever has become of the session; twice is once, and the others stay."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=handle("h2"))
    if life == "tombstone":
        assert not arena.store.purge(SESSION, batch=1)
    else:
        purge(arena)
    if life == "opened anew":
        arena.open()
        arena.answer("t1", handle=handle("h1"))
    for _ in range(2):
        arena.store.let_go(SESSION, orphan_id(handle("h1"), ""))
        assert told(swept(arena)) == [("h2", "")]
    if life == "opened anew":
        assert arena.store.snapshot(SESSION).handle == handle("h1")


def test_let_go_of_what_is_none(arena: Arena) -> None:
    """Nothing of a session that is there is touched."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=handle("h2"))
    arena.submit("t3")
    arena.store.let_go(SESSION, orphan_id(handle("h1"), ""))
    arena.store.let_go("never", orphan_id(handle("h1"), ""))
    assert sorted((item.kind, item.id) for item in arena.sweep()) == [(DueKind.DISPOSAL, ""), (DueKind.TURN, "t3")]


def test_purge_sent_again_brings_none_back(arena: Arena) -> None:
    """Orphans are left by the first call only."""
    arena.answer("t1", handle=handle("h1"))
    assert not arena.store.purge(SESSION, batch=1)
    arena.store.let_go(SESSION, orphan_id(handle("h1"), ""))
    purge(arena)
    arena.store.purge(SESSION)
    assert swept(arena) == []


def test_orphan_that_nobody_gets_rid_of_is_given_up(make_arena: MakeArena) -> None:
    """After so many sweeps its provider has forgotten it; a turn is looked for all the while."""
    arena = make_arena(orphan_sweeps=3)
    arena.open()
    arena.answer("t1", handle=handle("h1"))
    purge(arena)
    arena.open("other")
    arena.submit("t1", session_id="other")
    seen = []
    for _ in range(5):
        arena.advance(arena.store.limits.sweep_last_seconds)
        seen.append(sorted(item.kind for item in arena.sweep()))
    both = [DueKind.ORPHAN, DueKind.TURN]
    assert seen == [both, both, both, [DueKind.TURN], [DueKind.TURN]]


def test_orphan_that_is_left_again_is_looked_for_anew(make_arena: MakeArena) -> None:
    """A new session held the same: its purge makes it due now, and it has all its sweeps before it."""
    arena = make_arena(orphan_sweeps=2)
    for _ in range(2):
        arena.open()
        arena.answer("t1", handle=handle("h1"))
        purge(arena)
        assert arena.swept(DueKind.ORPHAN) == [orphan_id(handle("h1"), "")]
    assert [len(swept(arena)) for _ in range(2)] == [1, 0]


def test_names_of_orphans_may_hold_anything(arena: Arena) -> None:
    """They are the provider's."""
    odd, odder = 'h|\t1\n"ü', "|h\t2\x00\\"
    arena.answer("t1", handle=handle(odd))
    brought(arena, "t2", child(odder, odd))
    purge(arena)
    ids = sorted([orphan_id(handle(odd), ""), orphan_id(child(odder, odd), odd)])
    assert swept(arena) == ids
    arena.store.let_go(SESSION, orphan_id(child(odder, odd), odd))
    assert swept(arena) == [orphan_id(handle(odd), "")]


def test_every_model_and_trim_is_told(arena: Arena) -> None:
    """Whoever lets go of it needs its provider's name."""
    held = replace(handle("h1", 3), provider="other", model="m", next_seq=7)
    arena.answer("t1", handle=held)
    purge(arena)
    assert [orphan_of(one) for one in swept(arena)] == [held]


@pytest.mark.parametrize("bad", ["", " ", "\ud800"], ids=["empty", "blank", "surrogate"])
def test_bad_ids_of_orphans(arena: Arena, bad: str) -> None:
    """Refused by every store alike."""
    with pytest.raises(InvalidInput):
        arena.store.let_go(SESSION, bad)


def taken_over(arena: Arena, grant: Grant) -> None:
    arena.expire()
    arena.begin()


def cancelled(arena: Arena, grant: Grant) -> None:
    arena.store.cancel(SESSION, grant.work_id)


def purged(arena: Arena, grant: Grant) -> None:
    del grant
    purge(arena)


@pytest.mark.parametrize("lose", [taken_over, cancelled, purged])
def test_what_a_refused_step_brings_is_one(arena: Arena, lose: Callable[[Arena, Grant], None]) -> None:
    """Whoever was given it has gone on without: the reply came too late."""
    arena.submit("t1")
    grant = arena.begin()
    lose(arena, grant)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            arena.store.save_step(grant, 0, "model:0", REPLY, child("h2", "h1"))
    assert swept(arena) == [orphan_id(child("h2", "h1"), "h1")]


def test_what_a_step_beyond_a_gap_brings_is_one(arena: Arena) -> None:
    """It is refused like any."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.store.save_step(grant, 5, "model:0", REPLY, handle("h1"))
    assert told(swept(arena)) == [("h1", "")]


def test_a_step_that_comes_again_too_late_brings_none(arena: Arena) -> None:
    """Its turn remembers the handle, or the session has it, or is to let go of it."""
    grant = brought(arena, "t1", handle("h1"))
    taken_over(arena, grant)

    def refused() -> None:
        with pytest.raises(LeaseLost):
            arena.store.save_step(grant, 0, "model:0", REPLY, handle("h1"))

    refused()
    arena.expire()
    arena.finish(arena.begin(), handle=handle("h1"))
    refused()
    arena.answer("t2", handle=handle("h2"))
    refused()
    assert swept(arena) == []


def test_a_refused_step_without_a_handle_leaves_nothing(arena: Arena) -> None:
    """As of every provider that holds nothing."""
    arena.submit("t1")
    grant = arena.begin()
    cancelled(arena, grant)
    with pytest.raises(LeaseLost):
        arena.store.save_step(grant, 0, "model:0", REPLY)
    assert swept(arena) == []
