"""How many sessions are braked, as the scripts count it: by every way into the brake and out of it, and in copies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from sessionlib.stores.contract import Room, SessionState
from sessionlib.stores.memory import MemoryStore
from tests.contract.arena import SESSION, Arena
from tests.workers.servers import cluster_of_masters
from tests.workers.test_store_agrees import LASTING, Pair, Walk
from workers import probes
from workers.connection import client_for
from workers.metrics import exposition, totals
from workers.store import RedisStore

BRAKED = Room(breathless_count=3, is_braked=True)


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def store(server: redis.Redis, namespace: str) -> RedisStore:
    return RedisStore(server, namespace=namespace, partitions=4, limits=LASTING)


@pytest.fixture
def arena(store: RedisStore) -> Arena:
    """A store whose time limits no test reaches, with one open session."""
    arena = Arena(store, lambda _: None, time.time)
    arena.open()
    return arena


@pytest.fixture
def braked(arena: Arena) -> Arena:
    """That session, braked."""
    arena.answer("t1", room=BRAKED)
    return arena


def counted(store: RedisStore) -> int:
    """The counter, as health reads it."""
    return probes.braked_count(store)


def in_heads(store: RedisStore) -> int:
    """The same counted anew: sessions that say of themselves that they are in the counter."""
    ids = [session_id for partition in range(store.partition_count) for session_id in store.sessions(partition)[0]]
    return sum(store.client.hget(store.keys.own("head", session_id), "braked_counted") == b"1" for session_id in ids)


def purge(store: RedisStore, session_id: str = SESSION) -> None:
    while not store.purge(session_id, batch=1):
        pass


# Into the brake, and out of it


def test_a_session_without_a_brake_has_no_counter(arena: Arena, store: RedisStore) -> None:
    """Nothing is written for it: neither a counter nor a field of its head."""
    arena.answer("t1")
    assert counted(store) == 0
    assert "braked" not in totals(store)
    assert in_heads(store) == 0


def test_a_brake_counts_once(arena: Arena, store: RedisStore) -> None:
    """By the commit that engages it; not by the same one sent again, nor by a later one that says it still is."""
    arena.submit("t1")
    grant = arena.begin()
    commit = arena.round(grant, room=BRAKED)
    store.commit(grant, commit)
    store.commit(grant, commit)
    arena.commit(grant, number=1, room=BRAKED)
    assert (counted(store), in_heads(store)) == (1, 1)


def test_a_lift_counts_it_out_once(braked: Arena, store: RedisStore) -> None:
    """A second lift finds nothing, and the turn that still goes by the brake does not count it in again."""
    braked.submit("t2")
    grant = braked.begin()
    assert [store.lift_brake(SESSION), store.lift_brake(SESSION)] == [True, False]
    braked.commit(grant, room=BRAKED)
    assert (counted(store), in_heads(store)) == (0, 0)


def test_a_brake_engaged_after_a_lift_counts_again(braked: Arena, store: RedisStore) -> None:
    """The gauge goes up and down; the count of brakes only up."""
    store.lift_brake(SESSION)
    braked.answer("t2", room=BRAKED)
    assert counted(store) == 1
    assert totals(store)["brakes"] == 2


def test_a_closed_session_is_not_counted(braked: Arena, store: RedisStore) -> None:
    """Nothing will be trimmed any more, and no operator need come; twice is once."""
    store.close(SESSION)
    store.close(SESSION)
    assert (counted(store), in_heads(store)) == (0, 0)


def test_a_turn_that_ends_after_the_close_does_not_count(arena: Arena, store: RedisStore) -> None:
    """An accepted turn may still brake its session: it is the last that is said of it."""
    arena.submit("t1")
    grant = arena.begin()
    store.close(SESSION)
    arena.finish(grant, room=BRAKED)
    assert store.view(SESSION).room.is_braked
    assert counted(store) == 0


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_purge_counts_it_out_once(braked: Arena, store: RedisStore, is_closed: bool) -> None:
    """At its first step, whether or not it was closed before."""
    if is_closed:
        store.close(SESSION)
    store.purge(SESSION, 0)
    assert counted(store) == 0
    purge(store)
    assert counted(store) == 0


def test_a_purge_leaves_the_count_of_others(braked: Arena, store: RedisStore) -> None:
    """A session of the same partition that is not braked takes nothing with it."""
    names = (f"o{number}" for number in range(100))
    other = next(name for name in names if store.keys.partition(name) == store.keys.partition(SESSION))
    braked.open(other)
    purge(store, other)
    assert counted(store) == 1


def test_an_adoption_with_another_policy_counts_it_out(braked: Arena, store: RedisStore) -> None:
    """The room of such a policy is a new one; so is that of its next commit."""
    braked.rotate(1, room=Room())
    assert (counted(store), in_heads(store)) == (0, 0)


def test_a_commit_with_another_policy_counts_it_out(braked: Arena, store: RedisStore) -> None:
    """The agent's new version applies from the next turn."""
    braked.answer("t2", room=Room())
    assert (counted(store), in_heads(store)) == (0, 0)


def test_a_stale_adoption_leaves_the_count(braked: Arena, store: RedisStore) -> None:
    """Nothing of it holds."""
    braked.rotate(1, tail_token="other", room=Room())
    assert counted(store) == 1


