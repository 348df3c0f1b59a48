"""Figures for Prometheus: what a scrape finds, on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sessionlib.agent import Agent
from sessionlib.errors import LeaseLost
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.stores.contract import Lane, Room
from tests.contract.arena import SESSION, Arena
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, connected, local_workers, store_at
from workers.client import Sessions
from workers.metrics import exposition, server_for

AGENT = Agent(name="a", window_tokens=4_000, counter="characters")
LONG = "The build of module alpha-7 failed with error 1234. " * 12


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider()) as workers:
        yield workers


@pytest.fixture
def url(workers: LocalWorkers) -> Iterator[str]:
    """Where the figures are served."""
    with server_for(workers.store, "127.0.0.1", 0) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def samples(text: str) -> dict[str, float]:
    """Each sample of an exposition by its name and label."""
    return {
        sample.name + "".join(f":{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_is_there_before_anything_happened() -> None:
    """With 0: a dashboard finds what it asks for."""
    found = samples(exposition({}))
    assert set(found.values()) == {0}
    assert {
        *("sessionlib_sessions", "sessionlib_sessions_braked"),
        *("sessionlib_turns_ended_total:answered", "sessionlib_sessions_by_fill:10"),
    } <= set(found)


def test_t119_a_scrape_counts_what_was_done(workers: LocalWorkers, url: str) -> None:
    """Sessions, turns by their ends, rotations: there after a rotation, as the store has them."""
    with connected(workers) as connection:
        session = Sessions(connection).open("s", AGENT)
        for number in range(6):
            session.send(f"{number} {LONG}", timeout_seconds=30.0)
        session.rotate()
        wait_for(lambda: session.view().epoch, what="the rotation")
    answer = httpx.get(f"{url}/metrics")
    found = samples(answer.text)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert (found["sessionlib_sessions"], found["sessionlib_turns_ended_total:answered"]) == (1, 6)
    assert (found["sessionlib_turns_unfinished"], found["sessionlib_turns_ended_total:failed"]) == (0, 0)
    assert found["sessionlib_rotations_total"] >= 1
    assert sum(count for name, count in found.items() if name.startswith("sessionlib_sessions_by_fill")) == 1


def test_a_scrape_shows_how_many_are_braked_now(workers: LocalWorkers, url: str) -> None:
    """A gauge: it falls when the brake is lifted, and the count of brakes stays."""
    arena = Arena(workers.store, lambda _: None, time.time)
    arena.open()
    arena.answer("t", room=Room(breathless_count=3, is_braked=True))
    names = "sessionlib_sessions_braked", "sessionlib_brakes_total"
    assert [samples(httpx.get(f"{url}/metrics").text)[name] for name in names] == [1, 1]
    workers.store.lift_brake(SESSION)
    assert [samples(httpx.get(f"{url}/metrics").text)[name] for name in names] == [0, 1]
    assert "# TYPE sessionlib_sessions_braked gauge" in httpx.get(f"{url}/metrics").text


def test_failed_rotations_are_counted_by_why(workers: LocalWorkers, url: str) -> None:
    """Whether a worker says so or nobody could; once each, and a cancelled one is none."""
    arena = Arena(workers.store, lambda _: None, time.time)
    arena.open()
    for code in ("no_gain", "invalid_layout:a_result_has_no_call", "no_gain"):
        workers.store.request_rotation(SESSION, "test")
        grant = arena.begin(Lane.ROTATION)
        workers.store.fail(grant, code, "marker")
        with pytest.raises(LeaseLost):
            workers.store.fail(grant, code, "marker")
    workers.store.request_rotation(SESSION, "test")
    workers.store.cancel_rotation(SESSION)
    answer = httpx.get(f"{url}/metrics").text
    failed = {
        name.partition(":")[2]: count
        for name, count in samples(answer).items()
        if name.startswith("sessionlib_rotations_failed_total:")
    }
    assert failed == {"no_gain": 2, "deadline": 0, "dead_lettered": 0, "invalid_layout:a_result_has_no_call": 1}
    assert "marker" not in answer


def test_no_id_and_no_content_is_shown(workers: LocalWorkers, url: str) -> None:
    """Whoever may scrape learns nothing of whom the sessions are."""
    with connected(workers) as connection:
        Sessions(connection).open("marker-session", AGENT).send("marker-message", timeout_seconds=30.0)
    assert "marker" not in httpx.get(f"{url}/metrics").text


def test_other_paths_are_not_found(url: str) -> None:
    """There is one page."""
    assert httpx.get(f"{url}/").status_code == 404


def test_a_store_that_is_away_is_no_zero(namespace: str) -> None:
    """A scrape that cannot be answered fails, instead of showing an empty store."""
    store = store_at("unix:///nowhere/server.sock", namespace)
    with server_for(store, "127.0.0.1", 0) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        answer = httpx.get(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30.0)
        server.shutdown()
        serving.join()
    assert answer.status_code == 503
