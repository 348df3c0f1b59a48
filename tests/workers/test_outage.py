"""A store that is away: a clear error for who asks, patience for who waits, and no verdict on work under way."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fakeredis
import pytest
import redis

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.errors import AnswerTimeout, StoreError, StoreUnavailable
from sessionlib.inputs import open_request
from sessionlib.leases import Leases
from sessionlib.providers.contract import ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, run_turn, unobserved
from sessionlib.stores.contract import Committed, Grant, Limits, RoundCommit, SubmitRequest, TurnInput, TurnView
from sessionlib.stores.memory import MemoryStore
from sessionlib.testing.fake_provider import Kind
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import let_pass
from tests.crash.checks import Kills, echoed, require_history
from tests.waiting import wait_for
from tests.workers.deployment import deployed
from tests.workers.servers import wait_written
from workers.aio import AsyncSessions
from workers.blocking import ClientSession, Connection, Sessions
from workers.connection import client_for
from workers.dispatch import NoDispatch
from workers.embedded import EmbeddedServer
from workers.hints import Hints
from workers.store import RedisStore
from workers.waiting import LOOK_SECONDS, OUTAGE_LOOK_SECONDS, OUTAGE_SECONDS, Waiting

AGENT = Agent(name="coder", model="m", window_tokens=8_000)
FEW_SECONDS = 5.0
PATIENCE_SECONDS = 60.0


class Looked(RedisStore):
    """Counts who looks for a turn."""

    look_count = 0

    def turn(self, session_id: str, turn_id: str) -> TurnView | None:
        self.look_count += 1
        return super().turn(session_id, turn_id)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
def store(server: EmbeddedServer) -> Looked:
    return Looked(client_for(server.url, connections=8))


@pytest.fixture
def connection(store: Looked) -> Iterator[Connection]:
    """A client's parts; what workers do, the tests do through an arena."""
    connection = Connection(store, NoDispatch(), Hints(store), Catalog())
    yield connection
    connection.close()


@pytest.fixture
def session(connection: Connection) -> ClientSession:
    return Sessions(connection).open(SESSION, AGENT)


def answer_next(store: RedisStore) -> None:
    """Answer the session's next turn, as a worker would."""
    arena = Arena(store, let_pass, time.time)
    arena.finish(arena.begin())


def crash(server: EmbeddedServer, store: RedisStore) -> None:
    """SIGKILL, at a moment that loses nothing."""
    wait_written(store.client)
    server.kill()


def test_stopped_server_is_a_clear_error(server: EmbeddedServer, store: Looked, session: ClientSession) -> None:
    """Within seconds, and it says what to do."""
    crash(server, store)
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="SESSIONLIB_STORE_URL"):
        session.submit("hello", turn_id="t1")
    assert time.monotonic() - begun < FEW_SECONDS
    server.restart()
    session.submit("hello", turn_id="t1")


def test_waiting_caller_survives_a_restart(server: EmbeddedServer, store: Looked, session: ClientSession) -> None:
    """It looks, finds nobody there, looks again, and has its answer when the server is back and the turn is done."""
    turn = session.submit("hello", turn_id="t1")
    crash(server, store)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(turn.answer)
        wait_for(lambda: store.look_count >= 2, what="another look")
        server.restart()
        answer_next(store)
        assert waiting.result(PATIENCE_SECONDS).text == "answer to t1"


def test_waiting_coroutine_survives_a_restart(
    server: EmbeddedServer, store: Looked, connection: Connection, session: ClientSession
) -> None:
    """The same in an event loop."""
    session.submit("hello", turn_id="t1")

    async def through_a_restart() -> str:
        async with AsyncSessions(connection) as sessions:
            turn = (await sessions.get(SESSION)).get_turn("t1")
            crash(server, store)
            waiting = asyncio.create_task(turn.answer())
            await asyncio.to_thread(wait_for, lambda: store.look_count >= 2)
            await asyncio.to_thread(server.restart)
            await asyncio.to_thread(answer_next, store)
            return (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).text

    assert asyncio.run(through_a_restart()) == "answer to t1"


