"""Answers shown as they come: what a model says goes out as events of its turn while it is still saying it.

The first piece of a try goes out at once; what comes within a pause after it is gathered and goes out together. Pieces
are progress and decide nothing: the turn's last event has the whole answer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from sessionlib.deltas import DELTA, RESTARTED
from sessionlib.entries import encodable
from sessionlib.errors import LeaseLost, ProviderRejected, StoreUnavailable, place_of
from sessionlib.events import EVENTS_PAGE
from sessionlib.running.streams import Sent, StreamEvent, Streams
from sessionlib.stores.contract import Grant, SessionStore

log = logging.getLogger(__name__)

HIGH_SURROGATES = ("\ud800", "\udbff")
"""The first and the last: the first half of a character that some APIs write in two, and may cut between."""

Hear = Callable[[Grant, str, dict[str, Any]], None]
"""Hears of each piece when it comes, in the thread that runs the turn: kind and data of the event that it will be."""


def unheard(_grant: Grant, _kind: str, _data: dict[str, Any]) -> None:
    """A `Hear` where nobody listens."""


class TurnStream:
    """What a run of a turn shows of its answers: round after round, try after try.

    `attempt` counts from 1 how often the text of a round was begun. A try after one that showed some of it begins with
    the event `restarted`, whichever run that was in: what was shown of the round is void.
    """

    def __init__(self, streams: Streams, store: SessionStore, grant: Grant, hear: Hear = unheard) -> None:
        self._streams, self._store, self._grant, self._hear = streams, store, grant, hear
        self._round, self._attempt = -1, 1
        self._is_shown, self._is_quiet = False, False

    @contextmanager
    def trying(self, round: int) -> Generator[CallStream]:
        """Stream one try of a round's model call inside the block; nothing of it is sent after its end."""
        self._enter(round)
        stream = CallStream(self._streams, self._store, self._grant, self._hear, round, self._attempt)
        if self._is_quiet:
            stream.close()
        elif self._is_shown:
            stream.restart()
            stream.send()
        try:
            yield stream
        finally:
            stream.close()
            self._attempt, self._is_shown = stream.attempt, stream.is_shown

    def _enter(self, round: int) -> None:
        if round == self._round:
            return
        is_first, self._round = self._round < 0, round
        self._attempt, self._is_shown = 1, False
        if is_first:
            try:
                self._recall()
            except StoreUnavailable:
                self._is_quiet = True  # what must be declared void is not known

    def _recall(self) -> None:
        """Find out what earlier runs showed of the round that this one begins with: its newest event tells.

        They show no more of it: since this run was granted the turn their tokens are refused.
        """
        after, is_more = "", True
        while is_more:
            page = self._store.events(self._grant.session_id, self._grant.work_id, after, EVENTS_PAGE)
            for event in page:
                after = event.id
                if event.kind in (DELTA, RESTARTED) and event.data["round"] == self._round:
                    self._attempt, self._is_shown = event.data["attempt"], event.kind == DELTA
            is_more = len(page) == EVENTS_PAGE


