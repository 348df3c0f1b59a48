"""SqliteStore as a file: threads, processes, restarts, kills, damage, and what does not grow with history."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt, StoreFull, StoreUnavailable, UnknownSession
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import AgentRef, Answer, Grant, Lane, OpenRequest, RoundCommit, SubmitRequest, TurnInput
from sessionlib.stores.sqlite import IN_MEMORY, SCHEMA_VERSION, SqliteStore

AGENT = AgentRef(name="coder", digest="d1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def opened(store: SqliteStore, session_id: str = "s") -> SqliteStore:
    store.open(OpenRequest(session_id=session_id, agent=AGENT, agent_json="{}"))
    return store


def submit(store: SqliteStore, turn_id: str, message: str = "hello") -> bool:
    return store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=TurnInput(message=message))).is_new


def answer(store: SqliteStore, turn_id: str, text: str = "fine") -> None:
    submit(store, turn_id)
    grant = store.begin("s", Lane.TURN, f"k-{turn_id}")
    assert isinstance(grant, Grant)
    store.commit(grant, last_round(grant, turn_id, text))


def last_round(grant: Grant, turn_id: str, text: str = "fine") -> RoundCommit:
    return RoundCommit(
        round=0,
        commit_token=f"c-{turn_id}",
        epoch=grant.snapshot.epoch,
        entries=(Entry.user("hello"), Entry.assistant(text)),
        sizes=(1, 1),
        calibration=1.0,
        line_tokens=10**9,
        input_index=0,
        answer=Answer(text=text),
    )


def test_file_is_read_again_by_the_next_process(path: Path) -> None:
    """A new store on the file has everything."""
    with SqliteStore(path) as first:
        answer(opened(first), "t1")
    with SqliteStore(path) as second:
        assert [entry.text for entry in second.snapshot("s").layout.live.entries] == ["hello", "fine"]
        assert not submit(second, "t1")


def test_stores_in_memory_share_nothing() -> None:
    """ ":memory:" is one object's own."""
    with SqliteStore() as one, SqliteStore() as other:
        opened(one)
        with pytest.raises(UnknownSession):
            other.view("s")


def test_memory_store_serves_many_threads() -> None:
    """Its one connection is used by one thread at a time."""
    with SqliteStore() as store:
        opened(store)
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(lambda number: submit(store, f"t{number % 20}"), range(100))) == 20


def test_file_store_serves_many_threads(store: SqliteStore) -> None:
    """Every submit is acknowledged once, in some order, and none is lost."""
    opened(store)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: submit(store, f"t{number}"), range(100)))
    assert len(store.view("s").queued) == 100


def test_one_of_many_threads_is_granted_the_lane(store: SqliteStore) -> None:
    """A lease is taken by one."""
    opened(store)
    submit(store, "t1")
    barrier = threading.Barrier(6)

    def begin(number: int) -> bool:
        barrier.wait()
        return isinstance(store.begin("s", Lane.TURN, f"k{number}"), Grant)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(begin, range(6))) == 1


SUBMITTING = """
import sys
from sessionlib.stores.contract import AgentRef, OpenRequest, SubmitRequest, TurnInput
from sessionlib.stores.sqlite import IN_MEMORY, SqliteStore
store = SqliteStore(sys.argv[1])
store.open(OpenRequest(session_id="s", agent=AgentRef(name="coder", digest="d1"), agent_json="{}"))
number = 0
while number < int(sys.argv[3]):
    store.submit(SubmitRequest(session_id="s", turn_id=f"{sys.argv[2]}-{number}", input=TurnInput(message="hi")))
    print(number, flush=True)
    number += 1
"""


def start_submitting(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUBMITTING, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_make_and_share_one_file(path: Path) -> None:
    """They may even start on no file at once."""
    processes = [start_submitting(path, name, 30) for name in ("a", "b", "c")]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    with SqliteStore(path) as store:
        assert len(store.view("s").queued) == 90


def test_acknowledged_writes_survive_a_kill(path: Path) -> None:
    """What a killed process was told is in the file, and the file is whole."""
    process = start_submitting(path, "a", 1_000)
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(50)]
    process.kill()
    acknowledged += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    complete = [line for line in acknowledged if line.endswith("\n")]
    with SqliteStore(path) as store:
        queued = store.view("s").queued
    assert queued[: len(complete)] == tuple(f"a-{int(line)}" for line in complete)
    assert len(queued) - len(complete) <= 1


def test_failed_operation_leaves_nothing(store: SqliteStore) -> None:
    """An operation that is refused is undone whole, and the next finds the store free."""
    opened(store)
    with pytest.raises(UnknownSession):
        store.close("other")
    assert submit(store, "t1")


