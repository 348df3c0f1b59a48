"""Values: they refuse nonsense when they are made, and nobody writes through them to what they were made from."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import typing
from collections.abc import Callable, Iterator, MutableSequence, MutableSet
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import sessionlib
from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.errors import CannotConverge, InvalidInput
from sessionlib.layout import Layout
from sessionlib.policies.contract import Rotated, Saturation, SaturationReason
from sessionlib.policies.figures import LARGEST_WINDOW_TOKENS
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.presets import SPEC_POLICY, spec
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.session import Session
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.tools.declaration import ToolContext
from tests.sessionlib.rotating import CHARACTERS, Asked, budgets_of, echoing, message, planned, transcript

SMALL = Tiers(tier_tokens=(100, 60, 40, 30), convergence_ratio=1.0)
BUDGETS = budgets_of(SMALL, 600)
SATURATION = Saturation(SaturationReason.NO_REDUNDANCY, 1, 10, 10)
TOO_MANY = 10**400
"""More than a float can hold."""


def look_up(word: str) -> str:
    """Find a word."""
    return word


# What they are made from


def test_a18_05_budgets_are_nobodys_list() -> None:
    """Neither the published ones nor those of a caller, who goes on writing to his own."""
    mine = [100, 60]
    policy = Tiers.model_validate({"tier_tokens": mine})
    mine.append(600)
    assert policy.tier_tokens == (100, 60)
    published = (SPEC_POLICY.tier_tokens, SPEC_POLICY.tier_fractions, Tiers().tier_fractions, BUDGETS.tier_tokens)
    assert [type(each) for each in published] == [tuple] * 4


def test_a18_06_a_reply_does_not_keep_the_providers_list() -> None:
    """What a provider does with its list of calls afterwards changes no reply and no history."""
    calls = [CallRequest(call_id="c1", name="look_up", arguments="{}")]
    reply = ModelReply(text="", calls=calls)  # type: ignore[arg-type]
    calls.clear()
    assert reply.entries() == (Entry.tool_call("c1", "{}", "look_up"),)


def test_a18_06_an_agent_does_not_keep_the_callers_list() -> None:
    """What the caller does with its list of tools afterwards changes no agent, and so none of its sessions."""
    tools = [look_up]
    made = Agent.model_validate({"name": "a", "tools": tools})
    tools.clear()
    assert [tool.declaration.name for tool in made.tools] == ["look_up"]
    assert [type(published) for published in (made.tools, made.declarations)] == [tuple] * 2


def frozen_dataclasses() -> Iterator[Any]:
    """Every frozen dataclass of the engine."""
    for module in pkgutil.walk_packages(sessionlib.__path__, "sessionlib."):
        for value in vars(importlib.import_module(module.name)).values():
            parameters = getattr(value, "__dataclass_params__", None)
            if isinstance(value, type) and value.__module__ == module.name and parameters and parameters.frozen:
                yield value


@pytest.mark.parametrize("kind", [*frozen_dataclasses()], ids=lambda kind: kind.__qualname__)
def test_a18_07_no_frozen_value_is_declared_with_a_list(kind: Any) -> None:
    """Sequences of values are tuples: a list could be cast back and written."""
    for name, hint in typing.get_type_hints(kind).items():
        assert not {list, set, bytearray, MutableSequence, MutableSet} & set(parts_of(hint)), name


def parts_of(hint: Any) -> Iterator[Any]:
    """A type hint and all that it is made of."""
    yield typing.get_origin(hint) or hint
    for part in typing.get_args(hint):
        if not isinstance(part, list):
            yield from parts_of(part)


def test_a18_07_what_a_session_shows_cannot_be_written_through() -> None:
    """Layouts, seeds, tools, requests, signals: tuples all the way, whatever they were made from."""
    provider = ScriptedProvider()
    with Session(Agent(name="a", window_tokens=4_000, tools=(look_up,)), {"default": provider}) as session:
        for number in range(12):
            session.send(f"{number} the pump is blue and stays so. " * 40)
        session.rotate(30)
        layout = session.layout()
        assert layout.records
        shown = [layout, session.view().open_calls, provider.requests, session.agent.declarations]
    rotated = Asked(echoing).decide(SMALL.rotate(planned(Layout(live=transcript([message(20)] * 10)), BUDGETS)))
    assert rotated.saturations
    split = layout.live.split_at_budget(0)
    assert [*lists_in((*shown, rotated, split.overflow, BUDGETS))] == []


def lists_in(value: object) -> Iterator[object]:
    """Every mutable sequence that can be reached through dataclasses, tuples and lists."""
    if isinstance(value, MutableSequence | MutableSet):
        yield value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = tuple(getattr(value, each.name) for each in dataclasses.fields(value))
    if isinstance(value, tuple | list):
        for part in value:
            yield from lists_in(part)


# What they refuse


@pytest.mark.parametrize(
    "fields",
    [{"saturations": (None,)}, {"saturations": (SATURATION, "no_redundancy")}, {"consolidation_count": -1}],
    ids=["none", "text", "count"],
)
def test_a18_30_a_decision_holds_signals_only(fields: dict[str, Any]) -> None:
    """A null among the signals is refused where it enters, not where somebody reads it."""
    assert Rotated(layout=Layout(), saturations=(SATURATION,)).saturations == (SATURATION,)
    with pytest.raises(InvalidInput):
        Rotated(layout=Layout(), **fields)


@pytest.mark.parametrize("origin", ["reported", "guessed", None, 1])
def test_a18_41_an_undefined_origin_is_refused(origin: Any) -> None:
    """It says whether an alarm was measured: what is neither measured nor estimated is an error of the caller's."""
    with pytest.raises(InvalidInput, match="origin"):
        dataclasses.replace(planned(Layout(), BUDGETS), origin=origin)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tier": 0}, "tier"),
        ({"tier": -1}, "tier"),
        ({"material": ""}, "material"),
        ({"material": " \n\t"}, "material"),
        ({"budget_tokens": 0}, "budget_tokens"),
        ({"budget_tokens": -5}, "budget_tokens"),
    ],
)
def test_a6_a_request_without_sense_is_refused(fields: dict[str, Any], named: str) -> None:
    """No tier below 1, no blank material, no budget that holds nothing."""
    with pytest.raises(InvalidInput) as refused:
        request_of(**fields)
    assert refused.value.field == named


