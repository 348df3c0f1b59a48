"""What is special to the Redis store about handoffs, digests and journals: keys, lifetimes, memory, what turns pay."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from sessionlib.errors import StoreFull
from sessionlib.steps import ToolOutput
from sessionlib.stores.contract import DueKind, JournalEntry, JournalRules, Lane, Limits
from tests.contract.arena import AGENT, SESSION, Arena
from tests.contract.conftest import let_pass
from tests.contract.jobs import begun, digest, hand_off, request, settle, view
from tests.waiting import wait_for
from workers import wire
from workers.embedded import EmbeddedServer
from workers.hints import Hints
from workers.keys import Keys
from workers.settings import Settings
from workers.store import RedisStore

PARTITIONS = 4


def arena_on(client: redis.Redis, namespace: str, limits: Limits | None = None, **rules: Any) -> Arena:
    """A store with one session, in which one turn was answered."""
    store = RedisStore(client, namespace=namespace, partitions=PARTITIONS, limits=limits)
    arena = Arena(store, let_pass, time.time)
    arena.open(journal=JournalRules(**rules))
    arena.answer("t1")
    return arena


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def arena(client: redis.Redis, namespace: str) -> Arena:
    return arena_on(client, namespace)


def redis_of(arena: Arena) -> RedisStore:
    assert isinstance(arena.store, RedisStore)
    return arena.store


def keys_of(arena: Arena) -> set[str]:
    store = redis_of(arena)
    return {raw.decode() for raw in store.client.scan_iter(f"*{store.keys.namespace}*")} - {store.keys.partitions}


def due_at(arena: Arena, queue: str, member: str) -> float | None:
    """The time of a due member; None without one."""
    store = redis_of(arena)
    at: float | None = store.client.zscore(store.keys.shared(queue, store.keys.partition(SESSION)), member)
    return at


def fill_all_lanes(arena: Arena) -> None:
    """A session with a handoff done, at work and waiting, a digest accepted, published and at work, and steps in each
    lane."""
    settle(arena, begun(arena, Lane.HANDOFF))
    digest(arena)
    publish(arena)
    digested = redis_of(arena).journal(SESSION)[0]
    arena.store.published(SESSION, digested.digest_id)
    arena.answer("t2")
    arena.answer("t3")
    digest(arena, last_seq=5)
    arena.store.capture(SESSION, "test")
    hand_off(arena, "h2")
    hand_off(arena, "h3")
    for lane in (Lane.HANDOFF, Lane.DIGEST):
        arena.store.save_step(arena.begin(lane), 0, "summary:1", ToolOutput("text"))


def publish(arena: Arena) -> JournalEntry:
    (entry,) = arena.store.unpublished(SESSION)
    arena.store.publish(AGENT.name, entry)
    return entry


# Keys


def test_jobs_and_journal_share_the_tag_of_their_session(arena: Arena) -> None:
    """All of a session's lanes lie in one slot of a cluster, and its agent's journal in that of the agent's name."""
    fill_all_lanes(arena)
    keys = redis_of(arena).keys
    tags = {key: re.match(r"\{[^}]*\}:", key) for key in keys_of(arena)}
    own = {tag and tag.group() for key, tag in tags.items() if "published" not in key.split(":", 2)[2]}
    of_agent = {tag and tag.group() for key, tag in tags.items() if key in keys.of_agent(AGENT.name)[6:]}
    assert own == {keys.tag(keys.partition(SESSION))}
    assert of_agent == {keys.tag(keys.partition(AGENT.name))}


def test_scripts_on_a_journal_keep_to_one_slot() -> None:
    """For every agent: its journal and the partition that the journal lies in."""
    keys = Keys("n", 64)
    for name in ("coder", "a", "b:c", "x/y"):
        tags = {key.partition("}")[0] for key in keys.of_agent(name)}
        assert len(tags) == 1


def test_no_job_shares_a_key() -> None:
    """A digest `d1`, a handoff `d1`, a turn `d1`, and whatever sessions and agents are called."""
    keys = Keys("n", 1)
    ids = ["a", "a:b", "handoff:a", "digests", "journal:a", "published:a", "a/b"]
    names = [key for name in ids for key in (*keys.of_session(name)[6:], *keys.of_agent(name)[6:])]
    names += [keys.job(name, lane, job) for name in ids for lane in ("handoff", "digest") for job in ids]
    names += [keys.turn(name, turn) for name in ids for turn in ids]
    assert len(names) == len(set(names))


# Lifetimes


