"""SqliteStore: sessions in one SQLite file, or in memory. Safe for several threads and several processes.

WAL with synchronous=NORMAL: an acknowledged write is with the operating system, so it survives the kill of any process;
a crash of the machine may cost the last writes, never the file. Every operation is one BEGIN IMMEDIATE transaction.
"""

from __future__ import annotations

import queue
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sessionlib.errors import StoreCorrupt, StoreFull, StoreUnavailable
from sessionlib.stores.contract import Limits
from sessionlib.stores.ruled import RuledStore
from sessionlib.stores.sqlite_due import SqliteDueShelf
from sessionlib.stores.sqlite_journal import SqliteJournal
from sessionlib.stores.sqlite_shelf import SqliteShelf

APPLICATION_ID = 0x5E55104B
"""Marks the file as ours, so that no foreign database is written to."""

BUSY_SECONDS = 10.0
"""How long an operation waits for another process's transaction before the store counts as unavailable."""

CACHE_KIBIBYTES = 16_384
"""Page cache of a connection, in KiB: SQLite's own 2 MB hold the indexes of a few thousand entries."""

IN_MEMORY = ":memory:"

CLOSED_LOOK_SECONDS = 0.1
"""How soon a thread that waits for the only connection notices that the store was closed."""

FIRST_FORMAT = """
CREATE TABLE sessions (session TEXT PRIMARY KEY, purged INTEGER NOT NULL, head TEXT NOT NULL);
CREATE TABLE layouts (session TEXT PRIMARY KEY, records TEXT NOT NULL, carried TEXT);
CREATE TABLE turns (session TEXT, turn TEXT, finished REAL, data TEXT NOT NULL, PRIMARY KEY (session, turn));
CREATE INDEX finished_turns ON turns (session, finished) WHERE finished IS NOT NULL;
CREATE TABLE inputs (session TEXT, turn TEXT, data TEXT NOT NULL, PRIMARY KEY (session, turn));
CREATE TABLE inbox (session TEXT, position INTEGER, turn TEXT NOT NULL, PRIMARY KEY (session, position));
CREATE TABLE steps (session TEXT, lane TEXT, position INTEGER, name TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (session, lane, position));
CREATE TABLE live (session TEXT, seq INTEGER, tokens INTEGER NOT NULL, commit_token TEXT NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (session, seq));
CREATE TABLE chunks (session TEXT, first_seq INTEGER, last_seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (session, first_seq));
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, turn TEXT NOT NULL,
    kind TEXT NOT NULL, data TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX events_of_turn ON events (session, turn, id);
CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX audit_of_session ON audit (session, id);
CREATE TABLE due (session TEXT, kind TEXT, work TEXT, at REAL NOT NULL, sweeps INTEGER NOT NULL,
    PRIMARY KEY (session, kind, work));
CREATE INDEX due_by_time ON due (at);
CREATE TABLE agents (digest TEXT PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('unfinished', 0);
"""

WITH_JOBS = """
CREATE TABLE jobs (session TEXT, lane TEXT, job TEXT, is_queued INTEGER NOT NULL, finished REAL, data TEXT NOT NULL,
    PRIMARY KEY (session, lane, job));
CREATE INDEX queued_jobs ON jobs (session, lane) WHERE is_queued;
CREATE INDEX finished_jobs ON jobs (session, finished) WHERE finished IS NOT NULL;
CREATE TABLE journal (session TEXT, origin TEXT, digest TEXT, at REAL NOT NULL, is_published INTEGER NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY (session, origin, digest));
CREATE INDEX journal_by_time ON journal (session, at);
CREATE TABLE published (agent TEXT, origin TEXT, digest TEXT, at REAL NOT NULL, is_published INTEGER NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY (agent, origin, digest));
CREATE INDEX published_by_time ON published (agent, at);
"""

WITH_NOTES = """
CREATE TABLE postings_index (session TEXT, last_seq INTEGER, first_seq INTEGER NOT NULL, level INTEGER NOT NULL,
    part_count INTEGER NOT NULL, PRIMARY KEY (session, last_seq));
CREATE TABLE postings (session TEXT, last_seq INTEGER, part INTEGER, data BLOB NOT NULL,
    PRIMARY KEY (session, last_seq, part));
CREATE TABLE notes (session TEXT, name TEXT, key TEXT NOT NULL, size INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (session, name));
"""

