"""SIGKILL of the server under load: what it acknowledged is still there, and the workers go on by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.calling import PATIENCE_SECONDS, Caller
from tests.crash.checks import Kills, echoed, require_answered_once, require_history
from tests.crash.cluster import Cluster
from tests.crash.conftest import Report
from tests.waiting import wait_for

pytestmark = pytest.mark.crash

SESSIONS = 8
KILLS = 5
TURNS_BETWEEN = 24
"""Turns answered from one kill to the next, over all sessions."""


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose server may be killed: its writes are on the disk before they are acknowledged."""
    with Cluster(tmp_path, fronts=2, backgrounds=1, fsync="always") as running:
        yield running


def message_of(session_id: str, number: int) -> str:
    return f"message {number} of {session_id} " + "one more fact. " * 40


def test_t101_server_killed_under_load_loses_nothing_and_workers_go_on(
    own_cluster: Cluster, kills: Kills, figure: Report
) -> None:
    """Five kills: no worker is restarted, each goes on to finish work, callers get answers or may ask again."""
    cluster = own_cluster
    pids = [cluster.pid(name) for name in (*cluster.fronts, *cluster.backgrounds)]
    ids = [f"caller-{number}" for number in range(SESSIONS)]
    callers = [Caller(cluster.sessions.open(name, "talker"), partial(message_of, name)) for name in ids]
    for caller in callers:
        caller.start()

    def answered() -> int:
        assert not (faults := [caller.fault for caller in callers if caller.fault]), faults
        return sum(len(caller.answered) for caller in callers)

    gaps = []
    for _ in range(KILLS):
        goal = answered() + TURNS_BETWEEN
        wait_for(lambda goal=goal: answered() >= goal, PATIENCE_SECONDS, "turns to be answered")  # type: ignore[misc]
        kill = kills.add(cluster.kill_server(ids))
        before = answered()
        wait_for(lambda before=before: answered() > before, PATIENCE_SECONDS, "the first answer")  # type: ignore[misc]
        gaps.append(time.time() - kill.at)
    for name in (*cluster.fronts, *cluster.backgrounds):
        finished = partial(cluster.watcher.has_finished_work, name, kills.kills[-1].at)
        wait_for(finished, PATIENCE_SECONDS, f"{name} to finish work after the last kill")
    for caller in callers:
        caller.stopped.set()
    for caller in callers:
        caller.join(PATIENCE_SECONDS)
        assert caller.fault is None, kills

    for caller in callers:
        session_id = caller.session.session_id
        require_answered_once(cluster.store, session_id, caller.turn_ids, kills)
        require_history(cluster.store, session_id, echoed(caller.answered), kills)
    assert [cluster.pid(name) for name in (*cluster.fronts, *cluster.backgrounds)] == pids, "a worker was restarted"
    retries = sum(caller.retry_count for caller in callers)
    figure(f"{answered()} turns through {KILLS} kills, next answer after at most {max(gaps):.2f} s, {retries} retries")
