"""What images and files cost, in tokens of their provider.

The rules as the vendors publish them (OpenAI API guide, "Images and vision", calculating costs; Anthropic API guide,
"Vision", image costs, and "PDF support", costs; read in November 2026). Each bounds what it cannot know from above.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable

from sessionlib.media import Media, MediaKind

OPENAI_BASE_TOKENS, OPENAI_TILE_TOKENS = 85, 170
OPENAI_TILE_PIXELS = 512
OPENAI_LONGEST_PIXELS, OPENAI_SHORTEST_PIXELS = 2_048, 768
"""An image is scaled down to fit a square of the first, then until its shorter side has at most the second."""
OPENAI_LARGEST_IMAGE_TOKENS = 85 + 170 * 8
"""2,048 by 768 pixels: four tiles by two."""

ANTHROPIC_PIXELS_PER_TOKEN = 750
ANTHROPIC_LARGEST_IMAGE_TOKENS = 1_600
"""A larger image is scaled down to about this."""

PAGE_TOKENS = 3_000 + ANTHROPIC_LARGEST_IMAGE_TOKENS
"""A page goes as its text, 1,500 to 3,000 tokens, and as an image of it."""

BYTES_PER_TOKEN = 4
"""Of a file that is neither text nor pages: what is extracted from it is text of about its size."""

UNKNOWN_PAGES = 10
"""Taken for a file that is only referred to: nothing is known of it before its provider reports what it took."""

FRAME_TOKENS = 32
"""The JSON around one image or file, its name included, and its label where an API takes it in no other form."""


def media_tokens(media: Iterable[Media], count: Callable[[str], int]) -> int:
    """Tokens of *media* by whichever vendor's rule is larger. *count* counts the text of files that are text."""
    return sum(FRAME_TOKENS + _tokens(item, count) for item in media)


def _tokens(media: Media, count: Callable[[str], int]) -> int:
    if media.kind is MediaKind.IMAGE:
        size = media.width, media.height
        return max(openai_image_tokens(*size), anthropic_image_tokens(*size))
    named_tokens = count(media.label)
    if media.page_count or not media.data:
        return named_tokens + PAGE_TOKENS * (media.page_count or UNKNOWN_PAGES)
    if is_text(media):
        return named_tokens + count(text_of(media))
    return named_tokens + math.ceil(media.byte_count / BYTES_PER_TOKEN)


def openai_image_tokens(width: int, height: int) -> int:
    """Tokens of an image, in detail, as OpenAI's models count it in tiles; the largest there are if it has no size."""
    if not width or not height:
        return OPENAI_LARGEST_IMAGE_TOKENS
    shrink = min(1.0, OPENAI_LONGEST_PIXELS / max(width, height))
    shrink *= min(1.0, OPENAI_SHORTEST_PIXELS / (min(width, height) * shrink))
    across, down = (max(1, math.ceil(round(side * shrink) / OPENAI_TILE_PIXELS)) for side in (width, height))
    return OPENAI_BASE_TOKENS + OPENAI_TILE_TOKENS * across * down


def anthropic_image_tokens(width: int, height: int) -> int:
    """Tokens of an image as Anthropic's models count its area; the largest there are if it has no size."""
    if not width or not height:
        return ANTHROPIC_LARGEST_IMAGE_TOKENS
    return min(ANTHROPIC_LARGEST_IMAGE_TOKENS, math.ceil(width * height / ANTHROPIC_PIXELS_PER_TOKEN))


def is_text(media: Media) -> bool:
    """Whether a file's bytes are text."""
    return bool(media.data) and media.media_type.startswith("text/")


def text_of(media: Media) -> str:
    """The text of a file that is text; what is no UTF-8 in it is replaced."""
    return base64.b64decode(media.data).decode(errors="replace")
