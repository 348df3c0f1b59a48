"""Sessions that the provider holds: each is let go of in the end, and none that is still needed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from sessionlib.archive import unpack
from sessionlib.catalog import Catalog
from sessionlib.entries import Entry
from sessionlib.errors import ProviderUnavailable
from sessionlib.inputs import open_request
from sessionlib.layout import Record
from sessionlib.providers.contract import CallRequest, ModelReply, Provider, Shape
from sessionlib.providers.responses import Responses
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import run_disposals, run_rotation, run_turn
from sessionlib.stores.contract import Refusal
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.test_run_endings import LONG, SESSION, Clock, Stage, agent

WORK = ModelReply(text="", calls=(CallRequest(call_id="c", name="work", arguments="{}"),))


def rotate(stage: Stage) -> None:
    stage.store.request_rotation(SESSION, "asked")
    assert run_rotation(stage.engine, SESSION).status == "adopted"


def test_the_chain_of_a_session_stays_whole_between_rotations() -> None:
    """Each answer continues the one before, so none is let go of while the newest is in use."""
    provider = ScriptedProvider(shape=Shape.HELD)
    stage = Stage(agent(), provider)
    for number in range(4):
        stage.run(f"t{number}")
    assert run_disposals(stage.engine, SESSION) == 0
    assert provider.handles == ("handle-1", "handle-2", "handle-3", "handle-4")


def test_a_rotation_lets_the_whole_chain_go() -> None:
    """Oldest first, in one disposal; the new layout begins a chain of its own."""
    provider = ScriptedProvider(shape=Shape.HELD)
    stage = Stage(agent(), provider)
    for number in range(3):
        stage.run(f"t{number}", LONG)
    rotate(stage)
    assert run_disposals(stage.engine, SESSION) == 1
    assert provider.disposed == ("handle-1", "handle-2", "handle-3")
    stage.run("next")
    assert provider.handles == ("handle-4",)


def test_a_reply_whose_turn_was_cancelled_is_let_go_of_without_what_it_continues() -> None:
    """The round is never committed: its provider session is nobody's, and the one before it goes on."""
    store = SqliteStore(clock=Clock())

    def work() -> str:
        store.cancel(SESSION, "t2")
        return "done"

    provider = ScriptedProvider(["one", WORK, "three"], shape=Shape.HELD)
    stage = Stage(agent(tools=(work,)), provider, store)
    stage.run("t1")
    assert stage.run("t2") == "lost"
    assert run_disposals(stage.engine, SESSION) == 1
    assert provider.disposed == ("handle-2",)
    stage.run("t3")
    assert provider.requests[-1].handle == "handle-1"


def test_a_reply_that_is_played_again_is_not_let_go_of() -> None:
    """A run that dies after its reply was saved leaves it to the next run, which commits it."""

    def work() -> str:
        if not stage.lease.is_lost:
            stage.lease.is_lost = True
            raise KeyboardInterrupt  # the worker is stopped
        return "done"

    provider = ScriptedProvider([WORK, "two"], shape=Shape.HELD)
    stage = Stage(agent(tools=(work,)), provider)
    with pytest.raises(KeyboardInterrupt):
        stage.run("t1")
    assert run_disposals(stage.engine, SESSION) == 0
    stage.lease.is_lost = False
    stage.lease.is_lost = True
    assert run_turn(stage.engine, SESSION).status == "answered"
    assert len(provider.requests) == 2


def test_a_forgotten_session_is_replaced_and_the_lost_one_disposed_of_harmlessly() -> None:
    """The provider knows nothing of it any more, which is fine."""
    provider = ScriptedProvider(shape=Shape.HELD)
    stage = Stage(agent(), provider)
    stage.run("t1")
    provider.forget()
    assert stage.run("t2") == "answered"
    run_disposals(stage.engine, SESSION)
    assert provider.handles == ("handle-2",)
    assert stage.store.turn(SESSION, "t2").answer.is_recovered  # type: ignore[union-attr]


HOUR_OF_TRIES = 30
"""One every two minutes."""


def an_hour(provider: Provider, *, is_disposal_failing: bool) -> Stage:
    """A session that has rotated, and talks on for an hour while the session before it is to be let go of."""
    stage = Stage(agent(), provider)
    for number in range(3):
        stage.run(f"t{number}", LONG)
    rotate(stage)
    for number in range(HOUR_OF_TRIES):
        stage.clock.now += 120
        with pytest.raises(ProviderUnavailable) if is_disposal_failing else nullcontext():
            run_disposals(stage.engine, SESSION)
        assert stage.run(f"later-{number}", f"hi {number}") == "answered"
    return stage


def whole_history(stage: Stage) -> tuple[tuple[Record, ...], tuple[Entry, ...]]:
    """Records, and everything that was ever said: archive and live entries."""
    layout = stage.store.snapshot(SESSION).layout
    archived = (entry for chunk in stage.store.chunks(SESSION) for entry in unpack(chunk.data))
    said = (*archived, *layout.live.entries)
    assert len(said) == 2 * (3 + HOUR_OF_TRIES)
    return tuple(layout.records), said


def test_a_disposal_that_fails_for_an_hour_is_tried_until_it_succeeds() -> None:
    """It stays due, harms no turn, and history is what it would have been."""
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=HOUR_OF_TRIES)
    stage = an_hour(provider, is_disposal_failing=True)
    assert run_disposals(stage.engine, SESSION) == 1
    assert provider.disposed == ("handle-1", "handle-2", "handle-3")
    undisturbed = an_hour(ScriptedProvider(shape=Shape.HELD), is_disposal_failing=False)
    assert whole_history(stage) == whole_history(undisturbed)
    assert run_turn(stage.engine, SESSION).status == Refusal.NOTHING


def test_responses_that_cannot_be_deleted_for_an_hour_change_no_history() -> None:
    """The same over HTTP: the server refuses each try, and in the end holds what an undisturbed session left there."""

    def spent(failure_count: int) -> tuple[object, int]:
        """The whole history, and how many responses the server holds in the end."""
        with FakeProviderServer() as server:
            server.fail(503, count=failure_count, kind="disposals")
            provider = Responses(server.base_url)
            stage = an_hour(provider, is_disposal_failing=bool(failure_count))
            held_count = len(server.responses.handles)
            assert run_disposals(stage.engine, SESSION) == (1 if failure_count else 0)
            assert held_count - len(server.responses.handles) == (3 if failure_count else 0)
            provider.close()
            return whole_history(stage), len(server.responses.handles)

    assert spent(HOUR_OF_TRIES) == spent(0)


def test_a_handle_of_another_provider_is_let_go_of_there() -> None:
    """A new version of the agent asks another provider: the old session is disposed of where it is held."""
    old, new = ScriptedProvider(shape=Shape.HELD), ScriptedProvider(shape=Shape.HELD)
    stage = Stage(agent(), old)
    for number in range(2):
        stage.run(f"t{number}")
    moved = agent(provider="other")
    stage.agent = moved
    stage.engine = replace(stage.engine, catalog=Catalog({"coder": moved}, {"default": old, "other": new}))
    stage.store.open(open_request(SESSION, moved, (), pin=False))
    assert stage.run("moved") == "answered"
    run_disposals(stage.engine, SESSION)
    assert (old.handles, len(new.handles)) == ((), 1)
