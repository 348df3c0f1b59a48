"""Which answers waited on a summary, by what the providers noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.load import Timed

WAIT_FRACTION = 0.5
"""A pause before the model call is a wait from this share of the consolidation on: half of it, on average, is what a
turn would wait that waits for one."""


@dataclass(frozen=True, slots=True)
class Span:
    """When a provider was busy for a session ("" where nothing names it). Seconds since the epoch."""

    session_id: str
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Notes:
    """What the providers of a run noted."""

    model_calls: Mapping[str, Span]
    """By turn."""
    inside: Sequence[Span]
    """Consolidations in a process that answers turns."""
    elsewhere: Sequence[Span]

    @classmethod
    def of(cls, traces: Mapping[int, Iterable[Mapping[str, Any]]]) -> Notes:
        """From the notes of each process."""
        calls: dict[str, Span] = {}
        inside: list[Span] = []
        elsewhere: list[Span] = []
        for notes in traces.values():
            spans = [
                (note, Span(str(note["session_id"]), float(note["started"]), float(note["ended"]))) for note in notes
            ]
            answered = {str(note["turn_id"]): span for note, span in spans if note["kind"] == "model"}
            calls.update(answered)
            (inside if answered else elsewhere).extend(span for note, span in spans if note["kind"] == "consolidation")
        return cls(calls, inside, elsewhere)

    def between(self, begun: float, ended: float) -> Notes:
        """The consolidations that began in a stretch of time."""
        return Notes(
            self.model_calls,
            [span for span in self.inside if begun <= span.started < ended],
            [span for span in self.elsewhere if begun <= span.started < ended],
        )


def waited(turns: Iterable[Timed], notes: Notes) -> int:
    """How many answers waited: a consolidation lies inside the turn, in the process that ran it; or the turn's pause
    before its model call began during one of the session's consolidations and lasted until that had ended, for at
    least a good part of it."""
    return sum(_has_waited(turn, notes) for turn in turns)


def _has_waited(turn: Timed, notes: Notes) -> bool:
    call = notes.model_calls[turn.turn_id]
    return any(
        span.session_id in ("", turn.session_id) and turn.begun <= span.started and span.ended <= call.started
        for span in notes.inside
    ) or any(
        span.session_id == turn.session_id
        and span.started < turn.begun <= span.ended <= call.started
        and call.started - turn.begun > WAIT_FRACTION * (span.ended - span.started)
        for span in notes.elsewhere
    )


def answered_meanwhile(turns: Iterable[Timed], notes: Notes) -> int:
    """How many turns were sent and answered while a consolidation of their own session ran elsewhere."""
    return sum(
        any(
            span.session_id == turn.session_id and span.started < turn.begun and turn.answered < span.ended
            for span in notes.elsewhere
        )
        for turn in turns
    )
