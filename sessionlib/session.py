"""Session: the engine without workers. Turns run in the caller's thread, rotations on one background thread."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog, ProviderSource
from sessionlib.entries import Entry
from sessionlib.errors import (
    AnswerTimeout,
    HandoffTimeout,
    InvalidInput,
    ProviderError,
    ProviderUnavailable,
    UnknownSession,
    place_of,
)
from sessionlib.events import Reply, reply_of
from sessionlib.handoffs import Handoff, handoff_of
from sessionlib.ids import require_id
from sessionlib.inputs import handoff_request, open_request, require_seconds, require_timeout, submit_request
from sessionlib.layout import Layout
from sessionlib.leases import HeldLease, Leases
from sessionlib.listening import Listener, OnDelta
from sessionlib.media import Media
from sessionlib.running import (
    Engine,
    publish_digests,
    run_digest,
    run_disposals,
    run_handoff,
    run_orphan,
    run_rotation,
    run_turn,
    unobserved,
)
from sessionlib.starts import Start, starting_history
from sessionlib.stores.contract import (
    Busy,
    Committed,
    DueItem,
    DueKind,
    Event,
    Grant,
    JournalEntry,
    Lane,
    SessionStore,
    SessionView,
    TurnState,
)
from sessionlib.stores.sqlite import IN_MEMORY, SqliteStore
from sessionlib.workloads import Choice

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""How soon a caller notices that its turn was ended by another thread or process, or is due again."""

IDLE_SECONDS = 2.0
"""How often the background thread looks for due work that nobody told it of: retries, disposals, a dead process's."""


