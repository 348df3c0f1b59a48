"""Terms: the words by which a text is found, identifiers whole and in their parts.

The same function reads texts and queries, so whatever is written alike is found. There is no list of stop words:
passages are ranked by the rarity of what they hold. Nothing is stemmed, so that a term is what was written, in whatever
language.

Every expression here reads a text once, however long it is: no two of its repetitions can share a character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

TERM_CHARACTERS = 64
"""Longer words are known by their beginning: a SHA-512 in hexadecimal is twice as long, and still found."""

NAME_CHARACTERS = 160
"""Longer runs of joined words (paths, addresses) are known as a whole by their beginning; their parts all count."""

MOST_PARTS = 8
"""A word with more changes of case is encoded data, not an identifier: its parts say nothing."""

_UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\U00020000-\U0003ffff"  # Chinese, Japanese
    "\uac00-\ud7af"  # Korean
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17dc\u17dd"  # Khmer
)
"""Scripts that are searched by pairs of characters: they write no blanks between words (or inflect inside them). Their
digits and full stops are not among them."""

_SYMBOLS = "\u2190-\u2bff\U0001f000-\U0001faff"
"""Arrows, signs and emoji: one term each."""

_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_UNIT = re.compile(r"(\d+)([a-z]{1,4})|([a-z]+)(\d+)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?=T)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


@dataclass(frozen=True, slots=True)
class _Patterns:
    """How words are told apart."""

    run: re.Pattern[str]
    joint: re.Pattern[str]
    """Between the names of a path, an address, a list."""
    inner_joint: re.Pattern[str]
    unit: re.Pattern[str]
    """A character of an unspaced script, with the marks that stand on it."""

    @classmethod
    def of(cls, marks: str) -> _Patterns:
        """*marks*: what is no letter, and yet belongs to the letter before, as ranges of a class."""
        plain = rf"[^\W_{_UNSPACED}]" if not marks else rf"(?:[^\W_{_UNSPACED}][{marks}]*)"
        return cls(
            run=re.compile(
                rf"(?P<unspaced>[{_UNSPACED}][{_UNSPACED}{marks}]*)"
                rf"|(?P<symbol>[{_SYMBOLS}])"
                rf"|(?P<name>{plain}+(?:(?:['’\-./:@#_]|(?<=\d),(?=\d)|::|://|__+){plain}+)*)"
            ),
            joint=re.compile(rf"[^\w.\-{marks}]+"),
            inner_joint=re.compile(rf"(?:[^\w{marks}]|_)+"),
            unit=re.compile(rf".[{marks}]*" if marks else ".", re.DOTALL),
        )


_ASCII = _Patterns.of("")


@cache
def _with_marks() -> _Patterns:
    """For texts that are not ASCII. Found out where the first of them is read: that takes some milliseconds.

    Marks that enclose a character or choose a variant of it are none, nor those of the scripts beyond U+FFFF: a class
    with so many characters there is slow.
    """
    marks = [code for code in range(0x300, 0xFE00) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    return _Patterns.of("".join(map(chr, marks)) + "\u200d")


def terms_of(text: str, *, is_json: bool = False, with_ends: bool = False) -> list[str]:
    """The terms of a text in order, each as often as it occurs. In JSON, escapes are read as what they stand for.

    *with_ends* adds the last character of each unspaced run: every other one begins a pair, so that the postings have
    all characters. Texts are read with them, queries without.
    """
    if is_json and "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    patterns = _ASCII if text.isascii() else _with_marks()
    found: list[str] = []
    for match in patterns.run.finditer(_POSSESSIVE.sub("", text)):
        if match.lastgroup == "name":
            found.extend(_named(match[0], patterns))
        elif match.lastgroup == "unspaced":
            found.extend(_pairs(patterns.unit.findall(match[0]), with_ends))
        else:
            found.append(match[0])
    return found


def first_character(term: str) -> str:
    """Of a term of an unspaced script, its marks included; "" for all other terms."""
    return _with_marks().unit.findall(term)[0] if _IS_UNSPACED.match(term) else ""


def _unescaped(match: re.Match[str]) -> str:
    """A blank for every escape but characters by their number: half of a surrogate pair is none."""
    character = chr(int(match[1], 16)) if match[1] else " "
    return " " if "\ud800" <= character <= "\udfff" else character


def _pairs(units: list[str], with_ends: bool) -> Iterator[str]:
    yield from map("".join, pairwise(units))
    if with_ends or len(units) == 1:
        yield units[-1]


def _named(run: str, patterns: _Patterns) -> Iterator[str]:
    """The run as it is, then its parts: `src/getUser.py` is also src, getuser.py, getuser, get, user, py."""
    if run.isalpha() and not _CAMEL.search(run):  # what most runs are
        yield run.lower()[:TERM_CHARACTERS]
        return
    seen = {whole := run.lower()[:NAME_CHARACTERS]}
    yield whole
    for part in _parts(run, patterns):
        part = part.lower()[:TERM_CHARACTERS]
        if part and part not in seen:
            seen.add(part)
            yield part


def _parts(run: str, patterns: _Patterns) -> Iterator[str]:
    if _THOUSANDS.fullmatch(run):
        yield run.replace(",", "")
    for name in patterns.joint.split(run):
        yield name.strip("_")
        if date := _DATE.match(name):
            yield date[0]
        for word in patterns.inner_joint.split(name):
            yield word
            if unit := _UNIT.fullmatch(word.lower()):
                yield from filter(None, unit.groups())
            elif _CAMEL.search(word) and len(cases := _CASE.findall(word)) <= MOST_PARTS:
                yield from cases
