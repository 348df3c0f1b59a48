"""What may follow what: each moment looked at once, whatever faults are left and whatever copies were taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.model import FAULTS, LANES, Job, RotationJob, TurnJob
from tests.checker.moves import Moves
from tests.checker.renaming import distinct, sent_tokens, worker_tokens

BITS = {fault: 1 << index for index, fault in enumerate(FAULTS)}
"""Sets of faults as numbers."""

STALE = "stale"
"""A token that no store has."""


class Moment(NamedTuple):
    """A state without what is looked at apart: hints, faults, the copy."""

    store: int
    crew: int
    resend: str


class Edge(NamedTuple):
    """Something that may happen, and changes store or workers."""

    target: int
    fault: int
    """Its bit; 0 if it is none."""
    naming: int
    """Which token of the one moment is which of the other."""
    is_sure: bool
    """No fault, and it waits for no hint but the reaper's."""


@dataclass
class Graph:
    """Moments by number and the edges between them, made when they are asked for. Raises Found."""

    moves: Moves
    moments: list[Moment] = field(default_factory=list)
    namings: list[dict[str, str]] = field(default_factory=list)
    put_down: set[Job] = field(default_factory=set)
    """Memories, under stale tokens, of workers that were taken for idle."""
    _numbers: dict[Moment, int] = field(default_factory=dict)
    _naming_numbers: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    _edges: dict[int, tuple[Edge, ...]] = field(default_factory=dict)
    _settled: dict[tuple[int, int], tuple[int, int, dict[str, str]]] = field(default_factory=dict)
    _visible: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    _relieved: dict[int, int] = field(default_factory=dict)
    _relieved_crews: dict[tuple[int, tuple[str, ...]], int] = field(default_factory=dict)

    @property
    def edge_count(self) -> int:
        return sum(map(len, self._edges.values()))

    def start(self) -> int:
        state = self.moves.start()
        return self.number(state.store, state.crew, "")

    def number(self, store: int, crew: int, resend: str) -> int:
        """Of the moment that stands for all that differ in names of tokens and order of workers only."""
        store, crew, _ = self._settle(store, crew)
        moment = Moment(store, crew, resend)
        number = self._numbers.setdefault(moment, len(self.moments))
        if number == len(self.moments):
            self.moments.append(moment)
        return number

    def edges(self, number: int) -> tuple[Edge, ...]:
        """Whatever hints there are: any may be in flight at any time."""
        known = self._edges.get(number)
        if known is None:
            found = set(self._made_edges(number))
            harmless = {(edge.target, edge.naming) for edge in found if not edge.fault}
            known = self._edges[number] = tuple(
                edge for edge in found if not edge.fault or (edge.target, edge.naming) not in harmless
            )
        return known

    def _made_edges(self, number: int) -> Iterator[Edge]:
        moment = self.moments[number]
        here = sorted(self.visible(number))
        changes = list(self.moves.changes(*moment))
        reaped = [any(lane) for lane in zip(*(change.hints for change in changes if change.is_sweep), strict=True)]
        for change in changes:
            target = self.number(change.store, change.crew, change.resend)
            if target == number:
                continue
            assert not change.is_sweep, "a sweep is to change nothing but when things are due"
            names = self._settle(change.store, change.crew)[2]
            there = self.visible(target)
            kept = tuple((token, names[token]) for token in here if names.get(token) in there)
            is_sure = not change.fault and all(map(_is_enough, change.takes_hint, reaped or [False, False]))
            yield Edge(target, BITS[change.fault] if change.fault else 0, self._naming(kept), is_sure)

    def labels(self, number: int) -> Iterator[tuple[str, int, int]]:
        """What the edges are called, with their targets and faults."""
        for change in self.moves.changes(*self.moments[number]):
            target = self.number(change.store, change.crew, change.resend)
            yield change.label, target, BITS[change.fault] if change.fault else 0

    def visible(self, number: int) -> frozenset[str]:
        """Tokens that workers know, or can still learn from this store: the others are never compared again."""
        store, crew, _ = self.moments[number]
        known = self._visible.get((store, crew))
        if known is None:
            workers = (worker for lane in self.moves.crews[crew] for worker in lane)
            tokens = [token for worker in workers for token in worker_tokens(worker)]
            head = self.moves.head(store)
            shown = [head.tail_token, head.layout_token] if head else []
            known = self._visible[store, crew] = frozenset(distinct([*tokens, *shown]))
        return known

    def relieved(self, number: int) -> int:
        """The moment in which all workers are idle that can only be refused: no token that they send is in the store.

        Only for a store that no copy will ever replace.
        """
        known = self._relieved.get(number)
        if known is None:
            store, crew, resend = self.moments[number]
            crew = self.relieved_crew(crew, self.moves.rules.tokens[store])
            known = self._relieved[number] = self.number(store, crew, resend)
        return known

    def relieved_crew(self, crew: int, stored: tuple[str, ...]) -> int:
        """The crew in which they are idle, of a store with these tokens."""
        known = self._relieved_crews.get((crew, stored))
        if known is None:
            known = self._relieved_crews[crew, stored] = self._without_stale(crew, stored)
        return known

    def _without_stale(self, crew: int, stored: tuple[str, ...]) -> int:
        sent = Counter(token for lane in self.moves.crews[crew] for worker in lane for token in sent_tokens(worker))
        for lane, workers in zip(LANES, self.moves.crews[crew], strict=True):
            for index, worker in enumerate(workers):
                tokens = sent_tokens(worker)
                if tokens and not any(token in stored or sent[token] > 1 for token in tokens):
                    if isinstance(worker, (TurnJob, RotationJob)):
                        self.put_down.add(_under_stale_token(worker))
                    crew = self.moves.with_worker(crew, lane, index, None)
        return crew

    def _settle(self, store: int, crew: int) -> tuple[int, int, dict[str, str]]:
        known = self._settled.get((store, crew))
        if known is None:
            known = self._settled[store, crew] = self.moves.settle(store, crew)
        return known

    def _naming(self, pairs: tuple[tuple[str, str], ...]) -> int:
        number = self._naming_numbers.setdefault(pairs, len(self.namings))
        if number == len(self.namings):
            self.namings.append(dict(pairs))
        return number


def _is_enough(needed: int, is_there: bool) -> bool:
    return not needed or is_there


def _under_stale_token(job: Job) -> Job:
    if isinstance(job, TurnJob):
        return job._replace(token=STALE, pending="")
    return job._replace(token=STALE, pending="", old_layout_token=STALE, tail_token=STALE)
