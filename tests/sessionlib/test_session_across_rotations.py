"""A session across its rotations: what its callers are told and when, and what its provider holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import EntryKind
from sessionlib.errors import StoreUnavailable
from sessionlib.events import reply_of
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.session import Session
from sessionlib.stores.contract import Answer, Trim, TurnState, TurnView
from sessionlib.summaries.purposes import Purpose
from sessionlib.window import build_entries
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.summarizing import summary
from tests.waiting import wait_for

LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12
BY_MODEL = ConsolidationWorkload(summarizer="model", provider="summaries")


def agent(**fields: object) -> Agent:
    return Agent(name="coder", **{"window_tokens": 4_000, **fields})


def send_until(session: Session, condition: Callable[[], object]) -> None:
    """Send long messages until *condition*, each after the rotation that the one before asked for."""
    for number in range(400):
        if condition():
            return
        session.send(f"{number} {LONG}")
        wait_for(lambda: condition() or session.view().rotation_id is None, what="the rotation to end")
    raise AssertionError("the condition never came")


def test_a18_01_03_the_answer_is_there_before_its_rotation() -> None:
    """`send` returns while the summarizer still works; what came of the rotation is told with a later answer."""
    asked, released = threading.Event(), threading.Event()

    def summarize(_: ModelRequest) -> str:
        asked.set()
        assert released.wait(60)
        return "alpha-7 failed with error 1234"

    providers = {"default": ScriptedProvider(), "summaries": ScriptedProvider(summarize)}
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, asked.is_set)
        reply = session.send("sent while it rotates")
        assert (reply.text, reply.rotations, session.view().epoch) == ("Acknowledged: sent while it rotates", (), 0)
        released.set()
        wait_for(lambda: session.view().epoch, what="the rotation")
        assert [outcome["epoch"] for outcome in session.send("after").rotations] == [1]


def test_a18_04_a_disposal_that_never_succeeds_parts_no_provider_from_its_layout() -> None:
    """The layout is adopted before anybody lets go of the old provider session: both have the same afterwards."""
    made = agent()
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=1_000_000)
    with Session(made, {"default": provider}) as session:
        send_until(session, lambda: session.view().epoch >= 2)
        session.send("after")
        counter = made.own_counter
        cap_tokens = made.budgets(counter).result_cap_tokens
        seed = build_entries(session.layout(), Trim(), Projection(counter, cap_tokens, made.history_tool))
        assert seed.entries[0].kind is EntryKind.RECORD
        assert provider.held(provider.handles[-1]) == seed.entries
    assert provider.disposed == ()


def test_a18_17_the_conclusion_of_a_tool_using_turn_is_seeded_after_rotations() -> None:
    """Call, result and answer are history, each once: a summarizer that keeps everything carries them on."""

    def look_up(word: str) -> str:
        """Find a word."""
        return f"{word} is a bird"

    def answer(request: ModelRequest) -> ModelReply | str:
        if request.entries[-1].kind is EntryKind.TOOL_RESULT:
            return "The conclusion is heron."
        if request.entries[-1].text == "find it":
            call = CallRequest(call_id="c1", name="look_up", arguments='{"word":"heron"}')
            return ModelReply(text="", calls=(call,))
        return "noted"

    def summarize(request: ModelRequest) -> str:
        is_there = "The conclusion is heron." in request.entries[-1].text
        return summary(Purpose.CONTINUATION, {"Work & Evidence": "- The conclusion is heron."} if is_there else {})

    providers = {"default": ScriptedProvider(answer), "summaries": ScriptedProvider(summarize)}
    with Session(agent(consolidation=BY_MODEL, tools=(look_up,)), providers) as session:
        session.send("find it")
        kinds = [entry.kind for entry in session.layout().live.entries]
        assert kinds == [EntryKind.USER, EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT, EntryKind.ASSISTANT]
        send_until(session, lambda: session.view().epoch >= 2)
        session.send("after")
        seeded = "\n".join(entry.text for entry in providers["default"].requests[-1].entries)
    assert seeded.count("The conclusion is heron.") == 1
    first_shown = providers["summaries"].requests[0].entries[-1].text
    assert first_shown.count("ASSISTANT: The conclusion is heron.") == 1


@pytest.mark.parametrize(
    ("rotations", "is_saturated"),
    [
        ((), False),
        (({"saturations": []},), False),
        (({"saturations": [{"reason": "no_redundancy", "tier": 1}]}, {"saturations": []}), True),
    ],
    ids=["no rotation", "no signal", "a signal"],
)
def test_a14_a_reply_says_whether_any_rotation_was_saturated(
    rotations: tuple[dict[str, Any], ...], is_saturated: bool
) -> None:
    """One signal of one of the rotations since the answer before is enough."""
    view = TurnView(turn_id="t", state=TurnState.ANSWERED, answer=Answer(text="x"), rotations=rotations)
    assert reply_of(view).is_saturated is is_saturated


def test_a14_each_rotation_begins_one_provider_session() -> None:
    """Provider sessions are one more than rotations, and each rotation took at least one consolidation."""
    provider = ScriptedProvider(shape=Shape.HELD)
    providers = {"default": provider, "summaries": ScriptedProvider(lambda _: "alpha-7 failed with error 1234")}
    with Session(agent(consolidation=BY_MODEL), providers) as session:
        send_until(session, lambda: session.view().epoch >= 3)
        session.send("after")
        outcomes = [event.data for event in session.audit() if event.kind == "rotated"]
    assert len([request for request in provider.requests if request.handle is None]) == len(outcomes) + 1
    assert all(outcome["consolidation_count"] >= 1 for outcome in outcomes)


def test_a14_a_session_that_was_left_takes_no_turn() -> None:
    """Leaving twice is harmless; a turn after it is refused, and nobody is asked."""
    provider = ScriptedProvider()
    session = Session(agent(), {"default": provider})
    session.send("hello")
    session.leave()
    session.leave()
    with pytest.raises(StoreUnavailable):
        session.send("more")
    assert len(provider.requests) == 1
