"""Store and broker behind Sentinel: a session's whole life, and what is left of it when the primary is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sessionlib.errors import StoreUnavailable
from sessionlib.testing.fake_provider import Kind
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import let_pass
from tests.crash.checks import Kills, echoed, require_answered_once, require_history
from tests.waiting import wait_for
from tests.workers.deployment import deployed
from tests.workers.servers import PRIMARY_NAME, Node, Replicated, replicated
from workers.app import make_app
from workers.client import ClientSession
from workers.hints import Hints
from workers.settings import Settings
from workers.store import RedisStore

pytestmark = pytest.mark.crash

SESSION_COUNT = 6
PATIENCE_SECONDS = 90.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Replicated]:
    with replicated(tmp_path) as servers:
        yield servers


def store_on(servers: Replicated) -> RedisStore:
    settings = Settings(store_url=servers.url, sentinel_name=PRIMARY_NAME, partitions=4)
    return RedisStore.connect(settings, connections=4)


def arena_on(store: RedisStore) -> Arena:
    return Arena(store, let_pass, time.time)


def test_session_lives_through_a_failover(servers: Replicated) -> None:
    """Opened, answered and rotated on the primary, a session goes on where it was on the replica, and is purged."""
    store = store_on(servers)
    arena = arena_on(store)
    arena.open()
    arena.answer("t1", "first")
    arena.answer("t2", "second")
    assert arena.rotate(2).is_adopted
    before = arena.history()
    servers.wait_replicated()
    servers.fail_over()
    wait_for(lambda: is_reached(store), PATIENCE_SECONDS, "the new primary")
    assert arena.history() == before
    arena.answer("t3", "third")
    assert len(arena.history()) == len(before) + 2
    wait_for(lambda: store.purge(SESSION))
    assert not store.client.keys(f"*}}:*:{SESSION}*")
    store.close_connections()


def is_reached(store: RedisStore) -> bool:
    with suppress(StoreUnavailable):
        return store.view(SESSION).session_id == SESSION
    return False


def test_hints_come_back_after_a_failover(servers: Replicated) -> None:
    """Whoever waits is woken by the subscription at the new primary, and hears what happens there."""
    store = store_on(servers)
    arena = arena_on(store)
    arena.open()
    hints, woken = Hints(store), threading.Event()
    with hints.listening(SESSION, "t1", woken.set):
        assert woken.wait(PATIENCE_SECONDS)
        servers.wait_replicated()
        woken.clear()
        servers.fail_over()
        assert woken.wait(PATIENCE_SECONDS)
        wait_for(lambda: servers.replica.client.pubsub_numsub(store.keys.hints)[0][1] == 1)
        wait_for(lambda: is_reached(store), PATIENCE_SECONDS, "the new primary")
        woken.clear()
        arena.submit("t1")
        assert woken.wait(PATIENCE_SECONDS)
    hints.close()
    store.close_connections()


@pytest.mark.parametrize("end", [Node.kill, Node.freeze])
def test_workers_and_callers_come_through_a_failover(
    servers: Replicated, tmp_path: Path, end: Callable[[Node], None]
) -> None:
    """Gone with turns under way, whose replies arrive while there is no store: every waiting caller is answered by the
    same worker processes, and a turn sent meanwhile under one id is one turn."""
    url = {"store_url": servers.url, "sentinel_name": PRIMARY_NAME, "partitions": 4}
    with deployed(tmp_path, **url) as deployment, ThreadPoolExecutor(2 * SESSION_COUNT) as callers:
        sessions = [deployment.sessions.open(f"s{number}", "talker") for number in range(SESSION_COUNT)]
        for session in sessions:
            session.send("first", turn_id="t1", timeout_seconds=PATIENCE_SECONDS)
        deployment.provider.hold(Kind.ANSWERS)
        turns = [session.submit("second", turn_id="t2") for session in sessions]
        wait_for(lambda: deployment.provider.held(Kind.ANSWERS) == SESSION_COUNT, what="turns under way")
        waiting = [callers.submit(turn.answer, PATIENCE_SECONDS) for turn in turns]
        pids = deployment.pids()
        servers.wait_replicated()
        end(servers.primary)
        deployment.provider.release()
        sending = [callers.submit(send_until_answered, session, "third", "t3") for session in sessions]
        assert [caller.result().turn_id for caller in waiting] == ["t2"] * SESSION_COUNT
        for caller in sending:
            caller.result()
        assert servers.replica.role() == "master"
        assert deployment.pids() == pids
        store = deployment.sessions.connection.store
        for session in sessions:
            require_answered_once(store, session.session_id, ["t1", "t2", "t3"], Kills())
            require_history(store, session.session_id, echoed(["first", "second", "third"]), Kills())


def test_sentinel_that_hangs_is_passed_over(servers: Replicated) -> None:
    """Store and broker ask the next one."""
    servers.sentinels[0].freeze()
    store = store_on(servers)
    begun = time.monotonic()
    arena_on(store).open()
    settings = Settings(store_url=servers.url, sentinel_name=PRIMARY_NAME)
    with make_app(settings).connection_for_write() as connection, connection.SimpleQueue("heard") as queue:
        queue.put({})
    assert time.monotonic() - begun < 20.0
    assert servers.primary.client.llen("sl:heard") == 1
    store.close_connections()


def send_until_answered(session: ClientSession, message: str, turn_id: str) -> None:
    """As a caller is told to: while the store is away, the same turn again under its id."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            session.send(message, turn_id=turn_id, timeout_seconds=PATIENCE_SECONDS)
            return
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
