"""A purged session's responses are deleted at the provider: by workers, through a reaper, until that succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sessionlib.agent import Agent
from sessionlib.providers.responses import Responses
from sessionlib.stores.contract import DueKind
from sessionlib.testing.server import FakeProviderServer
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, local_workers
from workers.client import Connection, Sessions
from workers.dispatch import LET_GO
from workers.probes import waiting_work
from workers.reaper import Reaper

AGENT = Agent(name="a", window_tokens=8_000, counter="characters")


@pytest.fixture
def provider() -> Iterator[FakeProviderServer]:
    with FakeProviderServer() as server:
        yield server


@pytest.fixture
def workers(valkey_url: str, namespace: str, provider: FakeProviderServer) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, Responses(provider.base_url)) as workers:
        yield workers


@contextmanager
def swept(workers: LocalWorkers) -> Iterator[None]:
    """A reaper that sweeps all the while."""
    reaper = Reaper(workers.store, workers, 0.02)
    reaper.start()
    try:
        yield
    finally:
        reaper.stop()


def test_a_purged_sessions_responses_are_deleted(
    connection: Connection, workers: LocalWorkers, provider: FakeProviderServer
) -> None:
    """The provider is away at first: the disposal is due until it is done, and then no more."""
    sessions = Sessions(connection)
    session = sessions.open("s", AGENT)
    for number in range(3):
        session.submit(f"{number}").answer(30.0)
    assert len(provider.responses.handles) == 3
    provider.fail(503, count=2, kind="disposals")
    session.purge()
    assert len(provider.responses.handles) == 3
    with swept(workers):
        wait_for(lambda: not provider.responses.handles, what="the chain to be deleted")
        wait_for(lambda: not due_kinds(workers), what="nothing to be due")
    ids = [ids["orphan_id"] for task, ids in workers.sent if task == LET_GO]
    assert len(ids) >= 3
    assert len(set(ids)) == 1


def test_a_session_of_the_same_name_is_left_alone(
    connection: Connection, workers: LocalWorkers, provider: FakeProviderServer
) -> None:
    """What the purged one held goes; what the new one holds stays."""
    sessions = Sessions(connection)
    sessions.open("s", AGENT).submit("old").answer(30.0)
    [old] = provider.responses.handles
    sessions.get("s").purge()
    session = sessions.open("s", AGENT)
    session.submit("new").answer(30.0)
    with swept(workers):
        wait_for(lambda: old not in provider.responses.handles, what="the old response to be deleted")
        assert not session.submit("newer").answer(30.0).answer.is_recovered
    assert len(provider.responses.handles) == 2


def test_an_orphan_is_nobodys_waiting_work(connection: Connection, workers: LocalWorkers) -> None:
    """However long it was looked for: health asks for turns and rotations, and its session is not there."""
    Sessions(connection).open("s", AGENT).submit("hello").answer(30.0)
    Sessions(connection).get("s").purge()
    wait_for(lambda: DueKind.RETENTION not in due_kinds(workers), what="the purge to end")
    assert waiting_work(workers.store) == []
    assert [item.kind for item in workers.store.due(0)] == [DueKind.ORPHAN]
    assert waiting_work(workers.store) == []
    assert list(workers.store.sessions(0)[0]) == []


def due_kinds(workers: LocalWorkers) -> list[DueKind]:
    """Of what is due, now or later; nothing is swept by it."""
    due = workers.store.keys.shared("due", 0)
    return [DueKind(member.decode().partition("|")[0]) for member in workers.store.client.zrange(due, 0, -1)]
