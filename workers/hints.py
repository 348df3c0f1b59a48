"""Hints: one subscription a process, on which any number of threads and coroutines wait for news of turns.

A hint says only that something changed; whoever waits looks into the store. A hint may be lost (a connection breaks, a
server fails over), so callers also look every few seconds.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import redis

from workers.keys import ENDED, TURN_SEPARATOR
from workers.reads import StoreReads

log = logging.getLogger(__name__)

SUBSCRIBE_SECONDS = 5.0
"""How long the first wait of a process waits for its subscription, or for the end of the first attempt; without one it
goes by looking."""
POLL_SECONDS = 1.0
"""How long the subscriber reads before it looks whether it was closed."""
MISSED_PINGS = 5
"""Pings that a server may leave unanswered. redis-py sends one a read once the subscription was idle for its health
check's interval, and does not mind what comes back: one whose host is gone would be listened to for ever."""
RECONNECT_SECONDS = 0.5
"""Pause between two attempts to subscribe again."""
REMEMBERED = 10_000
"""Things whose newest hint is remembered, for those who look first and wait then. What is pushed out costs one look."""

Key = tuple[str, str]
Wake = Callable[[], object]


class Hints:
    """Waits for the published hints of one store. Its thread starts with the first wait."""

    def __init__(self, store: StoreReads) -> None:
        self._client, self._channel = store.client, store.keys.hints
        self._begin()
        _ALL.add(self)

    def _begin(self) -> None:
        """Without thread, listeners or memory: at first, after `close`, and in a forked child."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._has_tried = threading.Event()
        self._listeners: dict[Key, list[Wake]] = {}
        self._newest: OrderedDict[Key, int] = OrderedDict()
        self._count = 0
        self._subscription_count = 0
        self._seen = threading.local()

    def wait(self, session_id: str, turn_id: str, timeout: float) -> bool:
        """Wait for a hint of a turn ("" for the session itself; with `ENDED` after its id, that it ended), at most
        *timeout* seconds; whether there was one.

        A hint that came since this thread's last wait for the same turn counts, the first time any that is remembered:
        look, then wait, misses none.
        """
        key = (session_id, turn_id)
        woken = threading.Event()
        with self.listening(session_id, turn_id, woken.set):
            may_have_missed = self._is_newly_subscribed()
            is_news = woken.wait(0.0 if may_have_missed or self._is_news(key) else timeout)
            return self._is_news(key, note=True) or is_news or may_have_missed

    def _is_newly_subscribed(self) -> bool:
        """Whether the subscription began after this thread's last wait: what was published before it was heard by
        nobody, so the thread looks once more."""
        count, seen = self._subscription_count, getattr(self._seen, "subscription", 0)
        self._seen.subscription = count
        return count != seen

    def _is_news(self, key: Key, *, note: bool = False) -> bool:
        """Whether the newest hint of *key* is one that this thread has not waited for; with *note*, it has now."""
        with self._lock:
            newest = self._newest.get(key, 0)
        seen_key, seen = getattr(self._seen, "hint", (None, 0))
        if note:
            self._seen.hint = (key, newest)
        return newest > (seen if seen_key == key else 0)

    @contextmanager
    def listening(self, session_id: str, turn_id: str, wake: Wake) -> Generator[None]:
        """Call *wake* at every hint of a turn inside the block, from another thread; it must not block or raise.

        It is called as well when a subscription begins, or a broken one is back. For asyncio:
        `lambda: loop.call_soon_threadsafe(event.set)`.
        """
        key = (session_id, turn_id)
        with self._lock:
            self._listeners.setdefault(key, []).append(wake)
        try:
            self.subscribe()
            yield
        finally:
            with self._lock:
                listeners = self._listeners.get(key, [])
                if wake in listeners:  # `close` forgets those who still listen
                    listeners.remove(wake)
                if not listeners:
                    self._listeners.pop(key, None)

    def subscribe(self) -> None:
        """Begin the subscription if there is none, and wait for it a while: every `listening` does."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._subscribe_until_closed, name="hints", daemon=True)
                self._thread.start()
        self._has_tried.wait(SUBSCRIBE_SECONDS)

    @property
    def listener_count(self) -> int:
        """How many wait now."""
        with self._lock:
            return sum(map(len, self._listeners.values()))

    def close(self) -> None:
        """End the subscription. A later wait begins another."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join(SUBSCRIBE_SECONDS)
        self._begin()

    def _subscribe_until_closed(self) -> None:
        is_closed = self._is_closed
        while not is_closed.is_set():
            try:
                self._read(is_closed)
            except Exception as exc:  # noqa: BLE001 - whatever was read or woken, all others listen on
                log.warning("hints are interrupted", extra={"error": type(exc).__name__})
                self._has_tried.set()
                is_closed.wait(RECONNECT_SECONDS)

    def _read(self, is_closed: threading.Event) -> None:
        with self._client.pubsub() as subscription:
            subscription.subscribe(self._channel)
            while not is_closed.is_set():
                self._take(subscription.get_message(timeout=POLL_SECONDS))
                if subscription.health_check_response_counter > MISSED_PINGS:
                    raise redis.ConnectionError("the server of the subscription is silent")

    def _take(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        if message["type"] == "subscribe":
            self._subscription_count += 1
            self._has_tried.set()
            self._wake_all()
        elif message["type"] == "message":
            session_id, _, turn_id = message["data"].decode().partition(TURN_SEPARATOR)
            self._wake((session_id, turn_id))
            if turn_id.endswith(ENDED):
                self._wake((session_id, turn_id.removesuffix(ENDED)))

    def _wake(self, key: Key) -> None:
        with self._lock:
            self._count += 1
            self._newest[key] = self._count
            self._newest.move_to_end(key)
            if len(self._newest) > REMEMBERED:
                self._newest.popitem(last=False)
            listeners = list(self._listeners.get(key, ()))
        for wake in listeners:
            wake()

    def _wake_all(self) -> None:
        """Hints were missed while there was no subscription: everybody looks."""
        with self._lock:
            listeners = [wake for listeners in self._listeners.values() for wake in listeners]
        for wake in listeners:
            wake()


_ALL: weakref.WeakSet[Hints] = weakref.WeakSet()


def _begin_in_child() -> None:
    """A child has its parent's locks, held or not, but none of its threads."""
    for hints in _ALL:
        hints._begin()


os.register_at_fork(after_in_child=_begin_in_child)
