"""What operators see of a task in Flower and in logs: names, ids, phases and figures, never content."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from sessionlib.errors import InvalidInput, place_of
from sessionlib.ids import require_id
from workers.task_events import gathering_dispatcher

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
    if (dispatcher := gathering_dispatcher()) is not None:
        dispatcher.send(event, uuid=task.request.id, kwargs=kwargs)
        return
    try:
        task.send_event(event, retry=False, kwargs=kwargs)
    except (KombuError, RedisError, OSError) as exc:
        log.warning("phase not sent", extra={"phase": phase, "error": type(exc).__name__})


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
