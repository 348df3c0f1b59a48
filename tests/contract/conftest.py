"""The stores under test: every test of the contract runs on each of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import fakeredis
import pytest
import redis

from sessionlib.stores.contract import Limits
from sessionlib.stores.memory import MemoryStore
from sessionlib.stores.sqlite import SqliteStore
from tests.contract.arena import Arena
from tests.contract.clock import ServerClock
from tests.waiting import wait_for
from tests.workers.servers import Node, cluster_of_masters, oldest_server
from workers.connection import Client, client_for, close_client
from workers.store import RedisStore

MakeArena = Callable[..., Arena]

LIMITS = Limits(
    lease_seconds=60.0,
    idempotency_seconds=600.0,
    rotation_seconds=600.0,
    max_attempts=3,
    inbox_limit=6,
    queued_limit=1_000,
    sweep_first_seconds=60.0,
    sweep_last_seconds=240.0,
    audit_limit=40,
    no_gain_backoff_seconds=60.0,
)
"""Long enough that nothing passes by itself in a test, however long the machine pauses: time passes by `advance`."""


class FakeClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def let_pass(seconds: float) -> None:
    """Wait until the real clock has moved on by *seconds*, for an arena whose store runs its scripts as they are."""
    end = time.time() + seconds
    wait_for(lambda: time.time() >= end, seconds=seconds + 30)


STORES = ("memory", "sqlite", "fakeredis", "valkey")
OTHER_SERVERS = ("cluster", "oldest")
"""Servers that run the same scripts under other rules, or with an older Lua: the core of the contract shows it."""
CORE = (
    *("test_store_submit", "test_store_steps", "test_store_commit", "test_store_rotation", "test_store_lifecycle"),
    *(
        "test_store_handles",
        "test_store_orphans",
        "test_store_notes",
        "test_store_postings",
        "test_store_room",
        "test_store_streaming",
    ),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that does not choose its stores runs on each of them, the core on the other servers too."""
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "make_arena" in metafunc.fixturenames and "make_arena" not in chosen:
        is_core = metafunc.module.__name__.rpartition(".")[2] in CORE
        metafunc.parametrize("make_arena", STORES + (OTHER_SERVERS if is_core else ()), indirect=True)


@pytest.fixture
def make_arena(request: pytest.FixtureRequest) -> MakeArena:
    """Makes a store with other limits than `LIMITS`, in each of the kinds."""
    make: MakeArena = request.getfixturevalue(f"{request.param}_arena")
    return make


@pytest.fixture
def arena(make_arena: MakeArena) -> Arena:
    """A store whose time limits no test reaches, with one open session."""
    arena = make_arena()
    arena.open()
    return arena


@pytest.fixture
def memory_arena() -> MakeArena:
    def make(**limits: Any) -> Arena:
        clock = FakeClock()
        return Arena(MemoryStore(limits_with(**limits), clock), clock.advance, clock)

    return make


@pytest.fixture
def sqlite_arena() -> Iterator[MakeArena]:
    stores = []

    def make(**limits: Any) -> Arena:
        clock = FakeClock()
        stores.append(SqliteStore(limits=limits_with(**limits), clock=clock))
        return Arena(stores[-1], clock.advance, clock)

    yield make
    for store in stores:
        store.close_connections()


@pytest.fixture
def fakeredis_arena(namespace: str) -> Iterator[MakeArena]:
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    yield redis_arenas(client, namespace)
    client.close()


@pytest.fixture
def valkey_arena(valkey_url: str, namespace: str) -> Iterator[MakeArena]:
    client = redis.Redis.from_url(valkey_url)
    yield redis_arenas(client, namespace)
    client.close()


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_of_masters(tmp_path_factory.mktemp("cluster")) as masters:
        yield masters[0].cluster_url


@pytest.fixture
def cluster_arena(cluster_url: str, namespace: str) -> Iterator[MakeArena]:
    client = client_for(cluster_url)
    yield redis_arenas(client, namespace)
    close_client(client)


@pytest.fixture(scope="session")
def oldest_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = oldest_server()
    if program is None:
        pytest.skip("no redis-server 7.0 on the PATH (Debian 12: redis-server)")
    with Node(tmp_path_factory.mktemp("oldest"), "--save", "", program=program) as server:
        yield server.url


@pytest.fixture
def oldest_arena(oldest_url: str, namespace: str) -> Iterator[MakeArena]:
    client = redis.Redis.from_url(oldest_url)
    yield redis_arenas(client, namespace)
    client.close()


def redis_arenas(client: Client, namespace: str) -> MakeArena:
    numbers = itertools.count()

    def make(**limits: Any) -> Arena:
        store = RedisStore(client, namespace=f"{namespace}-{next(numbers)}", limits=limits_with(**limits))
        clock = ServerClock(store)
        return Arena(store, clock.advance, clock)

    return make


def limits_with(**changes: Any) -> Limits:
    return replace(LIMITS, **changes)
