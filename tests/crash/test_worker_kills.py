"""SIGKILL of workers under load, each while the provider holds their requests open."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import pytest

from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills, echoed, require_answered_once, require_history, require_not_paid_again
from tests.crash.cluster import LEASE_SECONDS, SWEEP_SECONDS, Cluster, Kill
from tests.crash.conftest import Report
from tests.waiting import wait_for
from workers.client import ClientSession

pytestmark = pytest.mark.crash

SESSIONS = 8
FRONT_KILLS = 20
BACKGROUND_KILLS = 10
MARGIN_SECONDS = 3.0
"""For the hint's way to another worker, on two cores that also run the tests, the provider and starting workers."""
BACKGROUND_MARGIN_SECONDS = 6.0
"""Background processes yield to all of these, and plan the rotation anew before they ask."""
ANSWER_SECONDS = 60.0


class Load:
    """Turns handed in without waiting for their answers."""

    def __init__(self, sessions: Sequence[ClientSession]) -> None:
        self.sessions = sessions
        self.messages: list[str] = []

    @property
    def turn_ids(self) -> list[str]:
        return [f"t{number}" for number in range(len(self.messages))]

    def submit(self) -> None:
        """One more turn for each session, of about 400 tokens."""
        number = len(self.messages)
        self.messages.append(f"message {number} " + f"fact {number} holds here. " * 80)
        for session in self.sessions:
            session.submit(self.messages[-1], turn_id=f"t{number}")

    def await_all(self) -> None:
        for session in self.sessions:
            session.get_turn(self.turn_ids[-1]).answer(ANSWER_SECONDS)


def await_recovery(cluster: Cluster, kill: Kill) -> list[float]:
    """Seconds from a front worker's death until each turn that it ran was running again."""
    waited = []
    for key in kill.in_flight:
        session_id, turn_id, step = key.split("/")
        if step.startswith("model:"):
            waited.append(cluster.await_start(session_id, turn_id, kill.at) - kill.at)
    return waited


def test_workers_killed_under_load_lose_nothing(cluster: Cluster, kills: Kills, figure: Report) -> None:
    """Every turn is answered once, in order, soon after the kill, and no saved reply is paid for again."""
    sessions = [cluster.sessions.open(f"load-{number}", "talker") for number in range(SESSIONS)]
    ids = [session.session_id for session in sessions]
    load = Load(sessions)
    waited: list[float] = []
    background_waited: list[float] = []
    for round in range(FRONT_KILLS):
        front, other = (cluster.fronts[(round + ahead) % len(cluster.fronts)] for ahead in (0, 1))
        cluster.wait_ready(front, other)
        cluster.provider.hold()
        load.submit()
        load.submit()
        cluster.wait_held_at_model(ids)
        if round >= FRONT_KILLS - BACKGROUND_KILLS:
            background_waited.append(kill_a_background_worker(cluster, kills, sessions))
        kill = kills.add(cluster.kill(front, ids))
        waited += await_recovery(cluster, kill)
        cluster.provider.release()
    load.await_all()

    for session_id in ids:
        require_answered_once(cluster.store, session_id, load.turn_ids, kills)
        require_history(cluster.store, session_id, echoed(load.messages), kills)
        asked_again = cluster.provider.asked_again(session_id)
        require_not_paid_again(asked_again, kills)
        assert asked_again, f"no call of {session_id} was in flight at a kill:\n{kills}"
    for what, seconds in (("turns", waited), ("rotations", background_waited)):
        figure(
            f"{len(seconds)} {what} ran again after {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s"
        )
    assert len(waited) >= FRONT_KILLS, f"too few turns were in flight:\n{kills}"
    assert max(waited) <= LEASE_SECONDS + SWEEP_SECONDS + MARGIN_SECONDS, str(kills)
    assert max(background_waited) <= LEASE_SECONDS + SWEEP_SECONDS + BACKGROUND_MARGIN_SECONDS, str(kills)
    assert min(session.view().epoch for session in sessions) >= 2


def kill_a_background_worker(cluster: Cluster, kills: Kills, sessions: Sequence[ClientSession]) -> float:
    """Kill the one that runs a rotation whose consolidation is held; seconds until it is asked for again."""
    session = max(sessions, key=lambda session: session.view().live_tokens)
    cluster.wait_ready(*cluster.backgrounds)
    session.rotate()
    worker = cluster.worker_of(session.session_id, "rotation_id")
    held = wait_for(lambda: cluster.provider.held(Kind.SUMMARIES), what="its consolidation at the provider")
    kill = kills.add(cluster.kill(worker, [session.session_id]))
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES) > held, what=f"{kill} to be asked for again")
    return time.time() - kill.at