@pytest.mark.parametrize(("previous_record", "is_degradation"), [("", True), (" \n", True), ("Port is 8080.", False)])
def test_a6_a_blank_record_is_no_record(previous_record: str, is_degradation: bool) -> None:
    """A first recording is one without a previous record, or with a blank one."""
    assert request_of(previous_record=previous_record).is_degradation is is_degradation


def request_of(**fields: Any) -> ConsolidationRequest:
    return ConsolidationRequest(
        **{"tier": 1, "first_seq": 1, "last_seq": 2, "material": "USER: x", "budget_tokens": 100, **fields}
    )


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Agent(name="a", window_tokens=0), "window_tokens"),
        (lambda: Agent(name="a", window_tokens=TOO_MANY), "window_tokens"),
        (lambda: LogMerge(line_tokens=TOO_MANY), "line_tokens"),
        (lambda: LogMerge(tail_tokens=TOO_MANY), "tail_tokens"),
        (lambda: Tiers(tier_tokens=(TOO_MANY, 100)), "tier_tokens"),
    ],
    ids=["window 0", "window", "line", "tail", "tiers"],
)
def test_a18_27_figures_that_no_window_holds_name_their_field(make: Callable[[], BaseModel], named: str) -> None:
    """An error of the configuration, not one of arithmetic from within."""
    with pytest.raises(ValidationError, match=named):
        make()


def test_a18_27_budgets_that_no_window_holds_together_cannot_converge() -> None:
    """Each is possible alone; their sum is refused as any that does not fit, with the largest window named."""
    largest = Tiers(tier_tokens=(LARGEST_WINDOW_TOKENS,) * 3, convergence_ratio=1.0)
    for window_tokens in (128_000, LARGEST_WINDOW_TOKENS):
        with pytest.raises(CannotConverge) as refused:
            budgets_of(largest, window_tokens)
        assert refused.value.minimum_tokens == LARGEST_WINDOW_TOKENS


def test_a18_28_a_bound_of_the_largest_window_does_not_converge() -> None:
    """Tiers and framing that make exactly the largest window there is: reported, not failed at."""
    policy = Tiers(tier_tokens=(LARGEST_WINDOW_TOKENS - 28, 1), convergence_ratio=1.0)
    with pytest.raises(CannotConverge) as refused:
        budgets_of(policy, LARGEST_WINDOW_TOKENS)
    assert refused.value.minimum_tokens == LARGEST_WINDOW_TOKENS


@pytest.mark.parametrize(
    "fields",
    [{"tools": (None,)}, {"tools": (look_up, None)}, {"tools": ("look_up",)}, {"consolidation": {"summarizer": None}}],
    ids=["null tool", "null among tools", "name of a tool", "null summarizer"],
)
def test_a9_an_agent_refuses_what_is_none(fields: dict[str, Any]) -> None:
    """No tool and no summarizer is left out by writing None in its place."""
    with pytest.raises((ValidationError, InvalidInput)):
        Agent(name="a", **fields)


# Published figures


def test_a4_the_published_policy() -> None:
    """Budgets, line, saturation: spec/tiers A4."""
    assert SPEC_POLICY.tier_tokens == (2_000, 1_200, 900, 700)
    assert (sum(SPEC_POLICY.tier_tokens), len(SPEC_POLICY.tier_tokens)) == (4_800, 4)
    assert (SPEC_POLICY.line_fraction, SPEC_POLICY.saturation_ratio) == (0.70, 0.90)
    assert (Agent(name="a").window_tokens, spec().policy) == (128_000, SPEC_POLICY)


def test_a4_a_fraction_may_be_the_whole() -> None:
    """1 is the largest fraction, and a coarser tier may have as much room as the one before it."""
    whole = Tiers(tier_tokens=(100, 100), line_fraction=1.0, saturation_ratio=1.0, convergence_ratio=1.0)
    assert (whole.line_fraction, whole.saturation_ratio, whole.tier_tokens) == (1.0, 1.0, (100, 100))


def test_a9_overhead_is_taken_off_before_the_fraction() -> None:
    """Instructions of 40 tokens and one tool in a window of 20,000."""

    def tool(context: ToolContext, word: str) -> str:
        """Find a word."""
        return word

    made = spec(window_tokens=20_000, instructions="x" * 160, tools=(tool,))
    fixed_tokens = 40 + CHARACTERS.fixed("", made.declarations, {})
    assert made.fixed_tokens(CHARACTERS) == fixed_tokens > 48
    assert made.budgets(CHARACTERS).line_tokens == int((20_000 - fixed_tokens) * 0.70)


def test_an_agent_with_another_field_is_another_version() -> None:
    """However it is made: a copy of an agent that was in use has a digest of its own, and is checked."""
    agent = Agent(name="a")
    before = agent.digest
    copied = agent.model_copy(update={"instructions": "Be brief."})
    assert copied.digest == Agent(name="a", instructions="Be brief.").digest != before
    with pytest.raises(ValidationError):
        agent.model_copy(update={"window_tokens": 0})
