"""Which answers waited on a summary, by what the providers noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def waited(turns: Iterable[Timed], notes: Notes) -> int:
    """How many answers waited: a consolidation was made inside the turn, in the process that ran it."""
    return sum(
        any(
            span.session_id in ("", turn.session_id) and turn.begun <= span.started and span.ended <= pause_end
            for span in notes.inside
        )
        for turn, pause_end in _pauses(turns, notes)
    )


def pauses_across(turns: Iterable[Timed], notes: Notes, session_count: int) -> tuple[int, float]:
    """How many turns look as if they had waited for another process's consolidation, and how many of them would by
    chance.

    The pause before the model call began during a consolidation of the session, lasted until that had ended, and for a
    good part of it. By chance that happens with the consolidations of every other session as often.
    """
    own = others = 0
    for turn, pause_end in _pauses(turns, notes):
        for span in notes.elsewhere:
            if _is_across(turn.begun, pause_end, span):
                own += span.session_id == turn.session_id
                others += span.session_id != turn.session_id
    return own, others / max(1, session_count - 1)


def answered_meanwhile(turns: Iterable[Timed], notes: Notes) -> int:
    """How many turns were sent and answered while a consolidation of their own session ran elsewhere."""
    return sum(
        any(
            span.session_id == turn.session_id and span.started < turn.begun and turn.answered < span.ended
            for span in notes.elsewhere
        )
        for turn in turns
    )


def _pauses(turns: Iterable[Timed], notes: Notes) -> Iterator[tuple[Timed, float]]:
    """Each turn, and when its model was asked."""
    return ((turn, notes.model_calls[turn.turn_id].started) for turn in turns)


def _is_across(begun: float, ended: float, span: Span) -> bool:
    lasts_long = ended - begun > WAIT_FRACTION * (span.ended - span.started)
    return span.started < begun <= span.ended <= ended and lasts_long
