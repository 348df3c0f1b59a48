"""Sends hints to workers. The store knows what is due; a hint only makes it happen sooner."""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol

from celery import Celery
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

RUN_TURN = "turns.run"
RUN_ROTATION = "rotations.run"
RUN_HANDOFF = "summaries.handoff"
RUN_DIGEST = "summaries.digest"
CAPTURE = "summaries.capture"
PUBLISH = "summaries.publish"
DISPOSE = "upkeep.dispose"
LET_GO = "upkeep.let_go"
CLOSE_CALLS = "upkeep.close_calls"
PURGE = "upkeep.purge"
PING = "upkeep.ping"


class Dispatch(Protocol):
    """Sends a task by name. Never raises because a broker is away: the reaper sends again what is overdue."""

    def send(self, task: str, **ids: str) -> None: ...


class CeleryDispatch:
    """Hints as Celery messages that carry ids only."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def send(self, task: str, **ids: Any) -> None:
        try:
            self._app.send_task(task, kwargs=ids, retry=False)
        except (OperationalError, ConnectionError, TimeoutError, OSError) as exc:
            log.warning("hint not sent", extra={"task": task, **ids, "error": type(exc).__name__})


class OneAtATime:
    """A dispatch whose threads take turns, half a millisecond each: a caller's process holds one producer, which is two
    connections. A limit of the broker's pools would be kombu's for the whole process, other Celery apps included."""

    def __init__(self, inner: Dispatch) -> None:
        self._inner, self._lock = inner, threading.Lock()

    def send(self, task: str, **ids: str) -> None:
        with self._lock:
            self._inner.send(task, **ids)


class NoDispatch:
    """For stores whose work is done by whoever reads `due`: tests, and callers who only look."""

    def send(self, task: str, **ids: str) -> None:
        """Do nothing."""


class MadeDue(Protocol):
    """What a commit or a run made due."""

    @property
    def next_turn_id(self) -> str | None: ...

    @property
    def rotation_id(self) -> str | None: ...

    @property
    def disposal(self) -> bool: ...


def send_hints(dispatch: Dispatch, session_id: str, made_due: MadeDue) -> None:
    """Tell workers what became due; the reaper would find it too, later."""
    if made_due.next_turn_id:
        dispatch.send(RUN_TURN, session_id=session_id, turn_id=made_due.next_turn_id)
    if made_due.rotation_id:
        dispatch.send(RUN_ROTATION, session_id=session_id, rotation_id=made_due.rotation_id)
    if made_due.disposal:
        dispatch.send(DISPOSE, session_id=session_id)
