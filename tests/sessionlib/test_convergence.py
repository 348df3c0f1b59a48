"""Lines, bounds, and configurations that are refused because they would rotate again at once (spec/tiers A9)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.errors import CannotConverge, InvalidInput
from sessionlib.layout import framing_tokens
from sessionlib.policies.contract import Policy
from sessionlib.policies.figures import LARGEST_WINDOW_TOKENS
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.presets import SPEC_POLICY, spec
from sessionlib.window import Budgets, Room
from tests.sessionlib.rotating import CHARACTERS, budgets_of, room

SMALL = Tiers(tier_tokens=(100, 60, 40, 30), convergence_ratio=1.0)


@pytest.mark.parametrize(
    ("policy", "window_tokens", "bound_tokens", "line_tokens"),
    [
        (SPEC_POLICY, 128_000, 4_881, 89_600),
        (SPEC_POLICY, 6_975, 4_881, 4_882),
        (SMALL, 600, 311, 420),
        (SMALL, 446, 311, 312),
    ],
)
def test_published_figures(policy: Tiers, window_tokens: int, bound_tokens: int, line_tokens: int) -> None:
    """The bound and the line of the published policies."""
    budgets = budgets_of(policy, window_tokens)
    assert budgets.tail_tokens + budgets.record_tokens == bound_tokens
    assert budgets.line_tokens == line_tokens


@pytest.mark.parametrize(
    ("policy", "window_tokens", "minimum_tokens"),
    [
        (SPEC_POLICY, 6_974, 6_975),
        (SPEC_POLICY, 4_000, 6_975),
        (SMALL, 445, 446),
        (SMALL, 400, 446),
        (SMALL, 100, 446),
    ],
)
def test_a18_31_a_window_that_holds_the_bound_but_cannot_converge(
    policy: Tiers, window_tokens: int, minimum_tokens: int
) -> None:
    """Holding the bound is not enough: refused below the smallest window that converges, which is named."""
    with pytest.raises(CannotConverge) as refused:
        budgets_of(policy, window_tokens)
    assert refused.value.minimum_tokens == minimum_tokens
    assert f"a window of {window_tokens} tokens cannot converge; it takes {minimum_tokens}" in str(refused.value)


def test_a18_24_a_window_that_would_rotate_on_almost_every_turn_is_refused() -> None:
    """Tiers of 100 and 1 in a window of 128 did so on 16 of 20 turns."""
    with pytest.raises(CannotConverge) as refused:
        budgets_of(Tiers(tier_tokens=(100, 1), convergence_ratio=1.0), 128)
    assert refused.value.minimum_tokens == 185


def test_the_refusal_shows_its_arithmetic() -> None:
    """Window, sum of the tiers, bound, line: all that the decision was made from."""
    with pytest.raises(CannotConverge) as refused:
        budgets_of(SMALL, 100)
    assert {"100", "230", "311", "70", "69", "446"} <= set(re.findall(r"\d+", str(refused.value)))


def test_the_fixed_part_is_taken_off_before_the_fraction() -> None:
    """The line is a share of the window less instructions and tools, and the minimum names them again."""
    assert SMALL.budgets(room(700, fixed_tokens=100), CHARACTERS, show_span=False).line_tokens == 420
    with pytest.raises(CannotConverge) as refused:
        SMALL.budgets(room(545, fixed_tokens=100), CHARACTERS, show_span=False)
    assert refused.value.minimum_tokens == 546


def test_a18_28_nothing_converges_on_a_vanishing_fraction() -> None:
    """With a line of a ten-thousandth the smallest window is huge, or none; it is named all the same."""
    tiny = Tiers(tier_tokens=(2000, 1200, 900, 700), line_fraction=0.0001, convergence_ratio=1.0)
    with pytest.raises(CannotConverge) as refused:
        budgets_of(tiny, 5_000)
    assert refused.value.minimum_tokens == 48_820_000
    with pytest.raises(CannotConverge) as hopeless:
        budgets_of(LogMerge(line_tokens=10), 5_000)
    assert hopeless.value.minimum_tokens == LARGEST_WINDOW_TOKENS


def test_a18_11_the_line_is_at_least_one_token() -> None:
    """A fraction that truncates to nothing still gives a line; it cannot converge, and says so."""
    with pytest.raises(CannotConverge, match="a line of 1 "):
        budgets_of(Tiers(line_fraction=0.0001), 600)


def test_the_line_is_never_above_the_limit() -> None:
    """Where instructions take most of the window the limit is below 0.70 of the rest: the rotation comes first."""
    cramped = Room(window_tokens=20_000, fixed_tokens=15_000, output_reserve_tokens=1_250)
    budgets = LogMerge().budgets(cramped, CHARACTERS, show_span=False)
    assert budgets.line_tokens == budgets.limit_tokens == 3_250


def test_spans_are_part_of_the_framing() -> None:
    """A seeded record takes 27 tokens beyond its text; naming its entries takes more, and the bound counts it."""
    assert framing_tokens(CHARACTERS, show_span=False) == 27
    with_span = framing_tokens(CHARACTERS, show_span=True)
    assert with_span > 27
    budgets = budgets_of(SPEC_POLICY, 128_000, show_span=True)
    assert budgets.tail_tokens + budgets.record_tokens == 4_800 + 3 * with_span


def test_a_record_budget_that_holds_only_framing_is_refused() -> None:
    """Four times the framing is the least that records can age in."""
    with pytest.raises(InvalidInput, match="record_tokens must be at least 108"):
        budgets_of(LogMerge(record_tokens=100), 8_000)


@pytest.mark.parametrize(
    ("window_tokens", "tail_tokens", "record_tokens", "line_tokens"),
    [(32_000, 3_200, 6_400, 22_400), (128_000, 12_800, 25_600, 89_600), (500, 50, 108, 350)],
)
def test_budgets_are_shares_of_the_window(
    window_tokens: int, tail_tokens: int, record_tokens: int, line_tokens: int
) -> None:
    """The default policy scales with its window; a small one still gives its records room."""
    budgets = budgets_of(LogMerge(), window_tokens)
    assert (budgets.tail_tokens, budgets.record_tokens, budgets.line_tokens) == (
        tail_tokens,
        record_tokens,
        line_tokens,
    )


def test_the_preset_spec_is_an_agent_of_the_published_figures() -> None:
    """128,000 tokens of window, counted by four characters, nothing always sent."""
    budgets = spec().budgets(CHARACTERS)
    assert budgets.line_tokens == 89_600
    assert budgets.tier_tokens == (2_000, 1_200, 900, 700)


def test_the_preset_takes_changes() -> None:
    """Other fields of the agent may be given; a window too small is refused when its budgets are made."""
    assert spec(name="other", window_tokens=6_975).budgets(CHARACTERS).line_tokens == 4_882
    with pytest.raises(CannotConverge):
        spec(window_tokens=6_974).budgets(CHARACTERS)


def test_instructions_larger_than_the_window_are_refused() -> None:
    """Nothing is left to converge in."""
    with pytest.raises(CannotConverge):
        Agent(name="a", instructions="word " * 4_000, window_tokens=2_000).budgets(CHARACTERS)


@given(
    window_tokens=st.integers(200, 300_000),
    fixed_tokens=st.integers(0, 100_000),
    reserve_tokens=st.integers(0, 4_000),
    policy=st.sampled_from((LogMerge(), Tiers(), SPEC_POLICY, LogMerge(convergence_ratio=0.5, tail_fraction=0.1))),
    show_span=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_what_is_not_refused_converges(
    window_tokens: int, fixed_tokens: int, reserve_tokens: int, policy: Policy, show_span: bool
) -> None:
    """Either the layout after a rotation lands below the line, or the window is refused with a larger one named."""
    its_room = Room(window_tokens=window_tokens, fixed_tokens=fixed_tokens, output_reserve_tokens=reserve_tokens)
    budgets = budgets_or_refusal(policy, its_room, show_span=show_span)
    if isinstance(budgets, CannotConverge):
        assert budgets.minimum_tokens > window_tokens
        enough = replace(its_room, window_tokens=budgets.minimum_tokens)
        assert isinstance(budgets_or_refusal(policy, enough, show_span=show_span), Budgets)
    else:
        assert budgets.tail_tokens + budgets.record_tokens < budgets.line_tokens <= budgets.limit_tokens
        assert budgets.tail_tokens <= budgets.stretched_tail_tokens


def budgets_or_refusal(policy: Policy, its_room: Room, *, show_span: bool) -> Budgets | CannotConverge:
    try:
        return policy.budgets(its_room, CHARACTERS, show_span=show_span)
    except CannotConverge as refused:
        return refused
