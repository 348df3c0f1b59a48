"""Copies of the store that were taken earlier on the path, as far as it matters now which they are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.graph import Graph
from tests.checker.renaming import distinct, renamed_worker, worker_tokens


class Copy(NamedTuple):
    """A store as it was, and what its tokens are called now."""

    store: int
    names: tuple[str, ...]
    """In the order of the store's tokens; "" for one that nobody knows any more, or can learn."""


@dataclass
class Copies:
    """Copies by number: sets of them go along the edges of a graph."""

    graph: Graph
    copies: list[Copy] = field(default_factory=list)
    _numbers: dict[Copy, int] = field(default_factory=dict)
    _renamed: defaultdict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By naming: what becomes of a copy."""
    _restored: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def taken(self, moment: int) -> int:
        """A copy of this moment's store."""
        store, visible = self.graph.moments[moment].store, self.graph.visible(moment)
        names = self.graph.moves.rules.tokens[store]
        return self._number(Copy(store, tuple(name if name in visible else "" for name in names)))

    def renamed(self, copies: set[int], naming: int) -> set[int]:
        """What they are after an edge with this naming."""
        table = self._renamed[naming]
        names = self.graph.namings[naming]
        for number in copies - table.keys():
            copy = self.copies[number]
            table[number] = self._number(Copy(copy.store, tuple(names.get(name, "") for name in copy.names)))
        return set(map(table.__getitem__, copies))

    def restored(self, copy: int, moment: int) -> int:
        """The moment at which this copy is put in the place of the store, relieved: no copy will replace that one."""
        _, crew, resend = self.graph.moments[moment]
        crew = self.graph.relieved_crew(crew, self.copies[copy].names)
        key = (copy, crew, resend)
        known = self._restored.get(key)
        if known is None:
            known = self._restored[key] = self._put_back(self.copies[copy], crew, resend)
        return known

    def _put_back(self, copy: Copy, crew: int, resend: str) -> int:
        """Workers that know a token of the copy know it by its name there; other tokens are foreign to the copy."""
        moves = self.graph.moves
        workers = [worker for lane in moves.crews[crew] for worker in lane]
        tokens = distinct(token for worker in workers for token in worker_tokens(worker))
        names = {token: f"foreign {token}" for token in tokens}
        names |= {now: then for then, now in zip(moves.rules.tokens[copy.store], copy.names, strict=True) if now}
        lanes = tuple(tuple(renamed_worker(worker, names) for worker in lane) for lane in moves.crews[crew])
        return self.graph.relieved(self.graph.number(copy.store, moves.crew(lanes), resend))

    def _number(self, copy: Copy) -> int:
        number = self._numbers.setdefault(copy, len(self.copies))
        if number == len(self.copies):
            self.copies.append(copy)
        return number
