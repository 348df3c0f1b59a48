"""Whether the search that takes states together looks at what the plain one looks at: for both at the same bound."""

from __future__ import annotations

from tests.checker.explore import PlainSearch, memory_store, nothing_collected
from tests.checker.graph import BITS, Graph
from tests.checker.model import DOUBLED, FAULTS, LOST, RESTORE, State
from tests.checker.moves import Moves
from tests.checker.sweeps import Search
from tests.checker.table import Rules

ABOUT_HINTS = BITS[LOST] | BITS[DOUBLED]


def uncovered(faults_at_once: int, faults: tuple[str, ...] = FAULTS) -> tuple[int, int]:
    """How many states of the plain search are not covered, and how many moments of the other cover none."""
    moves = Moves(Rules(memory_store), faults, faults_at_once)
    plain, search = PlainSearch(moves), Search(Graph(moves))
    with nothing_collected():
        plain.run()
        for part in (search.before, search.after):
            search.run(part)
        places = [_place(search, state) for state in plain.states]
    missed = sum(not _is_covered(search, *place) for place in places)
    covering = {(is_after, number) for is_after, number, _ in places}
    return missed, len(search.before.used) + len(search.after.used) - len(covering)


def _place(search: Search, state: State) -> tuple[bool, int, int]:
    """Whether a copy was restored, the moment, and the faults that count."""
    faults = search.graph.moves.faults
    used = sum(BITS[fault] for fault in faults if fault not in state.faults_left) & ~ABOUT_HINTS
    is_after = bool(used & BITS[RESTORE]) and state.backup < 0
    number = search.graph.number(state.store, state.crew, state.resend)
    return is_after, search.graph.relieved(number) if is_after else number, used & ~BITS[RESTORE]


def _is_covered(search: Search, is_after: bool, number: int, used: int) -> bool:
    part = search.after if is_after else search.before
    return any(less & ~used == 0 for less in part.used.get(number, ()))
