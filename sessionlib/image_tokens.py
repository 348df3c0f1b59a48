"""What an image costs, in tokens of the model that sees it: one rule for each way of cutting images up.

The rules as the vendors publish them (OpenAI API guide, "Images and vision", calculating costs; Anthropic API guide,
"Vision", image costs). Each bounds what it cannot know from above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from sessionlib.model_names import known_of

TABLE_DATE = "2026-11"
"""When the rules were last read in the vendors' guides."""

LONGEST_PIXELS, SHORTEST_PIXELS = 2_048, 768
"""OpenAI, in high detail: an image is scaled down to fit a square of the first; where it is cut into tiles, then until
its shorter side has at most the second."""

TILE_PIXELS, PATCH_PIXELS = 512, 32
"""Sides of what OpenAI's models count."""

PADDING_PIXELS, PIXELS_PER_TOKEN = 28, 750
"""Anthropic: sides are padded to a multiple of the first; a token for so many pixels."""


class ImageRule(Protocol):
    """How a model counts images. Pure; equal rules are equal values."""

    @property
    def most_tokens(self) -> int:
        """What no image is above: an image of unknown size is counted as one of these."""
        ...

    def tokens(self, width: int, height: int) -> int:
        """Tokens of an image of that many pixels, both at least 1."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Tiles:
    """OpenAI's older models: tiles of 512 pixels."""

    base_tokens: int
    tile_tokens: int

    @property
    def most_tokens(self) -> int:
        return self.tokens(LONGEST_PIXELS, SHORTEST_PIXELS)

    def tokens(self, width: int, height: int) -> int:
        shrink = _fitting(width, height)
        shrink *= min(1.0, SHORTEST_PIXELS / (min(width, height) * shrink))
        across, down = (max(1, math.ceil(round(side * shrink) / TILE_PIXELS)) for side in (width, height))
        return self.base_tokens + self.tile_tokens * across * down


@dataclass(frozen=True, slots=True)
class Patches:
    """OpenAI's newer models: patches of 32 pixels, at most so many, each of so many tokens."""

    limit: int
    patch_tokens: float = 1.0

    @property
    def most_tokens(self) -> int:
        return math.ceil(self.limit * self.patch_tokens)

    def tokens(self, width: int, height: int) -> int:
        shrink = _fitting(width, height)
        if _patches(width, height, shrink) > self.limit:
            shrink = math.sqrt(PATCH_PIXELS**2 * self.limit / (width * height))
            # whole patches along one side: the other then has no more than the limit leaves
            sides = (side * shrink / PATCH_PIXELS for side in (width, height))
            shrink *= min(math.floor(side) / side for side in sides)
        return math.ceil(_patches(width, height, shrink) * self.patch_tokens)


@dataclass(frozen=True, slots=True)
class Area:
    """Anthropic's models: the area, of an image that is scaled down to so many tokens."""

    most_tokens: int

    def tokens(self, width: int, height: int) -> int:
        across, down = (math.ceil(side / PADDING_PIXELS) * PADDING_PIXELS for side in (width, height))
        return min(self.most_tokens, math.ceil(across * down / PIXELS_PER_TOKEN))


@dataclass(frozen=True, slots=True)
class Largest:
    """Of a model that nothing is known of: whichever rule says most."""

    rules: tuple[ImageRule, ...]

    @property
    def most_tokens(self) -> int:
        return max(rule.most_tokens for rule in self.rules)

    def tokens(self, width: int, height: int) -> int:
        return max(rule.tokens(width, height) for rule in self.rules)


_MINI, _NANO = Patches(1_536, 1.62), Patches(1_536, 2.46)
_CLAUDE, _SHARP_CLAUDE = Area(1_600), Area(4_784)

KNOWN_RULES: Mapping[str, ImageRule] = MappingProxyType(
    {
        "claude-": _SHARP_CLAUDE,
        "claude-3": _CLAUDE,
        "claude-haiku-4": _CLAUDE,
        "claude-sonnet-4": _CLAUDE,
        "claude-opus-4": _CLAUDE,
        "claude-opus-4-7": _SHARP_CLAUDE,
        "claude-opus-4-8": _SHARP_CLAUDE,
        "gpt-4": Tiles(85, 170),
        "gpt-4o-mini": Tiles(2_833, 5_667),
        "gpt-4.1-mini": _MINI,
        "gpt-4.1-nano": _NANO,
        "gpt-5": Tiles(70, 140),
        "gpt-5.": Patches(2_500, 1.2),
        "gpt-5-mini": _MINI,
        "gpt-5-codex-mini": _MINI,
        "gpt-5-nano": _NANO,
        "gpt-5.1": Tiles(70, 140),
        "gpt-5.1-codex-mini": _MINI,
        "gpt-5.4-mini": _MINI,
        "gpt-5.4-nano": _NANO,
        "o1": Tiles(75, 150),
        "o3": Tiles(75, 150),
        "o4-mini": Patches(1_536, 1.72),
    }
)
"""By the beginning of a model's name; the longest that fits counts. Of a family whose members differ the dearest rule.
Those that followed `gpt-5.1` see patches; their 1.2 tokens are what users measured where the guide names no figure."""

UNKNOWN_RULE = Largest((Tiles(85, 170), Patches(2_500), _SHARP_CLAUDE))
"""Of a model that the table does not have. Where it costs more, the session's calibration learns it from usage."""


def image_rule(model: str) -> ImageRule:
    """How *model* counts images, by its name."""
    return known_of(KNOWN_RULES, model) or UNKNOWN_RULE


def _fitting(width: int, height: int) -> float:
    """The factor that makes an image fit the square that OpenAI's models see."""
    return min(1.0, LONGEST_PIXELS / max(width, height))


def _patches(width: int, height: int, shrink: float) -> int:
    across, down = (max(1, math.ceil(round(side * shrink) / PATCH_PIXELS)) for side in (width, height))
    return across * down
