"""Admission: the estimate, what is usable of a window, and the limits that parameters state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.errors import InvalidInput
from sessionlib.summaries.admission import (
    LIMIT_NAMES,
    LIMIT_PLACES,
    estimated_tokens,
    most_tokens,
    output_limit_tokens,
    usable_tokens,
)


@pytest.mark.parametrize(
    ("texts", "tokens"),
    [
        (("1234", "5678"), 3),
        (("",), 1),
        (("abc",), 2),
        (("x" * 400,), 101),
        (("ä",), 3),
        (("字" * 400,), 1_201),
        (("x" * 400, "字" * 400), 1_601),
        (("x" * 400 + "ä" * 10,), 121),
        (("🚢",), 5),
    ],
)
def test_estimate(texts: tuple[str, ...], tokens: int) -> None:
    """Four ASCII characters a token, and a token for each byte beyond; the examples of the specification first."""
    assert estimated_tokens(*texts) == tokens


@given(st.text(min_size=1))
def test_any_other_character_costs_a_token_or_more(text: str) -> None:
    """However a text is mixed, it is never estimated below its characters that are not ASCII."""
    assert estimated_tokens(text) >= sum(not character.isascii() for character in text)


@given(st.lists(st.text(), max_size=5))
def test_shares_add_up_to_no_less_than_the_whole(texts: list[str]) -> None:
    """What each text adds at most, and two tokens for rounding, is never less than the estimate of all."""
    assert estimated_tokens(*texts) <= sum(map(most_tokens, texts)) + 2


@pytest.mark.parametrize(
    ("window_tokens", "output_tokens", "usable"),
    [
        (128_000, 0, 108_000),
        (128_000, 9_000, 108_000),
        (128_000, 30_000, 98_000),
        (128_000, 100_000, 64_000),
        (32_000, 0, 16_000),
        (40_000, 0, 20_000),
        (50_000, 0, 30_000),
        (3, 0, 2),
        (1, 0, 1),
    ],
)
def test_usable_tokens(window_tokens: int, output_tokens: int, usable: int) -> None:
    """The window less 20,000 tokens or the stated output, at most half of the window, and never nothing."""
    assert usable_tokens(window_tokens, output_tokens) == usable


@pytest.mark.parametrize("name", LIMIT_NAMES)
@pytest.mark.parametrize("place", ["", *LIMIT_PLACES])
def test_a_limit_is_found_under_each_name_in_each_place(name: str, place: str) -> None:
    """At the top level, and in the tables in which some APIs put it."""
    limits: dict[str, Any] = {name: 9_000, "temperature": 0}
    assert output_limit_tokens({place: limits, "seed": 1} if place else limits) == 9_000


@pytest.mark.parametrize(
    ("parameters", "limit"),
    [
        ({}, 0),
        ({"temperature": 0.5, "reasoning": {"max_tokens": 77}}, 0),
        ({"options": None}, 0),
        ({"options": "max_tokens"}, 0),
        ({"max_tokens": 1}, 1),
        ({"max_tokens": 1_000, "options": {"num_predict": 3_000}}, 3_000),
        ({"max_tokens": 4_000, "options": {"num_predict": 3_000}}, 4_000),
        ({"max_tokens": 1_000.5}, 1_001),
    ],
)
def test_the_largest_stated_limit_counts(parameters: dict[str, Any], limit: int) -> None:
    """None where none is stated; a table that is none holds none; other tables are not looked into."""
    assert output_limit_tokens(parameters) == limit


@pytest.mark.parametrize("value", [None, 0, -1, 0.5, "4000", True, float("nan"), float("inf"), [1]])
@pytest.mark.parametrize("place", ["", "options"])
def test_a_limit_without_sense_is_refused(value: Any, place: str) -> None:
    """Null, zero, negative, or no number: the field is named with its place."""
    limits = {"max_tokens": value}
    with pytest.raises(InvalidInput, match=f"^{place}{'.' if place else ''}max_tokens must be a positive number"):
        output_limit_tokens({place: limits} if place else limits)
