"""Where a turn's time went: which answers waited on a summary, what was added to the provider's and tools' own time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workers.replay.observed import Kill, Observed, PlayedTurn, Span

WAIT_SHARE = 0.5
"""A standstill is a wait from this share of the consolidation on: whoever waits for one begins to at any point of it,
half way on average."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of a turn without model call or tool run."""

    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    def overlaps(self, started: float, ended: float) -> bool:
        return self.started <= ended and started <= self.ended


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


def standstills(turn: PlayedTurn, observed: Observed) -> Iterator[Gap]:
    """The turn's gaps, cut where a worker took it up or committed a round: in none of the parts did anything happen.

    Those in which the front worker was dead are left out: they end when its successor has started, whatever the
    background does.
    """
    marks = sorted((*turn.started_at, *(played.at for played in turn.rounds)))
    dead = [_dead(kill, observed) for kill in observed.kills if kill.worker == "front"]
    for gap in gaps(turn, observed.spans):
        inside = (mark for mark in marks if gap.started < mark < gap.ended)
        for part in (Gap(*ends) for ends in pairwise((gap.started, *inside, gap.ended))):
            if not any(part.overlaps(*times) for times in dead):
                yield part


def _dead(kill: Kill, observed: Observed) -> tuple[float, float]:
    """From a kill of the front worker to the next call; to the end if there was none."""
    seconds = recovery_seconds(kill, observed)
    return kill.at, math.inf if seconds is None else kill.at + seconds


def noise_seconds(observed: Observed) -> float:
    """The longest standstill of the play that no consolidation can explain, for none ran at its time: what this machine
    makes its processes wait for a core."""
    return max(
        (
            gap.seconds
            for turn in observed.turns
            for gap in standstills(turn, observed)
            if not any(gap.overlaps(span.started, span.ended) for span in observed.consolidations)
        ),
        default=0.0,
    )


def waited_turns(observed: Observed) -> tuple[str, ...]:
    """Ids of the turns whose answer waited on a summary.

    An answer waited if its turn has a standstill that began while one of the session's consolidations ran, lasted until
    that had ended, and was longer than `WAIT_SHARE` of it and than the noise of the same play.
    """
    noise = noise_seconds(observed)
    return tuple(turn.turn_id for turn in observed.turns if any(_waits(turn, observed, noise)))


def _waits(turn: PlayedTurn, observed: Observed, noise: float) -> Iterable[bool]:
    return (
        gap.seconds > noise and _is_wait(gap, consolidation)
        for gap in standstills(turn, observed)
        for consolidation in observed.consolidations
    )


def _is_wait(gap: Gap, consolidation: Span) -> bool:
    is_across_its_end = consolidation.started < gap.started <= consolidation.ended <= gap.ended
    return is_across_its_end and gap.seconds > WAIT_SHARE * consolidation.seconds


def added_seconds(observed: Observed) -> list[float]:
    """For each turn, its time less that of the provider and the tools; turns in which the front worker was killed are
    left out: their recovery is reported with the kill."""
    kills = [kill.at for kill in observed.kills if kill.worker == "front"]
    return [
        sum(gap.seconds for gap in gaps(turn, observed.spans))
        for turn in observed.turns
        if not any(turn.submitted_at <= at <= turn.answered_at for at in kills)
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
