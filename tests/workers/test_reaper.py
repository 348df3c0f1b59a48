"""The reaper sends again what is overdue, on a real server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.errors import StoreUnavailable
from sessionlib.inputs import open_request
from sessionlib.stores.contract import (
    Answer,
    DueItem,
    DueKind,
    Grant,
    HandoffRequest,
    JournalRules,
    Lane,
    OpenRequest,
    RoundCommit,
    Settled,
    SubmitRequest,
    TurnInput,
)
from tests.waiting import wait_for
from tests.workers.local import store_at
from workers.dispatch import (
    CAPTURE,
    CLOSE_CALLS,
    DISPOSE,
    LET_GO,
    PUBLISH,
    PURGE,
    RUN_DIGEST,
    RUN_HANDOFF,
    RUN_ROTATION,
    RUN_TURN,
)
from workers.reaper import HINTS, Reaper, sweep
from workers.store import RedisStore

AGENT = Agent(name="a", window_tokens=8_000, counter="characters")


@dataclass
class Noted:
    """A dispatch that only notes."""

    sent: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def send(self, task: str, **ids: str) -> None:
        self.sent.append((task, ids))


@pytest.fixture
def store(valkey_url: str, namespace: str) -> Iterator[RedisStore]:
    made = store_at(valkey_url, namespace)
    made.open(open_request("s", AGENT, (), False, None))
    yield made
    made.close_connections()


def submit(store: RedisStore, turn_id: str = "t") -> None:
    store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=TurnInput(message="hello")))


def begin(store: RedisStore, token: str) -> Grant:
    grant = store.begin("s", Lane.TURN, token)
    assert isinstance(grant, Grant)
    return grant


def test_t102_turn_whose_hint_was_lost_is_sent_again(store: RedisStore) -> None:
    """What nobody took is due at once, and not again at once: many workers may sweep."""
    submit(store)
    dispatch = Noted()
    assert sweep(store, dispatch) == 1
    assert sweep(store, dispatch) == 0
    assert dispatch.sent == [(RUN_TURN, {"session_id": "s", "turn_id": "t"})]


def test_turn_of_a_dead_worker_is_sent_again_when_its_lease_ran_out(store: RedisStore) -> None:
    """Not before: whoever holds a live lease is left alone. The next grant is another attempt."""
    submit(store)
    grant = begin(store, "first")
    assert sweep(store, Noted()) == 0
    dispatch = Noted()
    wait_for(lambda: sweep(store, dispatch), what="the lease to run out")
    assert dispatch.sent == [(RUN_TURN, {"session_id": "s", "turn_id": "t"})]
    assert (grant.attempt, begin(store, "second").attempt) == (1, 2)


def test_lost_hint_of_a_sweep_is_followed_by_others(store: RedisStore) -> None:
    """Later each time, but for as long as the thing is unfinished."""
    submit(store)
    dispatch = Noted()
    for _ in range(3):
        wait_for(lambda: sweep(store, dispatch), what="the next hint")
    assert [ids["turn_id"] for _, ids in dispatch.sent] == ["t", "t", "t"]


def test_requested_rotation_is_sent_again(store: RedisStore) -> None:
    """Rotations are due like turns."""
    rotation_id = store.request_rotation("s", "asked")
    dispatch = Noted()
    sweep(store, dispatch)
    assert dispatch.sent == [(RUN_ROTATION, {"session_id": "s", "rotation_id": rotation_id})]


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        (DueKind.TURN, RUN_TURN),
        (DueKind.ROTATION, RUN_ROTATION),
        (DueKind.DISPOSAL, DISPOSE),
        (DueKind.ORPHAN, LET_GO),
        (DueKind.OPEN_CALLS, CLOSE_CALLS),
        (DueKind.RETENTION, PURGE),
        (DueKind.HANDOFF, RUN_HANDOFF),
        (DueKind.DIGEST, RUN_DIGEST),
        (DueKind.CAPTURE, CAPTURE),
        (DueKind.PUBLICATION, PUBLISH),
    ],
)
def test_every_kind_of_due_thing_has_its_task(kind: DueKind, task: str) -> None:
    """Each is sent with ids only."""
    name, ids = HINTS[kind](DueItem(session_id="s", kind=kind, id="x"))
    assert name == task
    assert ids["session_id"] == "s"
    assert set(ids.values()) <= {"s", "x"}


def test_every_kind_of_due_thing_is_sent() -> None:
    """None is forgotten."""
    assert set(HINTS) == set(DueKind)


def test_jobs_are_sent_again_from_request_to_publication(store: RedisStore) -> None:
    """A closed session's capture, the digest that it requests, what that leaves to publish, and a handoff beside it."""
    agent = open_request("j", AGENT, (), False, None).agent
    store.open(OpenRequest(session_id="j", agent=agent, agent_json="{}", journal=JournalRules(on_close=True)))
    answer(store, "j")
    store.close("j")
    assert sent(store) == [(CAPTURE, {"session_id": "j"})]
    digest_id = str(store.capture("j", "close"))
    assert sent(store) == [(RUN_DIGEST, {"session_id": "j", "job_id": digest_id})]
    grant = store.begin("j", Lane.DIGEST, "token")
    assert isinstance(grant, Grant)
    store.settle(grant, Settled(settle_token="settled", result="## Done", last_seq=grant.last_seq))
    assert sent(store) == [(PUBLISH, {"session_id": "j"})]
    store.published("j", digest_id)
    store.request_handoff(HandoffRequest(session_id="j", job_id="h", request="{}"))
    assert sent(store) == [(RUN_HANDOFF, {"session_id": "j", "job_id": "h"})]


