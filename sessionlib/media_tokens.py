"""What images and files cost, in tokens of the model that is shown them.

Pages by the vendors' guides (Anthropic API guide, "PDF support", costs; OpenAI API guide, "File inputs"). What cannot
be known is bounded from above.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable

from sessionlib.image_tokens import ImageRule
from sessionlib.media import Media, MediaKind

PAGE_TEXT_TOKENS = 3_000
"""A page goes as its text, 1,500 to 3,000 tokens (Anthropic), and as an image of it."""

PAGE_PIXELS = (2_480, 3_508)
"""That image: A4 at 300 dots an inch, which every model scales down to the most that it sees of a page."""

BYTES_PER_TOKEN = 4
"""Of a file that is neither text nor pages: what is extracted from it is text of about its size."""

UNKNOWN_PAGES = 10
"""Taken for a file that is only referred to: nothing is known of it before its provider reports what it took."""

FRAME_TOKENS = 32
"""The JSON around one image or file, its name included, and its label where an API takes it in no other form."""


def media_tokens(media: Iterable[Media], images: ImageRule, count: Callable[[str], int]) -> int:
    """Tokens of *media*, each with its frame. *count* counts the text of files that are text."""
    return sum(FRAME_TOKENS + _tokens(item, images, count) for item in media)


def _tokens(media: Media, images: ImageRule, count: Callable[[str], int]) -> int:
    if media.kind is MediaKind.IMAGE:
        is_sized = media.width and media.height
        return images.tokens(media.width, media.height) if is_sized else images.most_tokens
    named_tokens = count(media.label)
    if media.page_count or not media.data:
        return named_tokens + page_tokens(images) * (media.page_count or UNKNOWN_PAGES)
    if is_text(media):
        return named_tokens + count(text_of(media))
    return named_tokens + math.ceil(media.byte_count / BYTES_PER_TOKEN)


def page_tokens(images: ImageRule) -> int:
    """Tokens of one page of a PDF."""
    return PAGE_TEXT_TOKENS + images.tokens(*PAGE_PIXELS)


def is_text(media: Media) -> bool:
    """Whether a file's bytes are text."""
    return bool(media.data) and media.media_type.startswith("text/")


def text_of(media: Media) -> str:
    """The text of a file that is text; what is no UTF-8 in it is replaced."""
    return base64.b64decode(media.data).decode(errors="replace")
