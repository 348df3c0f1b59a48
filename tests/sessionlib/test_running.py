"""The flows against a store: what ends a run, what is tried again, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.errors import InvalidInput, ProviderUnavailable, StoreUnavailable
from sessionlib.inputs import open_request, turn_input
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Provider, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Held, run_disposals, run_turn, unobserved
from sessionlib.stores.contract import Committed, Grant, SubmitRequest, TurnState
from sessionlib.stores.sqlite import SqliteStore

SESSION = "s"
LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12


class Lease:
    """A lease that is lost when a test says so."""

    def __init__(self) -> None:
        self.is_lost = False


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """One session of one agent in memory, and an engine over it."""

    def __init__(
        self, agent: Agent, provider: Provider, store: SqliteStore | None = None, **providers: Provider
    ) -> None:
        self.agent, self.clock, self.lease = agent, Clock(), Lease()
        self.store = store or SqliteStore(clock=self.clock)
        self.announced: list[tuple[str, Committed]] = []
        catalog = Catalog({agent.name: agent}, {"default": provider, **providers})
        self.engine = Engine(self.store, catalog, self._hold, unobserved, lambda *told: self.announced.append(told))
        self.store.open(open_request(SESSION, agent, (), pin=False))

    @contextmanager
    def _hold(self, _grant: Grant) -> Iterator[Held]:
        yield self.lease

    def submit(self, turn_id: str, message: str = "hello") -> None:
        self.store.submit(
            SubmitRequest(
                session_id=SESSION,
                turn_id=turn_id,
                input=turn_input(self.agent, message, None),
                timeout_seconds=self.agent.turn_timeout_seconds,
            )
        )

    def state(self, turn_id: str) -> TurnState:
        view = self.store.turn(SESSION, turn_id)
        assert view is not None
        return view.state


def agent(**fields: Any) -> Agent:
    return Agent(name="coder", **({"window_tokens": 4_000} | fields))


def test_store_that_was_away_for_a_moment_ends_no_turn() -> None:
    """A write that could not be made is tried again with the rest of the round; the turn is not failed for it."""

    class AwayOnce(SqliteStore):
        is_away = True

        def save_step(self, *args: Any) -> int:
            if self.is_away:
                self.is_away = False
                raise StoreUnavailable("restarting")
            return super().save_step(*args)

    clock = Clock()
    stage = Stage(agent(), ScriptedProvider(), AwayOnce(clock=clock))
    stage.submit("t1")
    assert run_turn(stage.engine, SESSION).status == "retried"
    clock.now += 60
    assert run_turn(stage.engine, SESSION).status == "answered"


def test_interrupted_run_gives_its_lane_back() -> None:
    """After Ctrl-C the turn goes on at once, not when a lease has run out."""

    def interrupt_first(_: ModelRequest) -> str:
        if not provider.requests[1:]:
            raise KeyboardInterrupt
        return "done"

    provider = ScriptedProvider(interrupt_first)
    stage = Stage(agent(), provider)
    stage.submit("t1")
    with pytest.raises(KeyboardInterrupt):
        run_turn(stage.engine, SESSION)
    assert run_turn(stage.engine, SESSION).status == "answered"


def test_provider_that_asks_for_a_long_wait_is_given_it() -> None:
    """Three tries within a second would only prolong a rate limit: the work is due when the provider said."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("rate limit", retry_after_seconds=30.0)])
    stage = Stage(agent(), provider)
    stage.submit("t1")
    assert run_turn(stage.engine, SESSION).status == "retried"
    assert len(provider.requests) == 1
    stage.clock.now += 29
    assert run_turn(stage.engine, SESSION).status == "nothing"
    stage.clock.now += 2
    assert run_turn(stage.engine, SESSION).status == "answered"


def test_provider_is_not_asked_again_once_the_lease_is_lost() -> None:
    """A cancelled turn's worker stops with the call it makes: nothing is tried again."""

    def fail_and_lose(_: ModelRequest) -> ProviderUnavailable:
        stage.store.cancel(SESSION, "t1")
        stage.lease.is_lost = True
        return ProviderUnavailable("busy")

    provider = ScriptedProvider(failures=fail_and_lose)
    stage = Stage(agent(), provider)
    stage.submit("t1")
    assert run_turn(stage.engine, SESSION).status == "lost"
    assert len(provider.requests) == 1


def test_each_attempt_of_a_call_ends_with_the_turn() -> None:
    """What was waited for the first try is not had again by the second."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("busy"), None])
    stage = Stage(agent(turn_timeout_seconds=60.0), provider)
    stage.submit("t1")
    run_turn(stage.engine, SESSION)
    first, second = (request.timeout_seconds for request in provider.requests)
    assert second < first <= 60.0


def test_rotation_that_falls_due_inside_a_turn_is_announced_at_once() -> None:
    """A turn of many rounds does not keep the hint to itself until its end."""

    def work() -> str:
        """Do it."""
        return LONG * 4

    call = ModelReply(text="", calls=(CallRequest(call_id="c", name="work", arguments="{}"),))
    stage = Stage(agent(tools=(work,)), ScriptedProvider([call, call, call, call, "done"]))
    stage.submit("t1")
    ran = run_turn(stage.engine, SESSION)
    assert (ran.status, ran.rotation_id) == ("answered", None)
    assert [told.rotation_id for _, told in stage.announced] == ["r1"]


def test_provider_session_that_stays_hinders_no_other() -> None:
    """Each is tried, whatever became of the one before; what failed stays due."""
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=1)
    stage = Stage(agent(), provider)
    for number in range(3):
        stage.submit(f"t{number}")
        run_turn(stage.engine, SESSION)
    with pytest.raises(ProviderUnavailable):
        run_disposals(stage.engine, SESSION)
    assert len(stage.store.handles_to_dispose(SESSION)) == 1
    assert run_disposals(stage.engine, SESSION) == 1


def test_session_survives_reports_that_make_no_sense() -> None:
    """A provider that reports ten times what was sent makes requests smaller; it ends no session."""
    provider = ScriptedProvider(usage=lambda request, counted: tenfold(counted))
    stage = Stage(agent(instructions="You fix builds. " * 20), provider)
    for number in range(30):
        stage.submit(f"t{number}", f"{number} {LONG}")
        assert run_turn(stage.engine, SESSION).status == "answered", stage.store.turn(SESSION, f"t{number}")


def tenfold(_: object) -> Any:
    raise InvalidInput("usage", "", "is replaced below")