def answer(store: RedisStore, session_id: str) -> None:
    """Give a session its first turn and the answer to it."""
    store.submit(SubmitRequest(session_id=session_id, turn_id="t", input=TurnInput(message="hello")))
    grant = store.begin(session_id, Lane.TURN, "turn")
    assert isinstance(grant, Grant)
    entries = (Entry.user("hello"), Entry.assistant("hi"))
    answered = RoundCommit(
        round=0,
        commit_token="committed",
        epoch=0,
        entries=entries,
        sizes=(1, 1),
        calibration=1.0,
        line_tokens=1_000,
        input_index=0,
        answer=Answer(text="hi"),
    )
    store.commit(grant, answered)


def sent(store: RedisStore) -> list[tuple[str, dict[str, str]]]:
    """What one sweep sends."""
    dispatch = Noted()
    sweep(store, dispatch)
    return dispatch.sent


def test_reaper_sweeps_until_it_is_stopped(store: RedisStore) -> None:
    """On a thread of its own, at its interval."""
    dispatch = Noted()
    reaper = Reaper(store, dispatch, 0.01)
    reaper.start()
    submit(store)
    wait_for(lambda: dispatch.sent, what="the sweep")
    reaper.stop()
    assert dispatch.sent[0] == (RUN_TURN, {"session_id": "s", "turn_id": "t"})


class AwayOnce(RedisStore):
    """A store whose first sweep finds no server."""

    was_away = False

    def due(self, partition: int, limit: int = 100) -> list[DueItem]:
        if not self.was_away:
            self.was_away = True
            raise StoreUnavailable("away")
        return list(super().due(partition, limit))


def test_reaper_outlives_an_outage(
    store: RedisStore, valkey_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep that fails is logged, and the next one comes."""
    away = AwayOnce(store.client, namespace=namespace, partitions=1, limits=store.limits)
    submit(store)
    dispatch = Noted()
    reaper = Reaper(away, dispatch, 0.01)
    with caplog.at_level(logging.WARNING):
        reaper.start()
        wait_for(lambda: dispatch.sent, what="the sweep after the outage")
        reaper.stop()
    assert "sweep failed" in caplog.text