def test_only_a_finished_handoff_expires(arena: Arena) -> None:
    """It is remembered for `idempotency_seconds`; unfinished jobs, steps and the session's journal have no lifetime."""
    fill_all_lanes(arena)
    store = redis_of(arena)
    expiring = {key for key in keys_of(arena) if store.client.pttl(key) > 0}
    turns = {key for turn in ("t1", "t2", "t3") for key in (store.keys.turn("s", turn), store.keys.events("s", turn))}
    job = store.keys.job(SESSION, Lane.HANDOFF, "h1")
    assert expiring - turns == {job, *store.keys.of_agent(AGENT.name)[6:]}
    assert store.client.ttl(job) == pytest.approx(store.limits.idempotency_seconds, abs=60)


def test_settled_digest_leaves_no_job(arena: Arena) -> None:
    """What was accepted is in the journal; nothing else is kept of it."""
    digest(arena)
    assert not {key for key in keys_of(arena) if "digest:" in key}
    assert due_at(arena, "due", f"digest|{SESSION}|d1") is None


def test_journal_of_an_agent_ends_with_its_digests(arena: Arena) -> None:
    """Nothing is left of it `journal_seconds` after the last was published."""
    digest(arena)
    publish(arena)
    store = redis_of(arena)
    lives = [store.client.ttl(key) for key in store.keys.of_agent(AGENT.name)[6:]]
    assert lives == pytest.approx([store.limits.journal_seconds] * 2, abs=60)


def test_how_long_a_digest_is_kept_is_a_setting(valkey_url: str) -> None:
    """SESSIONLIB_JOURNAL_SECONDS, for every process that connects."""
    store = RedisStore.connect(Settings.read(store_url=valkey_url, journal_seconds=3_600.0))
    assert store.limits.journal_seconds == 3_600.0
    store.close_connections()


def test_journals_are_capped(client: redis.Redis, namespace: str) -> None:
    """Both keep `journal_limit` digests, texts too; what left the session's journal is not to be published."""
    arena = arena_on(client, namespace, Limits(journal_limit=2))
    for number in range(2, 6):
        digest(arena)
        arena.answer(f"t{number}")
    assert [entry.digest_id for entry in arena.store.unpublished(SESSION)] == ["d3", "d4"]
    for entry in [replace(entry, session_id=f"s{n}") for entry in arena.store.journal(SESSION) for n in range(2)]:
        arena.store.publish(AGENT.name, entry)
    store = redis_of(arena)
    keys = [store.keys.own(kind, SESSION) for kind in ("journal", "unpublished")] + [store.keys.of_agent(AGENT.name)[6]]
    assert [client.zcard(key) for key in keys] == [2, 2, 2]
    assert [client.hlen(key) for key in (store.keys.own("digests", SESSION), store.keys.of_agent(AGENT.name)[7])] == [
        2,
        2,
    ]


def test_forgotten_jobs_are_pruned(client: redis.Redis, namespace: str) -> None:
    """`jobs` names handoffs that still have keys: a request drops those that expired."""
    arena = arena_on(client, namespace, Limits(idempotency_seconds=0.001))
    settle(arena, begun(arena, Lane.HANDOFF))
    wait_for(lambda: arena.store.job(SESSION, Lane.HANDOFF, "h1") is None)
    hand_off(arena, "h2")
    assert client.zrange(redis_of(arena).keys.own("jobs", SESSION), 0, -1) == [b"h2"]


def test_purge_leaves_no_key_of_jobs(arena: Arena) -> None:
    """However small its steps: jobs, steps, journal and due members are gone; what was published stays."""
    fill_all_lanes(arena)
    while not arena.store.purge(SESSION, batch=1):
        pass
    own = [key for key in keys_of(arena) if re.search(r":s(\||$)", key)]
    assert own == []
    assert arena.sweep() == []
    assert [entry.digest_id for entry in arena.store.recent_digests(AGENT.name)] == ["d1"]


def test_purge_is_bounded_for_forgotten_jobs_too(arena: Arena) -> None:
    """Jobs whose keys expired long ago count as keys: no call walks over all of them."""
    jobs = redis_of(arena).keys.own("jobs", SESSION)
    redis_of(arena).client.zadd(jobs, {f"h{number}": 1 for number in range(10)})
    assert not arena.store.purge(SESSION, batch=5)
    assert redis_of(arena).client.zcard(jobs) >= 5


# Due members


