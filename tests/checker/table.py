"""The real rules as a table that fills itself: each operation is run, and judged, once on each store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sessionlib.errors import LeaseLost
from sessionlib.stores.memory import World
from tests.checker.invariants import operation_findings, store_findings
from tests.checker.model import FRESH, SESSION, RotationJob
from tests.checker.operations import Heard, MakeStore, Op, adoption_of, grant_of, normalised, perform
from tests.checker.renaming import renamed_store, store_tokens


class Found(Exception):
    """A finding on its way to the explorer, which knows the path."""


@dataclass
class Rules:
    """Operation on store number → store number and what its sender learns."""

    make_store: MakeStore
    worlds: list[World] = field(default_factory=list)
    tokens: list[tuple[str, ...]] = field(default_factory=list)
    _numbers: dict[World, int] = field(default_factory=dict)
    _applied: dict[tuple[int, Op], tuple[int, Heard]] = field(default_factory=dict)
    _renamed: dict[tuple[int, tuple[str, ...]], int] = field(default_factory=dict)

    @property
    def operation_count(self) -> int:
        return len(self._applied)

    def number(self, world: World) -> int:
        """Of a store, which is judged when it is first seen."""
        number = self._numbers.get(world)
        if number is None:
            for finding in store_findings(world):
                raise Found(finding)
            number = self._numbers[world] = len(self.worlds)
            self.worlds.append(world)
            self.tokens.append(store_tokens(world))
        return number

    def apply(self, store: int, op: Op) -> tuple[int, Heard]:
        """Run one operation and judge it. Raises Found."""
        known = self._applied.get((store, op))
        if known is None:
            try:
                known = self._applied[store, op] = self._run(store, op)
            except Found as finding:
                raise Found(f"{finding} (by {op.name})") from None
        return known

    def _run(self, store: int, op: Op) -> tuple[int, Heard]:
        before = self.worlds[store]
        first = self.make_store(before)
        heard = perform(first, op)
        for finding in operation_findings(before, op, heard, first.world):
            raise Found(finding)
        after = normalised(first.world)
        if op.name not in ("purge", "sweep", "lapse"):
            self._require_once(first.world, op, heard)
        if op.name == "adopt":
            self._require_fit(before, op)
        return self.number(after), heard

    def _require_once(self, raw: World, op: Op, heard: Heard) -> None:
        """Sent twice is done once, and answered alike."""
        second = self.make_store(raw)
        if perform(second, op) != heard and not heard.is_lost:
            raise Found(f"{op.name} sent twice was answered otherwise")
        if normalised(second.world) != normalised(raw):
            raise Found(f"{op.name} sent twice was done twice")

    def _require_fit(self, before: World, op: Op) -> None:
        """What was computed from something that the store does not have is not adopted."""
        assert isinstance(op.job, RotationJob)
        adoption = adoption_of(op.job, op.token)
        for misfit in (
            replace(adoption, tail_token="foreign"),
            replace(adoption, old_layout_token="foreign"),
            replace(adoption, first_seq=adoption.first_seq + 1),
            replace(adoption, dropped_count=adoption.dropped_count + 100),
            replace(adoption, tail_seq=adoption.tail_seq + 1),
        ):
            store = self.make_store(before)
            try:
                is_adopted = store.adopt(grant_of(op.job), misfit).is_adopted
            except LeaseLost:
                is_adopted = False
            box, seen = store.world.box(SESSION), before.box(SESSION)
            if is_adopted and not (seen.head and seen.head.layout_token == op.token):
                raise Found(f"a layout that does not fit was adopted: {misfit}")
            if (box.live, box.records, box.chunks) != (seen.live, seen.records, seen.chunks):
                raise Found(f"a layout that does not fit changed the history: {misfit}")

    def require_refused(self, store: int, op: Op) -> None:
        """A write under a token that the store never heard of, or has forgotten. Raises Found."""
        before = self.worlds[store]
        first = self.make_store(before)
        if not perform(first, op).is_lost:
            raise Found(f"{op.name} under a stale token was acknowledged")
        if first.world is not before and normalised(first.world) != before:
            raise Found(f"{op.name} under a stale token changed the store")

    def renamed(self, store: int, names: dict[str, str]) -> int:
        """The same store with its tokens renamed."""
        old = self.tokens[store]
        new = tuple(names[token] for token in old)
        if old == new:
            return store
        number = self._renamed.get((store, new))
        if number is None:
            world = renamed_store(self.worlds[store], names)
            assert f"'{FRESH}" not in repr(world), "a token that renaming does not know of"
            number = self._renamed[store, new] = self.number(world)
        return number
