"""What is special to the Redis store: keys, memory, connections, servers of every kind."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fakeredis
import pytest
import redis

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import (
    DELTA,
    Adoption,
    AgentRef,
    Answer,
    DueKind,
    Grant,
    Handle,
    Lane,
    Limits,
    OpenRequest,
    Postings,
    RoundCommit,
    SubmitRequest,
    TurnInput,
    UnsavedStep,
)
from tests.waiting import wait_for
from workers import wire
from workers.connection import client_for, store_errors
from workers.embedded import EmbeddedServer
from workers.keys import Keys
from workers.scripts import DIRECTORY, LIBRARIES
from workers.settings import Settings
from workers.store import RedisStore

AGENT = AgentRef(name="coder", digest="d1")
NEVER_LINE = 10**9
SCRIPTS = sorted(path for path in DIRECTORY.glob("*.lua") if path.stem not in LIBRARIES)


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def store(client: redis.Redis, namespace: str) -> RedisStore:
    store = RedisStore(client, namespace=namespace, partitions=4)
    open_session(store)
    return store


def open_session(store: RedisStore, session_id: str = "s") -> None:
    store.open(OpenRequest(session_id=session_id, agent=AGENT, agent_json="{}"))


def submit(store: RedisStore, turn_id: str, session_id: str = "s") -> None:
    store.submit(SubmitRequest(session_id=session_id, turn_id=turn_id, input=TurnInput(message="hello")))


def begin(store: RedisStore, lane: Lane = Lane.TURN, token: str = "k") -> Grant:
    grant = store.begin("s", lane, token)
    assert isinstance(grant, Grant), grant
    return grant


def answered(grant: Grant, token: str = "c", line_tokens: int = NEVER_LINE) -> RoundCommit:
    return RoundCommit(
        round=grant.first_round,
        commit_token=token,
        epoch=grant.snapshot.epoch,
        entries=(Entry.user("hello"), Entry.assistant("hi")),
        sizes=(10, 10),
        calibration=1.0,
        line_tokens=line_tokens,
        input_index=0,
        answer=Answer(text="hi"),
    )


def answer(store: RedisStore, turn_id: str, line_tokens: int = NEVER_LINE) -> None:
    submit(store, turn_id)
    grant = begin(store, token=f"k-{turn_id}")
    store.commit(grant, answered(grant, f"c-{turn_id}", line_tokens))


def adoption(chunk: bytes, postings: Postings | None = None) -> Adoption:
    """The first entry of a session leaves, in which t1 was answered."""
    return Adoption(
        layout_token="l",
        first_seq=1,
        dropped_count=1,
        dropped_tokens=10,
        old_layout_token="",
        tail_seq=2,
        tail_token="c-t1",
        records=(),
        chunk=chunk,
        postings=postings,
        line_tokens=NEVER_LINE,
        figures={},
    )


def keys_of(store: RedisStore) -> set[str]:
    return {raw.decode() for raw in store.client.scan_iter(f"*{store.keys.namespace}*")}


# Keys


@pytest.mark.parametrize(("text", "crc"), [("123456789", 0x31C3), ("a", 0x7C87)])
def test_partition_is_the_crc16_of_redis(text: str, crc: int) -> None:
    """CRC16/XMODEM by the vectors of the Redis Cluster specification."""
    assert Keys("n", 16_384).partition(text) == crc % 16_384


def test_all_keys_of_a_session_share_its_tag(store: RedisStore) -> None:
    """A session, its turns and its partition lie in one slot of a cluster."""
    answer(store, "t")
    tags = {re.match(r"\{[^}]*\}", key) for key in keys_of(store) - {store.keys.partitions}}
    assert {tag and tag.group() for tag in tags} == {f"{{{store.keys.namespace}:p{store.keys.partition('s'):02d}}}"}


def test_no_two_things_share_a_key() -> None:
    """Ids may hold colons and slashes; nothing that they spell is another thing's key."""
    keys = Keys("n", 1)
    ids = ["a", "a:b", "turn:a", "a:head", "head", "head:a", "a/b"]
    names = [key for session in ids for key in keys.of_session(session)[6:]]
    names += [keys.turn(session, turn) for session in ids for turn in ids]
    names += [keys.events(session, turn) for session in ids for turn in ids]
    assert len(names) == len(set(names))


