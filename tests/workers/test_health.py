"""Health, judged from what was observed; and what is observed of a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from sessionlib.agent import Agent
from sessionlib.inputs import open_request, turn_input
from sessionlib.stores.contract import Lane, Room, SubmitRequest
from tests.contract.arena import Arena
from tests.waiting import wait_for
from workers import probes
from workers.embedded import EmbeddedServer
from workers.health import (
    WAITING_SECONDS,
    Observations,
    Role,
    ServerFigures,
    Verdict,
    Waiting,
    Watched,
    judge,
    server_checks,
    waited_seconds,
    worker_check,
)
from workers.settings import Settings
from workers.store import RedisStore

SERVER = ServerFigures(maxmemory_policy="noeviction", is_append_only=True, used_bytes=10, limit_bytes=100)
SEEN = Watched(workers=("front@a",), probe_seconds=0.02)
LATE = Waiting(kind="turn", session_id="s", seconds=WAITING_SECONDS)
ALL: Mapping[Role, Watched] = {"front": SEEN, "background": replace(SEEN, workers=("background@a",))}


def observed(*waiting: Waiting, front: Watched = SEEN, broker_error: str = "") -> Observations:
    return Observations(
        servers=(SERVER,),
        waiting=waiting,
        watched={**ALL, "front": front},
        broker_error=broker_error,
        deadline_seconds=5,
    )


def test_well_deployment_passes_every_check() -> None:
    """Store, memory policy, append-only file, front and background."""
    health = judge(observed(), ("store", "front", "background"))
    assert health.is_well
    assert {check.verdict for check in health.checks} == {Verdict.OK}
    assert len(health.checks) == 5


@pytest.mark.parametrize(
    ("change", "name", "reason"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "memory policy", "allkeys-lru"),
        ({"is_append_only": False}, "append-only file", "set appendonly yes"),
        ({"used_bytes": 95}, "memory", "95% of maxmemory"),
    ],
)
def test_t107_server_set_up_for_loss_is_warned_about(change: dict[str, object], name: str, reason: str) -> None:
    """A warning does not fail: the server may be meant to be so."""
    server = replace(SERVER, **change)  # type: ignore[arg-type]
    (warned,) = [check for check in server_checks(server) if check.verdict is Verdict.WARNING]
    assert warned.name == name
    assert reason in warned.reason
    assert judge(replace(observed(), servers=(server,)), ("store",)).is_well


@pytest.mark.parametrize(
    ("braked_count", "reason"),
    [(1, "1 session is braked: its requests are trimmed"), (3, "3 sessions are braked: their requests are trimmed")],
)
def test_braked_sessions_are_a_warning_that_names_what_to_do(braked_count: int, reason: str) -> None:
    """The deployment does its work, but somebody has to look at these."""
    health = judge(replace(observed(), braked_count=braked_count), ("store",))
    (warned,) = [check for check in health.checks if check.verdict is Verdict.WARNING]
    assert (warned.name, health.is_well) == ("brakes", True)
    assert warned.reason.startswith(reason)
    assert "`sessionctl ls --braked`" in warned.reason
    assert "`sessionctl brake SESSION --lift`" in warned.reason


def test_braked_sessions_are_the_store_s_matter() -> None:
    """A worker's health check says nothing of them."""
    (check,) = judge(replace(observed(), braked_count=3), ("front",)).checks
    assert check.name == "front"


def test_server_without_a_memory_limit_is_never_full() -> None:
    """0 is no limit."""
    assert len(server_checks(replace(SERVER, used_bytes=10**12, limit_bytes=0))) == 2


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        (observed(), Verdict.OK, "finished a probe in 0.02 s: front@a"),
        (observed(front=Watched()), Verdict.FAILED, "no front worker answers"),
        (observed(broker_error="OperationalError"), Verdict.FAILED, "the broker cannot be used: OperationalError"),
        (observed(LATE), Verdict.FAILED, "a turn of session s has waited 60 s and was not begun"),
        (observed(replace(LATE, seconds=WAITING_SECONDS - 1)), Verdict.OK, "finished a probe"),
        (observed(replace(LATE, kind="rotation")), Verdict.OK, "finished a probe"),
        (observed(front=Watched(workers=("front@a",))), Verdict.FAILED, "answered, but finished nothing within 5 s"),
        (observed(front=Watched(workers=("front@a",), finished_count=3)), Verdict.OK, "finished 3 tasks"),
        (
            observed(LATE, front=Watched(workers=("front@a",), running_count=4, slot_count=4)),
            Verdict.WARNING,
            "every slot is taken (4 of 4); a turn has waited 60 s",
        ),
    ],
)
def test_front_is_judged_by_its_work(found: Observations, verdict: Verdict, reason: str) -> None:
    """Not by a process that is there."""
    check = worker_check(found, "front")
    assert check.verdict is verdict
    assert reason in check.reason


