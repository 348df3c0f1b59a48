"""How the fake provider server's answers come: at what pace, whole or broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from sessionlib.testing.failures import Failure, Fault, Gate
from sessionlib.testing.traits import Traits
from sessionlib.testing.wire import Cut, Event

_HALF = frozenset({Fault.TRUNCATED, Fault.CUT, Fault.STALL, Fault.ERROR_EVENT})


def paced(events: Iterator[Event], traits: Traits, gate: Gate, on_first: Callable[[], None]) -> Iterator[Event]:
    """*events* at the pace of *traits*. Once something was said, *gate* may hold what else is; *on_first* is told."""
    due, is_begun = time.monotonic() + traits.first_token_seconds, False
    for event in events:
        if event.tokens:
            if is_begun:
                gate.pass_through()
            _sleep_until(due)
            due += _making_seconds(event.tokens, traits)
        yield event
        if event.tokens and not is_begun:
            is_begun = True
            on_first()


def making_seconds(tokens: int, traits: Traits) -> float:
    """How long an answer that comes whole takes to be made."""
    return traits.first_token_seconds + _making_seconds(tokens, traits)


def broken(events: Sequence[Event], failure: Failure, error_event: Event, gate: Gate) -> Iterator[Event]:
    """What comes of *events* when *failure* strikes. Raises Cut where the connection is to end."""
    if failure.fault in {Fault.TRICKLE, Fault.TRICKLE_HEAD}:
        yield from _by_byte(events, failure.trickle_seconds)
        return
    yield from _half(events) if failure.fault in _HALF else events
    match failure.fault:
        case Fault.ERROR_EVENT:
            yield error_event
        case Fault.STALL:
            gate.wait()
            raise Cut
        case Fault.CUT:
            raise Cut


def _by_byte(events: Sequence[Event], pause_seconds: float) -> Iterator[Event]:
    for event in events:
        for place in range(len(event.data)):
            yield Event(event.data[place : place + 1])
            time.sleep(pause_seconds)


def _half(events: Sequence[Event]) -> Sequence[Event]:
    if len(events) > 1:
        return events[: len(events) // 2]
    return [Event(event.data[: len(event.data) // 2]) for event in events]


def _making_seconds(tokens: int, traits: Traits) -> float:
    return tokens / traits.tokens_per_second if traits.tokens_per_second else 0.0


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