def test_other_number_of_partitions_is_refused(store: RedisStore, client: redis.Redis, namespace: str) -> None:
    """Sessions would be looked for where they are not: the error names both numbers."""
    with pytest.raises(InvalidInput, match=r"must be 4.*got 8"):
        open_session(RedisStore(client, namespace=namespace, partitions=8))


def test_connect_reads_settings(valkey_url: str, namespace: str) -> None:
    """`connect` takes namespace, partitions and limits from the settings."""
    settings = Settings(store_url=valkey_url, namespace=namespace, partitions=2, lease_seconds=3.0)
    store = RedisStore.connect(settings)
    open_session(store)
    assert (store.keys.namespace, store.partition_count, store.limits.lease_seconds) == (namespace, 2, 3.0)
    store.close_connections()


# Lifetimes


def test_t107_nothing_unfinished_expires(store: RedisStore) -> None:
    """No key of an open session, and none of an unfinished turn, has a lifetime of its own."""
    submit(store, "t")
    begin(store)
    assert {store.client.pttl(key) for key in keys_of(store)} == {-1}


def test_t107_finished_turn_is_remembered_for_a_time(store: RedisStore) -> None:
    """The keys of a turn, and no others, live on for `idempotency_seconds` once it ended."""
    answer(store, "t")
    expiring = {key for key in keys_of(store) if store.client.pttl(key) > 0}
    assert expiring == {store.keys.turn("s", "t"), store.keys.events("s", "t")}
    assert store.client.ttl(store.keys.turn("s", "t")) == pytest.approx(store.limits.idempotency_seconds, abs=60)


def test_expired_turns_are_pruned(client: redis.Redis, namespace: str) -> None:
    """`turns` names turns that still have keys: a submit drops those that expired."""
    store = RedisStore(client, namespace=namespace, limits=Limits(idempotency_seconds=0.001))
    open_session(store)
    answer(store, "old")
    wait_for(lambda: store.turn("s", "old") is None)
    submit(store, "new")
    assert client.zrange(store.keys.own("turns", "s"), 0, -1) == [b"new"]


def test_purge_is_bounded_for_forgotten_turns_too(client: redis.Redis, namespace: str) -> None:
    """Turns whose keys expired long ago count as keys: no call walks over all of them."""
    store = RedisStore(client, namespace=namespace, limits=Limits(idempotency_seconds=0.001))
    open_session(store)
    client.zadd(store.keys.own("turns", "s"), {f"t{number}": 1 for number in range(10)})
    assert not store.purge("s", batch=4)
    assert client.zcard(store.keys.own("turns", "s")) == 6


def test_purge_leaves_no_key(store: RedisStore) -> None:
    """However small its steps: the session is gone, shared keys stay."""
    answer(store, "t1")
    submit(store, "t2")
    grant = begin(store)
    store.emit(grant, DELTA, {"text": "so"})
    store.write_note(grant, "plan.md", "do it", key="k")
    store.request_rotation("s", "test")
    store.adopt(begin(store, Lane.ROTATION), adoption(b"x", Postings(first_seq=1, last_seq=1, level=0, parts=(b"p",))))
    store.request_rotation("s", "test")
    while not store.purge("s", batch=1):
        pass
    assert not [key for key in keys_of(store) if key.endswith((":s", "|t1", "|t2"))]
    counters = store.counters(store.keys.partition("s"))
    assert counters == {"sessions": 0, "unfinished": 0, "answered": 1, "rotations": 1, "fill:0": 0}


# Replies


