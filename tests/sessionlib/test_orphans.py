"""What a provider held for a session that was purged: it is let go of without that session, and tried until it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from sessionlib.catalog import Catalog
from sessionlib.errors import InvalidInput, ProviderUnavailable
from sessionlib.inputs import open_request
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Provider, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, run_disposals, run_orphan
from sessionlib.session import Session
from sessionlib.stores.contract import DueItem, DueKind
from sessionlib.stores.orphans import orphan_of
from tests.sessionlib.test_held_sessions import rotate
from tests.sessionlib.test_run_endings import LONG, SESSION, Stage, agent
from tests.waiting import wait_for

WORK = ModelReply(text="", calls=(CallRequest(call_id="c", name="work", arguments="{}"),))


def held(answer: list[ModelReply | str] | None = None, disposal_failures: int = 0) -> ScriptedProvider:
    """A provider that holds what it is told."""
    if answer is None:
        return ScriptedProvider(shape=Shape.HELD, disposal_failures=disposal_failures)
    return ScriptedProvider(answer, shape=Shape.HELD, disposal_failures=disposal_failures)


def purge(stage: Stage) -> None:
    while not stage.store.purge(SESSION):
        pass


def orphans(stage: Stage) -> list[DueItem]:
    """Those that there are: time passes until all are due."""
    stage.clock.now += stage.store.limits.sweep_last_seconds
    return [item for item in stage.store.due(0, limit=1_000) if item.kind is DueKind.ORPHAN]


def let_go(stage: Stage, engine: Engine | None = None) -> None:
    for item in orphans(stage):
        run_orphan(engine or stage.engine, item.session_id, item.id)


def test_the_chain_of_a_purged_session_is_let_go_of() -> None:
    """Every answer that it continued, and nothing is due after it."""
    provider = held()
    stage = Stage(agent(), provider)
    for number in range(3):
        stage.run(f"t{number}")
    purge(stage)
    let_go(stage)
    assert (provider.disposed, provider.handles) == (("handle-1", "handle-2", "handle-3"), ())
    assert orphans(stage) == []


def test_everything_that_was_left_to_dispose_of_is_let_go_of() -> None:
    """The chain of an older layout, that of the present one, and a reply of a turn that is not finished."""
    provider = held(["one", "two", "three", "four", WORK])

    def work() -> str:
        raise KeyboardInterrupt  # the worker is stopped

    stage = Stage(agent(tools=(work,)), provider)
    for number in range(3):
        stage.run(f"t{number}", LONG)
    rotate(stage)
    stage.run("after")
    with pytest.raises(KeyboardInterrupt):
        stage.run("stopped")
    assert len(provider.handles) == 5
    purge(stage)
    assert run_disposals(stage.engine, SESSION) == 0
    let_go(stage)
    assert not provider.handles


def test_a_reply_that_was_not_recorded_goes_without_what_it_continues() -> None:
    """Each orphan is let go of by itself, in whatever order: the chain that the reply continued is another."""

    def work() -> str:
        raise KeyboardInterrupt  # the worker is stopped

    provider = held(["one", WORK])
    stage = Stage(agent(tools=(work,)), provider)
    stage.run("t1")
    with pytest.raises(KeyboardInterrupt):
        stage.run("t2")
    purge(stage)
    [reply] = [item for item in orphans(stage) if orphan_of(item.id).handle == "handle-2"]
    run_orphan(stage.engine, reply.session_id, reply.id)
    assert provider.handles == ("handle-1",)


def test_what_cannot_be_let_go_of_stays_due() -> None:
    """For as long as the provider is away; a session of the same name is none the worse."""
    provider = held(disposal_failures=20)
    stage = Stage(agent(), provider)
    stage.run("t1")
    purge(stage)
    for number in range(20):
        [item] = orphans(stage)
        with pytest.raises(ProviderUnavailable):
            run_orphan(stage.engine, item.session_id, item.id)
        assert len(provider.handles) == 1 + number
        stage.store.open(open_request(SESSION, stage.agent, (), pin=False))
        assert stage.run(f"t{number}") == "answered"
    let_go(stage)
    assert "handle-1" not in provider.handles
    assert provider.requests[-1].handle is not None
    assert orphans(stage) == []


def test_a_provider_that_is_gone_from_the_catalog_is_named() -> None:
    """The orphan stays due: another process may know it."""
    provider = held()
    stage = Stage(agent(), provider)
    stage.run("t1")
    purge(stage)
    other: Provider = ScriptedProvider()
    with pytest.raises(InvalidInput):
        let_go(stage, Engine(stage.store, Catalog({}, {"other": other}), stage.engine.hold, stage.engine.observe))
    let_go(stage)
    assert provider.handles == ()


def test_letting_go_twice_is_harmless() -> None:
    """A worker that died before it told the store does it again."""
    provider = held()
    stage = Stage(agent(), provider)
    stage.run("t1")
    purge(stage)
    [item] = orphans(stage)
    for _ in range(2):
        run_orphan(stage.engine, item.session_id, item.id)
    assert provider.disposed == ("handle-1",)


# Without workers


def test_purge_lets_go_in_the_background() -> None:
    """While the session object is still there; nobody waits for it."""
    provider = held()
    with Session(agent(), {"default": provider}) as session:
        session.send("one")
        session.send("two")
        session.purge()
        wait_for(lambda: not provider.handles, what="the chain to be let go of")


def test_leaving_the_block_lets_go() -> None:
    """A store in memory ends with it: there is no later."""
    provider = held()
    with Session(agent(), {"default": provider}) as session:
        session.send("one")
        session.purge()
    assert provider.disposed == ("handle-1",)


def test_a_purge_that_was_killed_is_finished_by_any_session_of_the_file(tmp_path: Path) -> None:
    """Its tombstone refused everything; now the id is free, and nothing is left at the provider."""
    provider, path = held(), tmp_path / "sessions.db"
    with Session(agent(), {"default": provider}, session_id="gone", path=path) as session:
        session.send("one")
    with Session(agent(), {"default": provider}, path=path) as session:
        assert not session.store.purge("gone", batch=1)
        wait_for(lambda: session.store.purge("gone", batch=0), what="the purge to end")
        wait_for(lambda: not provider.handles, what="the chain to be let go of")


class Away(ScriptedProvider):
    """A provider that lets go of nothing until it is back."""

    is_away = True
    refused_count = 0

    def dispose(self, handle: str, until: str = "") -> None:
        if self.is_away:
            self.refused_count += 1
            raise ProviderUnavailable("away")
        super().dispose(handle, until)


def test_a_purged_session_is_let_go_of_by_any_session_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What failed is logged, and tried again by whoever looks next."""
    provider, path = Away(shape=Shape.HELD), tmp_path / "sessions.db"
    with caplog.at_level(logging.WARNING), Session(agent(), {"default": provider}, path=path) as session:
        session.send("one")
        session.purge()
        wait_for(lambda: "not let go of" in caplog.text, what="the first try")
    assert provider.handles == ("handle-1",)
    provider.is_away = False
    with Session(agent(), {"default": provider}, session_id="other", path=path):
        wait_for(lambda: not provider.handles, what="the chain to be let go of")


