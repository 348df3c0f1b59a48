"""What operators see of a task in Flower and in logs: names, ids, phases and figures, never content."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from celery import Task, signals
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from sessionlib.errors import InvalidInput, place_of
from sessionlib.ids import require_id

log = logging.getLogger(__name__)

Figure = int | float | bool | str | None


class TaskFailed(Exception):
    """A task that ended with an error: its code and where it was raised. The error's own text may quote content."""

    def __init__(self, code: str, place: str) -> None:
        super().__init__(code, place)
        self.code, self.place = code, place

    def __str__(self) -> str:
        return f"{self.code} at {self.place}"


class ReticentTask(Task):
    """A task whose errors reach Celery, its log, and Flower as a code and a place."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except (Ignore, Reject, Retry):  # Celery's own ways to end a task
            raise
        except Exception as exc:  # noqa: BLE001 (raised again, without its text)
            raise TaskFailed(getattr(exc, "code", type(exc).__name__), place_of(exc)) from None


def send_phase(task: Task, phase: str, **figures: Figure) -> None:
    """Show in Flower that *task* reached *phase*, with ids and figures in the place of its arguments.

    Harmless if the broker is away: what the task does matters more than that it is seen.
    """
    event, kwargs = f"task-{phase}", shown(figures)
    if (dispatcher := _buffering_dispatcher()) is not None:
        dispatcher.send(event, uuid=task.request.id, kwargs=kwargs)
        return
    try:
        task.send_event(event, retry=False, kwargs=kwargs)
    except (KombuError, RedisError, OSError) as exc:
        log.warning("phase not sent", extra={"phase": phase, "error": type(exc).__name__})


_consumer: Any = None
"""Celery's own consumer in this process, once it is ready."""


@signals.worker_ready.connect(weak=False)
def _note_consumer(sender: Any, **_: object) -> None:
    global _consumer
    _consumer = sender


def _buffering_dispatcher() -> Any:
    """The dispatcher through which Celery sends its own events of this process, many in one message; None in a pool's
    child, which has none. A message for each phase would take a third of a front worker's time."""
    dispatcher: Any = getattr(_consumer, "event_dispatcher", None)  # another one after each reconnection
    if dispatcher is None or dispatcher.pid != os.getpid() or "task" not in dispatcher.buffer_group:
        return None
    return dispatcher


def shown(figures: Mapping[str, Figure]) -> str:
    """Ids and figures as `name=value`; a text that is no id is content and is shown by its length only."""
    return " ".join(f"{name}={_shown(value)}" for name, value in figures.items())


def _shown(value: Figure) -> str:
    if not isinstance(value, str):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    try:
        return require_id("figure", value)
    except InvalidInput:
        return f"({len(value)} characters)"
