"""The store behind Sentinel and in a cluster: the same scripts, by URL alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sessionlib.errors import StoreUnavailable
from sessionlib.stores.contract import AgentRef, OpenRequest
from sessionlib.stores.memory import MemoryStore
from tests.waiting import wait_for
from tests.workers.test_store_agrees import LASTING, Walk
from workers import children
from workers.connection import client_for
from workers.embedded import EmbeddedServer, find_server, free_port
from workers.settings import Settings
from workers.store import RedisStore

SLOT_COUNT = 16_384


def start_server(directory: Path, *flags: str) -> Iterator[int]:
    """A server with flags of its own on a free port, until the test ends."""
    port = free_port()
    with (directory / "server.log").open("wb") as log:
        command = [str(find_server()), *flags, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        process = children.start(command, output=log)
    with redis.Redis(port=port) as client:
        wait_for(lambda: answers(client), what=f"a server on port {port}")
    yield port
    children.end(process, 10.0)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """A cluster of one node that has all slots: it refuses scripts that touch keys of several."""
    for port in start_server(tmp_path, "--cluster-enabled", "yes", "--save", ""):
        with redis.Redis(port=port) as node:
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOT_COUNT - 1)
            wait_for(lambda node=node: b"cluster_state:ok" in node.execute_command("CLUSTER INFO", NEVER_DECODE=True))
        yield f"redis+cluster://127.0.0.1:{port}/0"


@pytest.fixture
def sentinel_url(tmp_path: Path) -> Iterator[str]:
    """A Sentinel that watches one server under the name `main`."""
    with EmbeddedServer(tmp_path / "data", over_tcp=True) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        configuration = tmp_path / "sentinel.conf"
        configuration.write_text(f"sentinel monitor main 127.0.0.1 {port} 1\n")
        for sentinel_port in start_server(tmp_path, str(configuration), "--sentinel"):
            yield f"sentinel://127.0.0.1:{free_port()};sentinel://127.0.0.1:{sentinel_port}"


def test_scripts_run_in_a_cluster(cluster_url: str) -> None:
    """Every script keeps to one slot: a random walk agrees with the rules there too."""
    client = client_for(cluster_url, connections=4)
    store = RedisStore(client, limits=LASTING)
    Walk(MemoryStore(LASTING, time.time), store, random.Random(7)).go(150)
    assert store.client.exists(store.keys.head("s"))
    store.close_connections()


def test_partitions_spread_over_a_cluster(cluster_url: str) -> None:
    """With several partitions, sessions of all of them can be opened and are found."""
    store = RedisStore.connect(Settings(store_url=cluster_url, broker_url="redis://elsewhere", partitions=8))
    ids = [f"s{number}" for number in range(30)]
    for session_id in ids:
        store.open(OpenRequest(session_id=session_id, agent=AgentRef(name="a", digest="d"), agent_json="{}"))
    found = [session_id for partition in range(8) for session_id in store.sessions(partition)[0]]
    assert sorted(found) == sorted(ids)
    store.close_connections()


def test_primary_is_found_through_sentinels(sentinel_url: str) -> None:
    """One Sentinel of the list is down; the other names the primary."""
    store = RedisStore.connect(Settings(store_url=sentinel_url, sentinel_name="main"))
    store.open(OpenRequest(session_id="s", agent=AgentRef(name="a", digest="d"), agent_json="{}"))
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
