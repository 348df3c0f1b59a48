"""Digests in a SQLite store: the journal of a session, or what is published of an agent's sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sessionlib.codec import decode, encode
from sessionlib.stores.rules.state import StoredDigest

NEWEST_FIRST = "ORDER BY at DESC, rowid DESC"


@dataclass(frozen=True, slots=True)
class SqliteJournal:
    """One owner's rows of the table `journal` (a session's) or `published` (an agent's): both have the same columns."""

    connection: sqlite3.Connection
    table: Literal["journal", "published"]
    owner: str
    """The session's id or the agent's name."""

    @property
    def _mine(self) -> str:
        return f"FROM {self.table} WHERE {'session' if self.table == 'journal' else 'agent'} = ?"

    def _run(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(sql, (self.owner, *parameters))

    def digests(self, after: float, limit: int) -> Sequence[StoredDigest]:
        rows = self._run(f"SELECT data {self._mine} AND at > ? {NEWEST_FIRST} LIMIT ?", after, limit)
        return [decode(StoredDigest, text) for (text,) in rows][::-1]

    def unpublished(self, after: float) -> Sequence[StoredDigest]:
        rows = self._run(f"SELECT data {self._mine} AND at > ? AND NOT is_published ORDER BY at, rowid", after)
        return [decode(StoredDigest, text) for (text,) in rows]

    def digest(self, session_id: str, digest_id: str) -> StoredDigest | None:
        row = self._run(f"SELECT data {self._mine} AND origin = ? AND digest = ?", session_id, digest_id).fetchone()
        return decode(StoredDigest, row[0]) if row else None

    def put(self, digest: StoredDigest) -> None:
        sql = (
            f"INSERT INTO {self.table} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET at = excluded.at, is_published = excluded.is_published, data = excluded.data"
        )
        self._run(sql, digest.session_id, digest.digest_id, digest.at, digest.is_published, encode(digest))

    def cut(self, after: float, limit: int) -> None:
        self._run(f"DELETE {self._mine} AND at <= ?", after)
        beyond = f"SELECT rowid {self._mine} {NEWEST_FIRST} LIMIT -1 OFFSET ?"
        self._run(f"DELETE FROM {self.table} WHERE rowid IN ({beyond})", limit)
