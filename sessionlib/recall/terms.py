"""Terms: the words by which a text is found, identifiers whole and in their parts.

The same function reads texts and queries, so whatever is written alike is found. There is no list of stop words:
passages are ranked by the rarity of what they hold. Nothing is stemmed, so that a term is what was written, in whatever
language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

TERM_CHARACTERS = 64
"""Longer words are known by their beginning: a SHA-512 in hexadecimal is twice as long, and still found."""

NAME_CHARACTERS = 160
"""Longer runs of joined words (paths, addresses) are known as a whole by their beginning; their parts all count."""

MOST_PARTS = 8
"""A word with more changes of case is encoded data, not an identifier: its parts say nothing."""

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
"""Scripts that are searched by pairs of characters: they write no blanks between words (or inflect inside them)."""

_SYMBOLS = "\u2190-\u2bff\U0001f000-\U0001faff"
"""Arrows, signs and emoji: one term each."""

_PLAIN = rf"[^\W_{_UNSPACED}]"
_RUN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    rf"|(?P<symbol>[{_SYMBOLS}])"
    rf"|(?P<name>_*{_PLAIN}+(?:(?:['’\-./:@#_]|(?<=\d),(?=\d)|::|://|__+){_PLAIN}+)*)"
)
_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)
_JOINT = re.compile(r"[^\w.\-]+")
"""Between the names of a path, an address, a list."""
_INNER_JOINT = re.compile(r"[\W_]+")
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_UNIT = re.compile(r"(\d+)([a-z]{1,4})|([a-z]+)(\d+)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?=T)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def terms_of(text: str, *, is_json: bool = False) -> list[str]:
    """The terms of a text in order, each as often as it occurs. In JSON, escapes are read as what they stand for."""
    if is_json and "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    for match in _RUN.finditer(_POSSESSIVE.sub("", text)):
        if match.lastgroup == "name":
            found.extend(_named(match[0]))
        elif match.lastgroup == "unspaced":
            found.extend(_pairs(match[0]))
        else:
            found.append(match[0])
    return found


def _unescaped(match: re.Match[str]) -> str:
    """A blank for every escape but characters by their number: half of a surrogate pair is none."""
    character = chr(int(match[1], 16)) if match[1] else " "
    return " " if "\ud800" <= character <= "\udfff" else character


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for start in range(len(run) - 1):
        yield run[start : start + 2]


def _named(run: str) -> Iterator[str]:
    """The run as it is, then its parts: `src/getUser.py` is also src, getuser.py, getuser, get, user, py."""
    if run.isalpha() and not _CAMEL.search(run):  # what most runs are
        yield run.lower()[:TERM_CHARACTERS]
        return
    seen = {whole := run.strip("_").lower()[:NAME_CHARACTERS]}
    yield whole
    for part in _parts(run):
        part = part.lower()[:TERM_CHARACTERS]
        if part and part not in seen:
            seen.add(part)
            yield part


def _parts(run: str) -> Iterator[str]:
    if _THOUSANDS.fullmatch(run):
        yield run.replace(",", "")
    for name in _JOINT.split(run):
        yield name.strip("_")
        if date := _DATE.match(name):
            yield date[0]
        for word in _INNER_JOINT.split(name):
            yield word
            if unit := _UNIT.fullmatch(word.lower()):
                yield from filter(None, unit.groups())
            elif _CAMEL.search(word) and len(cases := _CASE.findall(word)) <= MOST_PARTS:
                yield from cases
