"""All faults on one path: is anything violated, does anything get stuck."""

from __future__ import annotations

from dataclasses import dataclass

from tests.checker.explore import Violation, memory_store, nothing_collected
from tests.checker.graph import Graph
from tests.checker.model import FAULTS
from tests.checker.moves import BeginToken, Moves, fresh_token
from tests.checker.operations import MakeStore
from tests.checker.paths import path_to
from tests.checker.sweeps import Search
from tests.checker.table import Found, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What was looked at."""

    before_count: int
    """Moments without a restore."""
    copied_count: int
    """Moments together with a copy, and the faults that it took to come there."""
    restored_count: int
    """Moments at which a copy has just been restored."""
    after_count: int
    """Moments with a restore before them."""
    move_count: int
    store_count: int
    operation_count: int
    """Operations on stores, each run and judged once."""
    refused_count: int
    """Writes under a stale token, each run and judged once."""


def complete(
    faults_at_once: int = len(FAULTS),
    faults: tuple[str, ...] = FAULTS,
    make_store: MakeStore = memory_store,
    begin_token: BeginToken = fresh_token,
) -> Completed:
    """Everything in which at most so many of these faults met, each once. Raises Violation."""
    search = Search(Graph(Moves(Rules(make_store), faults, faults_at_once, begin_token)))
    with nothing_collected():
        for part in (search.before, search.after):
            try:
                search.run(part)
            except Found as finding:
                path = path_to(search, part, part.at)
                raise Violation(str(finding), [*path, "then comes what is found"]) from None
    return _summary(search)


def _summary(search: Search) -> Completed:
    rules = search.graph.moves.rules
    return Completed(
        before_count=len(search.before.used),
        copied_count=sum(len(copies) for by_used in search.carried.values() for copies in by_used.values()),
        restored_count=len(search.restored),
        after_count=len(search.after.used),
        move_count=search.before.move_count + search.after.move_count,
        store_count=len(rules.worlds),
        operation_count=rules.operation_count,
        refused_count=search.refused_count,
    )
