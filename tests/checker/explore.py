"""Breadth first through everything that can happen, every state by itself. `complete` goes further."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sessionlib.stores.memory import MemoryStore, World
from tests.checker.model import FAULTS, LIMITS, NOW, State
from tests.checker.moves import BeginToken, Moves, fresh_token
from tests.checker.operations import MakeStore
from tests.checker.table import Found, Rules


class Violation(AssertionError):
    """Something that must never be, and the shortest way to it."""

    def __init__(self, finding: str, path: list[str]) -> None:
        super().__init__(finding, path)
        self.finding, self.path = finding, path

    def __str__(self) -> str:
        return "\n  ".join([self.finding, *self.path])


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What was looked at."""

    state_count: int
    move_count: int
    store_count: int
    operation_count: int
    """Operations on stores, each run and judged once."""
    done_count: int
    """States in which every turn is answered and nothing is unfinished."""


def memory_store(world: World) -> MemoryStore:
    return MemoryStore(LIMITS, lambda: NOW, world)


def explore(
    faults_at_once: int,
    faults: tuple[str, ...] = FAULTS,
    make_store: MakeStore = memory_store,
    begin_token: BeginToken = fresh_token,
) -> Explored:
    """Every state in which at most so many of these faults met. Raises Violation."""
    rules = Rules(make_store)
    search = PlainSearch(Moves(rules, faults, faults_at_once, begin_token))
    with nothing_collected():
        search.run()
    search.require_nothing_stuck()
    return Explored(
        state_count=len(search.states),
        move_count=search.move_count,
        store_count=len(rules.worlds),
        operation_count=rules.operation_count,
        done_count=len(search.done),
    )


@contextmanager
def nothing_collected() -> Iterator[None]:
    """All that is made is kept: looking for garbage again and again would take half of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass
class PlainSearch:
    """The states seen so far, by number, and how each was first reached."""

    moves: Moves
    states: list[State] = field(default_factory=list)
    move_count: int = 0
    done: list[int] = field(default_factory=list)
    _numbers: dict[State, int] = field(default_factory=dict)
    _reached_from: list[tuple[int, str]] = field(default_factory=list)
    _before: list[list[int]] = field(default_factory=list)
    """By state: the states from which it is reached without a fault."""

    def run(self) -> None:
        self._number(self.moves.start(), -1, "the session is opened")
        position = 0
        while position < len(self.states):
            self._expand(position)
            position += 1

    def _expand(self, position: int) -> None:
        state = self.states[position]
        if self.moves.is_done(state.store, state.resend):
            self.done.append(position)
        label = ""
        try:
            for move in self.moves.after(state):
                label = move.label
                number = self._number(move.state, position, label)
                self.move_count += 1
                if not move.is_fault:
                    self._before[number].append(position)
        except Found as finding:
            raise Violation(str(finding), [*self._path(position), f"then, after “{label}”:"]) from None

    def _number(self, state: State, reached_from: int, label: str) -> int:
        number = self._numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self._reached_from.append((reached_from, label))
            self._before.append([])
        return number

    def _path(self, position: int) -> list[str]:
        path: list[str] = []
        while position >= 0:
            position, label = self._reached_from[position]
            path.append(label)
        return path[::-1]

    def require_nothing_stuck(self) -> None:
        """From everywhere, without further faults, everything can still be finished."""
        can_finish, queue = set(self.done), deque(self.done)
        while queue:
            for position in self._before[queue.popleft()]:
                if position not in can_finish:
                    can_finish.add(position)
                    queue.append(position)
        for position in range(len(self.states)):
            if position not in can_finish:
                raise Violation("nothing leads on from here to an end", self._path(position))