WITH_ORPHANS = ""
"""No table: a kind of due member, and a field of disposals in the head, that older code cannot read."""

FORMATS = (FIRST_FORMAT, WITH_JOBS, WITH_NOTES, WITH_ORPHANS)
"""What makes a file of each format one of the next; the first makes an empty file one. A change that older code cannot
work with adds one."""

SCHEMA_VERSION = len(FORMATS)


class SqliteStore(RuledStore):
    """A store in the file *path*, made if it is not there; ":memory:" keeps it in this object. To be closed when done.

    Raises StoreCorrupt if the file is not such a store or is of a newer version, StoreUnavailable if it cannot be
    opened.
    """

    def __init__(
        self,
        path: str | Path = IN_MEMORY,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        super().__init__(limits or Limits(), clock)
        self._path, self._busy_seconds = str(path), busy_seconds
        self._is_closed = False
        self._idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        connection = self._connect()
        try:
            with _translated(self._path):
                _prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)
        weakref.finalize(self, _close_all, self._idle)  # for a store that is dropped without being closed

    def close_connections(self) -> None:
        """Close the idle connections, and those in use once their operation ends. The store is of no use after it."""
        self._is_closed = True
        _close_all(self._idle)

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close_connections()

    def sessions(self, partition: int, cursor: str = "", limit: int = 100) -> tuple[Sequence[str], str]:
        self._require_partition(partition)
        with self._transaction("BEGIN") as connection:
            rows = connection.execute(
                "SELECT session FROM sessions WHERE session > ? AND NOT purged ORDER BY session LIMIT ?",
                (cursor, limit + 1),
            ).fetchall()
        ids = [session_id for (session_id,) in rows]
        return ids[:limit], ids[limit - 1] if len(ids) > limit else ""

    @contextmanager
    def _shelf(self, session_id: str, *, write: bool) -> Iterator[SqliteShelf]:
        with self._transaction("BEGIN IMMEDIATE" if write else "BEGIN") as connection:
            yield SqliteShelf(session_id, connection)

    @contextmanager
    def _due_shelf(self) -> Iterator[SqliteDueShelf]:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield SqliteDueShelf(connection)

    @contextmanager
    def _agent_journal(self, agent_name: str, *, write: bool) -> Iterator[SqliteJournal]:
        with self._transaction("BEGIN IMMEDIATE" if write else "BEGIN") as connection:
            yield SqliteJournal(connection, "published", agent_name)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection, _translated(self._path):
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own for a while. Raises StoreUnavailable after `close_connections`."""
        connection = self._taken()
        try:
            yield connection
        finally:
            self._idle.put(connection)
            if self._is_closed:
                self.close_connections()

    def _taken(self) -> sqlite3.Connection:
        """An idle connection, or a new one if all are taken; in memory the only one is waited for."""
        while not self._is_closed:
            try:
                return self._idle.get(self._path == IN_MEMORY, CLOSED_LOOK_SECONDS)
            except queue.Empty:
                if self._path != IN_MEMORY:
                    return self._connect()
        raise StoreUnavailable(f"{self._path} was closed")

    def _connect(self) -> sqlite3.Connection:
        with _translated(self._path):
            connection = sqlite3.connect(
                self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
            except sqlite3.Error:
                connection.close()
                raise
            return connection


def _close_all(connections: queue.LifoQueue[sqlite3.Connection]) -> None:
    with suppress(queue.Empty):
        while True:
            connections.get_nowait().close()


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables that the file does not have yet; refuse a file that is not ours or newer."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        table_count = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if table_count and owner != APPLICATION_ID:
            raise StoreCorrupt("the file is another program's database")
        if version > SCHEMA_VERSION:
            raise StoreCorrupt(f"the file has format {version}, newer than {SCHEMA_VERSION}; upgrade this program")
        if version < SCHEMA_VERSION:
            for statement in "".join(FORMATS[version:]).split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours: no room, not readable, or not to be had now."""
    try:
        yield
    except sqlite3.DatabaseError as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the rest its variety
        if code == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no room left for {path}") from exc
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreCorrupt(f"{path} is damaged or no SQLite file: {exc}") from exc
        if isinstance(exc, sqlite3.OperationalError):
            raise StoreUnavailable(f"{path} cannot be used now: {exc}") from exc
        raise
