"""Hears the workers' task events as Flower does: what runs where, by the phases that tasks show."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

RECONNECT_SECONDS = 0.2
WORKING = frozenset({"model", "tool", "consolidation", "summary"})
"""Phases that only the worker shows that holds the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The newest phase of a session's work."""

    worker: str
    """As the supervisor names it."""
    name: str
    ids: dict[str, str]
    """What the phase shows: session_id, turn_id or rotation_id, and figures."""
    at: float
    """Seconds since the epoch. Workers send events in batches: they do not arrive in order."""


class Watcher:
    """Captures task events on a thread, until it is closed. Survives restarts of the broker."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.is_listening = threading.Event()
        self._phases: dict[tuple[str, str], Phase] = {}
        self._newest: dict[tuple[str, str], float] = {}
        """When a kind of event was last sent by a worker, in seconds since the epoch."""
        self._events: list[dict[str, Any]] = []
        self._receiver: Any = None
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._receiver.should_stop = True
        self._thread.join()

    def phase(self, session_id: str, kind: str = "turn_id") -> Phase | None:
        """The newest phase of the session's turn, or of its rotation, handoff or digest (kind `rotation_id`, …)."""
        with self._lock:
            return self._phases.get((session_id, kind))

    def is_offline(self, worker: str, after: float) -> bool:
        """Whether a worker said goodbye to the broker after that time, in seconds since the epoch."""
        return self._has_sent("worker-offline", worker, after)

    def has_finished_work(self, worker: str, after: float) -> bool:
        """Whether a worker finished a task after that time, in seconds since the epoch."""
        return self._has_sent("task-succeeded", worker, after)

    def _has_sent(self, kind: str, worker: str, after: float) -> bool:
        with self._lock:
            return self._newest.get((kind, worker), 0.0) > after

    def captured(self) -> list[dict[str, Any]]:
        """All events so far."""
        with self._lock:
            return list(self._events)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(OperationalError, RedisError, OSError), self._app.connection_for_read() as connection:
                self._receiver = self._app.events.Receiver(connection, handlers={"*": self._take})
                self._receiver.should_stop = self._stopped.is_set()
                self.is_listening.set()
                self._receiver.capture(limit=None, timeout=None, wakeup=False)
            self._stopped.wait(RECONNECT_SECONDS)

    def _take(self, event: dict[str, Any]) -> None:
        kind, worker = str(event["type"]), str(event["hostname"]).partition("@")[0]
        with self._lock:
            self._events.append(event)
            self._newest[kind, worker] = max(event["timestamp"], self._newest.get((kind, worker), 0.0))
            if (name := kind.removeprefix("task-")) in WORKING:
                ids = dict(pair.split("=", 1) for pair in str(event["kwargs"]).split())
                self._note(Phase(worker=worker, name=name, ids=ids, at=event["timestamp"]))

    def _note(self, phase: Phase) -> None:
        for kind in ("turn_id", "rotation_id", "handoff_id", "digest_id"):
            key = (phase.ids["session_id"], kind)
            if kind in phase.ids and (key not in self._phases or phase.at > self._phases[key].at):
                self._phases[key] = phase
