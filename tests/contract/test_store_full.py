"""Contract of a full server: only new work is refused. SQLite's counterpart is in `test_sqlite.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis

from sessionlib.errors import StoreFull
from sessionlib.stores.contract import Lane
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import LIMITS, let_pass
from workers.embedded import EmbeddedServer
from workers.store import RedisStore


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A server of its own: filling it up must not touch other tests."""
    with EmbeddedServer() as server:
        client = redis.Redis.from_url(server.url)
        arena = Arena(RedisStore(client, limits=LIMITS), let_pass, time.time)
        arena.open()
        arena.answer("t0")
        yield arena
        client.close()


def fill(arena: Arena) -> None:
    """Leave the server no memory for anything new."""
    assert isinstance(arena.store, RedisStore)
    arena.store.client.config_set("maxmemory", 1)


def free(arena: Arena) -> None:
    """Give it memory again."""
    assert isinstance(arena.store, RedisStore)
    arena.store.client.config_set("maxmemory", 0)


def test_full_server_refuses_new_work(arena: Arena) -> None:
    """`open` and `submit` say that the store is full; nothing is changed."""
    fill(arena)
    with pytest.raises(StoreFull):
        arena.open("other")
    with pytest.raises(StoreFull):
        arena.submit("t1")
    assert arena.store.turn(SESSION, "t1") is None


def test_freed_server_takes_new_work(arena: Arena) -> None:
    """What was refused is accepted once there is memory again, as if it had never been asked."""
    fill(arena)
    for refused in (lambda: arena.open("other"), lambda: arena.submit("t1")):
        with pytest.raises(StoreFull):
            refused()
    free(arena)
    assert arena.open("other").is_new
    assert arena.submit("t1").is_new
    arena.finish(arena.begin())
    assert len(arena.history()) == 4


def test_full_server_lets_running_work_end(arena: Arena) -> None:
    """A turn that was accepted is begun, committed and answered, and a rotation is adopted."""
    arena.submit("t1")
    arena.store.request_rotation(SESSION, "test")
    fill(arena)
    turn, rotation = arena.begin(), arena.begin(Lane.ROTATION)
    arena.store.renew(turn)
    arena.commit(turn, number=0)
    assert arena.store.adopt(rotation, arena.adoption(rotation, 2)).is_adopted
    arena.finish(turn, number=1)
    assert len(arena.history()) == 5
