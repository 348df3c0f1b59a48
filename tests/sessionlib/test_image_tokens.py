"""What images cost: the examples of the vendors' guides, and what no image is above."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.image_tokens import KNOWN_RULES, UNKNOWN_RULE, Area, ImageRule, Largest, Patches, Tiles, image_rule

TILES, PATCHES, AREA = Tiles(85, 170), Patches(1_536), Area(1_600)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(512, 512, 255), (1_024, 1_024, 765), (2_048, 4_096, 1_105), (2_049, 513, 1_445), (2_050, 513, 765), (1, 1, 255)],
)
def test_tiles(width: int, height: int, tokens: int) -> None:
    """The examples of OpenAI's guide, and edges of its scaling."""
    assert TILES.tokens(width, height) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1_024, 1_024, 1_024), (1_800, 2_400, 1_452), (2_048, 768, 1_536), (8_000, 20, 64), (1, 1, 1), (33, 32, 2)],
)
def test_patches(width: int, height: int, tokens: int) -> None:
    """The examples of OpenAI's guide, an image that just fits, and one that is all length."""
    assert PATCHES.tokens(width, height) == tokens


@pytest.mark.parametrize(("model", "tokens"), [("gpt-5-mini", 2_353), ("gpt-5-nano", 3_572), ("o4-mini", 2_498)])
def test_a_patch_may_be_more_than_a_token(model: str, tokens: int) -> None:
    """1,452 patches, by the factors of the guide."""
    assert image_rule(model).tokens(1_800, 2_400) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(200, 200, 67), (1_000, 1_000, 1_355), (1_092, 1_092, 1_590), (4_000, 4_000, 1_600), (1, 1, 2), (8_000, 1, 299)],
)
def test_area(width: int, height: int, tokens: int) -> None:
    """The examples of Anthropic's guide, with sides padded as it says: 54, 1,334 and 1,590 without."""
    assert AREA.tokens(width, height) == tokens


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("gpt-4o-2024-08-06", Tiles(85, 170)),
        ("openai/gpt-4o-mini", Tiles(2_833, 5_667)),
        ("gpt-4.1", Tiles(85, 170)),
        ("gpt-5", Tiles(70, 140)),
        ("gpt-5-2025-08-07", Tiles(70, 140)),
        ("gpt-5.2", Patches(2_500, 1.2)),
        ("gpt-5-mini-2025-08-07", Patches(1_536, 1.62)),
        ("gpt-5.4-nano", Patches(1_536, 2.46)),
        ("o3-pro", Tiles(75, 150)),
        ("claude-sonnet-4-5-20250929", Area(1_600)),
        ("claude-opus-4-6", Area(1_600)),
        ("claude-opus-4-7", Area(4_784)),
        ("claude-of-tomorrow", Area(4_784)),
        ("qwen-vl", UNKNOWN_RULE),
        ("", UNKNOWN_RULE),
    ],
)
def test_the_longest_beginning_of_a_name_says_which_rule(model: str, rule: ImageRule) -> None:
    """Members of a family that the table does not name are counted by its dearest rule."""
    assert image_rule(model) == rule


@given(
    rule=st.sampled_from([*KNOWN_RULES.values(), UNKNOWN_RULE]),
    width=st.integers(1, 20_000),
    height=st.integers(1, 20_000),
)
def test_no_image_costs_more_than_the_most(rule: ImageRule, width: int, height: int) -> None:
    """So one whose size is not known can be counted."""
    assert 1 <= rule.tokens(width, height) <= rule.most_tokens


@given(width=st.integers(1, 20_000), height=st.integers(1, 20_000))
def test_an_unknown_model_is_counted_by_the_dearest_rule(width: int, height: int) -> None:
    """Its window is kept whichever it has."""
    assert isinstance(UNKNOWN_RULE, Largest)
    assert UNKNOWN_RULE.tokens(width, height) == max(rule.tokens(width, height) for rule in UNKNOWN_RULE.rules)


def test_an_agent_counts_images_as_its_model_does() -> None:
    """Agents that differ in their model only share text counts and not image counts."""
    wide, narrow = Agent(name="a", model="gpt-4o-mini").own_counter, Agent(name="a", model="gpt-4o").own_counter
    assert wide is not narrow
    assert wide.text("hello there") == narrow.text("hello there")
    assert Agent(name="b", model="gpt-4o").own_counter is narrow
