"""SIGTERM, as a deploy sends it: nothing new is taken, what runs finishes or is given back."""

from __future__ import annotations

import time

import pytest

from sessionlib.stores.contract import Event
from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills, echoed, require_answered_once, require_history
from tests.crash.cluster import GRACE_SECONDS, LEASE_SECONDS, TRIES, Cluster
from tests.waiting import wait_for
from workers.client import ClientSession, Turn

pytestmark = pytest.mark.crash

SESSIONS = 9
START_MARKS = ("[tasks]", "Connected to", " ready.")
"""What a worker logs on its way."""
END_SECONDS = GRACE_SECONDS + 6.0
EARLY_SECONDS = 0.5
"""By how much a grace time may seem shorter than it is."""


def submitted(cluster: Cluster, prefix: str) -> tuple[list[ClientSession], list[Turn]]:
    """Sessions with a turn each, all of them held at the model."""
    cluster.wait_ready(*cluster.fronts)
    cluster.provider.hold()
    sessions = [cluster.sessions.open(f"{prefix}-{number}", "talker") for number in range(SESSIONS)]
    turns = [session.submit("hello", turn_id="t0") for session in sessions]
    cluster.wait_held_at_model([session.session_id for session in sessions])
    return sessions, turns


def of_worker(cluster: Cluster, sessions: list[ClientSession], worker: str) -> dict[str, float]:
    """Sessions whose turn a worker runs, and when it showed that: seconds since the epoch."""
    phases = {session.session_id: cluster.watcher.phase(session.session_id) for session in sessions}
    return {session_id: phase.at for session_id, phase in phases.items() if phase and phase.worker == worker}


def busiest(cluster: Cluster, sessions: list[ClientSession]) -> str:
    return max(cluster.fronts, key=lambda name: len(of_worker(cluster, sessions, name)))


def test_terminated_worker_finishes_what_it_runs_and_takes_nothing_new(cluster: Cluster, kills: Kills) -> None:
    """Within the grace time its turns are answered by it, asked for once; later turns go to the others."""
    assert any(finishes(cluster, f"finish-{number}", kills) for number in range(TRIES)), "others ran its turns again"


def finishes(cluster: Cluster, prefix: str, kills: Kills) -> bool:
    """Whether it finished its turns itself: not when the machine was too slow to answer them within the grace time."""
    sessions, turns = submitted(cluster, prefix)
    name = busiest(cluster, sessions)
    pid = cluster.pid(name)
    theirs = of_worker(cluster, sessions, name)
    terminated_at = time.time()
    cluster.terminate(name)
    wait_for(lambda: cluster.watcher.is_offline(name, terminated_at), what="the worker to stop taking messages")
    late = [cluster.sessions.open(f"{prefix}-late-{number}", "talker") for number in range(SESSIONS)]
    turns += [session.submit("hello", turn_id="t0") for session in late]
    cluster.wait_held_at_model([session.session_id for session in late])
    taken = of_worker(cluster, late, name)
    is_still_there = cluster.pid(name) == pid
    cluster.provider.release()
    for turn in turns:
        turn.answer(30.0)
    wait_for(lambda: cluster.pid(name) not in (None, pid), what="the worker to be started again")
    assert cluster.supervisor.child(name).exit_code == 0
    for session in (*sessions, *late):
        require_answered_once(cluster.store, session.session_id, ["t0"], kills)
        require_history(cluster.store, session.session_id, echoed(["hello"]), kills)
    if not is_still_there or any(len(grants(cluster, session_id)) > 1 for session_id in theirs):
        return False
    assert not taken
    for session_id in theirs:
        assert cluster.provider.asked_again(session_id) == {}
    return True


def grants(cluster: Cluster, session_id: str) -> list[Event]:
    """What tells of each run of the session's turn."""
    return [event for event in cluster.store.events(session_id, "t0") if event.kind == "started"]


def test_t103_work_that_outlives_the_grace_time_is_given_back(cluster: Cluster, kills: Kills) -> None:
    """Another worker goes on at once, without waiting for a lease to run out, and no attempt is counted."""
    assert any(gives_back(cluster, f"given-back-{number}", kills) for number in range(TRIES)), "leases lapsed"


def gives_back(cluster: Cluster, prefix: str, kills: Kills) -> bool:
    """Whether it gave its turns back: not when a lease lapsed first, which counts as an attempt."""
    sessions, turns = submitted(cluster, prefix)
    name = busiest(cluster, sessions)
    theirs = of_worker(cluster, sessions, name)
    terminated_at = time.time()
    cluster.terminate(name)
    again = [cluster.await_start(session_id, "t0", shown_at) for session_id, shown_at in theirs.items()]
    cluster.provider.release()
    for turn in turns:
        turn.answer(30.0)
    for session in sessions:
        require_answered_once(cluster.store, session.session_id, ["t0"], kills)
        require_history(cluster.store, session.session_id, echoed(["hello"]), kills)
    if any(grant.data["attempt"] > 1 for grant in again):
        return False
    for grant in again:
        assert grant.at - terminated_at >= GRACE_SECONDS - EARLY_SECONDS, "it was given back before the grace time"
    return True


def test_t103_terminated_background_worker_ends_and_its_rotation_goes_on(cluster: Cluster) -> None:
    """A consolidation that outlives the grace time does not keep the process; another takes the rotation over."""
    session = cluster.sessions.open("cut-rotation", "talker")
    for number in range(4):
        session.send(f"message {number} " + "one more fact. " * 100, timeout_seconds=30.0)
    cluster.provider.hold(Kind.SUMMARIES)
    session.rotate()
    worker = cluster.worker_of(session.session_id, "rotation_id")
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES), what="the consolidation")
    pid = cluster.pid(worker)
    terminated_at = time.time()
    cluster.terminate(worker)
    wait_for(lambda: cluster.pid(worker) not in (None, pid), GRACE_SECONDS + 10.0, "the worker to end")
    cluster.await_rotation_after(session.session_id, worker, terminated_at, LEASE_SECONDS + 20.0)
    cluster.provider.release()
    wait_for(lambda: session.view().epoch == 1, what="the rotation to be adopted")


def test_worker_terminated_while_it_starts_ends_in_time(cluster: Cluster) -> None:
    """At whatever moment of its start the signal comes, no lock keeps the process from ending."""
    name = cluster.fronts[0]
    cluster.terminate(name)
    for mark in START_MARKS:
        wait_for(lambda mark=mark: mark in cluster.log_since(name), what=f"{name} to log {mark}")  # type: ignore[misc]
        pid = wait_for(lambda: cluster.pid(name), what=f"{name} to be started")
        cluster.terminate(name)
        wait_for(lambda pid=pid: cluster.pid(name) != pid, END_SECONDS, f"{name} to end after {mark!r}")  # type: ignore[misc]
