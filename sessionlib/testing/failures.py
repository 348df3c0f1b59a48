"""Failures of the fake provider server that were asked for, and the gates that hold its calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sessionlib.errors import InvalidInput


class Kind(StrEnum):
    """Which calls a hold or a failure is for. `all` means answers and summaries. A disposal cannot be held; `streams`
    can only be held: after the first piece of the answer."""

    ALL = "all"
    ANSWERS = "answers"
    SUMMARIES = "summaries"
    DISPOSALS = "disposals"
    STREAMS = "streams"

    def covers(self, kind: Kind) -> bool:
        return self is kind or (self is Kind.ALL and kind in _ASKED_KINDS)


_ASKED_KINDS = (Kind.ANSWERS, Kind.SUMMARIES)
HELD_KINDS = (*_ASKED_KINDS, Kind.STREAMS)
_FAILING_KINDS = (Kind.ALL, *_ASKED_KINDS, Kind.DISPOSALS)


class Fault(StrEnum):
    """What may come instead of an answer, beside an error status."""

    GARBAGE = "garbage"
    """A page of HTML."""
    TRUNCATED = "truncated"
    """Half of an answer, ended as if it were whole."""
    CUT = "cut"
    """Half of an answer; then the connection ends."""
    ERROR_EVENT = "error_event"
    """Half of a stream, then an event that tells of an overload; an answer that is no stream fails with 529."""
    HANG = "hang"
    """Nothing, until calls are released."""
    STALL = "stall"
    """Half of an answer; then nothing, until calls are released."""
    TRICKLE = "trickle"
    """The whole answer, a byte at a time."""
    TRICKLE_HEAD = "trickle_head"
    """As `trickle`, the response's head too."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How one call fails."""

    failure: int | Fault
    kind: Kind
    headers: Mapping[str, str] = field(default_factory=dict)
    trickle_seconds: float = 1.0
    """The pause between two bytes."""

    @property
    def fault(self) -> Fault | None:
        return self.failure if isinstance(self.failure, Fault) else None


class Failures:
    """Failures that are to come. Safe for concurrent use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Failure] = deque()

    def add(self, failure: Failure, count: int) -> None:
        if not isinstance(count, int) or not 0 <= count <= 100_000:
            raise InvalidInput("count", count, "must be 0 to 100,000")
        with self._lock:
            self._queue.extend([failure] * count)

    def next(self, kind: Kind) -> Failure | None:
        with self._lock:
            for failure in self._queue:
                if failure.kind.covers(kind):
                    self._queue.remove(failure)
                    return failure
        return None


class Gate:
    """Lets calls pass, or holds them; knows how many it holds."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_open = True
        self._release_count = 0
        self.waiting = 0

    def close(self) -> None:
        with self._condition:
            self._is_open = False

    def open(self) -> None:
        """Let go of all that wait."""
        with self._condition:
            self._is_open = True
            self._release_count += 1
            self._condition.notify_all()

    def pass_through(self) -> None:
        """Wait while the gate is closed."""
        with self._condition:
            self.waiting += 1
            self._condition.wait_for(lambda: self._is_open)
            self.waiting -= 1

    def wait(self) -> None:
        """Wait for the next `open`, whether the gate is closed or not."""
        with self._condition:
            before = self._release_count
            self.waiting += 1
            self._condition.wait_for(lambda: self._release_count > before)
            self.waiting -= 1


def failure_named(value: object) -> int | Fault:
    """A status or a fault. Raises InvalidInput."""
    if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
        return value
    if isinstance(value, str) and value in set(Fault):
        return Fault(value)
    raise InvalidInput("failure", value, f"must be a status from 400 to 599, or of {', '.join(Fault)}")


def failing_kind(value: str) -> Kind:
    """Raises InvalidInput."""
    return _kind(value, _FAILING_KINDS)


def held_kinds(value: str) -> list[Kind]:
    """The kinds that *value* means. Raises InvalidInput."""
    chosen = _kind(value, (Kind.ALL, *HELD_KINDS))
    return [kind for kind in HELD_KINDS if chosen.covers(kind)]


def _kind(value: str, among: tuple[Kind, ...]) -> Kind:
    if value not in set(among):
        raise InvalidInput("kind", value, f"must be one of {', '.join(among)}")
    return Kind(value)
