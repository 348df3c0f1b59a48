"""A streamed turn, followed by its caller on a real server: each event once, in order, whenever the reader comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from sessionlib.agent import Agent
from sessionlib.deltas import DELTA, Delta
from sessionlib.errors import InvalidInput, TurnFailed
from sessionlib.providers.scripted import ScriptedProvider, words
from sessionlib.stores.contract import Event, SessionStore
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, connected, local_workers
from workers.client import AsyncSessions, Connection, Sessions, Turn
from workers.hints import Hints

AGENT = Agent(name="a", window_tokens=8_000, counter="characters")
TEXT = "one two three four"
PATIENCE_SECONDS = 30.0

BACK = "(back)"
"""What stands here for a restart."""


class Mouth:
    """Says a text word by word, each when it is let."""

    def __init__(self) -> None:
        self.words = list(words(TEXT))
        self._allowed = threading.Semaphore(0)

    def say(self, count: int = 1) -> None:
        self._allowed.release(count)

    def say_all(self) -> None:
        self.say(len(self.words))

    def pieces(self, text: str) -> Iterator[str]:
        for piece in words(text):
            assert self._allowed.acquire(timeout=PATIENCE_SECONDS)
            yield piece


@pytest.fixture
def mouth() -> Mouth:
    return Mouth()


@pytest.fixture
def workers(valkey_url: str, namespace: str, mouth: Mouth) -> Iterator[LocalWorkers]:
    provider = ScriptedProvider(lambda _: TEXT, pieces=mouth.pieces)
    with local_workers(valkey_url, namespace, AGENT, provider) as workers:
        yield workers
        mouth.say(1_000)


@pytest.fixture
def sessions(workers: LocalWorkers) -> Iterator[Sessions]:
    with connected(workers) as connection:
        yield Sessions(connection)


def submitted(sessions: Sessions) -> Turn:
    return sessions.open("s", "a").submit("hello", turn_id="t", stream=True)


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.data["text"] for event in events if event.kind == DELTA)


def test_text_comes_while_the_model_says_it(sessions: Sessions, mouth: Mouth) -> None:
    """Each word is there before the next is said; the last event has all of it."""
    deltas = submitted(sessions).deltas()
    said: list[str] = []
    for _ in mouth.words:
        mouth.say()
        said.append(next(deltas).text)
    assert said == mouth.words
    assert [delta.text for delta in deltas] == []
    assert sessions.get("s").get_turn("t").answer(PATIENCE_SECONDS).text == TEXT


def test_reader_that_comes_again_goes_on_where_it_was(sessions: Sessions, mouth: Mouth) -> None:
    """By the id of the last event that it has: nothing twice, nothing left out."""
    read: list[Event] = []
    turn = submitted(sessions)
    for _ in range(2):
        mouth.say()
        for event in turn.events(read[-1].id if read else ""):
            read.append(event)
            if event.kind == DELTA:
                break  # the connection is lost
    mouth.say()
    wait_for(lambda: text_of(sessions.connection.store.events("s", "t")) == "one two three", what="the third word")
    read += next_until(sessions.get("s").get_turn("t").events(read[-1].id), "three")
    assert [event.kind for event in read] == ["queued", "started", DELTA, DELTA, DELTA]
    assert text_of(read) == "one two three"
    mouth.say()
    rest = list(turn.events(read[-1].id))
    assert rest[-1].data["answer"]["text"] == TEXT
    assert len({event.id for event in (*read, *rest)}) == len(read) + len(rest)


def test_reader_that_comes_again_after_the_end_shows_nothing_twice(sessions: Sessions, mouth: Mouth) -> None:
    """The pieces are gone by then: what it had shown is void, and the whole answer comes."""
    turn = submitted(sessions)
    mouth.say()
    last_read = list(next_until(turn.events(), "one"))[-1]
    mouth.say_all()
    turn.answer(PATIENCE_SECONDS)
    assert [(delta.text, delta.is_restart) for delta in turn.deltas(last_read.id)] == [("", True), (TEXT, False)]
    ended = list(turn.events())[-1]
    assert list(turn.deltas(ended.id)) == []


def test_what_is_no_events_id_is_refused(sessions: Sessions) -> None:
    """By its name, as any other value that breaks a rule; the turn goes on."""
    turn = submitted(sessions)
    with pytest.raises(InvalidInput, match="after must be the id of an event; got 'zzz'"):
        next(turn.events("zzz"))


def next_until(events: Iterator[Event], word: str) -> Iterator[Event]:
    for event in events:
        yield event
        if word in str(event.data.get("text")):
            return


def test_late_reader_finds_the_answer(sessions: Sessions, mouth: Mouth) -> None:
    """One piece, as if it had been said at once."""
    turn = submitted(sessions)
    mouth.say_all()
    turn.answer(PATIENCE_SECONDS)
    assert list(turn.deltas()) == [Delta(text=TEXT, round=0)]
    assert [event.kind for event in turn.events()] == ["queued", "started", "round", "answered"]


def test_turn_that_is_not_streamed_comes_whole(sessions: Sessions) -> None:
    """Whoever reads need not know how it was submitted."""
    turn = sessions.open("s", "a").submit("hello")
    assert [str(delta) for delta in turn.deltas()] == [TEXT]


def test_cancelled_turn_ends_its_text(sessions: Sessions, mouth: Mouth) -> None:
    """The reader is not left waiting, and asks why."""
    turn = submitted(sessions)
    deltas = turn.deltas()
    mouth.say()
    assert next(deltas).text == "one"
    turn.cancel()
    assert list(deltas) == []
    with pytest.raises(TurnFailed):
        turn.answer(PATIENCE_SECONDS)


class Counted:
    """A store that counts how often events are asked for."""

    def __init__(self, store: SessionStore) -> None:
        self._store, self.looks = store, 0

    def events(self, session_id: str, turn_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        self.looks += 1
        return self._store.events(session_id, turn_id, after, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_waiting_reader_looks_once_for_each_hint(workers: LocalWorkers, mouth: Mouth) -> None:
    """What was found is handed on; then it waits again, and asks the store nothing meanwhile."""
    store, hints = Counted(workers.store), Hints(workers.store)
    connection = Connection(cast(SessionStore, store), workers, hints, workers.catalog)
    deltas = submitted(Sessions(connection)).deltas()
    mouth.say()
    next(deltas)
    before = store.looks
    for _ in mouth.words[1:]:
        mouth.say()
        next(deltas)
    assert store.looks - before <= len(mouth.words)
    hints.close()


def test_coroutines_read_the_same(workers: LocalWorkers, mouth: Mouth) -> None:
    """Word by word, again from the middle, and once more when the turn has ended."""

    async def read() -> tuple[list[str], list[str]]:
        with connected(workers) as connection:
            sessions = AsyncSessions(connection)
            session = await sessions.open("s", "a")
            turn = await session.submit("hello", turn_id="t", stream=True)
            said, after = [], ""
            mouth.say()
            async for event in turn.events():
                after = event.id
                if event.kind == DELTA:
                    said.append(str(event.data["text"]))
                    break
            mouth.say()
            async for delta in turn.deltas(after):
                said.append(delta.text)
                mouth.say()
            again = session.get_turn("t")
            late = [delta.text async for delta in again.deltas()]
            late += [delta.text or BACK async for delta in again.deltas(after)]
            with pytest.raises(InvalidInput, match="after must be the id of an event"):
                await anext(again.events("zzz"))
            await asyncio.to_thread(sessions._threads.close)
            return said, late

    said, late = asyncio.run(asyncio.wait_for(read(), PATIENCE_SECONDS))
    assert (said, late) == (mouth.words, [TEXT, BACK, TEXT])
