"""MemoryStore: a store whose whole state is one frozen, hashable value. For exploring states, not for serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sessionlib.stores.contract import Limits
from sessionlib.stores.memory_due import MemoryDueShelf
from sessionlib.stores.memory_shelf import MemoryShelf
from sessionlib.stores.memory_world import DueMember, MemoryJournal, SessionBox, World
from sessionlib.stores.ruled import RuledStore
from sessionlib.stores.rules.state import StoredDigest

__all__ = ["DueMember", "MemoryShelf", "MemoryStore", "SessionBox", "World"]


class MemoryStore(RuledStore):
    """A store in one value: take `world` as a snapshot, assign it to go back. For one thread."""

    def __init__(self, limits: Limits, clock: Callable[[], float], world: World | None = None) -> None:
        super().__init__(limits, clock)
        self.world = world or World()

    def close_connections(self) -> None:
        """There are none."""

    @contextmanager
    def _shelf(self, session_id: str, *, write: bool) -> Iterator[MemoryShelf]:
        shelf = MemoryShelf(session_id, self.world)
        yield shelf
        if write:
            self.world = shelf.result()

    @contextmanager
    def _due_shelf(self) -> Iterator[MemoryDueShelf]:
        shelf = MemoryDueShelf(self.world)
        yield shelf
        self.world = shelf.world

    @contextmanager
    def _agent_journal(self, agent_name: str, *, write: bool) -> Iterator[MemoryJournal]:
        def put_back(digests: tuple[StoredDigest, ...]) -> None:
            assert write
            self.world = self.world.with_digests_of(agent_name, digests)

        yield MemoryJournal(lambda: self.world.digests_of(agent_name), put_back)

    def sessions(self, partition: int, cursor: str = "", limit: int = 100) -> tuple[Sequence[str], str]:
        self._require_partition(partition)
        ids = [key for key, box in self.world.sessions if key > cursor and box.head and not box.head.purged]
        return ids[:limit], ids[limit - 1] if len(ids) > limit else ""
