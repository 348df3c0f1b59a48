"""All faults on one path: the states of `explore`, taken together where nothing can tell them apart.

What makes it small enough, and why nothing is hidden by it, is told in docs/proof.md.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.checker.copies import Copies
from tests.checker.graph import BITS, STALE, Graph
from tests.checker.model import LANES, RESTORE, SESSION, Job, RotationJob
from tests.checker.moves import next_op
from tests.checker.table import Found

Carried = dict[int, defaultdict[int, set[int]]]
"""Moment → faults used → copies that a path with no more faults has taken."""


def minimal(sets: Iterable[int]) -> list[int]:
    """Those of these sets of faults that contain no other: whoever used less may still do all that others may."""
    found: list[int] = []
    for used in sorted(sets, key=int.bit_count):
        if not any(less & ~used == 0 for less in found):
            found.append(used)
    return found


@dataclass
class Spread:
    """Moments reached from some first ones, each with the smallest sets of faults that it took."""

    graph: Graph
    allowed: int
    limit: int
    """How many faults may meet."""
    stand_in: Callable[[int], int]
    """The moment that is looked at in the place of another."""
    used: dict[int, list[int]] = field(default_factory=dict)
    reached_from: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    move_count: int = 0
    at: tuple[int, int] = (0, 0)
    """The moment that is looked at, and the faults that it took to come there."""

    def run(self, first: dict[int, set[int]]) -> None:
        """In the order of how many faults were used. Raises Found, and is then at the moment where it was found."""
        by_count: list[deque[tuple[int, int]]] = [deque() for _ in range(self.limit + 1)]
        for number, sets in first.items():
            self.used[number] = minimal(sets)
            for used in self.used[number]:
                by_count[used.bit_count()].append((number, used))
        for queue in by_count:
            while queue:
                number, used = queue.popleft()
                if used in self.used[number]:
                    for reached in self._after(number, used):
                        by_count[reached[1].bit_count()].append(reached)

    def _after(self, number: int, used: int) -> Iterator[tuple[int, int]]:
        self.at = number, used
        for edge in self.graph.edges(number):
            if edge.fault & (used | ~self.allowed) or (edge.fault and used.bit_count() == self.limit):
                continue
            self.move_count += 1
            target, then = self.stand_in(edge.target), used | edge.fault
            sets = self.used.setdefault(target, [])
            if not any(less & ~then == 0 for less in sets):
                sets[:] = [*(more for more in sets if then & ~more), then]
                self.reached_from[target, then] = number, used
                yield target, then

    def require_end(self) -> None:
        """Everything can be finished, without a further fault and with no hint but the reaper's. Raises Found."""
        comes_from: defaultdict[int, list[int]] = defaultdict(list)
        for number in self.used:
            for edge in self.graph.edges(number):
                if edge.is_sure:
                    comes_from[self.stand_in(edge.target)].append(number)
        moments, is_done = self.graph.moments, self.graph.moves.is_done
        ends = [number for number in self.used if is_done(moments[number].store, moments[number].resend)]
        can_finish, queue = set(ends), deque(ends)
        while queue:
            for number in comes_from[queue.popleft()]:
                if number not in can_finish:
                    can_finish.add(number)
                    queue.append(number)
        for number, sets in self.used.items():
            self.at = number, sets[0]
            if number not in can_finish:
                raise Found("nothing leads on from here to an end")


@dataclass
class Search:
    """Three sweeps: without a restore; with a copy in hand; from each restored copy on."""

    graph: Graph
    before: Spread = field(init=False)
    after: Spread = field(init=False)
    copies: Copies = field(init=False)
    carried: Carried = field(init=False, default_factory=dict)
    restored: dict[int, set[int]] = field(init=False, default_factory=dict)
    refused_count: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        moves = self.graph.moves
        self.can_restore = RESTORE in moves.faults and moves.faults_at_once > 0
        allowed = sum(BITS[fault] for fault in moves.faults if fault != RESTORE)
        self.before = Spread(self.graph, allowed, moves.faults_at_once, lambda number: number)
        self.after = Spread(self.graph, allowed, moves.faults_at_once - 1, self.graph.relieved)
        self.copies = Copies(self.graph)

    def run(self, part: Spread) -> None:
        """What happens without a restore, then what happens with one. Raises Found."""
        if part is self.before:
            part.run({self.graph.start(): {0}})
        elif self.can_restore:
            self._carry_copies()
            self._restore_copies()
            part.run(self.restored)
            self._require_stale_refused()
        part.require_end()

    def _carry_copies(self) -> None:
        """Take a copy at every moment, and bring each along every edge."""
        limit = self.after.limit
        waiting: list[dict[tuple[int, int], set[int]]] = [{} for _ in range(limit + 1)]
        for number, sets in self.before.used.items():
            head = self.graph.moves.head(self.graph.moments[number].store)
            if head is not None and not head.purged:
                for used in sets:
                    if used.bit_count() <= limit:
                        waiting[used.bit_count()][number, used] = {self.copies.taken(number)}
        for count, level in enumerate(waiting):
            while level:
                number, used = next(iter(level))
                copies = self._unknown(number, used, level.pop((number, used)))
                self.carried.setdefault(number, defaultdict(set))[used] |= copies
                for edge in self.graph.edges(number) if copies else ():
                    if edge.fault & (used | ~self.after.allowed) or (edge.fault and count == limit):
                        continue
                    then = used | edge.fault
                    new = self._unknown(edge.target, then, self.copies.renamed(copies, edge.naming))
                    if new:
                        waiting[then.bit_count()].setdefault((edge.target, then), set()).update(new)

    def _unknown(self, number: int, used: int, copies: set[int]) -> set[int]:
        """Those that were not brought here yet with these faults or fewer."""
        for less, known in self.carried.get(number, {}).items():
            if less & ~used == 0:
                copies = copies - known
        return copies

    def _restore_copies(self) -> None:
        found: defaultdict[int, set[int]] = defaultdict(set)
        for number, by_used in self.carried.items():
            for used, copies in by_used.items():
                for copy in copies:
                    found[self.copies.restored(copy, number)].add(used)
        self.restored = dict(found)

    def _require_stale_refused(self) -> None:
        """Send to every store what workers remember that were taken for idle, since no store has their tokens."""
        rules = self.graph.moves.rules
        places = {self.graph.moments[number].store: (number, sets[0]) for number, sets in self.after.used.items()}
        for store, self.after.at in places.items():
            for job in self.graph.put_down:
                for memory in self._fitting(job, store):
                    lane = LANES[isinstance(memory, RotationJob)]
                    rules.require_refused(store, next_op(memory, lane))
                    self.refused_count += 1

    def _fitting(self, job: Job, store: int) -> Iterator[Job]:
        """The memory, and one of which everything fits the store but the token."""
        yield job
        box = self.graph.moves.rules.worlds[store].box(SESSION)
        if isinstance(job, RotationJob) and box.head is not None:
            tail_token = {item.seq: item.commit_token for item in box.live}.get(job.tail_seq, STALE)
            yield job._replace(old_layout_token=box.head.layout_token, tail_token=tail_token)