def test_background_is_judged_by_rotations_not_by_turns() -> None:
    """Each role has its own kinds of work."""
    assert worker_check(observed(LATE), "background").verdict is Verdict.OK
    assert worker_check(observed(replace(LATE, kind="rotation")), "background").verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("overdue_seconds", "sweeps", "expected"),
    [(-3.0, 0, 0.0), (3.0, 0, 3.0), (-1.0, 1, 1.0), (0.0, 3, 14.0), (5.0, 6, 127.0), (0.0, 8, 242.0)],
)
def test_waited_seconds(overdue_seconds: float, sweeps: int, expected: float) -> None:
    """Pauses of 2, 4, 8, 16, 32, 60, 60 … seconds, and what it is overdue now."""
    assert waited_seconds(overdue_seconds, sweeps, 2.0, 60.0) == expected


@pytest.fixture
def settings(valkey_url: str, namespace: str) -> Settings:
    return Settings(store_url=valkey_url, namespace=namespace, partitions=2, sweep_seconds=0.01)


@pytest.fixture
def store(settings: Settings) -> Iterator[RedisStore]:
    made = RedisStore.connect(settings)
    yield made
    made.close_connections()


def submitted(store: RedisStore, *turn_ids: str) -> None:
    agent = Agent(name="echo", window_tokens=8_000)
    store.open(open_request("s", agent, (), False))
    for turn_id in turn_ids:
        store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=turn_input(agent, "hello", None)))


def test_observed_server_is_as_it_was_started(valkey: EmbeddedServer, settings: Settings) -> None:
    """The embedded server evicts nothing and appends."""
    found = probes.observe(settings, ("store",), 1.0)
    assert [(server.maxmemory_policy, server.is_append_only) for server in found.servers] == [("noeviction", True)]
    assert found.waiting == ()


def test_turn_that_nobody_begins_is_seen_waiting(store: RedisStore) -> None:
    """Swept or not, and looking sweeps nothing."""
    submitted(store, "t")
    partition = store.keys.partition("s")
    wait_for(lambda: probes.waiting_work(store))
    assert [item.id for item in wait_for(lambda: store.due(partition))] == ["t"]
    (waiting,) = wait_for(lambda: probes.waiting_work(store))
    assert (waiting.kind, waiting.session_id) == ("turn", "s")
    assert waiting.seconds > 0


def test_turn_that_was_begun_does_not_wait(store: RedisStore) -> None:
    """Its due member stands at the lease's end."""
    submitted(store, "t")
    store.begin("s", Lane.TURN, "token")
    assert probes.waiting_work(store) == []


def test_turn_behind_another_does_not_wait_for_a_worker(store: RedisStore) -> None:
    """It is swept, but it could not begin."""
    submitted(store, "t", "behind")
    store.begin("s", Lane.TURN, "token")
    partition = store.keys.partition("s")
    wait_for(lambda: [item.id for item in store.due(partition)] == ["behind"])
    assert probes.waiting_work(store) == []


def test_braked_sessions_are_observed(settings: Settings, store: RedisStore) -> None:
    """Of all partitions, and only where the store is judged."""
    arena = Arena(store, lambda _: None, time.time)
    for session_id in ("s0", "s1", "s2"):
        arena.open(session_id)
        arena.submit("t", session_id=session_id)
        arena.finish(arena.begin(session_id=session_id), room=Room(breathless_count=3, is_braked=True))
    assert len({store.keys.partition(session_id) for session_id in ("s0", "s1", "s2")}) == 2
    assert probes.observe(settings, ("store",), 1.0).braked_count == 3
    assert probes.observe(settings, ("front",), 0.5).braked_count == 0


def test_observing_a_store_that_was_never_used_writes_nothing(settings: Settings, store: RedisStore) -> None:
    """The number of partitions is for workers and callers to fix, not for a check with other settings."""
    assert probes.observe(settings, ("store",), 1.0).braked_count == 0
    assert list(store.client.scan_iter(f"*{settings.namespace}*")) == []


def test_without_workers_nothing_is_left_in_the_queues(settings: Settings, store: RedisStore) -> None:
    """A probe is sent only where somebody takes it: a check every few seconds must not fill the broker."""
    found = probes.observe(settings, ("front", "background"), 0.5)
    assert [found.watched[role].workers for role in ("front", "background")] == [(), ()]
    assert not judge(found, ("front",)).is_well
    assert [
        key for key in store.client.scan_iter(f"{settings.namespace}:*") if key.endswith((b"turns", b"rotations"))
    ] == []


def test_broker_that_is_away_is_a_failed_check(settings: Settings) -> None:
    """Named, and no exception."""
    elsewhere = Settings(
        **settings.model_dump(include=settings.model_fields_set) | {"broker_url": "redis://127.0.0.1:1/0"}
    )
    found = probes.observe(elsewhere, ("front",), 1.0)
    assert worker_check(found, "front").verdict is Verdict.FAILED
    assert "the broker cannot be used" in worker_check(found, "front").reason
