"""The store in a cluster of three masters, the broker on a server of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from sessionlib.errors import StoreUnavailable
from sessionlib.stores.contract import Lane
from tests.contract.arena import Arena
from tests.contract.conftest import let_pass
from tests.crash.checks import Kills, echoed, require_answered_once, require_history
from tests.waiting import wait_for
from tests.workers.deployment import deployed
from tests.workers.servers import ClusterNode, cluster_of_masters, wait_written
from workers.connection import client_for
from workers.hints import Hints
from workers.settings import Settings
from workers.store import RedisStore

PARTITIONS = 64
SESSION_IDS = [f"s{number}" for number in range(12)]
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterNode, ...]]:
    with cluster_of_masters(tmp_path_factory.mktemp("cluster")) as masters:
        yield masters


@pytest.fixture
def settings(masters: tuple[ClusterNode, ...], valkey_url: str, namespace: str) -> Settings:
    url = masters[0].cluster_url
    broker_url = Settings(store_url=valkey_url).celery_broker_url
    return Settings(store_url=url, broker_url=broker_url, namespace=namespace, partitions=PARTITIONS)


@pytest.fixture
def store(settings: Settings) -> Iterator[RedisStore]:
    store = RedisStore.connect(settings, connections=8)
    yield store
    store.close_connections()


def live_through(arena: Arena, session_id: str) -> None:
    """Open a session, answer two turns of it, and rotate it between them."""
    arena.open(session_id)
    for turn_id in ("t1", "t2"):
        arena.submit(turn_id, f"message of {turn_id}", session_id)
        arena.finish(arena.begin(session_id=session_id))
    arena.store.request_rotation(session_id, "test")
    grant = arena.begin(session_id=session_id, lane=Lane.ROTATION)
    assert arena.store.adopt(grant, arena.adoption(grant, 2)).is_adopted


def keys_of(store: RedisStore, session_id: str) -> list[str]:
    """Every key of a session, on whichever master."""
    found = store.client.keys(f"{{{store.keys.namespace}:*", target_nodes=redis.RedisCluster.PRIMARIES)
    return [key.decode() for key in found if is_of(key.decode(), session_id)]


def is_of(key: str, session_id: str) -> bool:
    return key.endswith(f":{session_id}") or f":{session_id}|" in key


def test_sessions_of_all_partitions_live_in_a_cluster(store: RedisStore) -> None:
    """Opened, answered and rotated on every master: no script touches a key of another slot."""
    arena = Arena(store, let_pass, time.time)
    for session_id in SESSION_IDS:
        live_through(arena, session_id)
    assert len({store.keys.partition(session_id) for session_id in SESSION_IDS}) > len(SESSION_IDS) // 2
    for session_id in SESSION_IDS:
        assert store.view(session_id).epoch == 1
        assert [entry.text for entry in arena.history(session_id)][::2] == ["message of t1", "message of t2"]


def test_all_keys_of_a_session_lie_in_one_slot(store: RedisStore) -> None:
    """Whatever a session has, its partition's master has it all; the partitions lie on all masters."""
    arena = Arena(store, let_pass, time.time)
    nodes = set()
    for session_id in SESSION_IDS:
        live_through(arena, session_id)
        slots = {store.client.keyslot(key) for key in keys_of(store, session_id)}
        assert len(slots) == 1
        nodes.add(store.client.nodes_manager.get_node_from_slot(slots.pop()).name)
    assert len(nodes) == 3


def test_hint_of_any_master_reaches_who_waits(store: RedisStore) -> None:
    """One subscription hears of sessions of every partition."""
    arena = Arena(store, let_pass, time.time)
    hints = Hints(store)
    for session_id in SESSION_IDS:
        arena.open(session_id)
        hints.wait(session_id, "t1", 0.0)
        arena.submit("t1", session_id=session_id)
        assert hints.wait(session_id, "t1", PATIENCE_SECONDS)
    hints.close()


def test_purge_leaves_nothing_in_a_cluster(store: RedisStore) -> None:
    """Deleted batch by batch on the session's own master."""
    arena = Arena(store, let_pass, time.time)
    live_through(arena, "s")
    assert keys_of(store, "s")
    wait_for(lambda: store.purge("s", batch=2))
    assert keys_of(store, "s") == []


@pytest.mark.crash
def test_workers_serve_sessions_of_a_cluster(settings: Settings, tmp_path: Path) -> None:
    """The whole path, with the broker on a plain server: turns and rotations of several partitions."""
    given = {name: getattr(settings, name) for name in ("store_url", "broker_url", "namespace", "partitions")}
    with deployed(tmp_path, **given) as deployment:
        store = deployment.sessions.connection.store
        sessions = [deployment.sessions.open(session_id, "talker") for session_id in SESSION_IDS[:4]]
        messages = {f"t{number}": f"message {number} " + "one more fact. " * 100 for number in range(4)}
        turns = [session.submit(text, turn_id=turn_id) for session in sessions for turn_id, text in messages.items()]
        for turn in turns:
            turn.answer(PATIENCE_SECONDS)
        for session in sessions:
            session.rotate()
            wait_for(lambda view=session.view: view().epoch == 1, what="the rotation")  # type: ignore[misc]
            require_answered_once(store, session.session_id, list(messages), Kills())
            require_history(store, session.session_id, echoed(messages.values()), Kills())


@pytest.mark.crash
def test_cluster_without_one_master_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    """What the dead master had cannot be reached, nor can it be asked for the cluster; started again, it has it all."""
    with cluster_of_masters(tmp_path) as masters:
        urls = [master.cluster_url for master in masters]
        settings = Settings(store_url=urls[0], broker_url="redis://elsewhere", partitions=PARTITIONS)
        store = RedisStore.connect(settings)
        arena = Arena(store, let_pass, time.time)
        for session_id in SESSION_IDS:
            live_through(arena, session_id)
        wait_written(masters[1].client)
        masters[1].kill()
        with pytest.raises(StoreUnavailable):
            [store.view(session_id) for session_id in SESSION_IDS]
        with pytest.raises(StoreUnavailable, match="SESSIONLIB_STORE_URL"):
            client_for(urls[1])
        masters[1].start()
        wait_for(lambda: all(is_reached(store, session_id) for session_id in SESSION_IDS), PATIENCE_SECONDS)
        assert [store.view(session_id).epoch for session_id in SESSION_IDS] == [1] * len(SESSION_IDS)
        store.close_connections()


def is_reached(store: RedisStore, session_id: str) -> bool:
    with suppress(StoreUnavailable):
        return store.view(session_id).session_id == session_id
    return False
