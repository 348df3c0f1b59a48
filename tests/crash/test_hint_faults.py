"""Messages are hints: doubled, lost, late or in another order, they change nothing but time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import pytest

from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills, echoed, require_answered_once, require_asked_once, require_history
from tests.crash.cluster import LEASE_SECONDS, TRIES, Cluster
from tests.waiting import wait_for
from workers.app import ROTATIONS, TURNS, UPKEEP, make_app
from workers.client import ClientSession, Sessions
from workers.dispatch import Dispatch, NoDispatch

pytestmark = pytest.mark.crash

TURNS_EACH = 6
OUTLIVED_LEASES = 3


@dataclass
class Kept:
    """A dispatch that keeps hints instead of sending them."""

    hints: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def send(self, task: str, **ids: str) -> None:
        self.hints.append((task, ids))


@dataclass
class Doubled:
    """A dispatch that sends each hint twice."""

    inner: Dispatch

    def send(self, task: str, **ids: str) -> None:
        self.inner.send(task, **ids)
        self.inner.send(task, **ids)


def sending_by(cluster: Cluster, dispatch: Dispatch) -> Sessions:
    """A client whose hints take another way."""
    return Sessions(replace(cluster.sessions.connection, dispatch=dispatch))


def submit_all(session: ClientSession) -> list[str]:
    messages = [f"message {number}" for number in range(TURNS_EACH)]
    for number, message in enumerate(messages):
        session.submit(message, turn_id=f"t{number}")
    return messages


def require_all_answered(cluster: Cluster, session: ClientSession, messages: list[str], kills: Kills) -> None:
    turn_ids = [f"t{number}" for number in range(len(messages))]
    session.get_turn(turn_ids[-1]).answer(30.0)
    require_answered_once(cluster.store, session.session_id, turn_ids, kills)
    require_history(cluster.store, session.session_id, echoed(messages), kills)
    require_asked_once(cluster, session.session_id, turn_ids)


def test_doubled_hints_change_nothing(cluster: Cluster, kills: Kills) -> None:
    """Each turn is asked for once, however often its message comes."""
    doubled = Doubled(Doubled(cluster.sessions.connection.dispatch))
    session = sending_by(cluster, doubled).open("doubled", "talker")
    require_all_answered(cluster, session, submit_all(session), kills)


def test_t102_lost_hints_are_sent_again(cluster: Cluster, kills: Kills) -> None:
    """Nothing is sent for the turns, and what the workers send is thrown away once: the sweep finds them."""
    session = sending_by(cluster, NoDispatch()).open("lost", "talker")
    messages = submit_all(session)
    purge_queues(cluster)
    require_all_answered(cluster, session, messages, kills)


def test_reordered_and_unknown_hints_change_nothing(cluster: Cluster, kills: Kills) -> None:
    """The newest hint first, hints of finished turns again, of sessions that are not there: order is the store's."""
    kept = Kept()
    session = sending_by(cluster, kept).open("reordered", "talker")
    messages = submit_all(session)
    dispatch = cluster.sessions.connection.dispatch
    hints = [("turns.run", {"session_id": "reordered", "turn_id": f"t{n}"}) for n in reversed(range(TURNS_EACH))]
    for task, ids in [*hints, *kept.hints, ("turns.run", {"session_id": "nowhere", "turn_id": "t"})]:
        dispatch.send(task, **ids)
    require_all_answered(cluster, session, messages, kills)
    for task, ids in hints:
        dispatch.send(task, **ids)
    session.send("one more", turn_id="t-last", timeout_seconds=30.0)
    require_history(cluster.store, "reordered", echoed([*messages, "one more"]), kills)


def test_t100_turn_that_outlives_its_lease_is_not_run_twice(cluster: Cluster, kills: Kills) -> None:
    """A call of several leases' length, its message sent again and again, is asked for once."""
    assert any(is_turn_run_once(cluster, f"outlives-{number}", kills) for number in range(TRIES)), "it ran again"


def is_turn_run_once(cluster: Cluster, session_id: str, kills: Kills) -> bool:
    session = cluster.sessions.open(session_id, "talker")
    cluster.provider.hold()
    session.submit("hello", turn_id="t0")
    cluster.wait_held_at_model([session_id])
    for _ in range(10):
        cluster.sessions.connection.dispatch.send("turns.run", session_id=session_id, turn_id="t0")
    wait_out_leases()
    calls = cluster.provider.calls(session_id)
    cluster.provider.release()
    require_all_answered(cluster, session, ["hello"], kills)
    return calls == 1


def test_t90_message_is_taken_while_a_call_outlives_every_lease(cluster: Cluster, kills: Kills) -> None:
    """No lock is held over a model call for others to wait on: a message in the meantime is accepted at once."""
    session = cluster.sessions.open("meantime", "talker")
    cluster.provider.hold()
    session.submit("message 0", turn_id="t0")
    cluster.wait_held_at_model(["meantime"])
    wait_out_leases()
    session.submit("message 1", turn_id="t1")
    assert cluster.provider.held(Kind.ANSWERS), "it was accepted before the call was answered"
    cluster.provider.release()
    require_all_answered(cluster, session, ["message 0", "message 1"], kills)


def test_t92_rotation_that_outlives_its_lease_is_not_started_again(cluster: Cluster) -> None:
    """Its lease is renewed while the summarizer works; turns go on meanwhile, and it is adopted once."""
    assert any(is_rotation_run_once(cluster, f"slow-rotation-{number}") for number in range(TRIES)), "it ran again"


def is_rotation_run_once(cluster: Cluster, session_id: str) -> bool:
    session = cluster.sessions.open(session_id, "talker")
    for number in range(4):
        session.send(f"message {number} " + "one more fact. " * 100, timeout_seconds=30.0)
    cluster.provider.hold(Kind.SUMMARIES)
    session.rotate()
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES), what="the consolidation")
    wait_out_leases()
    session.send("answered meanwhile", timeout_seconds=30.0)
    held = cluster.provider.held(Kind.SUMMARIES)
    cluster.provider.release()
    wait_for(lambda: session.view().epoch == 1, what="the rotation to be adopted")
    adopted = [event for event in session.watch(timeout_seconds=0.1) if event.kind == "rotated"]
    assert len(adopted) == 1
    return held == 1


def wait_out_leases() -> None:
    """Until several leases would have run out, had nobody renewed them."""
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() - begun > OUTLIVED_LEASES * LEASE_SECONDS)


def purge_queues(cluster: Cluster) -> None:
    """Throw away every message that waits."""
    with make_app(cluster.settings).connection_for_write() as connection:
        for queue in (TURNS, ROTATIONS, UPKEEP):
            connection.default_channel.queue_purge(queue)
