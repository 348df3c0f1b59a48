"""How a finding is reached: the search keeps sets of moments, and the way is looked for when it is asked for."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from tests.checker.sweeps import Search, Spread

Place = tuple[int, int]
"""A moment, and the faults that it took to come there."""


class WithCopy(NamedTuple):
    moment: int
    used: int
    copy: int


def path_to(search: Search, spread: Spread, place: Place) -> list[str]:
    """What happened, from the opening of the session on, with as few faults as possible."""
    places = [place]
    while places[-1] in spread.reached_from:
        places.append(spread.reached_from[places[-1]])
    places.reverse()
    steps = [_label(spread, *pair) for pair in pairwise(places)]
    if spread is search.before:
        return ["the session is opened", *steps]
    return [*_path_to_restore(search, places[0]), "the copy is restored", *steps]


def _label(spread: Spread, one: Place, other: Place) -> str:
    return next(
        label
        for label, target, fault in spread.graph.labels(one[0])
        if (spread.stand_in(target), one[1] | fault) == other
    )


def _path_to_restore(search: Search, restored: Place) -> list[str]:
    """To a moment and a copy whose restoring gives this one."""
    copies = search.copies
    end = next(
        WithCopy(number, used, copy)
        for number, by_used in search.carried.items()
        for used, known in by_used.items()
        if used == restored[1]
        for copy in known
        if copies.restored(copy, number) == restored[0]
    )
    came_from = _carrying(search, end)
    way, steps = end, []
    while (step := came_from[way]) is not None:
        way, label = step
        steps.append(label)
    return [*path_to(search, search.before, (way.moment, way.used)), "the store is copied", *reversed(steps)]


def _carrying(search: Search, end: WithCopy) -> dict[WithCopy, tuple[WithCopy, str] | None]:
    """Breadth first from every moment at which this store may have been copied; each place with the one before it."""
    graph, copies = search.graph, search.copies
    store = copies.copies[end.copy].store
    came_from: dict[WithCopy, tuple[WithCopy, str] | None] = {}
    for number, sets in search.before.used.items():
        if graph.moments[number].store == store:
            came_from |= {WithCopy(number, used, copies.taken(number)): None for used in sets}
    queue = deque(came_from)
    while queue and end not in came_from:
        way = queue.popleft()
        for edge in graph.edges(way.moment):
            then = way.used | edge.fault
            copy = next(iter(copies.renamed({way.copy}, edge.naming)))
            reached = WithCopy(edge.target, then, copy)
            if not edge.fault & way.used and reached not in came_from and _is_carried(search, reached):
                label = _label(search.before, (way.moment, way.used), (edge.target, then))
                came_from[reached] = way, label
                queue.append(reached)
    return came_from


def _is_carried(search: Search, place: WithCopy) -> bool:
    by_used = search.carried.get(place.moment)
    return by_used is not None and place.copy in by_used.get(place.used, set())
