"""Why a request did not extend the one before it: told from what both were built on, never assumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from sessionlib.stores.contract import Trim
from workers.replay.observed import Break, Observed, Place, PlayedRound, place_of

ROTATION, TRIM, AGENT_VERSION, NUDGE, OTHER = REASONS = ("rotation", "trim", "agent_version", "nudge", "other")


def prefix_breaks(observed: Observed) -> dict[str, int]:
    """Breaks by reason. A break between two rounds, or within one that was asked again, is put down to

    - an agent version, if the session went over to one between the commits of the round before and of this one;
    - a rotation, if this round was built on a later epoch than the round before (each epoch explains one break);
    - a trim, if the epoch is the same and this round's trim shortens more;
    - a nudge, if the request before ended with one, which is in no other;
    - something else, if there is no such evidence, or the break is not between neighbours.

    Breaks that the provider counted and no longer lists have no evidence either.
    """
    found = Counter(_reasons(observed))
    found[OTHER] += observed.break_count - len(observed.breaks)
    return {reason: found[reason] for reason in REASONS}


def _reasons(observed: Observed) -> Iterator[str]:
    rounds = observed.rounds
    before_of = {after.place: before for before, after in pairwise(rounds)}
    by_place = {played.place: played for played in rounds}
    explained: Counter[Place] = Counter()
    for broken in observed.breaks:
        place = place_of(broken.key)
        this, before = by_place.get(place), before_of.get(place)
        if this is None or before is None or not _are_neighbours(broken, before):
            yield OTHER
            continue
        reason = _reason(before, this, observed, explained[place])
        explained[place] += reason == ROTATION
        yield reason


def _are_neighbours(broken: Break, before: PlayedRound) -> bool:
    return place_of(broken.previous_key) in (before.place, place_of(broken.key))


def _reason(before: PlayedRound, this: PlayedRound, observed: Observed, explained_count: int) -> str:
    if any(before.at <= at <= this.at for at in observed.version_changes):
        return AGENT_VERSION
    if this.epoch - before.epoch > explained_count:
        return ROTATION
    if this.epoch == before.epoch and _is_grown(before.trim, this.trim):
        return TRIM
    return NUDGE if before.is_nudged else OTHER


def _is_grown(before: Trim, after: Trim) -> bool:
    pairs = (
        (before.pointers_before_seq, after.pointers_before_seq),
        (before.dropped_before_seq, after.dropped_before_seq),
        (before.records_dropped, after.records_dropped),
    )
    return before != after and all(later >= earlier for earlier, later in pairs)
