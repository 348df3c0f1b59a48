"""The client for asyncio: the calls of `workers.blocking` on a few threads, and waiting without any.

A process that awaits a thousand answers has one subscriber, a handful of threads and as many store connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from typing import ParamSpec, Self, TypeVar

from sessionlib.agent import Agent
from sessionlib.deltas import Delta, Shown
from sessionlib.entries import Entry
from sessionlib.errors import AnswerTimeout, HandoffTimeout
from sessionlib.events import EVENTS_PAGE, FINAL_KINDS, Reply
from sessionlib.handoffs import Handoff
from sessionlib.inputs import require_timeout
from sessionlib.layout import Layout
from sessionlib.media import Media
from sessionlib.stores.checks import check_event_id
from sessionlib.stores.contract import Busy, Event, JournalEntry, SessionView, TurnState
from workers.blocking import ClientSession, Connection, Sessions, Turn
from workers.keys import ENDED
from workers.settings import Settings
from workers.waiting import Waiting

STORE_THREADS = 4
"""Threads that talk to the store; with the subscriber and the broker's connection well below eight connections."""

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


class _Threads:
    """Runs blocking calls of one client on its few threads."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store")

    async def call(
        self, function: Callable[Parameters, Value], *args: Parameters.args, **kw: Parameters.kwargs
    ) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kw))

    def close(self) -> None:
        self._executor.shutdown()


class AsyncSessions:
    """The sessions of one store, for callers in an event loop. One per loop is enough."""

    def __init__(self, connection: Connection) -> None:
        self._sessions, self._threads = Sessions(connection), _Threads()

    @classmethod
    def connect(
        cls, store_url: str | None = None, *, agents: str | None = None, settings: Settings | None = None
    ) -> Self:
        """As `Sessions.connect`."""
        return cls(Connection.to(settings or Settings.read(store_url=store_url, agents=agents)))

    async def open(
        self,
        session_id: str,
        agent: Agent | str,
        *,
        history: Sequence[Entry] = (),
        from_handoff: Handoff | None = None,
        from_session: str | None = None,
        last_turns: int | None = None,
        recent_digests: bool = False,
        pin: bool = False,
    ) -> AsyncSession:
        """As `Sessions.open`."""
        opened = await self._threads.call(
            self._sessions.open,
            session_id,
            agent,
            history=history,
            from_handoff=from_handoff,
            from_session=from_session,
            last_turns=last_turns,
            recent_digests=recent_digests,
            pin=pin,
        )
        return AsyncSession(self._sessions.connection, opened, self._threads)

    async def get(self, session_id: str) -> AsyncSession:
        """As `Sessions.get`."""
        found = await self._threads.call(self._sessions.get, session_id)
        return AsyncSession(self._sessions.connection, found, self._threads)

    async def aclose(self) -> None:
        """End the threads and the subscription. Turns go on."""
        await asyncio.to_thread(self._sessions.close)
        await asyncio.to_thread(self._threads.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class AsyncSession:
    """One session, seen by a caller in an event loop. As `ClientSession`; `turn` is for callers in threads."""

    def __init__(self, connection: Connection, session: ClientSession, threads: _Threads) -> None:
        self._connection, self._session, self._threads = connection, session, threads
        self.session_id, self.agent = session.session_id, session.agent

    async def send(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        busy: Busy | str = Busy.ENQUEUE,
        timeout_seconds: float | None = None,
    ) -> Reply:
        """As `ClientSession.send`."""
        require_timeout(timeout_seconds)
        turn = await self.submit(message, media=media, results=results, turn_id=turn_id, busy=busy)
        return await turn.answer(timeout_seconds)

    async def submit(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        busy: Busy | str = Busy.ENQUEUE,
        stream: bool = False,
    ) -> AsyncTurn:
        """As `ClientSession.submit`."""
        submit = self._session.submit
        turn = await self._threads.call(
            submit, message, media=media, results=results, turn_id=turn_id, busy=busy, stream=stream
        )
        return AsyncTurn(self._connection, turn, self._threads)

    def get_turn(self, turn_id: str) -> AsyncTurn:
        """As `ClientSession.get_turn`."""
        return AsyncTurn(self._connection, self._session.get_turn(turn_id), self._threads)

    async def layout(self) -> Layout:
        """As `ClientSession.layout`."""
        return await self._threads.call(self._session.layout)

    async def view(self) -> SessionView:
        """As `ClientSession.view`."""
        return await self._threads.call(self._session.view)

    async def rotate(self, reason: str = "asked") -> str:
        """As `ClientSession.rotate`."""
        return await self._threads.call(self._session.rotate, reason)

    async def lift_brake(self) -> bool:
        """As `ClientSession.lift_brake`."""
        return await self._threads.call(self._session.lift_brake)

    async def handoff(
        self, task: str, *, guidance: str = "", handoff_id: str | None = None, timeout_seconds: float | None = None
    ) -> Handoff:
        """As `ClientSession.handoff`."""
        require_timeout(timeout_seconds)
        asked = await self.request_handoff(task, guidance=guidance, handoff_id=handoff_id)
        return await self.wait_for_handoff(asked, timeout_seconds)

    async def wait_for_handoff(self, handoff_id: str, timeout_seconds: float | None = None) -> Handoff:
        """As `ClientSession.wait_for_handoff`."""
        waiting = Waiting(require_timeout(timeout_seconds))
        async with _News(self._connection, self.session_id, "") as news:
            while True:
                with waiting.through_outages():
                    handoff = await self.get_handoff(handoff_id)
                    if handoff is not None:
                        return handoff
                    if waiting.is_over:
                        raise HandoffTimeout(handoff_id, waiting.waited_seconds)
                await news.wait(waiting.pause_seconds)

    async def request_handoff(self, task: str, *, guidance: str = "", handoff_id: str | None = None) -> str:
        """As `ClientSession.request_handoff`."""
        request = self._session.request_handoff
        return await self._threads.call(request, task, guidance=guidance, handoff_id=handoff_id)

    async def get_handoff(self, handoff_id: str) -> Handoff | None:
        """As `ClientSession.get_handoff`."""
        return await self._threads.call(self._session.get_handoff, handoff_id)

    async def journal(self, limit: int = 1_000) -> Sequence[JournalEntry]:
        """As `ClientSession.journal`."""
        return await self._threads.call(self._session.journal, limit)

    async def notes(self) -> Mapping[str, int]:
        """As `ClientSession.notes`."""
        return await self._threads.call(self._session.notes)

    async def note(self, name: str) -> str | None:
        """As `ClientSession.note`."""
        return await self._threads.call(self._session.note, name)

    async def digest(self, reason: str = "asked") -> str | None:
        """As `ClientSession.digest`."""
        return await self._threads.call(self._session.digest, reason)

    async def watch(self, after: str = "", timeout_seconds: float | None = None) -> AsyncIterator[Event]:
        """As `ClientSession.watch`."""
        check_event_id("after", after)
        waiting = Waiting(require_timeout(timeout_seconds))
        async with _News(self._connection, self.session_id, "") as news:
            while True:
                found: Sequence[Event] = ()
                with waiting.through_outages():
                    found = await self._threads.call(self._connection.store.audit, self.session_id, after)
                for event in found:
                    after = event.id
                    yield event
                if found:
                    waiting = Waiting(timeout_seconds)
                elif waiting.is_over:
                    return
                await news.wait(waiting.pause_seconds)

    async def close(self, *, now: bool = False) -> None:
        """As `ClientSession.close`."""
        await self._threads.call(self._session.close, now=now)

    async def purge(self) -> None:
        """As `ClientSession.purge`."""
        await self._threads.call(self._session.purge)


class AsyncTurn:
    """A turn that was accepted. As `Turn`."""

    def __init__(self, connection: Connection, turn: Turn, threads: _Threads) -> None:
        self._connection, self._turn, self._threads = connection, turn, threads
        self.session_id, self.turn_id = turn.session_id, turn.turn_id

    async def answer(self, timeout_seconds: float | None = None) -> Reply:
        """As `Turn.answer`: waits through an outage of the store, and raises StoreUnavailable where that does."""
        waiting = Waiting(require_timeout(timeout_seconds))
        async with _News(self._connection, self.session_id, self.turn_id + ENDED) as news:
            while True:
                with waiting.through_outages():
                    reply = await self._threads.call(self._turn.reply)
                    if reply is not None:
                        return reply
                    if waiting.is_over:
                        raise AnswerTimeout(self.turn_id, waiting.waited_seconds)
                await news.wait(waiting.pause_seconds)

    async def events(self, after: str = "") -> AsyncGenerator[Event, None]:
        """As `Turn.events`."""
        check_event_id("after", after)
        waiting, is_news, is_over = Waiting(None), False, False
        async with _News(self._connection, self.session_id, self.turn_id) as news:
            while True:
                found: Sequence[Event] = ()
                with waiting.through_outages():
                    events = self._connection.store.events
                    found = await self._threads.call(events, self.session_id, self.turn_id, after, EVENTS_PAGE)
                for event in found:
                    after = event.id
                    yield event
                    if event.kind in FINAL_KINDS:
                        return
                if len(found) == EVENTS_PAGE:
                    continue
                if not found and is_over:
                    return
                if not found and not is_news:
                    with waiting.through_outages():
                        is_over = await self._threads.call(self._turn.is_finished)
                if not is_over:
                    is_news = await news.wait(waiting.pause_seconds)

    async def deltas(self, after: str = "") -> AsyncIterator[Delta]:
        """As `Turn.deltas`."""
        shown = Shown(is_resumed=bool(after))
        async with aclosing(self.events(after)) as events:
            async for event in events:
                for delta in shown.take(event.kind, event.data):
                    yield delta

    async def cancel(self) -> TurnState:
        """As `Turn.cancel`."""
        return await self._threads.call(self._turn.cancel)


class _News:
    """Hints of one turn, or of a session, as an event of the running loop."""

    def __init__(self, connection: Connection, session_id: str, turn_id: str) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        self._hints = connection.hints
        self._listening = self._hints.listening(session_id, turn_id, self._wake)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._event.set)

    async def __aenter__(self) -> Self:
        # The first of a process waits for its subscription, in a thread; nothing is registered there, since a task
        # that is cancelled meanwhile would leave it behind.
        await asyncio.to_thread(self._hints.subscribe)
        self._listening.__enter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._listening.__exit__(None, None, None)

    async def wait(self, seconds: float) -> bool:
        """Until there is news since the last wait, at most *seconds*; whether there was."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        is_news = self._event.is_set()
        self._event.clear()
        return is_news
