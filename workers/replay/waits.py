"""Where a turn's time went: which answers waited on a summary, what was added to the provider's and tools' own time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.replay.observed import Kill, Observed, PlayedTurn, Span

WAIT_SHARE = 0.5
"""A gap is a wait from this share of the consolidation on: a turn that waits for one begins to at any point of it, half
way on average; gaps of the engine itself are milliseconds, consolidations here take half a second and more."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of a turn without model call or tool run."""

    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def gaps(turn: PlayedTurn, spans: Sequence[Span]) -> Iterator[Gap]:
    """The gaps of a turn, from its submission to its answer, oldest first."""
    free_from = turn.submitted_at
    for span in sorted(spans, key=lambda span: span.started):
        if span.ended <= turn.submitted_at or span.started >= turn.answered_at:
            continue
        if span.started > free_from:
            yield Gap(free_from, span.started)
        free_from = max(free_from, span.ended)
    if turn.answered_at > free_from:
        yield Gap(free_from, turn.answered_at)


def waited_turns(observed: Observed) -> tuple[str, ...]:
    """Ids of the turns whose answer waited on a summary.

    An answer waited if its turn has a gap that began while one of the session's consolidations ran, lasted until that
    had ended, and was longer than `WAIT_SHARE` of it. A gap in which the front worker was killed is not counted: it
    ends when a new worker has started, whatever the background does.
    """
    return tuple(turn.turn_id for turn in observed.turns if _has_waited(turn, observed))


def _has_waited(turn: PlayedTurn, observed: Observed) -> bool:
    return any(
        _is_wait(gap, consolidation)
        for gap in gaps(turn, observed.spans)
        if not any(_is_front_in(kill, gap.started, gap.ended) for kill in observed.kills)
        for consolidation in observed.consolidations
    )


def _is_wait(gap: Gap, consolidation: Span) -> bool:
    is_across_its_end = consolidation.started < gap.started <= consolidation.ended <= gap.ended
    return is_across_its_end and gap.seconds > WAIT_SHARE * consolidation.seconds


def _is_front_in(kill: Kill, started: float, ended: float) -> bool:
    return kill.worker == "front" and started <= kill.at <= ended


def added_seconds(observed: Observed) -> list[float]:
    """For each turn, its time less that of the provider and the tools; turns in which the front worker was killed are
    left out: their recovery is reported with the kill."""
    return [
        sum(gap.seconds for gap in gaps(turn, observed.spans))
        for turn in observed.turns
        if not any(_is_front_in(kill, turn.submitted_at, turn.answered_at) for kill in observed.kills)
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of *values* that *share* of them do not exceed; 0 without values."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def in_flight(kill: Kill, observed: Observed) -> tuple[str, ...]:
    """What the provider was working on for the killed worker, as `KIND KEY`."""
    spans = observed.spans if kill.worker == "front" else observed.consolidations
    return tuple(f"{span.kind} {span.key}" for span in spans if span.started <= kill.at <= span.ended)


def recovery_seconds(kill: Kill, observed: Observed) -> float | None:
    """From a kill to the next call of the killed worker's kind; None if there was none any more."""
    spans = observed.spans if kill.worker == "front" else observed.consolidations
    return min((span.started - kill.at for span in spans if span.started > kill.at), default=None)