class CallStream:
    """The text of one try of a model call, on its way to the turn's events, in order and without a gap.

    An event that may not have reached the store is sent again as it was, before anything after it: the store knows it.
    """

    def __init__(
        self, streams: Streams, store: SessionStore, grant: Grant, hear: Hear, round: int, attempt: int
    ) -> None:
        self._streams, self.store, self._grant, self._hear = streams, store, grant, hear
        self.round, self.attempt = round, attempt
        self.is_shown = False
        """Whether some of this attempt may have been seen."""
        self.sent_at = float("-inf")
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._said: list[str] = []
        """All of this attempt's text, sent or not."""
        self._said_characters = 0
        self._gathered: list[str] = []
        self._gathered_at = 0
        self._unsent: deque[tuple[str, dict[str, Any]]] = deque()
        self._half = ""
        self._is_over, self._is_lost = False, False

    def add(self, text: str) -> None:
        """Take the next piece. Raises LeaseLost once the turn is known to be another's: nobody waits for the rest."""
        if not isinstance(text, str):
            raise ProviderRejected(f"the provider streamed {type(text).__name__} in the place of text")
        if self._is_lost:
            raise LeaseLost(self._grant.session_id, self._grant.lane)
        text, self._half = _whole_characters(self._half + text)
        if self._is_over or not text:
            return
        is_first = self._gather(encodable(text))
        if not is_first or not self.send():
            self._streams.send_later(self)

    def finish(self, text: str) -> None:
        """The call was answered with *text*: send what is left of it, or all of it if it is not what was said before
        (providers may stream nothing, or something else)."""
        if self._is_over:
            return
        whole, said = encodable(text), "".join(self._said)
        if not whole.startswith(said):
            self.restart()
            said = ""
        if len(whole) > len(said):
            self._gather(whole[len(said) :])
        self.send()

    def restart(self) -> None:
        """Begin the text anew: what was shown of it is void."""
        with self._lock:
            self.attempt, self.is_shown = self.attempt + 1, False
            self._said, self._said_characters = [], 0
            self._gathered, self._gathered_at = [], 0
            data = {"round": self.round, "attempt": self.attempt}
            self._unsent.append((RESTARTED, data))
        self._hear(self._grant, RESTARTED, data)

    def close(self) -> None:
        """Send nothing more. Waits for what is being sent."""
        self._streams.forget(self)
        with self._sending:
            self._end()

    def send(self) -> bool:
        """Send what is gathered, in this thread. Never raises; False if the store cannot be reached."""
        sent = Sent.STORED
        while sent is Sent.STORED and (event := self.claim()):
            sent = self._emitted(event)
            self.settled(sent)
        return sent is not Sent.UNKNOWN

    def _emitted(self, event: StreamEvent) -> Sent:
        try:
            self.store.emit(*event)
        except StoreUnavailable:
            return Sent.UNKNOWN
        except LeaseLost:
            return Sent.LOST
        except Exception as exc:  # noqa: BLE001 - the turn matters, and its last event has the answer
            log.warning("stream ended", extra={"error": f"{type(exc).__name__} at {place_of(exc)}"})
            return Sent.REFUSED
        return Sent.STORED

    def claim(self) -> StreamEvent | None:
        """The event that is to be sent next, if there is one; nobody else sends until it is `settled`."""
        self._sending.acquire()
        event = self._next()
        if event is None:
            self._sending.release()
            return None
        return self._grant, *event

    def settled(self, sent: Sent) -> None:
        """What became of the event that was claimed."""
        if sent is Sent.STORED:
            self.sent_at = self._streams.clock()
            with self._lock:
                self._unsent.popleft()
        elif sent is not Sent.UNKNOWN:
            self._is_lost = sent is Sent.LOST
            self._end()
        has_more = bool(self._unsent or self._gathered)
        self._sending.release()
        if has_more:
            self._streams.send_later(self)

    def _gather(self, text: str) -> bool:
        """Add *text*; whether it is the first of the attempt."""
        with self._lock:
            data = self._delta(self._said_characters, text)
            is_first = not self._said
            self._said.append(text)
            self._said_characters += len(text)
            self._gathered.append(text)
        self._hear(self._grant, DELTA, data)
        return is_first

    def _next(self) -> tuple[str, dict[str, Any]] | None:
        """The event that is to be sent next, made of what is gathered if none waits."""
        with self._lock:
            if not self._unsent and self._gathered:
                text = "".join(self._gathered)
                self._unsent.append((DELTA, self._delta(self._gathered_at, text)))
                self._gathered, self._gathered_at = [], self._gathered_at + len(text)
            if self._unsent and self._unsent[0][0] == DELTA:
                self.is_shown = True
            return self._unsent[0] if self._unsent else None

    def _delta(self, at: int, text: str) -> dict[str, Any]:
        return {"round": self.round, "attempt": self.attempt, "at": at, "text": text}

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            self._unsent.clear()
            self._gathered = []


def _whole_characters(text: str) -> tuple[str, str]:
    """*text*, and apart from it the half of a character that it ends with."""
    first, last = HIGH_SURROGATES
    return (text[:-1], text[-1]) if text and first <= text[-1] <= last else (text, "")
