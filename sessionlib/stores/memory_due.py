"""The due members of a MemoryStore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sessionlib.stores.contract import DueItem, DueKind
from sessionlib.stores.memory_world import DueMember, World


@dataclass
class MemoryDueShelf:
    """The due members of a world inside one transaction."""

    world: World

    def overdue(self, now: float, limit: int) -> Sequence[tuple[DueItem, int]]:
        return [
            (DueItem(session_id=member.session_id, kind=member.kind, id=member.work_id), member.sweeps)
            for member in self.world.due
            if member.at <= now
        ][:limit]

    def move(self, item: DueItem, at: float, sweeps: int) -> None:
        moved = DueMember(item.session_id, item.kind, item.id, at, sweeps)
        self.drop(item)
        self.world = replace(self.world, due=by_time(*self.world.due, moved))

    def drop(self, item: DueItem) -> None:
        dropped = (item.session_id, item.kind, item.id)
        left = (member for member in self.world.due if (member.session_id, member.kind, member.work_id) != dropped)
        self.world = replace(self.world, due=tuple(left))

    def pull_back(self, kinds: Sequence[DueKind], latest: float) -> None:
        self.world = replace(
            self.world,
            due=by_time(
                *(
                    replace(member, at=min(member.at, latest)) if member.kind in kinds else member
                    for member in self.world.due
                )
            ),
        )


def by_time(*members: DueMember) -> tuple[DueMember, ...]:
    """In the order in which they are due."""
    return tuple(sorted(members, key=lambda member: (member.at, member.session_id, member.kind, member.work_id)))
