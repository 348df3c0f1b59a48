"""What a refused request teaches: the window, or how dense the tokens are, and nothing that it does not prove."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.errors import WindowOverflow
from sessionlib.overflow import CUTS, LARGEST_PROOF, UNREPORTED_OVERFLOW_RATIO, Measure, remeasured
from sessionlib.window import Budgets
from sessionlib.window_facts import LEAST_SANE_TOKENS, LearnedWindow, WindowFact, WindowSource, learned

WINDOW_TOKENS = 128_000
AGENT = Agent(name="a", model="m", window_tokens=WINDOW_TOKENS, counter="characters")


def budgets_at(calibration: float, window_tokens: int) -> Budgets:
    return AGENT.session_budgets(AGENT.own_counter, calibration, WindowFact(window_tokens, WindowSource.REFUSED))


def measure(calibration: float = 1.0, window_tokens: int = WINDOW_TOKENS) -> Measure:
    return Measure(budgets_at(calibration, window_tokens), calibration, window_tokens)


def told(before: Measure, refused_tokens: int, *figures: int | None) -> Measure:
    return remeasured(before, WindowOverflow("too long", *figures), refused_tokens, budgets_at, lambda budgets: True)


@pytest.mark.parametrize(
    ("figures", "calibration", "window_tokens"),
    [
        ((32_000,), 1.0, 32_000),
        ((32_000, 50_000), 1.25, 32_000),
        ((32_000, 40_000), 1.0, 32_000),
        ((None, 80_000), 2.0, WINDOW_TOKENS),
        ((200_000, 80_000), 2.0, WINDOW_TOKENS),
    ],
    ids=["the window", "both", "what was sent as we count it", "what was sent", "a window above ours"],
)
def test_what_the_provider_tells_is_believed(
    figures: tuple[int | None, ...], calibration: float, window_tokens: int
) -> None:
    """The window is a figure of its own: it makes no tokenizer denser. 40,000 tokens were refused, by our count."""
    after = told(measure(), 40_000, *figures)
    assert (after.calibration, after.window_tokens, after.cut) == (calibration, window_tokens, None)
    assert after.budgets == budgets_at(calibration, window_tokens)


def test_a_second_refusal_tells_the_window_anew() -> None:
    """Each figure is taken as it is, not on top of what was learned before."""
    first = told(measure(), 40_000, 32_000, 40_000)
    second = told(first, 25_000, 20_000, 25_000)
    assert (second.calibration, second.window_tokens) == (1.0, 20_000)


def test_a_refusal_without_a_figure_is_cut() -> None:
    """To a quarter of what was refused, for this one request."""
    before = measure()
    after = told(before, 100_000)
    assert (after.calibration, after.window_tokens, after.budgets) == (1.0, WINDOW_TOKENS, before.budgets)
    assert after.cut is not None
    assert after.limits.limit_tokens + after.limits.fixed_tokens <= 100_000 / CUTS[0]


def test_a_cut_reckons_in_the_providers_tokens() -> None:
    """50,000 of ours that are 100,000 of theirs are cut to a quarter of that, and to more than an eighth."""
    after = told(measure(calibration=2.0), 50_000)
    sent_tokens = 2.0 * (after.limits.limit_tokens + after.limits.fixed_tokens)
    assert 100_000 / CUTS[0] / 2 < sent_tokens <= 100_000 / CUTS[0]


def test_a_refusal_that_leaves_nothing_to_cut_is_the_providers() -> None:
    """The input alone is too large for it, whatever it holds."""
    overflow = WindowOverflow("too long")
    with pytest.raises(WindowOverflow) as caught:
        remeasured(measure(), overflow, 100_000, budgets_at, lambda budgets: False)
    assert caught.value is overflow


@pytest.mark.parametrize(
    ("refused_tokens", "density", "window_tokens"),
    [
        (100_000, 1.0, 80_000),
        (100_000, 4.0, WINDOW_TOKENS),
        (20_000, 4.0, 64_000),
        (1_000, 1.0, WINDOW_TOKENS // LARGEST_PROOF),
        (0, 4.0, WINDOW_TOKENS),
    ],
    ids=["less than was sent", "more than the window was sent", "by its own tokens", "of a small one", "none refused"],
)
def test_no_more_is_learned_than_was_proven(refused_tokens: int, density: float, window_tokens: int) -> None:
    """The window holds less than what was refused, if that was not above it anyway; a step less, to be sure."""
    assert replace(measure(), refused_tokens=refused_tokens).window_after(density) == window_tokens


@given(
    window_tokens=st.integers(LEAST_SANE_TOKENS, 1_000_000),
    refused_tokens=st.integers(1, 1_000_000),
    density=st.floats(0.5, 8.0),
)
def test_a_window_only_shrinks_and_never_below_a_quarter(
    window_tokens: int, refused_tokens: int, density: float
) -> None:
    """By one refusal: another of the same size would have to prove more."""
    before = Measure(measure().budgets, 1.0, window_tokens, refused_tokens=refused_tokens)
    after = before.window_after(density)
    assert min(window_tokens, max(LEAST_SANE_TOKENS, window_tokens / LARGEST_PROOF)) <= after + 1
    assert after <= window_tokens
    if after < window_tokens and after > window_tokens / LARGEST_PROOF + 1:
        assert after <= max(LEAST_SANE_TOKENS, refused_tokens * density / UNREPORTED_OVERFLOW_RATIO) + 1


def test_a_learned_window_is_that_of_its_model() -> None:
    """Another model is asked as if nothing had been learned; a smaller figure that is known anyway stays."""
    known = WindowFact(32_000, WindowSource.DECLARED)
    window = LearnedWindow(tokens=8_000, origin="p/m")
    assert learned(known, window, "p/m") == WindowFact(8_000, WindowSource.REFUSED)
    assert learned(known, window, "p/other") == known
    assert learned(known, None, "p/m") == known
    assert learned(WindowFact(4_000, WindowSource.TABLE), window, "p/m").source == WindowSource.TABLE