def test_warm_worker_is_sent_only_what_it_lacks(store: RedisStore) -> None:
    """With a snapshot at hand no record and no old entry is sent again."""
    answer(store, "t1")
    known = store.snapshot("s")
    answer(store, "t2")
    keys = store.keys.of_session("s")
    _, layout, first_seq, elements = store.scripts.run("snapshot", keys, *wire.known_arguments("s", known))
    assert (layout, int(first_seq), len(elements)) == (None, 3, 2)
    assert store.snapshot("s", known) == store.snapshot("s")


def test_look_at_a_turn_does_not_carry_its_input(store: RedisStore) -> None:
    """Whoever waits for an answer looks often; a message of megabytes stays where it is."""
    submit(store, "t")
    fields = wire.fields_of(store.scripts.run("turn", store.keys.of_session("s"), "t"))
    assert fields["state"] == "queued"
    assert "input" not in fields


def test_binary_chunk_comes_back_byte_for_byte(store: RedisStore) -> None:
    """An archive chunk is bytes; chunks are found by the span that they overlap."""
    data = bytes(range(256))
    answer(store, "t1")
    store.request_rotation("s", "test")
    assert store.adopt(begin(store, Lane.ROTATION), adoption(data)).is_adopted
    assert [chunk.data for chunk in store.chunks("s", 1, 1)] == [data]
    assert store.chunks("s", 2, 9) == []


def test_long_history_is_taken_over(store: RedisStore) -> None:
    """More entries than Lua may unpack at once."""
    history = tuple(Entry.user(str(number)) for number in range(9_000))
    request = OpenRequest(
        session_id="long", agent=AGENT, agent_json="{}", history=history, sizes=(1,) * 9_000, line_tokens=NEVER_LINE
    )
    store.open(request)
    assert store.snapshot("long").layout.live.entries == history


def test_sessions_come_in_pages(store: RedisStore) -> None:
    """Each session once, the cursor "" at the end."""
    ids = {f"s{number}" for number in range(25)} | {"s"}
    for session_id in ids:
        open_session(store, session_id)
    found: list[str] = []
    for partition in range(store.partition_count):
        cursor, is_first = "", True
        while cursor or is_first:
            page, cursor = store.sessions(partition, cursor, limit=3)
            found, is_first = [*found, *page], False
    assert sorted(found) == sorted(ids)


def test_counters_say_how_full_sessions_are(store: RedisStore) -> None:
    """Turns by end state, unfinished turns, and sessions by tenths of their rotation line."""
    answer(store, "t1", line_tokens=40)
    submit(store, "t2")
    submit(store, "t3")
    store.cancel("s", "t3")
    counters = store.counters(store.keys.partition("s"))
    expected = {"sessions": 1, "unfinished": 1, "answered": 1, "cancelled": 1, "fill:5": 1}
    assert counters == expected


def test_sweep_pulls_back_what_lies_too_far_ahead(store: RedisStore) -> None:
    """A clock that stood ahead cannot leave a turn undone: no score is further ahead than the longest interval."""
    submit(store, "t")
    due = store.keys.shared("due", store.keys.partition("s"))
    store.client.zadd(due, {"turn|s|t": 10**12})
    store.due(store.keys.partition("s"))
    assert store.client.zscore(due, "turn|s|t") == pytest.approx(server_time(store.client) + 300, abs=5)


def test_waits_do_not_hide_what_lies_too_far_ahead(store: RedisStore) -> None:
    """However many sessions wait for a day to come, a turn behind them is still pulled back."""
    for number in range(5):
        session_id = f"waiting{number}"
        request = OpenRequest(session_id=session_id, agent=AGENT, agent_json="{}", retention_seconds=10.0**7)
        store.open(request)
        store.close(session_id)
    partition = store.keys.partition("s")
    submit(store, "t")
    due = store.keys.shared("due", partition)
    store.client.zadd(due, {"turn|s|t": 10**12})
    assert store.due(partition, limit=1) == []
    assert store.client.zscore(due, "turn|s|t") < 10**12