def test_locked_file_is_unavailable(path: Path) -> None:
    """Another program that holds the file does not hang us for ever."""
    with SqliteStore(path, busy_seconds=0.05) as store:
        opened(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            submit(store, "t1")
        other.execute("ROLLBACK")
        other.close()
        assert submit(store, "t1")


def test_readers_are_not_kept_out_by_a_writer(path: Path) -> None:
    """WAL: reading goes on while another process writes."""
    with SqliteStore(path) as store:
        opened(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert store.view("s").next_seq == 1
        other.execute("ROLLBACK")
        other.close()


def test_full_store_refuses_and_stays_whole() -> None:
    """No room: the error says so, nothing is half written, and smaller work is still done."""
    with SqliteStore() as store:
        opened(store)
        with store._connection() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        with pytest.raises(StoreFull):
            submit(store, "t1", "x" * 1_000_000)
        assert store.turn("s", "t1") is None
        assert submit(store, "t2")


def test_directory_that_is_not_there(tmp_path: Path) -> None:
    """A file that cannot be opened is unavailable."""
    with pytest.raises(StoreUnavailable):
        SqliteStore(tmp_path / "missing" / "sessions.db")


def test_file_that_is_no_database(path: Path) -> None:
    """It is left as it is."""
    path.write_text("dear diary, " * 1_000)
    with pytest.raises(StoreCorrupt):
        SqliteStore(path)
    assert path.read_text().startswith("dear diary")


def test_database_of_another_program(path: Path) -> None:
    """It is not written to."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        SqliteStore(path)


def test_file_of_a_newer_version(path: Path) -> None:
    """The operator is told to upgrade."""
    SqliteStore(path).close_connections()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreCorrupt, match="newer"):
        SqliteStore(path)


ADDED = {
    2: (
        ("jobs", "journal", "published"),
        ("handoff", "digest", "digest_count", "digested_seq", "digest_failures", "digest_settled", "journal"),
    ),
    3: (("postings", "postings_index", "notes"), ("room", "lifted_under")),
}
"""Tables and fields of the head that each format added."""


def make_older(path: Path, version: int) -> None:
    """Take from a file what came after that format."""
    raw = sqlite3.connect(path)
    for tables, head_fields in (added for number, added in ADDED.items() if number > version):
        for table in tables:
            raw.execute(f"DROP TABLE {table}")
        paths = ", ".join(f"'$.value.{name}'" for name in head_fields)
        raw.execute(f"UPDATE sessions SET head = json_remove(head, {paths})")
    raw.execute(f"PRAGMA user_version = {version}")
    raw.commit()
    raw.close()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_file_of_an_older_format(path: Path, version: int) -> None:
    """It is brought up to date, with all that is in it; once."""
    with SqliteStore(path) as store:
        answer(opened(store), "t1")
    make_older(path, version)
    for _ in range(2):
        with SqliteStore(path) as store:
            assert [entry.text for entry in store.snapshot("s").layout.live.entries] == ["hello", "fine"]
            assert store.capture("s", "test") == "d1"
            assert list(store.recent_digests("coder")) == []
            assert store.notes("s") == {}


@pytest.mark.parametrize("damage", ["UPDATE sessions SET head = '{}'", "DELETE FROM turns"])
def test_damaged_rows_are_named(path: Path, damage: str) -> None:
    """A row that cannot be read, or is missing, is a corrupt store, not a crash."""
    with SqliteStore(path) as store:
        opened(store)
        submit(store, "t1")
        raw = sqlite3.connect(path)
        raw.execute(damage)
        raw.commit()
        raw.close()
        with pytest.raises(StoreCorrupt):
            store.begin("s", Lane.TURN, "k1")


def virtual_machine_steps_of_a_turn(history_count: int) -> int:
    """What SQLite does, in hundreds of its steps, from begin to the answer, for a worker with a cache."""
    with SqliteStore() as store:
        history = tuple(Entry.user(f"entry {number}") for number in range(history_count))
        request = OpenRequest(session_id="s", agent=AGENT, agent_json="{}", history=history, sizes=(1,) * history_count)
        store.open(request)
        known = store.snapshot("s")
        submit(store, "t1")
        ticks: list[None] = []
        with store._connection() as connection:
            connection.set_progress_handler(lambda: ticks.append(None), 100)
        grant = store.begin("s", Lane.TURN, "k1", known)
        assert isinstance(grant, Grant)
        store.save_step(grant, 0, "model:0", ModelReply(text="fine"))
        store.commit(grant, last_round(grant, "t1"))
        return len(ticks)


def test_turn_costs_no_more_with_a_long_history() -> None:
    """Entries are appended, never rewritten, and a worker's cache is not read again."""
    assert virtual_machine_steps_of_a_turn(10_000) <= virtual_machine_steps_of_a_turn(10) + 2


@pytest.mark.parametrize("path", [IN_MEMORY, "s.db"], ids=["memory", "file"])
def test_closed_store_is_unavailable(path: str, tmp_path: Path) -> None:
    """Whoever still works with it is told so: nobody waits for a connection that will not come, or makes a new one."""
    store = SqliteStore(path if path == IN_MEMORY else tmp_path / path)
    store.close_connections()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.view("s")
