"""What goes wrong around a client, on a real server: nobody hangs, nothing is left held, no thread dies of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.providers.contract import CallRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.stores.contract import AgentRef, DueItem, Event, Grant, Lane, OpenRequest
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, local_workers
from workers.aio import _News
from workers.client import AsyncSessions, ClientSession, Connection, Sessions
from workers.dispatch import NoDispatch
from workers.reaper import Reaper
from workers.store import RedisStore

AGENT = Agent(name="own", window_tokens=8_000, counter="characters")
LONG_SECONDS = 30.0
"""Longer than a test may take: who waits so long was not woken."""


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider()) as workers:
        yield workers


@pytest.fixture
def session(connection: Connection) -> ClientSession:
    return Sessions(connection).open("s", AGENT)


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "leases"]


def test_events_of_an_unknown_turn_are_refused(session: ClientSession) -> None:
    """Whoever follows a turn that is not there is told, and does not wait for ever."""
    with pytest.raises(InvalidInput, match="turn_id is not known"):
        list(session.get_turn("never").events())


def test_events_of_an_unknown_turn_are_refused_in_a_loop(connection: Connection, session: ClientSession) -> None:
    """The same for asyncio."""

    async def follow() -> list[Event]:
        async with AsyncSessions(connection) as sessions:
            found = await sessions.get("s")
            return [event async for event in found.get_turn("never").events()]

    with pytest.raises(InvalidInput, match="turn_id is not known"):
        asyncio.run(follow())


def test_events_after_the_last_end_at_once(session: ClientSession) -> None:
    """Who resumes behind a turn's last event has nothing to wait for."""
    session.send("hello", turn_id="t", timeout_seconds=LONG_SECONDS)
    events = list(session.get_turn("t").events())
    assert events[-1].kind == "answered"
    assert list(session.get_turn("t").events(after=events[-1].id)) == []


def test_hints_outlive_what_is_no_hint(workers: LocalWorkers, connection: Connection, session: ClientSession) -> None:
    """Somebody publishes something else: the next hint wakes whoever waits."""
    connection.hints.wait("s", "t", 0.0)
    workers.store.client.publish(workers.store.keys.hints, b"\xff\xfe")
    session.send("hello", turn_id="t", timeout_seconds=LONG_SECONDS)
    wait_for(lambda: connection.hints.wait("s", "t", LONG_SECONDS))
    assert [thread.name for thread in threading.enumerate()].count("hints") == 1


def test_hints_outlive_a_loop_that_was_closed(
    connection: Connection, session: ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine that was never ended belongs to a loop that is no more: the subscription goes on for the others."""
    loop, news = asyncio.new_event_loop(), None

    async def listen() -> _News:
        return await _News(connection, "s", "t").__aenter__()

    news = loop.run_until_complete(listen())
    loop.close()
    session.send("hello", turn_id="t", timeout_seconds=LONG_SECONDS)
    wait_for(lambda: connection.hints.wait("s", "t", LONG_SECONDS))
    asyncio.run(news.__aexit__())
    assert "interrupted" not in caplog.text


def test_whoever_waits_survives_the_end_of_the_client(connection: Connection, session: ClientSession) -> None:
    """Closing forgets the listeners; they end their waits as ever."""
    with connection.hints.listening("s", "t", lambda: None):
        connection.hints.close()


def test_cancelled_waiter_leaves_no_listener(connection: Connection, session: ClientSession) -> None:
    """Also if it is cancelled while the first subscription begins."""

    async def give_up() -> None:
        async with AsyncSessions(connection) as sessions:
            turn = (await sessions.get("s")).get_turn("t")
            waiting = asyncio.create_task(turn.answer())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not connection.hints.listener_count

    asyncio.run(give_up())


def test_turn_that_cannot_be_taken_gives_the_lane_back(connection: Connection) -> None:
    """The stored agent cannot be read here: somebody else may take the turn at once."""
    ref = AgentRef(name="own", digest="d")
    connection.store.open(OpenRequest(session_id="s", agent=ref, agent_json="{}"))
    with pytest.raises(StoreCorrupt):
        ClientSession(connection, "s", AGENT).turn("hello", turn_id="t")
    assert isinstance(connection.store.begin("s", Lane.TURN, "other", own_turn_id="t"), Grant)


@pytest.mark.parametrize("reply", [{"text": None}, {"text": "", "results": {"c1": 5}}], ids=["text", "result"])
def test_reply_that_is_no_text_is_refused_before_it_is_saved(session: ClientSession, reply: dict[str, Any]) -> None:
    """The turn is as it was, and is answered with the next commit."""
    call = CallRequest(call_id="c1", name="look_up", arguments="{}")
    with session.turn("hello") as turn:
        with pytest.raises(InvalidInput, match="must be a string"):
            turn.commit(**reply, calls=[call])
        assert turn.saved_reply is None
        assert turn.commit("done")
    assert turn.answer().text == "done"


def test_turns_of_one_process_share_one_thread(connection: Connection) -> None:
    """However many turns are held; afterwards there is none."""
    wait_for(lambda: not lease_threads(), what="the leases of earlier tests")
    sessions = Sessions(connection)
    turns = [sessions.open(f"s{number}", AGENT).turn("hello") for number in range(5)]
    assert len(lease_threads()) == 1
    for turn in turns:
        turn.commit("done")
    wait_for(lambda: not lease_threads(), what="the thread to end")


class BrokenOnce:
    """A store whose first sweep meets a fault of ours."""

    partition_count = 1

    def __init__(self, store: RedisStore) -> None:
        self._store, self.sweeps = store, 0

    def due(self, partition: int) -> Sequence[DueItem]:
        self.sweeps += 1
        if self.sweeps == 1:
            raise ZeroDivisionError
        return self._store.due(partition)


def test_reaper_outlives_a_fault(workers: LocalWorkers) -> None:
    """Recovery does not end with one bad sweep."""
    store = BrokenOnce(workers.store)
    reaper = Reaper(store, NoDispatch(), 0.01)  # type: ignore[arg-type]
    reaper.start()
    wait_for(lambda: store.sweeps >= 3)
    reaper.stop()
