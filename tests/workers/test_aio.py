"""The client for asyncio, on a real server: many awaited answers on a few threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from sessionlib.agent import Agent
from sessionlib.errors import AnswerTimeout, InvalidInput, TurnFailed, UnknownSession
from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider, echo
from sessionlib.stores.contract import TurnState
from tests.workers.local import LocalWorkers, connection_to, local_workers
from workers.aio import STORE_THREADS
from workers.client import AsyncSessions

AGENT = Agent(name="a", window_tokens=8_000, counter="characters")
PATIENCE_SECONDS = 30.0


class Gate:
    """An answer function that waits until the test lets it go."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.opened.set()

    def answer(self, request: ModelRequest) -> str:
        assert self.opened.wait(PATIENCE_SECONDS)
        return echo(request)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def workers(valkey_url: str, namespace: str, gate: Gate) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider(gate.answer)) as workers:
        yield workers
        gate.opened.set()


@asynccontextmanager
async def client(workers: LocalWorkers) -> AsyncIterator[AsyncSessions]:
    async with AsyncSessions(connection_to(workers.store, workers.catalog, workers)) as sessions:
        yield sessions


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), PATIENCE_SECONDS)

    asyncio.run(limited())


def test_message_is_answered(workers: LocalWorkers) -> None:
    """`send` submits and waits; the session is seen as by any client."""

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            reply = await session.send("hello", timeout_seconds=10.0)
            assert reply.text == "Acknowledged: hello"
            assert len((await session.layout()).live) == 2
            assert (await session.view()).next_seq == 3
            again = await sessions.get("s")
            assert (await again.get_turn(reply.turn_id).answer(10.0)).text == reply.text

    run(test)


def test_t108_one_event_loop_after_another_is_served(workers: LocalWorkers) -> None:
    """Nothing of a client belongs to the loop in which the store was first used: a closed loop harms no later one."""
    for number in range(2):

        async def test(number: int = number) -> None:
            async with client(workers) as sessions:
                session = await sessions.open("s", "a")
                reply = await session.send(f"hello {number}", timeout_seconds=10.0)
                assert reply.text == f"Acknowledged: hello {number}"

        run(test)


def test_many_answers_are_awaited_on_a_few_threads(workers: LocalWorkers, gate: Gate) -> None:
    """Fifty turns at once take no thread each, and all are answered."""
    gate.opened.clear()

    async def test() -> None:
        async with client(workers) as sessions:
            opened = [await sessions.open(f"s{number}", "a") for number in range(50)]
            turns = [await session.submit("hello", turn_id="t") for session in opened]
            waiting = [asyncio.ensure_future(turn.answer(PATIENCE_SECONDS)) for turn in turns]
            await asyncio.sleep(0)  # all of them wait now
            store_threads = [thread for thread in threading.enumerate() if thread.name.startswith("store")]
            assert len(store_threads) <= STORE_THREADS
            gate.opened.set()
            replies = await asyncio.gather(*waiting)
            assert {reply.text for reply in replies} == {"Acknowledged: hello"}

    run(test)


def test_loop_is_free_while_an_answer_is_awaited(workers: LocalWorkers, gate: Gate) -> None:
    """Nothing blocks it: other coroutines let the answer come."""
    gate.opened.clear()

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            answer = asyncio.ensure_future(session.send("hello", timeout_seconds=PATIENCE_SECONDS))
            passes = 0
            while passes < 100:
                await asyncio.sleep(0)
                passes += 1
            assert not answer.done()
            gate.opened.set()
            assert (await answer).text == "Acknowledged: hello"

    run(test)


def test_caller_that_waits_too_short_may_ask_again(workers: LocalWorkers, gate: Gate) -> None:
    """The turn goes on after AnswerTimeout, and the same turn id finds its answer."""
    gate.opened.clear()

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            with pytest.raises(AnswerTimeout):
                await session.send("hello", turn_id="t", timeout_seconds=0.1)
            gate.opened.set()
            assert (await session.send("hello", turn_id="t", timeout_seconds=10.0)).text == "Acknowledged: hello"
            assert (await session.view()).next_seq == 3

    run(test)


def test_events_come_up_to_the_last(workers: LocalWorkers) -> None:
    """In order, and the stream ends with the answer."""

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            turn = await session.submit("hello", turn_id="t")
            kinds = [event.kind async for event in turn.events()]
            assert kinds[0] == "queued"
            assert kinds[-1] == "answered"
            assert "started" in kinds

    run(test)


def test_rotation_is_watched(workers: LocalWorkers) -> None:
    """`watch` yields its outcome as it happens, and ends when nothing is new."""

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            for number in range(6):
                await session.send(f"message {number} " + "the pump is blue. " * 80, timeout_seconds=10.0)
            await session.rotate()
            kinds = [event.kind async for event in session.watch(timeout_seconds=1.0)]
            assert "rotated" in kinds

    run(test)


def test_cancelled_turn_fails_for_who_awaits_it(workers: LocalWorkers, gate: Gate) -> None:
    """The one who waits is told at once."""
    gate.opened.clear()

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            turn = await session.submit("hello", turn_id="t")
            waiting = asyncio.ensure_future(turn.answer(PATIENCE_SECONDS))
            assert await turn.cancel() is TurnState.CANCELLED
            with pytest.raises(TurnFailed, match="cancelled"):
                await waiting

    run(test)


def test_errors_are_those_of_the_blocking_client(workers: LocalWorkers) -> None:
    """Raised where the call is awaited, before anything changes."""

    async def test() -> None:
        async with client(workers) as sessions:
            with pytest.raises(UnknownSession):
                await sessions.get("nowhere")
            session = await sessions.open("s", "a")
            with pytest.raises(InvalidInput):
                await session.send("  ")
            with pytest.raises(InvalidInput):
                await session.get_turn("never-submitted").answer(1.0)
            await session.close()
            await session.purge()
            with pytest.raises(UnknownSession):
                await session.view()

    run(test)


def test_nothing_is_left_behind(workers: LocalWorkers) -> None:
    """Threads and subscription end with the client."""

    async def test() -> None:
        async with client(workers) as sessions:
            session = await sessions.open("s", "a")
            await session.send("hello", timeout_seconds=10.0)

    run(test)
    names = [thread.name for thread in threading.enumerate()]
    assert "hints" not in names
    assert not [name for name in names if name.startswith("store")]
