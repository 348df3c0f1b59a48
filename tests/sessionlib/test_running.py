"""The flow of a lane's work against a store: begin, compute, adopt; what a failure on the way comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.entries import Entry
from sessionlib.errors import HandleForgotten, ProviderRejected, ProviderUnavailable
from sessionlib.inputs import open_request
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Provider, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Ran, run_disposals, run_rotation, run_turn
from sessionlib.running.engine import CALL_ATTEMPTS, FAULT_RETRY_SECONDS, RETRY_SECONDS
from sessionlib.stores.contract import Grant, Lane, Limits, Refusal, SessionStore, SubmitRequest, TurnInput, TurnState
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.tools.declaration import Tool, ToolContext
from sessionlib.workloads import ConsolidationWorkload


def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


AGENT = Agent(
    name="a",
    window_tokens=8_000,
    counter="characters",
    tools=(note,),
    consolidation=ConsolidationWorkload(summarizer="model", provider="summaries", model="s"),
)
LONG = "the pump is blue and stays so. " * 60
NOTE = CallRequest(call_id="c1", name="note", arguments='{"text":"x"}')


class FakeHeld:
    is_lost = False


@dataclass
class Bench:
    """An engine on a store in memory, whose clock the test moves."""

    store: SessionStore
    provider: Provider
    summaries: Provider
    clock: list[float]
    phases: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    held: FakeHeld = field(default_factory=FakeHeld)
    agent: Agent = AGENT

    @property
    def engine(self) -> Engine:
        providers = {"default": self.provider, "summaries": self.summaries}

        @contextmanager
        def hold(_grant: Grant) -> Iterator[FakeHeld]:
            yield self.held

        def observe(phase: str, **figures: object) -> None:
            self.phases.append((phase, figures))

        return Engine(self.store, Catalog({"a": self.agent}, providers), hold, observe)

    def submit(self, turn_id: str, message: str = "hello") -> None:
        self.store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=TurnInput(message=message)))

    def answer(self, turn_id: str, message: str = "hello") -> Ran:
        self.submit(turn_id, message)
        return run_turn(self.engine, "s")

    def state(self, turn_id: str) -> TurnState:
        view = self.store.turn("s", turn_id)
        assert view is not None
        return view.state


MakeBench = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[MakeBench]:
    clock = [1_000.0]
    store = SqliteStore(":memory:", limits=Limits(), clock=lambda: clock[0])
    store.open(open_request("s", AGENT, (), False, None))

    def make(provider: Provider | None = None, summaries: Provider | None = None) -> Bench:
        shortened = ScriptedProvider(lambda _: "the pump is blue")
        return Bench(store, provider or ScriptedProvider(), summaries or shortened, clock)

    yield make
    store.close_connections()


def test_turn_is_answered_and_its_snapshot_handed_back(bench: MakeBench) -> None:
    """The snapshot is what the store has, so that the next turn need not read it."""
    made = bench()
    ran = made.answer("t")
    assert (ran.status, ran.work_id) == ("answered", "t")
    assert ran.snapshot is not None
    assert ran.snapshot.layout == made.store.snapshot("s").layout
    assert ran.snapshot.tail_token == made.store.snapshot("s").tail_token


def test_answer_makes_the_next_turn_due(bench: MakeBench) -> None:
    """It is named, to be dispatched."""
    made = bench()
    made.submit("t1")
    made.submit("t2")
    assert run_turn(made.engine, "s").next_turn_id == "t2"
    assert run_turn(made.engine, "s").next_turn_id is None


@pytest.mark.parametrize(("session_id", "status"), [("s", Refusal.NOTHING), ("nowhere", Refusal.GONE)])
def test_hint_without_work_does_nothing(bench: MakeBench, session_id: str, status: Refusal) -> None:
    """It may have been delivered twice, or too late."""
    assert run_turn(bench().engine, session_id).status == status
    assert run_rotation(bench().engine, session_id).status == status


def test_work_that_another_holds_is_left_alone(bench: MakeBench) -> None:
    """A live lease is respected."""
    made = bench()
    made.submit("t")
    assert isinstance(made.store.begin("s", Lane.TURN, "another"), Grant)
    assert run_turn(made.engine, "s").status == Refusal.HELD


def test_provider_that_comes_back_is_asked_again_in_the_same_run(bench: MakeBench) -> None:
    """A hiccup costs no attempt of the turn."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("busy")] * (CALL_ATTEMPTS - 1))
    made = bench(provider)
    assert made.answer("t").status == "answered"


def test_provider_that_stays_away_is_tried_again_later(bench: MakeBench) -> None:
    """Due after a while, or when the provider says; nothing is recorded, no attempt is counted."""
    made = bench(ScriptedProvider(failures=[ProviderUnavailable("busy", 60.0)]))
    assert made.answer("t").status == "retried"
    assert made.store.snapshot("s").layout.live.entries == ()
    made.clock[0] += RETRY_SECONDS
    assert run_turn(made.engine, "s").status == Refusal.NOTHING
    made.clock[0] += 60.0
    assert run_turn(made.engine, "s").status == "answered"
    assert ("retry", {"turn_id": "t", "code": "provider_unavailable"}) in made.phases


def test_refused_turn_fails_and_the_next_goes_on(bench: MakeBench) -> None:
    """What no further try helps ends the turn with its reason."""
    made = bench(ScriptedProvider(failures=[ProviderRejected("no such model")]))
    made.submit("t1")
    made.submit("t2")
    ran = run_turn(made.engine, "s")
    assert (ran.status, ran.next_turn_id) == ("failed", "t2")
    view = made.store.turn("s", "t1")
    assert view is not None
    assert (view.error_code, view.error) == ("provider_rejected", "no such model")
    assert run_turn(made.engine, "s").status == "answered"


