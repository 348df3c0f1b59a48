"""Workers without processes: hints are run at once, on threads of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from sessionlib.agent import Agent
from sessionlib.archive import unpack
from sessionlib.catalog import Catalog
from sessionlib.entries import Entry
from sessionlib.leases import Leases
from sessionlib.providers.contract import Provider
from sessionlib.running import unobserved
from sessionlib.stores.contract import Limits
from workers import background, front
from workers.blocking import Connection
from workers.connection import client_for
from workers.dispatch import (
    CAPTURE,
    CLOSE_CALLS,
    DISPOSE,
    LET_GO,
    PUBLISH,
    PURGE,
    RUN_DIGEST,
    RUN_HANDOFF,
    RUN_ROTATION,
    RUN_TURN,
)
from workers.hints import Hints
from workers.parts import Parts
from workers.settings import Settings
from workers.snapshots import SnapshotCache
from workers.store import RedisStore

LIMITS = Limits(lease_seconds=1.0, sweep_first_seconds=0.1)


def store_at(url: str, namespace: str, limits: Limits = LIMITS) -> RedisStore:
    """A store of its own on a server."""
    return RedisStore(client_for(url), namespace=namespace, partitions=1, limits=limits)


def catalog_of(agent: Agent, provider: Provider) -> Catalog:
    return Catalog({agent.name: agent}, {agent.provider: provider})


def connection_to(store: RedisStore, catalog: Catalog, dispatch: LocalWorkers) -> Connection:
    return Connection(store, dispatch, Hints(store), catalog)


@contextmanager
def local_workers(url: str, namespace: str, agent: Agent, provider: Provider) -> Iterator[LocalWorkers]:
    """Workers for one agent on a server, ended at the end of the block."""
    workers = LocalWorkers(store_at(url, namespace), catalog_of(agent, provider))
    try:
        yield workers
    finally:
        workers.close()
        workers.store.close_connections()


@contextmanager
def connected(workers: LocalWorkers) -> Iterator[Connection]:
    """A caller's connection to such workers."""
    connection = connection_to(workers.store, workers.catalog, workers)
    try:
        yield connection
    finally:
        connection.hints.close()


@dataclass
class LocalWorkers:
    """A Dispatch that runs what it is sent."""

    store: RedisStore
    catalog: Catalog
    sent: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="local-worker")
        self.parts = Parts(
            settings=Settings(),
            store=self.store,
            catalog=self.catalog,
            dispatch=self,
            leases=Leases(self.store),
            snapshots=SnapshotCache(),
        )
        self._tasks: Mapping[str, Callable[..., object]] = {
            LET_GO: partial(background.let_go, self.parts),
            RUN_TURN: lambda session_id: front.run(self.parts, session_id, unobserved),
            RUN_ROTATION: lambda session_id: background.rotate(self.parts, session_id, unobserved),
            DISPOSE: lambda session_id: background.dispose(self.parts, session_id, unobserved),
            PURGE: lambda session_id: background.purge(self.parts, session_id),
            CLOSE_CALLS: self.store.close_open_calls,
            RUN_HANDOFF: lambda session_id: background.hand_off(self.parts, session_id, unobserved),
            RUN_DIGEST: lambda session_id: background.digest(self.parts, session_id, unobserved),
            CAPTURE: lambda session_id: background.capture(self.parts, session_id, "finished"),
            PUBLISH: lambda session_id: background.publish(self.parts, session_id),
        }

    def send(self, task: str, **ids: str) -> None:
        self.sent.append((task, ids))
        named = ids if task == LET_GO else {"session_id": ids["session_id"]}  # the others' are for the operator's eyes
        self._pool.submit(self._tasks[task], **named)

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def history(connection: Connection) -> list[Entry]:
    """All that was ever recorded of the session `s`: archived, then live."""
    archived = [entry for chunk in connection.store.chunks("s") for entry in unpack(chunk.data)]
    return [*archived, *connection.store.snapshot("s").layout.live.entries]
