"""Log lines: a fixed phrase plus fields, never content."""

from __future__ import annotations

import logging

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Celery's own records carry these; `data` has the arguments and the result of a task.
_NOT_SHOWN = frozenset({"data", "task_id", "task_name"})


class FieldsFormatter(logging.Formatter):
    """Appends what a line was given as `extra`: `… session rotated session_id=a epoch=3`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(processName)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        names = sorted(vars(record).keys() - _STANDARD - _NOT_SHOWN)
        return " ".join([super().formatMessage(record), *(f"{name}={vars(record)[name]}" for name in names)])
