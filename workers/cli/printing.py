"""What reaches a terminal or a pipe: text without control characters, JSON in one line or one document."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""

KEPT_CONTROLS = frozenset("\n\t")
STEERING_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters (escape sequences begin with one), lone surrogates, and the separators that end a line."""
STEERING_DIRECTIONS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Bidirectional controls, which show text in another order than it has (Unicode Annex 9)."""


def printable(text: str) -> str:
    """*text* with every character that would steer a terminal written as its escape."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def one_line(text: str, limit: int = 200) -> str:
    """*text* on one printable line, cut to *limit* characters."""
    line = printable(" ".join(text[: limit * 2].split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _shown(character: str) -> str:
    is_steering = (
        unicodedata.category(character) in STEERING_CATEGORIES
        or unicodedata.bidirectional(character) in STEERING_DIRECTIONS
    )
    if character in KEPT_CONTROLS or not is_steering:
        return character
    return character.encode("unicode_escape").decode("ascii")


def json_line(document: Any) -> str:
    """*document* as JSON in ASCII, on one line. Raises ValueError for NaN."""
    return json.dumps(document, allow_nan=False)


def json_document(document: Any) -> str:
    """*document* as JSON in ASCII, indented for people. Raises ValueError for NaN."""
    return json.dumps(document, allow_nan=False, indent=2)


def rendered(renderable: RenderableType, stream: TextIO) -> None:
    """Write a rich renderable to *stream*: its own width and colours on a terminal, PLAIN_WIDTH and plain elsewhere.

    No markup, no emoji codes, no highlighting: what looks like them is somebody's content.
    """
    from rich.console import Console

    width = None if stream.isatty() else PLAIN_WIDTH
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)
    console.print(renderable)


def bytes_text(count: int) -> str:
    """A number of bytes for people: `812 B`, `48.1 kB`, `2.3 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def age_text(seconds: float) -> str:
    """A span of time for people, by its largest unit: `8 s`, `12 min`, `3 h`, `5 d`."""
    seconds = max(0.0, seconds)
    for limit, divisor, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