class Session:
    """One session of one agent, in a SQLite file or in memory. Safe to use from several threads.

        with Session(agent, {"default": provider}, path="sessions.db") as session:
            print(session.send("hello").text)

    `send` never waits for a summary: past the rotation line a background thread rotates. Leaving the block waits at
    most *grace_seconds* for the rotation or digest under way, then abandons it: what it saved is there when the session
    is opened again. A session in a file goes on where it was. What a provider holds for a session that was purged is
    let go of by the threads of the file's sessions, until that succeeds; leaving the block tries once more.
    """

    def __init__(
        self,
        agent: Agent,
        providers: Mapping[str, ProviderSource],
        *,
        session_id: str = "session",
        path: str | Path = IN_MEMORY,
        choices: Mapping[str, Choice] | None = None,
        history: Sequence[Entry] = (),
        from_handoff: Handoff | None = None,
        from_session: str | None = None,
        last_turns: int | None = None,
        recent_digests: bool = False,
        pin: bool = False,
        grace_seconds: float = 10.0,
    ) -> None:
        """Open or create the session; how a new one may begin is said at `workers.client.Sessions.open`.

        Raises InvalidInput, CannotConverge, SessionClosed, StoreUnavailable, UnknownSession for *from_session*.
        """
        self.session_id, self.agent = require_id("session_id", session_id), agent
        self._grace_seconds = require_seconds("grace_seconds", grace_seconds)
        start = Start(
            history=history,
            from_handoff=from_handoff,
            from_session=from_session,
            last_turns=last_turns,
            recent_digests=recent_digests,
        )
        open_request(session_id, agent, history, pin)  # refuses what is bad before a file is made
        catalog = Catalog({agent.name: agent}, providers, choices)
        self._store = SqliteStore(path)
        self._leases = Leases(self._store)
        self._engine = Engine(self._store, catalog, self._hold, unobserved, self._announce, hear=self._hear)
        self._own = threading.local()
        self._closing, self._abandoned, self._due = threading.Event(), threading.Event(), threading.Event()
        try:
            begun = starting_history(self._store, session_id, agent.name, start)
            request = open_request(session_id, agent, begun, pin)
            if self._store.open(request).agent.digest != agent.digest:  # pinned to the version that it has
                self.agent = catalog.agent_from_description(self._store.agent_json(session_id))
        except BaseException:
            self._store.close_connections()
            raise
        _tell_clamp(self.agent)
        self._background = threading.Thread(target=self._work_in_background, name="rotations", daemon=True)
        self._background.start()

    @property
    def store(self) -> SessionStore:
        """The store, for whoever wants to look deeper."""
        return self._store

    def send(
        self,
        message: str | None = None,
        *,
        media: Sequence[Media] = (),
        results: Mapping[str, str] | None = None,
        turn_id: str | None = None,
        busy: Busy | str = Busy.ENQUEUE,
        on_delta: OnDelta | None = None,
        timeout_seconds: float | None = None,
    ) -> Reply:
        """Take a turn: a message, or results for the calls that the turn before left open.

        *media*: images and files beside the message (`media_from_bytes`). *turn_id* is the idempotency key.
        *timeout_seconds* limits the waiting for what other threads and processes do; a round that this thread plays
        itself ends by the agent's own times. Raises InvalidInput, InputTooLarge, TurnConflict, SessionClosed,
        SessionBusy, StoreUnavailable; TurnFailed; AnswerTimeout (the turn goes on with the next call).

        *on_delta* is called with each piece of the text as it comes, in this thread (`Delta`: `text`, and `is_restart`
        where what came before of the round is void). What it raises is raised when the turn has ended; sent again under
        its id, the turn gives the answer.
        """
        require_timeout(timeout_seconds)
        request = submit_request(
            self.session_id,
            self.agent,
            message,
            results,
            turn_id=turn_id,
            media=media,
            busy=busy,
            is_streamed=on_delta is not None,
        )
        self._store.submit(request)
        listener = self._own.listener = Listener(request.turn_id, on_delta) if on_delta else None
        try:
            return self._answer(request.turn_id, listener, timeout_seconds)
        finally:
            self._own.listener = None

    def layout(self) -> Layout:
        """What the next request is built from: records, carried input, live entries."""
        return self._store.snapshot(self.session_id).layout

    def view(self) -> SessionView:
        """The session's figures."""
        return self._store.view(self.session_id)

    def audit(self, after: str = "") -> Sequence[Event]:
        """What happened to the session, as figures: rotations, versions, failures."""
        return self._store.audit(self.session_id, after)

    def rotate(self, timeout_seconds: float | None = None) -> Event | None:
        """Rotate now and wait for it: the explicit form. Its audit event; None if the time ran out first."""
        require_timeout(timeout_seconds)
        last_seen = [event.id for event in self.audit()][-1:]
        rotation_id = self._store.request_rotation(self.session_id, "asked")
        self._due.set()
        for _ in _until(timeout_seconds):
            for event in self.audit(*last_seen):
                if rotation_id in (event.data.get("rotation_id"), event.data.get("id")):
                    return event
        return None

    def lift_brake(self) -> bool:
        """Let a session under `work_room` begin fresh windows again, after three that were used up as soon as they
        began; whether it was braked."""
        return self._store.lift_brake(self.session_id)

    def handoff(
        self, task: str, *, guidance: str = "", handoff_id: str | None = None, timeout_seconds: float | None = None
    ) -> Handoff:
        """An account of the session as it stands, for another agent that takes over *task*; made in this thread.

        *guidance* narrows what is told. *handoff_id* is the idempotency key. A provider that is away is asked again
        until *timeout_seconds* have passed, an hour without. Raises InvalidInput, TurnConflict, SessionBusy,
        SummaryFailed, HandoffTimeout (ask again under the same id), StoreUnavailable.
        """
        require_timeout(timeout_seconds)
        request = handoff_request(self.session_id, task, guidance, handoff_id)
        self._store.request_handoff(request)
        for _ in _until(timeout_seconds):
            run_handoff(self._engine, self.session_id)
            view = self._store.job(self.session_id, Lane.HANDOFF, request.job_id)
            if view is None:
                raise InvalidInput("handoff_id", request.job_id, "is not known any more")
            handoff = handoff_of(view)
            if handoff is not None:
                return handoff
        raise HandoffTimeout(request.job_id, timeout_seconds or 0.0)

    def journal(self, limit: int = 1_000) -> Sequence[JournalEntry]:
        """The session's newest *limit* digests, oldest first."""
        return self._store.journal(self.session_id, limit)

    def notes(self) -> Mapping[str, int]:
        """Names of the notes that the agent wrote, sorted, each with its size in bytes."""
        return self._store.notes(self.session_id)

    def note(self, name: str) -> str | None:
        """A note's text; None if there is none of that name."""
        return self._store.note(self.session_id, name)

    def digest(self) -> str | None:
        """Request a digest of what is finished and not yet digested, in the background; its id, None if there is
        nothing."""
        digest_id = self._store.capture(self.session_id, "asked")
        self._due.set()
        return digest_id

    def cancel(self, turn_id: str) -> TurnState:
        """End a turn that is not finished. A second call is harmless."""
        return self._store.cancel(self.session_id, require_id("turn_id", turn_id))

    def close(self, *, now: bool = False) -> None:
        """Take no new turns, for good; accepted ones finish, or end as failed with *now*."""
        self._store.close(self.session_id, now=now)
        self._due.set()

    def purge(self) -> None:
        """Delete the session and all it ever held."""
        self._purge(self.session_id)
        self._due.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """What the end of a `with` block does: finish or abandon the background work under way. Harmless twice."""
        self._closing.set()
        self._due.set()
        self._background.join(self._grace_seconds)
        self._abandoned.set()
        self._leases.release_all()
        self._store.close_connections()

    def _answer(self, turn_id: str, listener: Listener | None, timeout_seconds: float | None) -> Reply:
        for _ in _until(timeout_seconds):
            while self._run_next():
                pass
            view = self._store.turn(self.session_id, turn_id)
            if view is None:
                raise InvalidInput("turn_id", turn_id, "is not known any more")
            if listener:
                listener.read(self._store, self.session_id)
            if view.state.is_finished:
                if listener:
                    listener.finish()
                return reply_of(view)
        raise AnswerTimeout(turn_id, timeout_seconds or 0.0)

    def _run_next(self) -> bool:
        """Run the turn that is next, in order of `send`; whether there may be another."""
        ran = run_turn(self._engine, self.session_id)
        if ran.rotation_id or ran.disposal:
            self._due.set()
        return ran.next_turn_id is not None

    def _work_in_background(self) -> None:
        is_last = False
        while not is_last:
            self._due.wait(IDLE_SECONDS)
            self._due.clear()
            is_last = self._closing.is_set()
            if not is_last:
                _attempt(self._rotate_while_due)
                _attempt(lambda: run_disposals(self._engine, self.session_id))
            _attempt(self._sweep)
            _attempt(self._keep_journal)

    def _rotate_while_due(self) -> None:
        while run_rotation(self._engine, self.session_id).rotation_id and not self._closing.is_set():
            pass

    def _sweep(self) -> None:
        """Do what is due and is not looked for by the thread whose session it is of.

        A sweep puts off what it finds, whosever it is: so the digests of all sessions of the file are requested here,
        and each is made by its own session's thread. Purged sessions have none: what a purge that was killed has left
        is deleted here, and what providers hold for them is let go of.
        """
        items = self._store.due(0)
        for item in items:
            if item.kind is DueKind.CAPTURE:
                with suppress(UnknownSession):  # purged since
                    self._store.capture(item.session_id, "finished")
            elif item.kind is DueKind.RETENTION:
                self._purge(item.session_id)
        self._let_go([item for item in items if item.kind is DueKind.ORPHAN])

    def _purge(self, session_id: str) -> None:
        while not self._store.purge(session_id):
            pass

    def _let_go(self, orphans: list[DueItem]) -> None:
        """Try each once, but none after a provider that is away: rotations wait for this thread, and so does leaving.

        What is left comes again with a later sweep, in another order: one that fails always is in nobody's way.
        """
        random.shuffle(orphans)
        for orphan in orphans:
            try:
                run_orphan(self._engine, orphan.session_id, orphan.id)
            except (ProviderError, InvalidInput) as exc:
                ids = {"session_id": orphan.session_id, "error": exc.code}
                log.warning("provider session of a purged session not let go of", extra=ids)
                if isinstance(exc, ProviderUnavailable):
                    return

    def _keep_journal(self) -> None:
        """Make the digest that is due, and publish what is not yet."""
        run_digest(self._engine, self.session_id)
        publish_digests(self._store, self.session_id)

    def _hear(self, grant: Grant, kind: str, data: Mapping[str, Any]) -> None:
        """A piece of text of the turn that this thread runs, which may be another's: who sent that reads its events."""
        listener: Listener | None = getattr(self._own, "listener", None)
        if listener and listener.turn_id == grant.work_id:
            listener.hear(kind, data)

    def _announce(self, _session_id: str, committed: Committed) -> None:
        if committed.rotation_id or committed.disposal:
            self._due.set()

    @contextmanager
    def _hold(self, grant: Grant) -> Iterator[_Abandonable]:
        with self._leases.hold(grant) as lease:
            yield _Abandonable(lease, self._abandoned)