def test_subscription_at_a_silent_server_is_renewed(server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    """A server whose host is gone does not hang up: after a few unanswered pings the subscriber begins anew."""
    with redis.Redis.from_url(server.url, health_check_interval=1, socket_timeout=1.0) as client:
        hints, woken = Hints(RedisStore(client)), threading.Event()
        with hints.listening(SESSION, "t1", woken.set):
            assert woken.wait(PATIENCE_SECONDS)
            woken.clear()
            assert server.pid
            os.kill(server.pid, signal.SIGSTOP)
            wait_for(lambda: "hints are interrupted" in caplog.messages, PATIENCE_SECONDS)
            os.kill(server.pid, signal.SIGCONT)
            assert woken.wait(PATIENCE_SECONDS)
        hints.close()


def test_events_go_on_after_a_restart(server: EmbeddedServer, store: Looked, session: ClientSession) -> None:
    """Whoever follows a turn sees each of its events once, those after an outage too."""
    events = session.submit("hello", turn_id="t1").events()
    seen = [next(events).kind]
    crash(server, store)
    server.restart()
    answer_next(store)
    seen += [event.kind for event in events]
    assert seen == [event.kind for event in store.events(SESSION, "t1")]


def test_caller_whose_timeout_ends_in_an_outage_is_told_so(server: EmbeddedServer, session: ClientSession) -> None:
    """Not AnswerTimeout, which says that the turn goes on: nobody can know."""
    turn = session.submit("hello", turn_id="t1")
    server.kill()
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        turn.answer(timeout_seconds=0.2)
    assert time.monotonic() - begun < FEW_SECONDS


def test_caller_whose_timeout_ends_otherwise_is_told_that_the_turn_goes_on(session: ClientSession) -> None:
    """The store is there, the answer is not."""
    with pytest.raises(AnswerTimeout):
        session.submit("hello", turn_id="t1").answer(timeout_seconds=0.05)


def test_watch_without_news_ends_after_its_timeout(session: ClientSession) -> None:
    """What is there is yielded, however short the time to wait."""
    session.rotate()
    session.cancel_rotation()
    kinds = [event.kind for event in session.watch(timeout_seconds=0.001)]
    assert kinds
    assert kinds == [event.kind for event in session.watch(timeout_seconds=0.05)]


def test_outage_without_a_timeout_is_borne_for_its_time() -> None:
    """Looked for again every second, until it has lasted OUTAGE_SECONDS; a look that succeeds begins anew."""
    clock = FakeClock()
    waiting = Waiting(None, clock)
    assert waiting.pause_seconds == LOOK_SECONDS
    fail(waiting)
    assert waiting.pause_seconds == OUTAGE_LOOK_SECONDS
    clock.now += OUTAGE_SECONDS - 1
    fail(waiting)
    with waiting.through_outages():
        pass
    assert waiting.pause_seconds == LOOK_SECONDS
    clock.now += 2
    fail(waiting)
    clock.now += OUTAGE_SECONDS
    with pytest.raises(StoreUnavailable):
        fail(waiting)


def test_outage_with_a_timeout_is_borne_to_its_end() -> None:
    """However long that is; the last pause ends with it."""
    clock = FakeClock()
    waiting = Waiting(10 * OUTAGE_SECONDS, clock)
    fail(waiting)
    clock.now += 10 * OUTAGE_SECONDS - 0.5
    fail(waiting)
    assert waiting.pause_seconds == 0.5
    clock.now += 0.5
    with pytest.raises(StoreUnavailable):
        fail(waiting)


def fail(waiting: Waiting) -> None:
    """A look during an outage."""
    with waiting.through_outages():
        raise StoreUnavailable("away")


class Interrupted(MemoryStore):
    """Away after the step that a first commit brings along, and back for whatever comes next."""

    is_away = True

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        if self.is_away and commit.last_step:
            self.is_away = False
            self.save_step(grant, commit.last_step.position, commit.last_step.name, commit.last_step.result)
            raise StoreUnavailable("away")
        return super().commit(grant, commit)


def test_outage_under_a_turn_does_not_fail_it() -> None:
    """The worker gives up, the turn stays, and the next run commits the reply that was saved without asking again."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelReply:
        asked.append(request)
        return ModelReply(text="hi")

    clock = FakeClock()
    store = Interrupted(Limits(), clock)
    catalog = Catalog({AGENT.name: AGENT}, {"default": ScriptedProvider(answer)})
    engine = Engine(store, catalog, Leases(store).hold, unobserved)
    store.open(open_request(SESSION, AGENT, (), False, None))
    store.submit(SubmitRequest(session_id=SESSION, turn_id="t1", input=TurnInput(message="hello")))
    with pytest.raises(StoreUnavailable):
        run_turn(engine, SESSION)
    clock.now += store.limits.lease_seconds + 1
    assert run_turn(engine, SESSION).status == "answered"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("version", "is_taken"), [("6.2.14", False), ("5.0.3", False), ("7.0.15", True), ("10.1", True)]
)
def test_server_that_is_too_old_is_refused_at_the_first_call(version: str, is_taken: bool) -> None:
    """It lacks script flags: told before anything is written, with both versions."""

    class Versioned(fakeredis.FakeRedis):
        def info(self, *args: object, **options: object) -> dict[str, str]:
            return {"redis_version": version}

    with Versioned(server=fakeredis.FakeServer()) as client:
        store = RedisStore(client)
        if is_taken:
            store.check()
            return
        with pytest.raises(StoreError, match=rf"{version}.*7\.0"):
            store.view(SESSION)
        assert client.keys() == []


@pytest.mark.crash
def test_workers_end_their_turns_on_a_full_server(server: EmbeddedServer, tmp_path: Path) -> None:
    """Store and broker on one server without memory: the turn under way is answered, and the workers live on. What
    waits follows when there is memory again."""
    with (
        deployed(tmp_path, store_url=server.url, partitions=1) as deployment,
        redis.Redis.from_url(server.url) as client,
    ):
        session = deployment.sessions.open("full", "talker")
        deployment.provider.hold(Kind.ANSWERS)
        turns = [session.submit(f"message {number}", turn_id=f"t{number}") for number in range(2)]
        wait_for(lambda: deployment.provider.held(Kind.ANSWERS) == 1, what="a turn under way")
        pids = deployment.pids()
        client.config_set("maxmemory", 1)
        deployment.provider.release()
        assert turns[0].answer(PATIENCE_SECONDS)
        client.config_set("maxmemory", 0)
        assert turns[1].answer(PATIENCE_SECONDS)
        session.send("message 2", timeout_seconds=PATIENCE_SECONDS)
        assert deployment.pids() == pids
        messages = [f"message {number}" for number in range(3)]
        require_history(deployment.sessions.connection.store, "full", echoed(messages), Kills())
