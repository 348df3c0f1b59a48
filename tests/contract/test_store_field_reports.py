"""Public faults of comparable systems that a store can have. Names carry the reports' numbers."""

from __future__ import annotations

import os

import pytest
import redis

from sessionlib.archive import unpack
from sessionlib.entries import Entry
from sessionlib.errors import LeaseLost
from sessionlib.stores.contract import Lane
from tests.contract.arena import SESSION, SIZE_TOKENS, Arena
from tests.contract.conftest import STORES, MakeArena
from tests.waiting import process_exists
from workers.store import RedisStore


def test_t18_what_was_checked_before_the_summarizer_is_checked_again_at_adopt(make_arena: MakeArena) -> None:
    """Two workers consolidate the same entries, since the first was thought dead: they stand in one record, once."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    first = arena.begin(Lane.ROTATION)
    arena.expire()
    second = arena.begin(Lane.ROTATION)
    assert arena.store.adopt(second, arena.adoption(second, 2)).is_adopted
    with pytest.raises(LeaseLost):
        arena.store.adopt(first, arena.adoption(first, 2))
    arena.answer("t2")
    arena.store.request_rotation(SESSION, "test")
    third = arena.begin(Lane.ROTATION)
    late = arena.adoption(third, 2, old_layout_token=first.snapshot.layout_token)
    assert not arena.store.adopt(third, late).is_adopted
    assert [(record.first_seq, record.last_seq) for record in arena.store.snapshot(SESSION).layout.records] == [(1, 2)]
    assert [(chunk.first_seq, chunk.last_seq) for chunk in arena.store.chunks(SESSION)] == [(1, 2)]


def test_t23_a_rotation_sees_what_is_stored_and_archives_it_as_it_is(arena: Arena) -> None:
    """Nothing waits outside the store to be flushed, and no mark of having been saved goes with an entry."""
    arena.submit("t1", "the question")
    turn = arena.begin()
    arena.commit(turn, texts=("first half",))
    arena.store.request_rotation(SESSION, "test")
    rotation = arena.begin(Lane.ROTATION)
    assert rotation.snapshot.layout.live.entries == (Entry.user("the question"), Entry.assistant("first half"))
    arena.store.adopt(rotation, arena.adoption(rotation, 2))
    (chunk,) = arena.store.chunks(SESSION)
    assert unpack(chunk.data) == rotation.snapshot.layout.live.entries


def test_t23_entries_of_one_session_are_recorded_anew_in_another(arena: Arena) -> None:
    """A successor that is opened with them has all of them as its own, whatever became of them in the first."""
    arena.answer("t1")
    arena.answer("t2")
    arena.rotate(3)
    before = tuple(arena.history())
    arena.open("successor", history=before, sizes=(SIZE_TOKENS,) * len(before))
    assert tuple(arena.history("successor")) == before
    assert arena.store.view("successor").next_seq == len(before) + 1


def test_t109_the_same_tests_run_on_a_fake_and_on_a_real_server() -> None:
    """Fakes differ on scripts and expiry: no test of the contract is left to a fake alone."""
    assert {"sqlite", "fakeredis", "valkey"} <= set(STORES)


@pytest.mark.parametrize("make_arena", ["valkey"], indirect=True)
def test_t109_the_real_server_is_a_process_of_its_own(make_arena: MakeArena) -> None:
    """What the contract calls valkey is a server, and runs its scripts."""
    arena = make_arena()
    arena.open()
    assert isinstance(arena.store, RedisStore)
    client = arena.store.client
    assert isinstance(client, redis.Redis)
    pid = client.info("server")["process_id"]
    assert pid != os.getpid()
    assert process_exists(pid)
    assert client.info("memory")["number_of_cached_scripts"] > 0
