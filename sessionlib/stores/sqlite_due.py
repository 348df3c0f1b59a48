"""The due members of a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from sessionlib.stores.contract import DueItem, DueKind


@dataclass(frozen=True, slots=True)
class SqliteDueShelf:
    """The due members inside the connection's transaction."""

    connection: sqlite3.Connection

    def overdue(self, now: float, limit: int) -> Sequence[tuple[DueItem, int]]:
        rows = self.connection.execute(
            "SELECT session, kind, work, sweeps FROM due WHERE at <= ? ORDER BY at LIMIT ?", (now, limit)
        )
        return [
            (DueItem(session_id=session_id, kind=DueKind(kind), id=work_id), sweeps)
            for session_id, kind, work_id, sweeps in rows
        ]

    def move(self, item: DueItem, at: float, sweeps: int) -> None:
        self.connection.execute(
            "UPDATE due SET at = ?, sweeps = ? WHERE session = ? AND kind = ? AND work = ?",
            (at, sweeps, item.session_id, item.kind, item.id),
        )

    def drop(self, item: DueItem) -> None:
        self.connection.execute(
            "DELETE FROM due WHERE session = ? AND kind = ? AND work = ?", (item.session_id, item.kind, item.id)
        )

    def pull_back(self, kinds: Sequence[DueKind], latest: float) -> None:
        for kind in kinds:
            self.connection.execute("UPDATE due SET at = ? WHERE at > ? AND kind = ?", (latest, latest, kind))
