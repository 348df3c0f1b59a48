"""Fresh windows with workers on a real server: reset by the turn's own worker, by a caller's loop, by any worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import EntryKind
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import run_rotation, unobserved
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, connection_to, history, local_workers
from workers.client import AsyncSessions, ClientSession, Connection, Sessions
from workers.dispatch import RUN_ROTATION
from workers.metrics import totals

LONG = "The build of module alpha-7 failed with error 1234. " * 40
ROUNDS = 30


def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: {LONG * 8 if place == 'everything' else LONG}"


def look_at_all(request: ModelRequest) -> ModelReply | str:
    """A round for each place, then the answer."""
    number = int(request.step.split(":")[1])
    if number == ROUNDS:
        return "done"
    place = "everything" if request.turn_id == "braked" else "valve"
    call = CallRequest(call_id=f"{request.turn_id}-{number}", name="look", arguments=f'{{"place": "{place}"}}')
    return ModelReply(text="", calls=(call,))


AGENT = Agent(name="a", window_tokens=10_000, counter="characters", tools=(look,), policy=WorkRoom())


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider(look_at_all)) as workers:
        yield workers


@pytest.fixture
def session(connection: Connection) -> ClientSession:
    return Sessions(connection).open("s", "a")


def test_the_turn_s_own_worker_resets_between_rounds(
    session: ClientSession, connection: Connection, workers: LocalWorkers
) -> None:
    """Nobody else is asked; all of the turn is recorded in order, and the figures count it."""
    assert session.send("look", turn_id="t", timeout_seconds=30.0).text == "done"
    epoch = session.view().epoch
    assert epoch >= 2
    assert RUN_ROTATION not in [task for task, _ in workers.sent]
    calls = [entry.tool_call_id for entry in history(connection) if entry.kind is EntryKind.TOOL_CALL]
    assert calls == [f"t-{number}" for number in range(ROUNDS)]
    rotated = [event.data for event in connection.store.audit("s") if event.kind == "rotated"]
    assert [data["window"] for data in rotated] == list(range(2, epoch + 2))
    assert {data["consolidation_count"] for data in rotated} == {0}
    counted = totals(workers.store)
    assert (counted["rotations"], counted["resets"]) == (epoch, epoch)
    assert sum(event.kind == "nudged" for event in session.get_turn("t").events()) >= epoch


def test_a_caller_s_own_loop_resets_between_its_rounds(session: ClientSession, workers: LocalWorkers) -> None:
    """Its messages begin anew with the opening and its own input; a nudge comes last, once."""
    first_after, nudges = "", 0
    with session.turn("look at all of them", turn_id="own") as turn:
        for number in range(ROUNDS):
            messages = turn.messages()
            nudges += str(messages[-1]["content"]).startswith("[Context management]")
            if session.view().epoch and not first_after:
                first_after = " ".join(str(message["content"]) for message in messages[1:])
            call = CallRequest(call_id=f"c{number}", name="look", arguments='{"place": "valve"}')
            turn.commit(calls=[call], results={call.call_id: LONG})
        turn.commit("done")
    assert session.view().epoch >= 2
    assert "current: 002" in first_after
    assert first_after.endswith("look at all of them")
    assert nudges >= session.view().epoch
    assert RUN_ROTATION not in [task for task, _ in workers.sent]


def test_a_reset_that_was_left_behind_is_done_by_any_worker(
    session: ClientSession, connection: Connection, workers: LocalWorkers
) -> None:
    """The request outlives whoever made it."""
    session.send("look", turn_id="t", timeout_seconds=30.0)
    epoch, before = session.view().epoch, history(connection)
    connection.store.request_rotation("s", "asked")
    assert run_rotation(workers.parts.engine(unobserved), "s").status == "adopted"
    assert session.view().epoch == epoch + 1
    assert history(connection) == before


def test_brakes_are_counted_and_lifted(session: ClientSession, connection: Connection, workers: LocalWorkers) -> None:
    """By a caller in a thread, or in an event loop."""
    session.send("y" * 18_000, turn_id="braked", timeout_seconds=30.0)
    wait_for(lambda: session.view().room.is_braked, what="the brake")
    assert totals(workers.store)["brakes"] == 1

    async def lift() -> tuple[bool, bool]:
        async with AsyncSessions(connection_to(workers.store, workers.catalog, workers)) as sessions:
            found = await sessions.get("s")
            return await found.lift_brake(), await found.lift_brake()

    assert asyncio.run(lift()) == (True, False)
    assert session.lift_brake() is False
    assert not session.view().room.is_braked