def test_fault_of_ours_is_tried_again_and_ends_after_five_attempts(bench: MakeBench) -> None:
    """The worker lives on; what the error says is not kept, only where it was raised."""

    def broken(_: ModelRequest) -> str:
        raise KeyError("what a user said")

    made = bench(ScriptedProvider(broken))
    assert made.answer("t").status == "retried"
    for _ in range(4):
        made.clock[0] += FAULT_RETRY_SECONDS
        run_turn(made.engine, "s")
    made.clock[0] += FAULT_RETRY_SECONDS
    run_turn(made.engine, "s")
    view = made.store.turn("s", "t")
    assert view is not None
    assert (view.state, view.error_code) == (TurnState.FAILED, "dead_lettered")
    assert "KeyError at test_running.py" in view.error
    assert "what a user said" not in view.error


class Killed(BaseException):
    """Ends a run as a kill would: nothing of ours catches it."""


def test_saved_reply_is_not_asked_for_again(bench: MakeBench) -> None:
    """A run that goes on where another was killed, beside the tool, asks for nothing that was answered."""
    deaths = [Killed()]

    def strike(_arguments: str, _context: ToolContext) -> str:
        if deaths:
            raise deaths.pop()
        return "noted"

    provider = ScriptedProvider([ModelReply(text="", calls=(NOTE,)), "done"])
    made = bench(provider)
    made.agent = AGENT.model_copy(update={"tools": (Tool(AGENT.tools[0].declaration, strike),)})
    made.submit("t")
    with pytest.raises(Killed):
        run_turn(made.engine, "s")
    made.clock[0] += made.store.limits.lease_seconds + 1
    assert run_turn(made.engine, "s").status == "answered"
    assert [answered.reply.text for answered in provider.answered] == ["", "done"]


def test_rotation_is_adopted(bench: MakeBench) -> None:
    """Its prefix is replaced, what came later stays, and the phases tell it in figures."""
    made = bench()
    for number in range(4):
        made.answer(f"t{number}", f"message {number} {LONG}")
    made.store.request_rotation("s", "asked")
    ran = run_rotation(made.engine, "s")
    assert ran.status == "adopted"
    assert made.store.view("s").epoch == 1
    phases = dict(made.phases)
    assert phases["adopted"]["rotation_id"] == ran.work_id
    assert phases["adopted"]["tokens_after"] < phases["adopted"]["tokens_before"]


def test_rotation_adopted_inside_a_turn_is_seen_by_its_next_round(bench: MakeBench) -> None:
    """The turn reads the layout anew, and goes on."""
    seen: list[int] = []
    made = bench()

    def answer(request: ModelRequest) -> ModelReply | str:
        seen.append(len(request.entries))
        if len(seen) > 1:
            return "done"
        made.store.request_rotation("s", "asked")
        assert run_rotation(made.engine, "s").status == "adopted"
        return ModelReply(text="", calls=(NOTE,))

    for number in range(4):
        made.answer(f"t{number}", f"message {number} {LONG}")
    made.provider = ScriptedProvider(answer)
    ran = made.answer("last")
    assert ran.status == "answered"
    assert seen[1] < seen[0]
    assert ran.snapshot is not None
    assert ran.snapshot.epoch == 1


def test_rotation_that_gains_nothing_changes_nothing(bench: MakeBench) -> None:
    """It ends without a retry."""
    made = bench()
    made.answer("t")
    made.store.request_rotation("s", "asked")
    before = made.store.snapshot("s")
    assert run_rotation(made.engine, "s").status == "noop"
    assert made.store.snapshot("s") == before
    assert made.store.view("s").rotation_id is None


def test_rotation_whose_lease_is_lost_asks_no_more(bench: MakeBench) -> None:
    """It stops before the next consolidation; the session is as it was."""
    summaries = ScriptedProvider(lambda _: "the pump is blue")
    made = bench(summaries=summaries)
    for number in range(4):
        made.answer(f"t{number}", f"message {number} {LONG}")
    made.store.request_rotation("s", "asked")
    made.held.is_lost = True
    assert run_rotation(made.engine, "s").status == "lost"
    assert made.store.view("s").epoch == 0


def test_cancelled_turn_is_lost_to_its_run(bench: MakeBench) -> None:
    """What the model answers to it is not recorded."""
    made = bench()

    def answer(_: ModelRequest) -> str:
        made.store.cancel("s", "t")
        return "too late"

    made.provider = ScriptedProvider(answer)
    assert made.answer("t").status == "lost"
    assert made.state("t") is TurnState.CANCELLED
    assert made.store.snapshot("s").layout.live.entries == ()


def test_handles_are_disposed_after_a_rotation(bench: MakeBench) -> None:
    """Held by the provider until nobody needs them; a provider that fails to forget is asked again later."""
    provider = ScriptedProvider(shape=Shape.HELD)
    made = bench(provider)
    for number in range(4):
        made.answer(f"t{number}", f"message {number} {LONG}")
    made.store.request_rotation("s", "asked")
    assert run_rotation(made.engine, "s").disposal
    assert run_disposals(made.engine, "s") >= 1
    assert run_disposals(made.engine, "s") == 0
    assert made.answer("after").status == "answered"


def test_forgotten_handle_is_seeded_anew(bench: MakeBench) -> None:
    """The turn notices nothing."""
    made = bench(ScriptedProvider(shape=Shape.HELD))
    made.answer("t1")
    made.provider = ScriptedProvider(shape=Shape.HELD, failures=[HandleForgotten("h")])
    assert made.answer("t2").status == "answered"
    entries = made.store.snapshot("s").layout.live.entries
    assert entries[2:] == (Entry.user("hello"), Entry.assistant("Acknowledged: hello"))
