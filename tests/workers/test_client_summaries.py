"""Handoffs and the journal as callers of a fleet see them, on a real server: from threads and from asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from sessionlib.agent import Agent, Journal
from sessionlib.errors import AnswerTimeout, HandoffConflict, InvalidInput, StoreUnavailable, SummaryFailed
from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider, echo
from sessionlib.running import run_handoff, unobserved
from sessionlib.stores.contract import Grant, JobSettled, SessionStore, Settled
from sessionlib.summaries.purposes import HEADINGS, Purpose
from sessionlib.workloads import SummaryWorkload
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, connected, local_workers
from workers.client import AsyncSessions, Sessions
from workers.dispatch import NoDispatch

BY_MODEL = SummaryWorkload(model="summarizer")
AGENT = Agent(
    name="a",
    model="m",
    window_tokens=32_000,
    counter="characters",
    handoff=BY_MODEL,
    journal=Journal(digest=BY_MODEL, on_close=True),
)
TASK = "write the tests"
PATIENCE_SECONDS = 30.0


def summary(purpose: Purpose) -> str:
    first, *rest = HEADINGS[purpose]
    return "\n".join([f"## {first}\n- hello was said", *(f"## {heading}\n- none" for heading in rest)])


@dataclass
class Model:
    """Answers turns by an echo, and summaries when it is let to."""

    def __post_init__(self) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.asked: list[str] = []
        self.says = {purpose: summary(purpose) for purpose in Purpose}

    def answer(self, request: ModelRequest) -> str:
        if request.model != "summarizer":
            return echo(request)
        self.asked.append(request.idempotency_key)
        assert self.opened.wait(PATIENCE_SECONDS)
        purpose = Purpose.DIGEST if "Purpose: digest" in request.entries[0].text else Purpose.HANDOFF
        return self.says[purpose]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def workers(valkey_url: str, namespace: str, model: Model) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider(model.answer)) as workers:
        yield workers
        model.opened.set()


@pytest.fixture
def sessions(workers: LocalWorkers) -> Iterator[Sessions]:
    with connected(workers) as connection:
        opened = Sessions(connection)
        opened.open("s", "a").send("hello", timeout_seconds=PATIENCE_SECONDS)
        yield opened


def test_handoff_starts_another_session(sessions: Sessions) -> None:
    """Asked for, waited for, and begun with; the source is as it was."""
    source = sessions.get("s")
    before = source.layout()
    handoff = source.handoff(TASK, guidance="be kind", timeout_seconds=PATIENCE_SECONDS)
    assert handoff.text == summary(Purpose.HANDOFF)
    other = sessions.open("t", "a", from_handoff=handoff)
    (entry,) = other.layout().live.entries
    assert "hello was said" in entry.text
    assert source.layout() == before


def test_handoff_that_takes_long_is_waited_for_again(sessions: Sessions, model: Model) -> None:
    """The caller's time is up, the handoff goes on; its id asks for it, and nothing is paid for twice."""
    model.opened.clear()
    session = sessions.get("s")
    with pytest.raises(AnswerTimeout):
        session.handoff(TASK, handoff_id="h1", timeout_seconds=0.2)
    assert session.get_handoff("h1") is None
    assert session.send("meanwhile", timeout_seconds=PATIENCE_SECONDS).text
    model.opened.set()
    assert session.wait_for_handoff("h1", PATIENCE_SECONDS) == session.handoff(TASK, handoff_id="h1")
    assert len(model.asked) == 1


