"""What callers use: open sessions, send turns, follow them; from threads here, from asyncio in `AsyncSessions`.

sessions = Sessions.connect("redis://localhost:6379/0", agents="my_agents")
session = sessions.open("customer-42", agent="support")
print(session.send("Where is my parcel?").text)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.errors import HandoffTimeout, InvalidInput
from sessionlib.events import Reply
from sessionlib.handoffs import Handoff, handoff_of
from sessionlib.ids import require_id
from sessionlib.inputs import (
    handoff_request,
    open_request,
    require_agent,
    require_seconds,
    require_timeout,
    submit_request,
)
from sessionlib.layout import Layout
from sessionlib.media import Media
from sessionlib.starts import Start, starting_history
from sessionlib.stores.contract import (
    Busy,
    Event,
    JobState,
    JournalEntry,
    Lane,
    Opened,
    SessionView,
    Submitted,
)
from workers.client_parts import CLIENT_CONNECTIONS, Connection
from workers.dispatch import CAPTURE, PURGE, RUN_DIGEST, RUN_HANDOFF, RUN_ROTATION, RUN_TURN
from workers.own_loop import OwnTurn
from workers.settings import Settings
from workers.turns import Turn
from workers.waiting import Waiting

__all__ = ["CLIENT_CONNECTIONS", "ClientSession", "Connection", "Sessions", "Turn"]


class Sessions:
    """The sessions of one store. Safe to share between threads; one per process is enough."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    def connect(
        cls, store_url: str | None = None, *, agents: str | None = None, settings: Settings | None = None
    ) -> Self:
        """Connect to a store; what is not given is read from the environment (`SESSIONLIB_*`).

        Raises InvalidInput for a bad setting or agents file. The store is first asked at the first call.
        """
        return cls(Connection.to(settings or Settings.read(store_url=store_url, agents=agents)))

    def open(
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
    ) -> ClientSession:
        """Create a session or confirm it. *agent*: a description, or the name of one in the catalog.

        A new session may begin with *history*, a conversation held elsewhere; with what *from_handoff* says; with the
        conversation of *from_session*, whole or its *last_turns*; and, with *recent_digests*, with the newest digests
        of the agent's other sessions. What is past the rotation line is consolidated at once, in the background.

        A new version of the agent applies from the next turn; *pin* keeps the version that the session has. Raises
        InvalidInput, CannotConverge, SessionClosed; UnknownSession for *from_session*.
        """
        require_id("session_id", session_id)
        described = require_agent(self.connection.catalog.agent(agent) if isinstance(agent, str) else agent)
        start = Start(
            history=history,
            from_handoff=from_handoff,
            from_session=from_session,
            last_turns=last_turns,
            recent_digests=recent_digests,
        )
        begun = starting_history(self.connection.store, session_id, described.name, start)
        request = open_request(session_id, described, begun, pin, self.connection.retention_seconds)
        opened = self.connection.store.open(request)
        if opened.rotation_id:
            self.connection.dispatch.send(RUN_ROTATION, session_id=session_id, rotation_id=opened.rotation_id)
        return ClientSession(self.connection, session_id, self._followed(session_id, opened, described))

    def get(self, session_id: str) -> ClientSession:
        """A session that is there. Raises UnknownSession."""
        agent_json = self.connection.store.agent_json(require_id("session_id", session_id))
        return ClientSession(self.connection, session_id, self.connection.catalog.agent_from_description(agent_json))

    def close(self) -> None:
        """End the subscription and the connections of this client. Sessions and turns go on."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        """Ids of all sessions, partition by partition."""
        store = self.connection.store
        for partition in range(store.partition_count):
            cursor = ""
            while True:
                ids, cursor = store.sessions(partition, cursor)
                yield from ids
                if not cursor:
                    break

    def _followed(self, session_id: str, opened: Opened, described: Agent) -> Agent:
        if opened.agent.digest == described.digest:
            return described
        return self.connection.catalog.agent_from_description(self.connection.store.agent_json(session_id))


class ClientSession:
    """One session, seen by a caller."""

    def __init__(self, connection: Connection, session_id: str, agent: Agent) -> None:
        self._connection, self.session_id, self.agent = connection, session_id, agent

    def send(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        busy: Busy | str = Busy.ENQUEUE,
        timeout_seconds: float | None = None,
    ) -> Reply:
        """Submit a turn and wait for its answer. Raises what `submit` and `Turn.answer` raise."""
        require_timeout(timeout_seconds)
        turn, is_new = self._accepted(message, media, results, turn_id, busy)
        return turn.answer(timeout_seconds, is_new=is_new)

    def submit(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        busy: Busy | str = Busy.ENQUEUE,
        stream: bool = False,
    ) -> Turn:
        """Hand in a message, or the results of the calls that the turn before left open; returns at once.

        *media*: images and files beside the message (`media_from_bytes`). *turn_id* is the idempotency key: the same
        id with the same input is the same turn, for `idempotency_seconds` after it ended. Raises InvalidInput,
        InputTooLarge, TurnConflict, UnknownSession, SessionClosed, SessionBusy, StoreUnavailable, StoreFull; nothing
        was changed then.

        With *stream* the answer's text comes as events while the model says it: `Turn.deltas`, `Turn.events`.
        """
        turn, _ = self._accepted(message, media, results, turn_id, busy, is_streamed=stream)
        return turn

    def turn(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> OwnTurn:
        """Take a turn in the caller's own loop: `messages()` to ask a model with, `commit(reply)` for each round.

        The same lease, token and order as a worker's turn: waits at most *timeout_seconds* until the session's earlier
        turns are done, then holds the lane until the last commit or the end of the `with` block. The turn's deadline
        counts from here on. Raises what `submit` raises; AnswerTimeout, TurnFailed if it ended meanwhile.
        """
        require_seconds("timeout_seconds", timeout_seconds)
        turn_id, _ = self._submitted(message, media, results, turn_id, Busy.ENQUEUE, is_own=True)
        return OwnTurn.begun(self._connection, self.session_id, turn_id, timeout_seconds)

    def get_turn(self, turn_id: str) -> Turn:
        """A turn that was submitted before, here or elsewhere."""
        return Turn(self._connection, self.session_id, require_id("turn_id", turn_id))

    def layout(self) -> Layout:
        """What the next request is built from: records, carried input, live entries."""
        return self._connection.store.snapshot(self.session_id).layout

    def view(self) -> SessionView:
        """The session's figures."""
        return self._connection.store.view(self.session_id)

    def rotate(self, reason: str = "asked") -> str:
        """Request a rotation, whatever the fill; returns its id. `watch` yields its outcome."""
        rotation_id = self._connection.store.request_rotation(self.session_id, reason)
        self._connection.dispatch.send(RUN_ROTATION, session_id=self.session_id, rotation_id=rotation_id)
        return rotation_id

    def cancel_rotation(self) -> bool:
        """Drop a pending or running rotation; whether there was one."""
        return self._connection.store.cancel_rotation(self.session_id)

    def lift_brake(self) -> bool:
        """Let a session under `work_room` begin fresh windows again; whether it was braked."""
        return self._connection.store.lift_brake(self.session_id)

    def handoff(
        self, task: str, *, guidance: str = "", handoff_id: str | None = None, timeout_seconds: float | None = None
    ) -> Handoff:
        """An account of the session as it stands, for another agent that takes over *task*; waits for it.

        The session goes on meanwhile. *guidance* narrows what is told. *handoff_id* is the idempotency key. Raises what
        `request_handoff` and `wait_for_handoff` raise.
        """
        require_timeout(timeout_seconds)
        asked = self.request_handoff(task, guidance=guidance, handoff_id=handoff_id)
        return self.wait_for_handoff(asked, timeout_seconds)

    def wait_for_handoff(self, handoff_id: str, timeout_seconds: float | None = None) -> Handoff:
        """Wait for a handoff that was asked for, here or elsewhere.

        Raises SummaryFailed, InvalidInput (unknown), HandoffTimeout (it goes on: ask again under the same id), and
        StoreUnavailable as `Turn.answer` does.
        """
        waiting = Waiting(require_timeout(timeout_seconds))
        while True:
            with waiting.through_outages():
                handoff = self.get_handoff(handoff_id)
                if handoff is not None:
                    return handoff
                if waiting.is_over:
                    raise HandoffTimeout(handoff_id, waiting.waited_seconds)
            self._connection.hints.wait(self.session_id, "", waiting.pause_seconds)

    def request_handoff(self, task: str, *, guidance: str = "", handoff_id: str | None = None) -> str:
        """Ask for a handoff and return at once, with its id. Raises InvalidInput, TurnConflict, SessionBusy."""
        request = handoff_request(self.session_id, task, guidance, handoff_id)
        view = self._connection.store.request_handoff(request)
        if view.state is JobState.QUEUED:
            self._connection.dispatch.send(RUN_HANDOFF, session_id=self.session_id, job_id=view.job_id)
        return view.job_id

    def get_handoff(self, handoff_id: str) -> Handoff | None:
        """A handoff that was asked for; None while it is not finished. Raises SummaryFailed, InvalidInput (unknown)."""
        view = self._connection.store.job(self.session_id, Lane.HANDOFF, require_id("handoff_id", handoff_id))
        if view is None:
            raise InvalidInput("handoff_id", handoff_id, "is not known: never asked for, or forgotten since it ended")
        return handoff_of(view)

    def journal(self, limit: int = 1_000) -> Sequence[JournalEntry]:
        """The session's newest *limit* digests, oldest first."""
        return self._connection.store.journal(self.session_id, limit)

    def notes(self) -> Mapping[str, int]:
        """Names of the notes that the agent wrote, sorted, each with its size in bytes."""
        return self._connection.store.notes(self.session_id)

    def note(self, name: str) -> str | None:
        """A note's text; None if there is none of that name."""
        return self._connection.store.note(self.session_id, name)

    def digest(self, reason: str = "asked") -> str | None:
        """Request a digest of what is finished and not yet digested; its id, None if there is nothing. `watch` yields
        its outcome."""
        digest_id = self._connection.store.capture(self.session_id, reason)
        if digest_id is not None:
            self._connection.dispatch.send(RUN_DIGEST, session_id=self.session_id, job_id=digest_id)
        return digest_id

    def watch(self, after: str = "", timeout_seconds: float | None = None) -> Iterator[Event]:
        """The audit from the event *after* on, as it happens: rotations with their figures, versions, failures.

        Ends after *timeout_seconds* without anything new; None waits for ever. Raises StoreUnavailable as
        `Turn.answer` does.
        """
        waiting = Waiting(require_timeout(timeout_seconds))
        while True:
            found: Sequence[Event] = ()
            with waiting.through_outages():
                found = self._connection.store.audit(self.session_id, after)
            for event in found:
                after = event.id
                yield event
            if found:
                waiting = Waiting(timeout_seconds)
            elif waiting.is_over:
                return
            self._connection.hints.wait(self.session_id, "", waiting.pause_seconds)

    def close(self, *, now: bool = False) -> None:
        """Take no new turns; accepted ones finish, or end as failed (`closed`) with *now*."""
        self._connection.store.close(self.session_id, now=now)
        if self.agent.journal.on_close:
            self._connection.dispatch.send(CAPTURE, session_id=self.session_id)

    def purge(self) -> None:
        """Delete the session and all it ever held; bounded work at a time, the rest in the background.

        What providers hold for it is let go of after the next sweep of a worker: nobody waits for that, so no hint is
        sent.
        """
        if not self._connection.store.purge(self.session_id):
            self._connection.dispatch.send(PURGE, session_id=self.session_id)

    def _accepted(
        self,
        message: str | None,
        media: Sequence[Media],
        results: Mapping[str, str] | None,
        turn_id: str | None,
        busy: Busy | str,
        *,
        is_streamed: bool = False,
    ) -> tuple[Turn, bool]:
        """A turn for workers to run, and whether it was accepted only now."""
        turn_id, submitted = self._submitted(message, media, results, turn_id, busy, is_streamed=is_streamed)
        if submitted.is_dispatched:
            self._connection.dispatch.send(RUN_TURN, session_id=self.session_id, turn_id=turn_id)
        return Turn(self._connection, self.session_id, turn_id), submitted.is_new

    def _submitted(
        self,
        message: str | None,
        media: Sequence[Media],
        results: Mapping[str, str] | None,
        turn_id: str | None,
        busy: Busy | str,
        *,
        is_own: bool = False,
        is_streamed: bool = False,
    ) -> tuple[str, Submitted]:
        request = submit_request(
            self.session_id,
            self.agent,
            message,
            results,
            turn_id=turn_id,
            media=media,
            busy=busy,
            is_own=is_own,
            is_streamed=is_streamed,
        )
        return request.turn_id, self._connection.store.submit(request)
