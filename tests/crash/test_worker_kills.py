"""SIGKILL of workers under load, each while the provider holds their requests open."""

from __future__ import annotations

import statistics
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
DISTURBED_FRACTION = 0.1
"""Kills after which the machine may stand still for so long that recovery takes more than its time."""
ANSWER_SECONDS = 60.0
RIPE_TOKENS = 3_000
"""Live entries of a session whose rotation has something to consolidate: its tail is the last two rounds, 1,200."""


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

    def ripen(self) -> None:
        """Let turns pass until a session has more than a rotation leaves as it is, and none is being rotated."""
        while not self._is_ripe():
            self.submit()
            self.await_all()

    def _is_ripe(self) -> bool:
        for session in self.sessions:
            wait_for(lambda session=session: session.view().rotation_id is None, ANSWER_SECONDS, "its rotation")  # type: ignore[misc]
        return max(session.view().live_tokens for session in self.sessions) >= RIPE_TOKENS

    def await_all(self) -> None:
        for session in self.sessions:
            session.get_turn(self.turn_ids[-1]).answer(ANSWER_SECONDS)


def await_recovery(cluster: Cluster, kill: Kill) -> list[float]:
    """Seconds from a front worker's death until each turn that it ran was running again; 0 for one that it had lost."""
    waited = []
    for key, shown_at in kill.in_flight.items():
        session_id, turn_id, step = key.split("/")
        if step.startswith("model:"):
            waited.append(max(0.0, cluster.await_start(session_id, turn_id, shown_at).at - kill.at))
    return waited


def undisturbed(seconds: Sequence[float]) -> float:
    """The longest of all but the few longest."""
    return sorted(seconds)[int(len(seconds) * (1.0 - DISTURBED_FRACTION)) - 1]


def test_workers_killed_under_load_lose_nothing(cluster: Cluster, kills: Kills, figure: Report) -> None:
    """Every turn is answered once, in order, soon after the kill, and no saved reply is paid for again."""
    sessions = [cluster.sessions.open(f"load-{number}", "talker") for number in range(SESSIONS)]
    ids = [session.session_id for session in sessions]
    load = Load(sessions)
    waited: list[list[float]] = []
    background_waited: list[float] = []
    for round in range(FRONT_KILLS):
        front, other = (cluster.fronts[(round + ahead) % len(cluster.fronts)] for ahead in (0, 1))
        cluster.wait_ready(front, other)
        has_background_kill = round >= FRONT_KILLS - BACKGROUND_KILLS
        if has_background_kill:
            load.await_all()
            load.ripen()
        cluster.provider.hold()
        load.submit()
        load.submit()
        cluster.wait_held_at_model(ids)
        if has_background_kill:
            background_waited.append(kill_a_background_worker(cluster, kills, sessions))
        kill = kills.add(cluster.kill(front, ids))
        waited.append(await_recovery(cluster, kill))
        cluster.provider.release()
        if round + 1 == FRONT_KILLS // 2:
            await_epoch(sessions, 1)
    load.await_all()
    await_epoch(sessions, 2)

    for session_id in ids:
        require_answered_once(cluster.store, session_id, load.turn_ids, kills)
        require_history(cluster.store, session_id, echoed(load.messages), kills)
        asked_again = cluster.provider.asked_again(session_id)
        require_not_paid_again(cluster.store, asked_again, kills)
        assert asked_again, f"no call of {session_id} was in flight at a kill:\n{kills}"
    turns_waited = [seconds for of_kill in waited for seconds in of_kill]
    for what, all_seconds in (("turns", turns_waited), ("rotations", background_waited)):
        median, longest = statistics.median(all_seconds), max(all_seconds)
        figure(f"{len(all_seconds)} {what} ran again after {median:.2f} s, at most {longest:.2f} s")
    assert len(turns_waited) >= FRONT_KILLS, f"too few turns were in flight:\n{kills}"
    longest_of_kills = [max(of_kill, default=0.0) for of_kill in waited]
    assert undisturbed(longest_of_kills) <= LEASE_SECONDS + SWEEP_SECONDS + MARGIN_SECONDS, str(kills)
    assert undisturbed(background_waited) <= LEASE_SECONDS + SWEEP_SECONDS + BACKGROUND_MARGIN_SECONDS, str(kills)


def kill_a_background_worker(cluster: Cluster, kills: Kills, sessions: Sequence[ClientSession]) -> float:
    """Kill the one that runs a rotation whose consolidation is held; seconds until it is asked for again."""
    session = max(sessions, key=lambda session: session.view().live_tokens)
    cluster.wait_ready(*cluster.backgrounds)
    session.rotate()
    worker = cluster.worker_of(session.session_id, "rotation_id")
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES), what="its consolidation at the provider")
    kill = kills.add(cluster.kill(worker, [session.session_id]))
    return max(0.0, cluster.await_rotation_after(session.session_id, worker, kill.at) - kill.at)


def await_epoch(sessions: Sequence[ClientSession], epoch: int) -> None:
    """Wait until every session was rotated so often: their turns are many lines long, and nothing is held."""
    for session in sessions:
        wait_for(lambda session=session: session.view().epoch >= epoch, ANSWER_SECONDS, f"rotation {epoch}")  # type: ignore[misc]