def test_handoff_with_the_id_of_another_is_refused(sessions: Sessions) -> None:
    """One id goes with one task and guidance."""
    session = sessions.get("s")
    session.handoff(TASK, handoff_id="h1", timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(HandoffConflict):
        session.handoff(TASK, guidance="other", handoff_id="h1")


def test_handoff_that_is_no_handoff_fails_with_its_class(sessions: Sessions, model: Model) -> None:
    """And stays failed: the same id never asks again."""
    model.says[Purpose.HANDOFF] = summary(Purpose.CONTINUATION)
    for _ in range(2):
        with pytest.raises(SummaryFailed) as failed:
            sessions.get("s").handoff(TASK, handoff_id="h1", timeout_seconds=PATIENCE_SECONDS)
        assert failed.value.reason_code == "summary_validation"
    assert len(model.asked) == 1


def test_handoff_that_nobody_knows_is_refused(sessions: Sessions) -> None:
    """Waiting for it would be for ever."""
    with pytest.raises(InvalidInput, match="handoff_id"):
        sessions.get("s").wait_for_handoff("unknown", 1.0)


def test_handoffs_of_one_session_are_made_one_after_the_other(sessions: Sessions, model: Model) -> None:
    """Each once, whoever asked first."""
    session = sessions.get("s")
    ids = [session.request_handoff(f"task {number}") for number in range(4)]
    made = [session.wait_for_handoff(handoff_id, PATIENCE_SECONDS) for handoff_id in ids]
    assert [handoff.task for handoff in made] == [f"task {number}" for number in range(4)]
    assert len(model.asked) == 4


class Losing:
    """A store that takes a result and loses its answer, once: as a worker that dies at that moment."""

    def __init__(self, store: SessionStore, *, takes: bool) -> None:
        self._store, self._takes, self._left = store, takes, 1

    def settle(self, grant: Grant, settled: Settled) -> JobSettled:
        if self._left:
            self._left = 0
            if self._takes:
                self._store.settle(grant, settled)
            raise StoreUnavailable("gone")
        return self._store.settle(grant, settled)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("takes", [False, True])
def test_an_answer_that_was_saved_is_not_paid_for_again(
    sessions: Sessions, workers: LocalWorkers, model: Model, takes: bool
) -> None:
    """The worker dies between the answer and its recording, or right after it: another one goes on from the steps."""
    session = Sessions(replace(sessions.connection, dispatch=NoDispatch())).get("s")
    handoff_id = session.request_handoff(TASK)
    engine = workers.parts.engine(unobserved)
    losing = replace(engine, store=Losing(engine.store, takes=takes))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        run_handoff(losing, "s")
    wait_for(lambda: run_handoff(engine, "s") and session.get_handoff(handoff_id), what="the handoff")
    assert len(model.asked) == 1


def test_closing_a_session_writes_its_journal(sessions: Sessions) -> None:
    """In the background: the digest is there, and other sessions of the agent may begin with it."""
    session = sessions.get("s")
    session.close()
    wait_for(session.journal, what="the digest")
    (entry,) = session.journal()
    assert (entry.digest_id, entry.first_seq, entry.last_seq) == ("d1", 1, 2)
    store = sessions.connection.store
    wait_for(lambda: store.recent_digests("a"), what="the digest to be published")
    (begun,) = sessions.open("t", "a", recent_digests=True).layout().live.entries
    assert "hello was said" in begun.text


def test_a_purged_session_takes_its_journal_along(sessions: Sessions) -> None:
    """What was published stays with the agent."""
    session = sessions.get("s")
    assert session.digest() == "d1"
    store = sessions.connection.store
    wait_for(lambda: store.recent_digests("a"), what="the digest to be published")
    session.purge()
    assert store.journal("s") == []
    assert len(store.recent_digests("a")) == 1


def test_asyncio_has_all_of_it(workers: LocalWorkers, sessions: Sessions) -> None:
    """As from threads."""

    async def ask() -> None:
        async with AsyncSessions(sessions.connection) as clients:
            session = await clients.get("s")
            handoff = await session.handoff(TASK, handoff_id="h1", timeout_seconds=PATIENCE_SECONDS)
            assert await session.get_handoff("h1") == handoff
            other = await clients.open("t", "a", from_session="s", last_turns=1)
            assert len((await other.layout()).live) == 2
            assert await session.digest() == "d1"
            async for event in session.watch(timeout_seconds=PATIENCE_SECONDS):
                if event.kind == "digested":
                    break
            assert len(await session.journal()) == 1

    asyncio.run(asyncio.wait_for(ask(), PATIENCE_SECONDS))