# Scripts


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_only_new_work_is_refused_at_full_memory(path: Path) -> None:
    """The flags decide: a script without `allow-oom` (or `no-writes`) is refused as a whole."""
    flags = path.read_text().partition("\n")[0]
    is_new_work = path.stem in ("open", "submit", "request_handoff")
    assert flags in (["#!lua"] if is_new_work else ["#!lua flags=allow-oom", "#!lua flags=no-writes"])


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.lua")), ids=lambda path: path.stem)
def test_scripts_use_old_commands_only(path: Path) -> None:
    """Every command of the scripts is one of Redis 7.0 or older."""
    used = set(re.findall(r'call\("([A-Z]+)"', path.read_text()))
    known = (
        "DEL HDEL HGET HGETALL HINCRBY HKEYS HMGET HSET HSTRLEN LINDEX LLEN LPOP LPUSH LRANGE LREM LTRIM PEXPIRE "
        "PUBLISH RPUSH TIME UNLINK XADD XDEL XRANGE XREVRANGE ZADD ZCARD ZRANGE ZRANGEBYSCORE ZREM ZREMRANGEBYSCORE "
        "ZREVRANGE ZREVRANGEBYSCORE ZSCORE"
    )
    assert used <= set(known.split())


def test_lost_scripts_are_sent_again(store: RedisStore, client: redis.Redis) -> None:
    """A restarted server knows no script."""
    client.script_flush()
    answer(store, "t")
    assert store.turn("s", "t") is not None


@pytest.mark.parametrize("has_flags", [True, False], ids=["server", "fakeredis"])
def test_a_restarted_server_never_runs_a_commit_without_the_step_that_comes_along(
    store: RedisStore, client: redis.Redis, *, has_flags: bool
) -> None:
    """It knows `commit` from a round that brought no step along; that of the next round is saved all the same."""
    if not has_flags:
        store = RedisStore(fakeredis.FakeRedis(server=fakeredis.FakeServer()))
        open_session(store)
    submit(store, "t")
    grant = begin(store)
    store.client.script_flush()
    store.commit(grant, replace(answered(grant), answer=None))
    lost = Handle(handle="h", epoch=0, next_seq=1)
    step = UnsavedStep(position=0, name="model:1", result=ModelReply(text="x"), handle=lost)
    store.commit(grant, replace(answered(grant), round=1, commit_token="c2", last_step=step, input_index=-1))
    assert list(store.handles_to_dispose("s")) == [lost]


# Servers


def test_full_server_refuses_new_work_only(tmp_path: Path) -> None:
    """At full memory a running turn goes on to its answer and a worker may start; open and submit say why not."""
    with EmbeddedServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        store = RedisStore(client)
        open_session(store)
        submit(store, "t")
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            submit(store, "t2")
        with pytest.raises(StoreFull):
            open_session(store, "s2")
        another = RedisStore(client)
        grant = begin(another)
        another.renew(grant)
        another.commit(grant, answered(grant))
        assert another.view("s").next_seq == 3


def test_server_that_is_away_is_named(tmp_path: Path) -> None:
    """While it is down: StoreUnavailable. When it is back, with its data: as before."""
    with EmbeddedServer(tmp_path) as server:
        store = RedisStore(client_for(server.url, connections=2))
        open_session(store)
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.view("s")
        server.restart()
        assert store.view("s").next_seq == 1
        store.close_connections()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.ConnectionError("refused"), StoreUnavailable),
        (redis.TimeoutError("slow"), StoreUnavailable),
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), StoreUnavailable),
        (redis.ReadOnlyError("You can't write against a read only replica."), StoreUnavailable),
        (redis.exceptions.MasterDownError("Link with MASTER is down"), StoreUnavailable),
        (redis.exceptions.ClusterDownError("The cluster is down"), StoreUnavailable),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), StoreUnavailable),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), StoreUnavailable),
        (redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreFull),
        (redis.ResponseError("WRONGTYPE Operation against a key"), StoreError),
    ],
)
def test_errors_are_translated_once(error: redis.RedisError, expected: type[StoreError]) -> None:
    """What passes by itself is unavailable, what is full is full, the rest is named; the cause is kept."""
    with pytest.raises(StoreError) as caught, store_errors():
        raise error
    assert type(caught.value) is expected
    assert caught.value.__cause__ is error