def test_an_adoption_that_keeps_the_brake_leaves_the_count(braked: Arena, store: RedisStore) -> None:
    """It is counted already."""
    braked.rotate(1, room=BRAKED)
    assert (counted(store), in_heads(store)) == (1, 1)


# Sessions of before


@pytest.fixture
def older(braked: Arena, store: RedisStore) -> Arena:
    """A session that was braked before there was a counter."""
    store.client.hdel(store.keys.own("head", SESSION), "braked_counted")
    store.client.hdel(store.keys.shared("counters", store.keys.partition(SESSION)), "braked")
    return braked


def test_a_session_braked_before_enters_at_its_next_commit(older: Arena, store: RedisStore) -> None:
    """No store is gone through for it."""
    assert counted(store) == 0
    older.answer("t2", room=BRAKED)
    assert counted(store) == 1


@pytest.mark.parametrize("leave", ["lift", "close", "purge"])
def test_a_session_braked_before_takes_nothing_out(older: Arena, store: RedisStore, leave: str) -> None:
    """What was not counted in is not counted out: nothing falls below 0."""
    if leave == "lift":
        assert store.lift_brake(SESSION)
    elif leave == "close":
        store.close(SESSION)
    else:
        purge(store)
    assert counted(store) == 0


# Copies


def copy_of(store: RedisStore) -> dict[bytes, bytes]:
    """Every key of the namespace, as DUMP gives it."""
    return {key: store.client.dump(key) for key in store.client.scan_iter(f"*{store.keys.namespace}:*")}


def put_back(store: RedisStore, copy: dict[bytes, bytes]) -> None:
    for key in set(copy_of(store)) - set(copy):
        store.client.delete(key)
    for key, dumped in copy.items():
        store.client.restore(key, 0, dumped, replace=True)


def test_a_copy_of_all_keys_agrees_with_itself(braked: Arena, store: RedisStore) -> None:
    """Counter and heads are of one moment, so what leaves the brake in the copy was counted in there."""
    copy = copy_of(store)
    store.lift_brake(SESSION)
    purge(store)
    assert counted(store) == 0
    put_back(store, copy)
    assert (counted(store), in_heads(store)) == (1, 1)
    store.lift_brake(SESSION)
    assert (counted(store), in_heads(store)) == (0, 0)


def test_a_head_put_back_alone_is_off_by_one_until_it_is_mended(braked: Arena, store: RedisStore) -> None:
    """The counter is of another moment. The heads tell by how much; a correction by a difference is done in one write,
    while others count on."""
    head, counters = store.keys.own("head", SESSION), store.keys.shared("counters", store.keys.partition(SESSION))
    dumped = store.client.dump(head)
    store.lift_brake(SESSION)
    store.client.restore(head, 0, dumped, replace=True)
    assert (counted(store), in_heads(store)) == (0, 1)
    store.client.hincrby(counters, "braked", in_heads(store) - counted(store))
    store.lift_brake(SESSION)
    assert (counted(store), in_heads(store)) == (0, 0)


# Any order


@dataclass
class CountedWalk(Walk):
    """A random walk that compares the counter with the rules' sessions after every operation."""

    found: set[int] = field(default_factory=set)

    def both(self, name: str, session_id: str, operation: Any) -> Pair:
        pair = super().both(name, session_id, operation)
        heads = [box.head for _, box in self.rules.world.sessions if box.head is not None and not box.head.purged]
        braked = sum(head.state is SessionState.OPEN and head.room.is_braked for head in heads)
        assert counted(self.scripts) == braked, self.story()
        self.found.add(braked)
        return pair


@pytest.mark.parametrize("seed", range(3))
def test_the_counter_is_right_after_any_operation(store: RedisStore, server: redis.Redis, seed: int) -> None:
    """Of a random walk over every operation that the store has."""
    single = RedisStore(server, namespace=store.keys.namespace, limits=LASTING)
    walk = CountedWalk(MemoryStore(LASTING, time.time), single, random.Random(seed))
    walk.go(300)
    assert {0, 1} <= walk.found


# Told


def test_the_gauge_is_the_sum_of_all_partitions(braked: Arena, store: RedisStore) -> None:
    """For health in one exchange, for Prometheus by all counters."""
    for number in range(6):
        session_id = f"s{number}"
        braked.open(session_id)
        braked.submit("t", session_id=session_id)
        braked.finish(braked.begin(session_id=session_id), room=BRAKED)
    assert len({store.keys.partition(f"s{number}") for number in range(6)}) > 1
    assert counted(store) == 7
    assert "\nsessionlib_sessions_braked 7\n" in exposition(totals(store))


def test_a_cluster_is_asked_for_all_partitions_at_once(tmp_path: Path, namespace: str) -> None:
    """Its partitions lie on several masters."""
    with cluster_of_masters(tmp_path) as masters:
        client = client_for(masters[0].cluster_url, connections=2)
        store = RedisStore(client, namespace=namespace, partitions=64)
        arena = Arena(store, lambda _: None, time.time)
        for number in range(6):
            session_id = f"s{number}"
            arena.open(session_id)
            arena.submit("t", session_id=session_id)
            arena.finish(arena.begin(session_id=session_id), room=BRAKED)
        assert counted(store) == 6
        store.close_connections()
