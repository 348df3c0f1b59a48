"""Hints: one subscription wakes whoever waits, and none is missed between a look and a wait."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sessionlib.stores.contract import AgentRef, OpenRequest, SubmitRequest, TurnInput
from tests.waiting import wait_for
from tests.workers.servers import wait_written
from workers.connection import client_for
from workers.embedded import EmbeddedServer
from workers.hints import Hints
from workers.keys import ENDED
from workers.store import RedisStore

LONG_SECONDS = 30.0
"""Longer than a test may take: who waits so long was not woken."""


@pytest.fixture
def store(valkey_url: str, namespace: str) -> Iterator[RedisStore]:
    store = RedisStore(client_for(valkey_url, connections=8), namespace=namespace)
    open_session(store)
    yield store
    store.close_connections()


@pytest.fixture
def hints(store: RedisStore) -> Iterator[Hints]:
    hints = Hints(store)
    yield hints
    hints.close()


def open_session(store: RedisStore) -> None:
    store.open(OpenRequest(session_id="s", agent=AgentRef(name="a", digest="d"), agent_json="{}"))


def submit(store: RedisStore, turn_id: str) -> None:
    store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=TurnInput(message="hello")))


def subscriptions(client: redis.Redis, channel: str) -> int:
    return int(client.pubsub_numsub(channel)[0][1])


def test_hint_between_look_and_wait_is_not_missed(store: RedisStore, hints: Hints) -> None:
    """Who looks first and waits then is told of what happened in between, once."""
    hints.wait("s", "t", 0.0)
    submit(store, "t")
    assert hints.wait("s", "t", LONG_SECONDS)
    assert not hints.wait("s", "t", 0.0)


def test_first_wait_looks_again_at_once(store: RedisStore, hints: Hints) -> None:
    """What happened before there was a subscription cannot be known: the first wait returns to look."""
    submit(store, "t")
    assert hints.wait("s", "t", LONG_SECONDS)


def test_wait_without_a_hint_ends_in_time(hints: Hints) -> None:
    """Nothing happened: the caller looks for itself after its timeout."""
    hints.wait("s", "t", 0.0)
    assert not hints.wait("s", "t", 0.01)


def test_hint_wakes_those_of_its_turn_only(store: RedisStore, hints: Hints) -> None:
    """Of two turns that are waited for, one is hinted."""
    woken = {"t1": threading.Event(), "t2": threading.Event()}
    with hints.listening("s", "t1", woken["t1"].set), hints.listening("s", "t2", woken["t2"].set):
        assert woken["t1"].wait(LONG_SECONDS)  # the subscription's own wake
        for event in woken.values():
            event.clear()
        submit(store, "t1")
        assert woken["t1"].wait(LONG_SECONDS)
        assert not woken["t2"].is_set()


def test_audit_wakes_those_who_watch_the_session(store: RedisStore, hints: Hints) -> None:
    """Turn "" stands for the session: a rotation's end is a hint to who watches."""
    hints.wait("s", "", 0.0)
    store.request_rotation("s", "test")
    store.cancel_rotation("s")
    assert hints.wait("s", "", LONG_SECONDS)


def test_end_of_a_turn_is_told_from_its_progress(store: RedisStore, hints: Hints) -> None:
    """Who waits for the answer is not woken by what comes before it."""
    hints.wait("s", "t" + ENDED, 0.0)
    submit(store, "t")
    assert hints.wait("s", "t", LONG_SECONDS)
    assert not hints.wait("s", "t" + ENDED, 0.0)
    store.cancel("s", "t")
    assert hints.wait("s", "t" + ENDED, LONG_SECONDS)
    assert hints.wait("s", "t", LONG_SECONDS)


def test_many_waiters_share_one_subscription(store: RedisStore, hints: Hints) -> None:
    """A thousand turns are waited for over one connection, and each is woken."""
    turn_ids = [f"t{number}" for number in range(1_000)]
    woken = {turn_id: threading.Event() for turn_id in turn_ids}
    contexts = [hints.listening("s", turn_id, woken[turn_id].set) for turn_id in turn_ids]
    for context in contexts:
        context.__enter__()
    for turn_id in turn_ids:
        store.client.publish(store.keys.hints, f"s|{turn_id}")
    assert all(event.wait(LONG_SECONDS) for event in woken.values())
    assert subscriptions(store.client, store.keys.hints) == 1
    for context in contexts:
        context.__exit__(None, None, None)


def test_coroutines_wait_without_threads(store: RedisStore, hints: Hints) -> None:
    """An event loop is woken through `call_soon_threadsafe`."""

    async def wait_for_hint() -> bool:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        await asyncio.to_thread(hints.wait, "s", "t", 0.0)
        with hints.listening("s", "t", lambda: loop.call_soon_threadsafe(woken.set)):
            await asyncio.to_thread(submit, store, "t")
            return await asyncio.wait_for(woken.wait(), LONG_SECONDS)

    assert asyncio.run(wait_for_hint())


def test_listeners_look_again_after_a_broken_connection(tmp_path: Path) -> None:
    """A server that was away may have had news: when the subscription is back, everybody is woken."""
    with EmbeddedServer(tmp_path) as server:
        store = RedisStore(client_for(server.url, connections=4))
        open_session(store)
        hints, woken = Hints(store), threading.Event()
        with hints.listening("s", "t", woken.set):
            assert woken.wait(LONG_SECONDS)
            woken.clear()
            wait_written(store.client)
            server.kill()
            server.restart()
            assert woken.wait(LONG_SECONDS)
            woken.clear()
            wait_for(lambda: subscriptions(store.client, store.keys.hints) == 1)
            submit(store, "t")
            assert woken.wait(LONG_SECONDS)
        hints.close()
        store.close_connections()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_subscribes_for_itself(store: RedisStore, hints: Hints) -> None:
    """A child has none of its parent's threads: its first wait begins a subscription of its own."""
    hints.wait("s", "t", 0.0)
    child = os.fork()
    if child == 0:
        hints.wait("s", "t", 0.0)
        submit(store, "t")
        os._exit(0 if hints.wait("s", "t", 5.0) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert hints.wait("s", "t", LONG_SECONDS)


def test_closed_hints_leave_no_subscription(store: RedisStore, hints: Hints) -> None:
    """`close` ends thread and connection; a later wait begins anew."""
    hints.wait("s", "t", 0.0)
    hints.close()
    wait_for(lambda: subscriptions(store.client, store.keys.hints) == 0)
    submit(store, "t")
    assert hints.wait("s", "t", LONG_SECONDS)