def test_connections_are_bounded(valkey_url: str, namespace: str) -> None:
    """Many threads share few connections: one that finds none free waits for one."""
    settings = Settings(store_url=valkey_url, namespace=namespace, partitions=1)
    store = RedisStore.connect(settings, connections=3)
    open_session(store)
    failures: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(20):
                store.view("s")
        except BaseException as exc:  # noqa: BLE001 - shown by the assertion below
            failures.append(exc)

    threads = [threading.Thread(target=look) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(store.client.connection_pool._connections) <= 3
    store.close_connections()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_t108_store_made_before_a_fork_serves_the_child(valkey_url: str, namespace: str) -> None:
    """A prefork worker's child takes connections of its own."""
    store = RedisStore(client_for(valkey_url, connections=2), namespace=namespace)
    open_session(store)
    child = os.fork()
    if child == 0:
        try:
            open_session(store, "of-child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert store.view("of-child").next_seq == 1
    assert store.view("s").next_seq == 1
    store.close_connections()


@pytest.mark.parametrize("url", ["http://user:secret@host", "secret", ""])
def test_foreign_url_is_refused_without_its_secrets(url: str) -> None:
    """The error names the schemes, never the URL: it may hold a password."""
    with pytest.raises(InvalidInput) as caught:
        client_for(url)
    assert "secret" not in str(caught.value)
    assert "redis+cluster" in str(caught.value)


def test_due_kinds_survive_the_wire(store: RedisStore) -> None:
    """Members come back as what they name, ids with colons too."""
    open_session(store, "a:b/c@d")
    submit(store, "t:1", "a:b/c@d")
    (item,) = store.due(store.keys.partition("a:b/c@d"))
    assert (item.session_id, item.kind, item.id) == ("a:b/c@d", DueKind.TURN, "t:1")


def test_sweeps_double_until_something_happens(client: redis.Redis, namespace: str) -> None:
    """Each sweep moves a member twice as far as the last, at most `sweep_last_seconds`; any other move begins anew."""
    limits = Limits(sweep_first_seconds=0.01, sweep_last_seconds=0.04, lease_seconds=0.0)
    store = RedisStore(client, namespace=namespace, limits=limits)
    open_session(store)
    submit(store, "t")
    for interval in (0.01, 0.02, 0.04, 0.04):
        assert_swept_for(store, interval)
    begin(store)
    assert_swept_for(store, 0.01)


def test_an_orphan_that_is_given_up_leaves_nothing(client: redis.Redis, namespace: str) -> None:
    """Neither a due member, nor how often it was swept."""
    limits = Limits(sweep_first_seconds=0.0, orphan_sweeps=2)
    store = RedisStore(client, namespace=namespace, limits=limits)
    open_session(store)
    submit(store, "t")
    grant = begin(store)
    store.commit(grant, replace(answered(grant), handle=Handle(handle="h", epoch=0, next_seq=1)))
    assert store.purge("s")
    assert [len(store.due(0)) for _ in range(3)] == [1, 1, 0]
    assert [client.exists(store.keys.shared(kind, 0)) for kind in ("due", "timers", "sweeps")] == [0, 0, 0]


def assert_swept_for(store: RedisStore, interval: float) -> None:
    """The next sweep moves the turn *interval* seconds ahead of the server's clock."""

    def swept() -> float:
        """The server's time before the sweep; 0 if nothing was overdue."""
        before = server_time(store.client)
        return before if store.due(0) else 0.0

    before = wait_for(swept)
    at = store.client.zscore(store.keys.shared("due", 0), "turn|s|t")
    assert at - server_time(store.client) <= interval <= at - before + 1e-6


def server_time(client: redis.Redis) -> float:
    seconds, micros = client.time()
    return float(seconds + micros / 1e6)
