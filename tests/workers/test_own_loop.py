"""A turn in the caller's own loop, on a real server: the same order, lease and history as a worker's turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.errors import AnswerTimeout, InvalidInput, LeaseLost, TurnFailed
from sessionlib.providers.contract import CallRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.stores.contract import TurnState
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, history, local_workers
from workers.client import ClientSession, Connection, Sessions
from workers.dispatch import RUN_TURN
from workers.reaper import sweep


def look_up(word: str) -> str:
    """Find a word."""
    raise AssertionError(f"the caller runs this tool itself, also for {word}")


AGENT = Agent(
    name="own",
    instructions="Be brief.",
    window_tokens=8_000,
    counter="characters",
    tools=(look_up,),
)
CALL = CallRequest(call_id="c1", name="look_up", arguments='{"word":"pump"}')


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider()) as workers:
        yield workers


@pytest.fixture
def session(connection: Connection) -> ClientSession:
    return Sessions(connection).open("s", "own")


def test_turn_of_two_rounds_is_recorded_like_any_other(session: ClientSession, connection: Connection) -> None:
    """Message, call, result, answer: in order, under the turn's id, and read by anybody."""
    with session.turn("What is a pump?", turn_id="t") as turn:
        assert [message["role"] for message in turn.messages()] == ["system", "user"]
        assert "look_up" in [tool["function"]["name"] for tool in turn.tools()]
        assert turn.commit("Let me see.", calls=[CALL], results={"c1": "it moves water"}) is False
        assert [message["role"] for message in turn.messages()][2:] == ["assistant", "tool"]
        assert turn.commit("It moves water.") is True
        assert not turn.is_open
    assert turn.answer().text == "It moves water."
    assert session.get_turn("t").answer(5.0).text == "It moves water."
    assert history(connection) == [
        Entry.user("What is a pump?"),
        Entry.assistant("Let me see."),
        Entry.tool_call("c1", CALL.arguments, "look_up"),
        Entry.tool_result("c1", "it moves water", "look_up"),
        Entry.assistant("It moves water."),
    ]


def test_no_worker_takes_the_turn(session: ClientSession, workers: LocalWorkers) -> None:
    """Not while it is held, and not when it waits for its caller: hints of it find nothing."""
    with session.turn("mine", turn_id="t"):
        pass
    workers.send(RUN_TURN, session_id="s", turn_id="t")
    workers.close()
    view = session.get_turn("t")
    assert view.reply() is None
    assert [event.kind for event in workers.store.events("s", "t")].count("started") == 1


def test_later_turn_waits_and_is_then_dispatched(session: ClientSession) -> None:
    """Order is the order of submission, whoever runs a turn."""
    with session.turn("mine", turn_id="t0") as turn:
        later = session.submit("a worker's", turn_id="t1")
        assert later.reply() is None
        turn.commit("done")
    assert later.answer(10.0).text == "Acknowledged: a worker's"
    assert session.layout().live.entries[0] == Entry.user("mine")


def test_turn_waits_for_earlier_turns(connection: Connection, workers: LocalWorkers) -> None:
    """It is granted when the turns before it are answered."""
    session = Sessions(connection).open("s", "own")
    session.submit("first", turn_id="t0")
    with session.turn("second", turn_id="t1", timeout_seconds=10.0) as turn:
        assert [message["content"] for message in turn.messages()][1:3] == ["first", "Acknowledged: first"]
        turn.commit("done")


def test_turn_that_is_not_next_in_time_is_given_up(session: ClientSession) -> None:
    """AnswerTimeout, and the turn is still there to be taken."""
    with session.turn("holds the lane", turn_id="t0") as first:
        with pytest.raises(AnswerTimeout):
            session.turn("too late", turn_id="t1", timeout_seconds=0.2)
        first.commit("done")
    with session.turn("too late", turn_id="t1", timeout_seconds=5.0) as second:
        second.commit("in time")


def test_saved_answer_survives_its_caller(session: ClientSession) -> None:
    """A block left early gives the turn back; taken again, it goes on from the saved answer."""
    with session.turn("mine", turn_id="t") as turn:
        turn.save("Let me see.", [CALL])
    with session.turn("mine", turn_id="t") as again:
        saved = again.saved_reply
        assert saved is not None
        assert (saved.text, saved.calls) == ("Let me see.", (CALL,))
        again.commit(results={"c1": "it moves water"})
        assert again.saved_reply is None
        again.commit("Done.")
    assert again.answer().answer.round_count == 2