@pytest.mark.parametrize("lane", [Lane.HANDOFF, Lane.DIGEST])
def test_job_that_lies_too_far_ahead_is_pulled_back(arena: Arena, lane: Lane) -> None:
    """A clock that stood ahead cannot leave a job undone."""
    member = f"{lane}|{SESSION}|{request(arena, lane)}"
    store = redis_of(arena)
    store.client.zadd(store.keys.shared("due", store.keys.partition(SESSION)), {member: 10**12})
    arena.sweep()
    assert due_at(arena, "due", member) == pytest.approx(time.time() + 300, abs=60)


def test_capture_may_lie_far_ahead(client: redis.Redis, namespace: str) -> None:
    """A session may be left alone for days before its stretch counts as finished."""
    arena = arena_on(client, namespace, idle_seconds=10.0**6)
    arena.sweep()
    assert due_at(arena, "timers", f"capture|{SESSION}|") == pytest.approx(time.time() + 10**6, abs=60)


# What a turn pays


def commands_of_a_turn(arena: Arena, turn_id: str) -> dict[str, int]:
    """Every command that scripts ran for one turn with one saved step, by name."""
    client = redis_of(arena).client
    client.config_resetstat()
    arena.submit(turn_id)
    grant = arena.begin()
    arena.store.save_step(grant, grant.step_base, "model:0", ToolOutput("text"))
    arena.finish(grant)
    counted = {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in client.info("commandstats").items()}
    return {name: calls for name, calls in counted.items() if not name.startswith(("config", "info", "script", "eval"))}


def test_turn_pays_nothing_for_jobs(tmp_path: Any) -> None:
    """Jobs that wait and run beside it cost a turn no command; an idle timer costs a look and the moving."""
    with EmbeddedServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        arena = arena_on(client, "alone")
        before = commands_of_a_turn(arena, "t2")
        begun(arena, Lane.HANDOFF)
        begun(arena, Lane.DIGEST)
        hand_off(arena, "h2")
        assert commands_of_a_turn(arena, "t3") == before

        timed = arena_on(client, "timed", idle_seconds=10.0**6)
        with_timer = commands_of_a_turn(timed, "t2")
        more = {name: calls - before.get(name, 0) for name, calls in with_timer.items() if calls != before.get(name, 0)}
        assert more == {"zscore": 1, "hget": 1, "zadd": 1}


# Replies, memory, hints


def test_look_at_a_job_does_not_carry_its_request(arena: Arena) -> None:
    """Whoever waits for a handoff looks often; what it was asked stays where it is."""
    hand_off(arena)
    store = redis_of(arena)
    fields = wire.fields_of(store.scripts.run("job", store.keys.of_session(SESSION), Lane.HANDOFF, "h1"))
    assert fields["state"] == "queued"
    assert "request" not in fields


def test_full_server_refuses_a_new_handoff_only(tmp_path: Any) -> None:
    """At full memory jobs that were accepted go on to their results, stretches are captured, digests are published."""
    with EmbeddedServer(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        arena = arena_on(client, "full")
        hand_off(arena)
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            hand_off(arena, "h2")
        settle(arena, arena.begin(Lane.HANDOFF))
        digest(arena)
        arena.store.published(SESSION, publish(arena).digest_id)
        assert arena.store.job(SESSION, Lane.HANDOFF, "h2") is None
        assert view(arena).result
        assert [entry.digest_id for entry in arena.store.recent_digests(AGENT.name)] == ["d1"]


@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_end_of_a_handoff_is_hinted_to_who_watches_the_session(arena: Arena, outcome: str) -> None:
    """Whoever waits for it need not look every few seconds."""
    grant = begun(arena, Lane.HANDOFF)
    hints = Hints(redis_of(arena))
    hints.wait(SESSION, "", 0.0)  # the first look counts what came before
    while hints.wait(SESSION, "", 0.0):
        pass
    if outcome == "done":
        settle(arena, grant)
    else:
        arena.store.fail(grant, "size", "too large")
    assert hints.wait(SESSION, "", 30.0)
    hints.close()


def test_members_of_new_kinds_survive_the_wire(client: redis.Redis, namespace: str) -> None:
    """Handoffs and digests by their ids, captures and publications once a session."""
    arena = arena_on(client, namespace, on_close=True)
    settle(arena, begun(arena, Lane.DIGEST))
    arena.answer("t2")
    hand_off(arena, "h:1")
    arena.store.close(SESSION)
    found = {(item.kind, item.id) for item in arena.sweep()}
    assert found == {(DueKind.HANDOFF, "h:1"), (DueKind.CAPTURE, ""), (DueKind.PUBLICATION, "")}
