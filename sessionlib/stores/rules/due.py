"""Sweeping what is overdue: a hint is given again, ever more rarely, until the thing is begun or finished."""

from __future__ import annotations

from collections.abc import Sequence

from sessionlib.stores.contract import DueItem, DueKind, Limits
from sessionlib.stores.rules.shelf import DueShelf
from sessionlib.stores.rules.tries import LONGEST_RETRY_SECONDS

SHORT_KINDS = (
    DueKind.TURN,
    DueKind.ROTATION,
    DueKind.DISPOSAL,
    DueKind.HANDOFF,
    DueKind.DIGEST,
    DueKind.PUBLICATION,
    DueKind.ORPHAN,
)
"""Kinds that never lie further ahead than a lease, a sweep or a retry. The others wait as long as callers say."""


def sweep(shelf: DueShelf, now: float, limits: Limits, limit: int) -> Sequence[DueItem]:
    """The overdue members, each moved forward; members that a clock set back left too far ahead are pulled back.

    An orphan that was swept `orphan_sweeps` times is given up: by now its provider has forgotten it by itself.
    """
    shelf.pull_back(SHORT_KINDS, now + longest_interval(limits))
    items = []
    for item, sweeps in shelf.overdue(now, limit):
        if item.kind is DueKind.ORPHAN and sweeps >= limits.orphan_sweeps:
            shelf.drop(item)
            continue
        shelf.move(item, now + sweep_interval(sweeps, limits), sweeps + 1)
        items.append(item)
    return items


def sweep_interval(sweeps: int, limits: Limits) -> float:
    """Seconds until a member that was swept *sweeps* times before comes again: 2, 4, 8, … 60."""
    return min(limits.sweep_first_seconds * 2.0 ** min(sweeps, 32), limits.sweep_last_seconds)


def longest_interval(limits: Limits) -> float:
    """How far ahead a member of `SHORT_KINDS` may lie, in seconds."""
    return max(limits.lease_seconds, limits.sweep_last_seconds, LONGEST_RETRY_SECONDS)
