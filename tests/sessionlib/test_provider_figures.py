"""What providers report of their window and their tokens: believed as far as it makes requests smaller, never mixed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sessionlib.agent import Agent
from sessionlib.counters import counter_named
from sessionlib.errors import WindowOverflow
from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider, UsageReport, unsplit
from sessionlib.session import Session
from sessionlib.tokens import Usage
from sessionlib.window_facts import WindowFact, WindowSource, learned
from tests.waiting import wait_for

COUNTER = counter_named("characters")
WINDOW_TOKENS = 4_000
LINE_FRACTION = 0.70
LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12
SHORT = "The build of module alpha-7 failed with error 1234. " * 4
HIDDEN_TOKENS = 1_500
"""What a provider adds to every request and tells nobody about."""


def agent(**fields: object) -> Agent:
    return Agent(name="coder", **{"window_tokens": WINDOW_TOKENS, "counter": "characters", **fields})


def talk(session: Session, turns: int, message: str = LONG) -> list[int]:
    """Send so many messages, each after the rotation that the one before asked for; the epoch after each."""
    epochs: list[int] = []
    for number in range(turns):
        session.send(f"{number} {message}")
        wait_for(lambda: session.view().rotation_id is None, what="the rotation to end")
        epochs.append(session.view().epoch)
    return epochs


def doubled(call_number: int, usage: Usage) -> Usage:
    """A tokenizer twice as dense as our counter."""
    del call_number
    return Usage(2 * usage.prompt_tokens)


def hidden(call_number: int, usage: Usage) -> Usage:
    """One total, and a constant overhead in it."""
    del call_number
    return Usage(usage.prompt_tokens + usage.completion_tokens + HIDDEN_TOKENS)


def test_a18_25_the_line_follows_the_window_that_the_provider_has() -> None:
    """Half of the configured one: refused once, then lines and limits are those of the smaller window."""
    provider = ScriptedProvider(window_tokens=WINDOW_TOKENS // 2)
    with Session(agent(), {"default": provider}) as session:
        talk(session, 40)
        view, made = session.view(), session.agent
        window = learned(made.window, view.window, made.origin)
        assert window == WindowFact(WINDOW_TOKENS // 2, WindowSource.REFUSED)
        line_tokens = made.session_budgets(COUNTER, view.calibration, window).line_tokens
        assert view.conversation_tokens < line_tokens <= LINE_FRACTION * WINDOW_TOKENS / 2
    assert len(provider.requests) - len(provider.answered) == 1


@pytest.mark.parametrize("instructions", ["", "You fix builds. " * 100], ids=["none", "400 tokens"])
def test_a18_26_what_we_count_is_never_taken_from_what_is_reported(instructions: str) -> None:
    """Reported and counted are compared whole: a tokenizer twice as dense is learned as that, whatever is fixed."""
    provider = ScriptedProvider(usage=doubled, counter=COUNTER)
    with Session(agent(instructions=instructions, history_tool=False), {"default": provider}) as session:
        talk(session, 6)
        assert session.view().calibration == pytest.approx(2.0)


@pytest.mark.parametrize("usage", [unsplit, hidden])
@pytest.mark.parametrize("policy", ["log_merge", "tiers"])
def test_a18_32_totals_without_a_split_do_not_rotate_for_ever(policy: str, usage: UsageReport) -> None:
    """An overhead that nobody breaks out makes requests smaller; rotated layouts land below the line all the same."""
    made = agent(policy={"kind": policy})
    with Session(made, {"default": ScriptedProvider(usage=usage)}) as session:
        epochs = talk(session, 60, SHORT)
        figures = [event.data for event in session.audit() if event.kind == "rotated"]
        line_tokens = made.session_budgets(COUNTER, session.view().calibration).line_tokens
    rotations = [turn for turn, (before, after) in enumerate(pairwise(epochs)) if before != after]
    assert len(rotations) >= 2
    assert min(later - earlier for earlier, later in pairwise(rotations)) >= 2
    assert all(outcome["tokens_after"] < line_tokens for outcome in figures)


def test_a18_34_a_window_that_shrank_at_a_rotation_is_met_in_the_next_turn() -> None:
    """The model behind the provider is another one after the rotation: the turn is answered within its window."""
    smaller_tokens = WINDOW_TOKENS // 3

    def refused(request: ModelRequest) -> WindowOverflow | None:
        if session.view().epoch == 0 or request.counted_tokens <= smaller_tokens:
            return None
        return WindowOverflow("too long", smaller_tokens)

    provider = ScriptedProvider(failures=refused)
    with Session(agent(), {"default": provider}) as session:
        epochs = talk(session, 30)
        assert epochs[-1] >= 3
        assert len([event for event in session.audit() if event.kind == "rotated"]) == epochs[-1]
    assert len(provider.answered) == 30
    assert len(provider.requests) - len(provider.answered) == 1
