"""Passages: what a search ranks and shows. An entry's text, cut at the borders of lines and sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from sessionlib.entries import Entry

PASSAGE_CHARACTERS = 600
"""The longest passage: about 150 tokens of prose, so that four fit what a search shows by default."""

PRIVATE_PREFIX = "history."
"""What these tools were asked and what they gave is not searched: a copy would stand before its original."""

_INK = re.compile(r"\S")
_BORDERS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s|[。！？]"),
    re.compile(r"[\s,;}\]]"),
)
"""Where a text may be cut, best first: paragraphs, lines, sentences, words."""

_JOINERS = frozenset("\u200d\ufe0e\ufe0f\u20e3") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
"""Zero-width joiner, variation selectors, keycap, skin tones: they belong to the character before."""


def passages_of(entry: Entry) -> Iterator[tuple[int, int]]:
    """Where the passages of an entry begin and end, in characters of `entry.readable`; blank stretches are in none."""
    if not (entry.tool_name or "").startswith(PRIVATE_PREFIX):
        yield from spans_of(entry.readable)


def spans_of(text: str) -> Iterator[tuple[int, int]]:
    """*text* in spans of at most PASSAGE_CHARACTERS, in order; together they hold all of it but blanks."""
    start = 0
    while ink := _INK.search(text, start):
        start = ink.start()
        end = min(start + PASSAGE_CHARACTERS, len(text))
        if end < len(text):
            end = _border(text, start, end)
        yield start, start + len(text[start:end].rstrip())
        start = end


def whole_character(text: str, start: int, end: int) -> int:
    """The last place at or before *end*, after *start*, that splits no character as it is seen."""
    place = end
    while start < place < len(text) and (_belongs_before(text[place]) or text[place - 1] == "\u200d"):
        place -= 1
    return place if place > start else end


def _belongs_before(character: str) -> bool:
    return character in _JOINERS or (not character.isascii() and unicodedata.category(character).startswith("M"))


def _border(text: str, start: int, end: int) -> int:
    """The best cut in the second half of the stretch, or its end."""
    middle = (start + end) // 2
    for border in _BORDERS:
        cuts = [match.end() for match in border.finditer(text, middle, end)]
        if cuts:
            return cuts[-1]
    return whole_character(text, start, end)
