"""The shelf of a SQLite store: tables to which bulk is appended, and from which only what is asked for is decoded."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionlib.codec import decode, decode_step, encode
from sessionlib.entries import Entry
from sessionlib.layout import Carried, Record
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import (
    Chunk,
    ChunkRef,
    DueKind,
    JobState,
    Lane,
    Postings,
    PostingsRef,
    TurnInput,
)
from sessionlib.stores.rules.state import Head, Job, LiveEntry, StoredEvent, StoredNote, Turn
from sessionlib.stores.sqlite_journal import SqliteJournal

BULK_TABLES = (
    *("turns", "inputs", "inbox", "steps", "live", "layouts", "chunks", "postings_index", "postings", "notes"),
    *("events", "audit", "jobs", "journal"),
)
"""What a purge deletes in batches."""


@dataclass(frozen=True, slots=True)
class SqliteShelf:
    """One session inside the connection's transaction."""

    session_id: str
    connection: sqlite3.Connection

    def _run(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(sql, (self.session_id, *parameters))

    def _first(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row; None without a row."""
        row = self._run(sql, *parameters).fetchone()
        return row[0] if row else None

    def head(self) -> Head | None:
        text = self._first("SELECT head FROM sessions WHERE session = ?")
        return decode(Head, text) if text else None

    def put_head(self, head: Head) -> None:
        self._run("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", head.purged, encode(head))

    def drop_head(self) -> None:
        self._run("DELETE FROM sessions WHERE session = ?")

    def turn(self, turn_id: str) -> Turn | None:
        text = self._first("SELECT data FROM turns WHERE session = ? AND turn = ?", turn_id)
        return decode(Turn, text) if text else None

    def put_turn(self, turn: Turn) -> None:
        finished = turn.finished if turn.state.is_finished else None
        self._run("INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?)", turn.turn_id, finished, encode(turn))

    def input(self, turn_id: str) -> TurnInput | None:
        text = self._first("SELECT data FROM inputs WHERE session = ? AND turn = ?", turn_id)
        return decode(TurnInput, text) if text else None

    def put_input(self, turn_id: str, value: TurnInput) -> None:
        self._run("INSERT OR REPLACE INTO inputs VALUES (?, ?, ?)", turn_id, encode(value))

    def drop_input(self, turn_id: str) -> None:
        self._run("DELETE FROM inputs WHERE session = ? AND turn = ?", turn_id)

    def forget_turns(self, finished_before: float, limit: int) -> None:
        sql = "SELECT turn FROM turns WHERE session = ? AND finished <= ? ORDER BY finished LIMIT ?"
        for (turn_id,) in self._run(sql, finished_before, limit).fetchall():
            for table in ("turns", "inputs", "events"):
                self._run(f"DELETE FROM {table} WHERE session = ? AND turn = ?", turn_id)

    def inbox(self) -> Sequence[str]:
        rows = self._run("SELECT turn FROM inbox WHERE session = ? ORDER BY position")
        return [turn_id for (turn_id,) in rows]

    def inbox_front(self) -> str | None:
        turn_id: str | None = self._first("SELECT turn FROM inbox WHERE session = ? ORDER BY position LIMIT 1")
        return turn_id

    def inbox_count(self) -> int:
        return int(self._first("SELECT count(*) FROM inbox WHERE session = ?"))

    def push(self, turn_id: str, *, front: bool) -> None:
        end = "min(position) - 1" if front else "max(position) + 1"
        position = self._first(f"SELECT coalesce({end}, 0) FROM inbox WHERE session = ?")
        self._run("INSERT INTO inbox VALUES (?, ?, ?)", position, turn_id)

    def pull(self, turn_id: str) -> None:
        self._run("DELETE FROM inbox WHERE session = ? AND turn = ?", turn_id)

    def steps(self, lane: Lane) -> Sequence[tuple[str, EffectResult]]:
        rows = self._run("SELECT name, data FROM steps WHERE session = ? AND lane = ? ORDER BY position", lane)
        return [(name, decode_step(text)) for name, text in rows]

    def step_count(self, lane: Lane) -> int:
        return int(self._first("SELECT count(*) FROM steps WHERE session = ? AND lane = ?", lane))

    def append_step(self, lane: Lane, name: str, result: EffectResult) -> None:
        position = self.step_count(lane)
        self._run("INSERT INTO steps VALUES (?, ?, ?, ?, ?)", lane, position, name, encode(result))

    def drop_steps(self, lane: Lane) -> None:
        self._run("DELETE FROM steps WHERE session = ? AND lane = ?", lane)

    def job(self, lane: Lane, job_id: str) -> Job | None:
        text = self._first("SELECT data FROM jobs WHERE session = ? AND lane = ? AND job = ?", lane, job_id)
        return decode(Job, text) if text else None

    def put_job(self, job: Job) -> None:
        # The row stays where it is: jobs wait in the order of their rows.
        sql = (
            "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET is_queued = excluded.is_queued, finished = excluded.finished, data = excluded.data"
        )
        finished = job.finished if job.state.is_finished else None
        self._run(sql, job.lane, job.job_id, job.state is JobState.QUEUED, finished, encode(job))

    def drop_job(self, lane: Lane, job_id: str) -> None:
        self._run("DELETE FROM jobs WHERE session = ? AND lane = ? AND job = ?", lane, job_id)

    def next_job_id(self, lane: Lane) -> str | None:
        sql = "SELECT job FROM jobs WHERE session = ? AND lane = ? AND is_queued ORDER BY rowid LIMIT 1"
        job_id: str | None = self._first(sql, lane)
        return job_id

    def queued_job_count(self, lane: Lane) -> int:
        return int(self._first("SELECT count(*) FROM jobs WHERE session = ? AND lane = ? AND is_queued", lane))

    def forget_jobs(self, finished_before: float, limit: int) -> None:
        old = "SELECT rowid FROM jobs WHERE session = ? AND finished <= ? ORDER BY finished LIMIT ?"
        self._run(f"DELETE FROM jobs WHERE rowid IN ({old})", finished_before, limit)

    @property
    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.connection, "journal", self.session_id)

    def live(self, first_seq: int) -> Sequence[LiveEntry]:
        columns = "seq, data, tokens, commit_token"
        rows = self._run(f"SELECT {columns} FROM live WHERE session = ? AND seq >= ? ORDER BY seq", first_seq)
        return [LiveEntry(seq, decode(Entry, text), tokens, token) for seq, text, tokens, token in rows]

    def live_entry(self, seq: int) -> LiveEntry | None:
        sql = "SELECT data, tokens, commit_token FROM live WHERE session = ? AND seq = ?"
        row = self._run(sql, seq).fetchone()
        return LiveEntry(seq, decode(Entry, row[0]), row[1], row[2]) if row else None

    def live_token(self, seq: int) -> str | None:
        token: str | None = self._first("SELECT commit_token FROM live WHERE session = ? AND seq = ?", seq)
        return token

    def append_live(self, entries: Sequence[LiveEntry]) -> None:
        self.connection.executemany(
            "INSERT INTO live VALUES (?, ?, ?, ?, ?)",
            [(self.session_id, item.seq, item.tokens, item.commit_token, encode(item.entry)) for item in entries],
        )

    def drop_live(self, before_seq: int) -> int:
        dropped_tokens = self._first("SELECT total(tokens) FROM live WHERE session = ? AND seq < ?", before_seq)
        self._run("DELETE FROM live WHERE session = ? AND seq < ?", before_seq)
        return int(dropped_tokens)

    def layout(self) -> tuple[tuple[Record, ...], Carried | None]:
        row = self._run("SELECT records, carried FROM layouts WHERE session = ?").fetchone()
        records, carried = row or ("", None)
        return (
            tuple(decode(Record, line) for line in records.split("\n") if line),
            decode(Carried, carried) if carried else None,
        )

    def put_layout(self, records: tuple[Record, ...], carried: Carried | None) -> None:
        lines = "\n".join(encode(record) for record in records)
        self._run("INSERT OR REPLACE INTO layouts VALUES (?, ?, ?)", lines, encode(carried) if carried else None)

    def append_chunk(self, chunk: Chunk) -> None:
        self._run("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", chunk.first_seq, chunk.last_seq, chunk.epoch, chunk.data)

    def chunks(self, first_seq: int, last_seq: int | None) -> Sequence[Chunk]:
        sql = (
            "SELECT first_seq, last_seq, epoch, data FROM chunks"
            " WHERE session = ? AND last_seq >= ? AND first_seq <= coalesce(?, first_seq) ORDER BY first_seq"
        )
        return [
            Chunk(first_seq=first, last_seq=last, epoch=epoch, data=data)
            for first, last, epoch, data in self._run(sql, first_seq, last_seq)
        ]

    def archived_bytes(self) -> int:
        return int(self._first("SELECT total(length(data)) FROM chunks WHERE session = ?"))

    def chunk_index(self, limit: int) -> Sequence[ChunkRef]:
        sql = "SELECT first_seq, last_seq, epoch FROM chunks WHERE session = ? ORDER BY first_seq DESC LIMIT ?"
        rows = self._run(sql, limit).fetchall()
        return [ChunkRef(first_seq=first, last_seq=last, epoch=epoch) for first, last, epoch in reversed(rows)]

    def put_postings(self, postings: Postings, merged_count: int) -> None:
        newest = "SELECT last_seq FROM postings_index WHERE session = ? ORDER BY last_seq DESC LIMIT ?"
        for (last_seq,) in self._run(newest, merged_count).fetchall():
            for table in ("postings_index", "postings"):
                self._run(f"DELETE FROM {table} WHERE session = ? AND last_seq = ?", last_seq)
        last_seq, part_count = postings.last_seq, len(postings.parts)
        index_row = (last_seq, postings.first_seq, postings.level, part_count)
        self._run("INSERT INTO postings_index VALUES (?, ?, ?, ?, ?)", *index_row)
        self.connection.executemany(
            "INSERT INTO postings VALUES (?, ?, ?, ?)",
            [(self.session_id, last_seq, part, data) for part, data in enumerate(postings.parts)],
        )

    def postings_index(self) -> Sequence[PostingsRef]:
        columns = "first_seq, last_seq, level, part_count"
        rows = self._run(f"SELECT {columns} FROM postings_index WHERE session = ? ORDER BY last_seq")
        return [
            PostingsRef(first_seq=first, last_seq=last, level=level, part_count=part_count)
            for first, last, level, part_count in rows
        ]

    def postings_part(self, last_seq: int, part: int) -> bytes | None:
        sql = "SELECT data FROM postings WHERE session = ? AND last_seq = ? AND part = ?"
        data: bytes | None = self._first(sql, last_seq, part)
        return data

    def note(self, name: str) -> StoredNote | None:
        row = self._run("SELECT key, data FROM notes WHERE session = ? AND name = ?", name).fetchone()
        return StoredNote(key=row[0], text=row[1]) if row else None

    def put_note(self, name: str, note: StoredNote) -> None:
        self._run("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", name, note.key, note.size, note.text)

    def note_sizes(self) -> Mapping[str, int]:
        return dict(self._run("SELECT name, size FROM notes WHERE session = ?").fetchall())

    def append_event(self, turn_id: str, event: StoredEvent) -> None:
        sql = "INSERT INTO events (session, turn, kind, data, at) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, turn_id, event.kind, event.data, event.at)

    def events(self, turn_id: str, after: int, limit: int) -> Sequence[tuple[int, StoredEvent]]:
        sql = "SELECT id, kind, data, at FROM events WHERE session = ? AND turn = ? AND id > ? ORDER BY id LIMIT ?"
        return [(number, StoredEvent(*event)) for number, *event in self._run(sql, turn_id, after, limit)]

    def newest_event(self, turn_id: str, kind: str) -> StoredEvent | None:
        sql = "SELECT kind, data, at FROM events WHERE session = ? AND turn = ? AND kind = ? ORDER BY id DESC LIMIT 1"
        row = self._run(sql, turn_id, kind).fetchone()
        return StoredEvent(*row) if row else None

    def drop_events(self, turn_id: str, kind: str) -> None:
        self._run("DELETE FROM events WHERE session = ? AND turn = ? AND kind = ?", turn_id, kind)

    def append_audit(self, event: StoredEvent, limit: int) -> None:
        self._run("INSERT INTO audit (session, kind, data, at) VALUES (?, ?, ?, ?)", event.kind, event.data, event.at)
        oldest_kept = self._first("SELECT id FROM audit WHERE session = ? ORDER BY id DESC LIMIT 1 OFFSET ?", limit - 1)
        if oldest_kept is not None:
            self._run("DELETE FROM audit WHERE session = ? AND id < ?", oldest_kept)

    def audit(self, after: int, limit: int) -> Sequence[tuple[int, StoredEvent]]:
        sql = "SELECT id, kind, data, at FROM audit WHERE session = ? AND id > ? ORDER BY id LIMIT ?"
        return [(number, StoredEvent(*event)) for number, *event in self._run(sql, after, limit)]

    def has_due(self, *kinds: DueKind) -> bool:
        marks = ", ".join("?" * len(kinds))
        return bool(self._first(f"SELECT count(*) FROM due WHERE session = ? AND kind IN ({marks})", *kinds))

    def is_overdue(self, kind: DueKind, now: float) -> bool:
        sql = "SELECT count(*) FROM due WHERE session = ? AND kind = ? AND (at <= ? OR sweeps > 0)"
        return bool(self._first(sql, kind, now))

    def put_due(self, kind: DueKind, work_id: str, at: float) -> None:
        self._run("INSERT OR REPLACE INTO due VALUES (?, ?, ?, ?, 0)", kind, work_id, at)

    def drop_due(self, kind: DueKind, work_id: str) -> None:
        self._run("DELETE FROM due WHERE session = ? AND kind = ? AND work = ?", kind, work_id)

    def drop_all_due(self) -> None:
        self._run("DELETE FROM due WHERE session = ? AND kind <> ?", DueKind.ORPHAN)

    def agent(self, digest: str) -> str | None:
        row = self.connection.execute("SELECT data FROM agents WHERE digest = ?", (digest,)).fetchone()
        return str(row[0]) if row else None

    def put_agent(self, digest: str, description: str) -> None:
        self.connection.execute("INSERT OR IGNORE INTO agents VALUES (?, ?)", (digest, description))

    def unfinished(self) -> int:
        return int(self.connection.execute("SELECT value FROM counters WHERE name = 'unfinished'").fetchone()[0])

    def count_unfinished(self, change: int) -> None:
        self.connection.execute("UPDATE counters SET value = value + ? WHERE name = 'unfinished'", (change,))

    def erase(self, limit: int) -> bool:
        for table in BULK_TABLES:
            rows = f"SELECT rowid FROM {table} WHERE session = ? LIMIT ?"
            limit -= self._run(f"DELETE FROM {table} WHERE rowid IN ({rows})", limit).rowcount
            if limit <= 0:
                return False
        return True