def test_a_provider_that_is_away_is_not_waited_for_again_and_again(tmp_path: Path) -> None:
    """Leaving tries one orphan of many, or two if the thread looked just before; they stay due."""
    provider, path = Away(shape=Shape.HELD), tmp_path / "sessions.db"
    names = [f"gone-{number}" for number in range(6)]
    for name in names:
        with Session(agent(), {"default": provider}, session_id=name, path=path) as session:
            session.send("one")
    with Session(agent(), {"default": provider}, path=path) as session:
        for name in names:
            session.store.purge(name)
    assert 1 <= provider.refused_count <= 2
    assert len(provider.handles) == 6


def test_an_orphan_of_an_unknown_provider_keeps_no_other_from_being_let_go_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays due: another process may know the provider."""
    path, far, near = tmp_path / "sessions.db", held(), held()
    with Session(agent(provider="far"), {"far": far}, session_id="far", path=path) as session:
        session.send("one")
    with caplog.at_level(logging.WARNING), Session(agent(), {"default": near}, path=path) as session:
        session.send("one")
        session.store.purge("far")
        session.purge()
        wait_for(lambda: "not let go of" in caplog.text and not near.handles, what="both to be tried")
    assert far.handles == ("handle-1",)


def test_a_disposal_that_fails_keeps_no_orphan_from_being_let_go_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be another provider's."""
    path, away, here = tmp_path / "sessions.db", Away(shape=Shape.HELD), held()
    with Session(agent(provider="here"), {"here": here}, session_id="gone", path=path) as session:
        session.send("one")
    providers = {"default": away, "here": here}
    with caplog.at_level(logging.WARNING), Session(agent(), providers, path=path) as session:
        for _ in range(3):
            session.send(LONG)
        session.rotate(30.0)
        wait_for(lambda: "background work failed" in caplog.text, what="the disposal to fail")
        session.store.purge("gone")
        wait_for(lambda: not here.handles, what="the orphan to be let go of")
        assert len(away.handles) == 3


def let_go_after(meanwhile: Callable[[Stage], object]) -> ScriptedProvider:
    """The provider of a session, its orphans let go of: *meanwhile* happens while the model thinks about the second
    turn, whose reply comes too late."""

    def think(request: ModelRequest) -> str:
        if request.turn_id == "t2":
            meanwhile(stage)
        return "said"

    provider = ScriptedProvider(think, shape=Shape.HELD)
    stage = Stage(agent(), provider)
    stage.run("t1")
    assert stage.run("t2") == "lost"
    let_go(stage)
    return provider


def test_a_reply_that_comes_after_its_turn_was_cancelled_is_let_go_of() -> None:
    """Nobody saves what it says, and what it continues goes on."""
    provider = let_go_after(lambda stage: stage.store.cancel(SESSION, "t2"))
    assert (provider.disposed, provider.handles) == (("handle-2",), ("handle-1",))


def test_a_reply_that_comes_after_its_session_was_purged_is_let_go_of() -> None:
    """With what the session held before."""
    assert let_go_after(purge).handles == ()