class _Abandonable:
    """A lease that also counts as lost once the session was left and the grace time is over."""

    def __init__(self, lease: HeldLease, abandoned: threading.Event) -> None:
        self._lease, self._abandoned = lease, abandoned

    @property
    def is_lost(self) -> bool:
        return self._lease.is_lost or self._abandoned.is_set()


def _tell_clamp(agent: Agent) -> None:
    """Say what became of a work room that was asked for too small."""
    clamp = agent.clamp(agent.own_counter)
    if clamp:
        figures = {"agent": agent.name, "asked_tokens": clamp.asked_tokens, "given_tokens": clamp.given_tokens}
        log.warning("work room raised to its floor", extra=figures)


def _attempt(work: Callable[[], object]) -> None:
    """Background work, of which one kind that fails keeps no other from being done."""
    try:
        work()
    except Exception as exc:  # noqa: BLE001 - nobody waits for it, and it is looked at again
        log.warning("background work failed", extra={"error": f"{type(exc).__name__} at {place_of(exc)}"})


def _until(timeout_seconds: float | None) -> Iterator[float]:
    """Look now and every LOOK_SECONDS until the time is over; yields how many seconds were waited."""
    begun = time.monotonic()
    while True:
        waited = time.monotonic() - begun
        yield waited
        if timeout_seconds is not None and waited >= timeout_seconds:
            return
        time.sleep(LOOK_SECONDS)
