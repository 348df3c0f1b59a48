"""An open-loop load: turns are sent when they are due, whether or not those before them were answered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from workers.client import Turn

CALLERS = 128
"""Threads that wait for answers: more than turns are ever in flight below capacity."""
ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A turn that is due *at* seconds after the start, for the session at position *session*."""

    at: float
    session: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A turn that was answered. Seconds since the epoch."""

    session_id: str
    turn_id: str
    intended: float
    begun: float
    """When the generator came to send it: later than intended if it was busy."""
    answered: float

    @property
    def seconds(self) -> float:
        """From the intended start, so that a late generator hides nothing."""
        return self.answered - self.intended


def poisson(rate: float, seconds: float, session_count: int, seed: object) -> tuple[Arrival, ...]:
    """Arrivals at *rate* turns a second on average; the same for the same *seed*."""
    chance = random.Random(repr(seed))

    def drawn() -> Iterator[Arrival]:
        at = chance.expovariate(rate)
        while at < seconds:
            yield Arrival(at, chance.randrange(session_count))
            at += chance.expovariate(rate)

    return tuple(drawn())


class Generator:
    """Sends turns from threads of its own and times their answers. Raises what a turn raises."""

    def __init__(self) -> None:
        self._callers = ThreadPoolExecutor(CALLERS)

    def close(self) -> None:
        self._callers.shutdown()

    def play(self, arrivals: Sequence[Arrival], submit: Callable[[int], Turn]) -> list[Timed]:
        """Send each turn when it is due, and return when all are answered."""
        start = time.time()
        sent: list[Future[Timed]] = []
        for arrival in arrivals:
            due = start + arrival.at
            time.sleep(max(0.0, due - time.time()))
            sent.append(self._callers.submit(_timed, submit, arrival.session, due))
        return [future.result() for future in sent]

    def saturate(self, session_count: int, seconds: float, submit: Callable[[int], Turn]) -> float:
        """Keep one turn of each session in flight for *seconds*; turns answered a second."""
        end = time.time() + seconds
        counts = self._callers.map(lambda session: _send_until(end, session, submit), range(session_count))
        return sum(counts) / seconds


def _timed(submit: Callable[[int], Turn], session: int, intended: float) -> Timed:
    begun = time.time()
    turn = submit(session)
    turn.answer(ANSWER_SECONDS)
    return Timed(session_id=turn.session_id, turn_id=turn.turn_id, intended=intended, begun=begun, answered=time.time())


def _send_until(end: float, session: int, submit: Callable[[int], Turn]) -> int:
    count = 0
    while time.time() < end:
        submit(session).answer(ANSWER_SECONDS)
        count += time.time() < end
    return count
