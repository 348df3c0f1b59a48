"""What was asked of a store, what it answered, and what overlapped: all that the judge is given."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sessionlib.errors import SessionError
from sessionlib.stores.contract import Refusal, SessionStore

WRITES = frozenset(
    {"submit", "begin", "save_step", "commit", "adopt", "fail", "cancel", "request_rotation", "cancel_rotation"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store. `asked` and `answered` are places in one order of all that happened in the run."""

    method: str
    args: tuple[Any, ...]
    asked: int
    answered: int
    answer: Any = None
    error: SessionError | None = None

    def is_before(self, other: Call) -> bool:
        """It was answered before the other was asked. Calls that overlap may have happened either way."""
        return self.answered < other.asked


class Recorder:
    """Stands before a store and writes down every call. For many threads."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._moments = itertools.count()
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._operation_count = 0

    @property
    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls)

    @property
    def operation_count(self) -> int:
        """Calls so far that were to change something: reads, sweeps and refused begins not counted."""
        return self._operation_count

    def __getattr__(self, method: str) -> Callable[..., Any]:
        run = getattr(self._store, method)

        def recorded(*args: Any) -> Any:
            asked = next(self._moments)
            try:
                answer = run(*args)
            except SessionError as exc:
                self._keep(Call(method, args, asked, next(self._moments), error=exc))
                raise
            self._keep(Call(method, args, asked, next(self._moments), answer))
            return answer

        return recorded

    def _keep(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)
            self._operation_count += call.method in WRITES and not isinstance(call.answer, Refusal)


class OneAtATime:
    """Lets one thread at a time at a store that is for one thread."""

    def __init__(self, store: SessionStore) -> None:
        self._store, self._lock = store, threading.Lock()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        run = getattr(self._store, method)

        def locked(*args: Any) -> Any:
            with self._lock:
                return run(*args)

        return locked
