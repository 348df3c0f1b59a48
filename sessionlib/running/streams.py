"""The thread of a process that sends what its streams have gathered, each when its pause is over."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from sessionlib.deltas import STREAM_MILLISECONDS
from sessionlib.errors import StoreUnavailable, place_of
from sessionlib.stores.contract import Grant, SessionStore

log = logging.getLogger(__name__)

AWAY_SECONDS = 1.0
"""Pause of all streams of a process when their store cannot be reached: each would only wait for the same answer."""

MOST_AT_ONCE = 64
"""Events that go out in one exchange: a server is kept for some milliseconds by so many."""

IDLE_SECONDS = 5.0
"""How long the thread stays when there is nothing to send."""


class Sent(Enum):
    """What became of an event that was to be sent."""

    STORED = auto()
    LOST = auto()
    """Not sent: the turn is another's by now, or ended."""
    REFUSED = auto()
    """Not sent, and not to be tried again."""
    UNKNOWN = auto()
    """The store could not be reached: it is to be sent again, and may be there already."""


StreamEvent = tuple[Grant, str, dict[str, Any]]
"""An event that a stream has for its turn: whose, kind and data."""


class Gathering(Protocol):
    """A stream that gathers what it is to send."""

    store: SessionStore
    sent_at: float
    """When it last sent something, by the clock of its `Streams`."""

    def claim(self) -> StreamEvent | None:
        """What is to be sent next, if there is something: nobody else sends of this stream until it is `settled`."""
        ...

    def settled(self, sent: Sent) -> None:
        """What became of the event that was claimed."""
        ...


class Streams:
    """The streams of one process."""

    def __init__(
        self, stream_milliseconds: float = STREAM_MILLISECONDS, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*stream_milliseconds*: the least pause between two events of a stream; with 0 they gather only what comes
        while others are sent."""
        self.clock = clock
        self._pause_seconds = stream_milliseconds / 1_000
        self._due: dict[Gathering, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def send_later(self, stream: Gathering) -> None:
        """Send what *stream* gathers when its pause is over."""
        with self._changed:
            if stream in self._due:
                return
            due = max(self.clock(), stream.sent_at + self._pause_seconds)
            self._due[stream] = due
            if self._thread is None or not self._thread.is_alive():  # a forked child has the object, not the thread
                self._wakes_at = due
                self._thread = threading.Thread(target=self._send_while_due, name="streams", daemon=True)
                self._thread.start()
            elif due < self._wakes_at:
                self._changed.notify()

    def forget(self, stream: Gathering) -> None:
        """Send nothing more of *stream*."""
        with self._changed:
            self._due.pop(stream, None)

    def _send_while_due(self) -> None:
        while ready := self._ready():
            claimed = defaultdict[SessionStore, list[tuple[Gathering, StreamEvent]]](list)
            for stream in ready:
                if event := stream.claim():
                    claimed[stream.store].append((stream, event))
            for store, events in claimed.items():
                self._send(store, events)

    def _send(self, store: SessionStore, claimed: Sequence[tuple[Gathering, StreamEvent]]) -> None:
        """Send what streams have, all in one exchange: with hundreds of them at work a thread of its own waits for each
        exchange ten times as long as the store does."""
        try:
            held = store.emit_all([event for _, event in claimed])
            outcomes = [Sent.STORED if is_held else Sent.LOST for is_held in held]
        except StoreUnavailable:
            outcomes = [Sent.UNKNOWN] * len(claimed)
            self._put_off([stream for stream, _ in claimed])
        except Exception as exc:  # noqa: BLE001 - the turns matter, and the streams to come
            outcomes = [Sent.REFUSED] * len(claimed)
            log.warning("streams ended", extra={"error": f"{type(exc).__name__} at {place_of(exc)}"})
        for (stream, _), outcome in zip(claimed, outcomes, strict=True):
            stream.settled(outcome)

    def _ready(self) -> list[Gathering]:
        """Wait for streams whose pause is over, and take them, MOST_AT_ONCE at most; none if there were none for a
        while: the thread ends."""
        with self._changed:
            while True:
                now = self.clock()
                ready = [stream for stream, due in self._due.items() if due <= now][:MOST_AT_ONCE]
                if ready:
                    for stream in ready:
                        del self._due[stream]
                    self._wakes_at = now
                    return ready
                self._wakes_at = min(self._due.values(), default=now + IDLE_SECONDS)
                if not self._changed.wait(self._wakes_at - now) and not self._due:
                    self._thread = None
                    return []

    def _put_off(self, streams: list[Gathering]) -> None:
        with self._changed:
            self._due.update(dict.fromkeys(streams, self.clock() + AWAY_SECONDS))
