"""Concurrent runs on every store: what everybody was told fits one order of commits and adoptions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from sessionlib.stores.contract import Limits, SessionStore
from sessionlib.stores.memory import MemoryStore
from sessionlib.stores.sqlite import SqliteStore
from tests.history.actors import Run
from tests.history.faults import FAULTY_STORES, FaultyStore
from tests.history.judge import findings
from tests.history.recording import OneAtATime, Recorder
from tests.waiting import wait_for
from workers.store import RedisStore

OPERATIONS = 2_000
"""Of a run, the last look not counted."""
SEEDS = (1, 2, 3)
SESSIONS = ("a", "b", "c", "d")
SHORT_LEASE_SECONDS = 0.3
"""On a server, whose clock cannot be set."""


@pytest.fixture(autouse=True)
def busy_threads() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual: many more calls overlap."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


class MovingClock:
    """A clock that moves when told: leases pass at once."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_leases(self) -> None:
        self.now += Limits().lease_seconds + 1


def pass_short_leases() -> None:
    end = time.monotonic() + SHORT_LEASE_SECONDS
    wait_for(lambda: time.monotonic() > end, what="the leases of a server to pass")


def play(store: object, seed: int, let_leases_pass: Callable[[], None], operation_count: int = OPERATIONS) -> list[str]:
    """Play a run to its end and judge it."""
    recorder = Recorder(store)  # type: ignore[arg-type]
    Run(recorder, SESSIONS, seed, operation_count, let_leases_pass).play()
    assert recorder.operation_count >= operation_count
    return findings(recorder.calls, SESSIONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_run_fits_one_order(seed: int) -> None:
    """Under the rules in Python, everything that anybody was told fits."""
    clock = MovingClock()
    assert play(OneAtATime(MemoryStore(Limits(), clock)), seed, clock.pass_leases) == [], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_sqlite_run_fits_one_order(seed: int) -> None:
    """Threads on one SQLite store, transactions its own."""
    clock = MovingClock()
    store = SqliteStore(limits=Limits(), clock=clock)
    try:
        assert play(store, seed, clock.pass_leases) == [], f"seed {seed}"
    finally:
        store.close_connections()


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_server_run_fits_one_order(seed: int, valkey_url: str, namespace: str) -> None:
    """Threads on a real server, under its scripts and its clock."""
    client = redis.Redis.from_url(valkey_url)
    store: SessionStore = RedisStore(client, namespace=namespace, limits=Limits(lease_seconds=SHORT_LEASE_SECONDS))
    try:
        assert play(store, seed, pass_short_leases) == [], f"seed {seed}"
    finally:
        client.close()


@pytest.mark.parametrize("make_store", FAULTY_STORES, ids=lambda store: store.__name__)
def test_finds_planted_fault(make_store: type[FaultyStore]) -> None:
    """A store that goes wrong is found out by the calls alone."""
    clock = MovingClock()
    found = play(OneAtATime(make_store(Limits(), clock)), SEEDS[0], clock.pass_leases, operation_count=OPERATIONS // 4)
    assert found, make_store.__doc__