def test_call_without_a_result_stays_open(session: ClientSession, connection: Connection) -> None:
    """It ends the turn; the next turn brings its result."""
    with session.turn("mine", turn_id="t") as turn:
        assert turn.commit("Ask somebody else.", calls=[CALL]) is True
    assert session.view().open_calls == (CALL,)
    with session.turn(results={"c1": "it moves water"}, turn_id="t2") as results:
        results.commit("Thanks.")
    assert session.view().open_calls == ()
    assert history(connection)[-2:] == [
        Entry.tool_result("c1", "it moves water", "look_up"),
        Entry.assistant("Thanks."),
    ]


def test_private_tools_are_answered_by_commit(session: ClientSession) -> None:
    """The caller need not know them."""
    read = CallRequest(call_id="h1", name="history.read_item", arguments='{"item":1}')
    with session.turn("the pump is blue", turn_id="t0") as turn:
        turn.commit("Noted.")
    with session.turn("what colour?", turn_id="t1") as turn:
        assert turn.commit(calls=[read]) is False
        assert "the pump is blue" in str(turn.messages()[-1]["content"])
        turn.commit("Blue.")


@pytest.mark.parametrize("results", [{"c2": "no such call"}, {"c1": "x", "c3": "y"}])
def test_result_without_its_call_is_refused(session: ClientSession, results: dict[str, str]) -> None:
    """Nothing is recorded, and the round can be committed as it should be."""
    with session.turn("mine", turn_id="t") as turn:
        with pytest.raises(InvalidInput, match="results"):
            turn.commit("x", calls=[CALL], results=results)
        turn.commit("Done.")
    assert turn.answer().text == "Done."


def test_answered_turn_cannot_be_taken_again(session: ClientSession) -> None:
    """Nor committed to: its answer stands."""
    with session.turn("mine", turn_id="t") as turn:
        turn.commit("done")
        with pytest.raises(InvalidInput, match="answered"):
            turn.commit("again")
    with pytest.raises(InvalidInput, match="answered before"):
        session.turn("mine", turn_id="t")


def test_cancelled_turn_is_lost_to_its_caller(session: ClientSession) -> None:
    """A commit after the cancellation is refused; the session goes on."""
    with session.turn("mine", turn_id="t") as turn:
        assert session.get_turn("t").cancel() is TurnState.CANCELLED
        with pytest.raises(LeaseLost):
            turn.commit("too late")
    with pytest.raises(TurnFailed):
        session.turn("mine", turn_id="t")
    assert session.send("next", timeout_seconds=10.0).text == "Acknowledged: next"


def test_lease_is_kept_while_the_caller_thinks(session: ClientSession, connection: Connection) -> None:
    """Longer than a lease without a word to the store; afterwards no thread of it is left."""
    begun = connection.store.view("s").created_at
    with session.turn("mine", turn_id="t") as turn:
        granted = connection.store.view("s").updated_at
        lease_seconds = connection.store.limits.lease_seconds
        wait_for(lambda: connection.store.view("s").updated_at > granted + 1.5 * lease_seconds, what="renewals")
        turn.commit("done")
    assert begun < granted
    wait_for(lambda: "leases" not in [thread.name for thread in threading.enumerate()], what="the thread to end")


def test_abandoned_turn_holds_up_later_turns_until_its_deadline_only(
    connection: Connection, workers: LocalWorkers
) -> None:
    """A caller that never comes back blocks nobody for ever: the sweep ends its turn, and the next one runs."""
    session = Sessions(connection).open("s", AGENT.model_copy(update={"turn_timeout_seconds": 1.0}))
    with session.turn("mine", turn_id="t0"):
        pass
    later = session.submit("a worker's", turn_id="t1")
    wait_for(lambda: sweep(workers.store, workers) >= 0 and later.reply(), what="the later turn to be answered")
    with pytest.raises(TurnFailed, match="deadline"):
        session.get_turn("t0").reply()
