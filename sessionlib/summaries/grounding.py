"""Grounding: which identifiers and numbers of a summary occur nowhere in what it was made from.

A signal, not a verdict: a summary that counts or renames honestly has unsupported values too, and an invented sentence
need not hold any. Nothing is refused for them; they are kept beside the text and shown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

NAMED_COUNT = 20
"""How many unsupported values are named; more say no more."""

LONGEST_CHARACTERS = 200
"""What is longer is data and no name: it is not looked for."""

# Each takes a whole run of backticks, letters or blanks at once, also where it finds nothing: none is tried again from
# the middle of it. Group 2 of the first two is the value, group 1 what stands before it.
_CODE = re.compile(r"(`++)(?:([^`\n]++)(?:\1|`++))?")
_URL = re.compile(r"(?<![A-Za-z0-9+.-])([0-9+.-]*+)([A-Za-z][A-Za-z0-9+.-]*+://[^\s\"'`<>()\[\]{}|]++)")
_LIST_NUMBER = re.compile(r"^[^\S\n]*+\d{1,3}[.)]\s", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s.*$", re.MULTILINE)

_UNSPACED = "\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef\U00020000-\U0003ffff"
"""Scripts without blanks between words, as a class of characters."""

_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_SEPARATOR = re.compile(
    rf"[\s\"'`“”‘’«»()\[\]{{}}<>|;!?…={_UNSPACED}]+"
    r"|,(?!\d)|(?<!\d),"  # a comma between digits groups thousands
    r"|(?<!\d):|:(?!\d)"  # a colon between digits is a time
)
_AROUND = ".,:;!?*~+-–—'\"&%$€£#@/\\"
_OPENING = ",:;!?*+-–—'\"&%$€£"
"""Stripped at the beginning of a word: less than at its end, since paths begin with dots, slashes and tildes."""

_THOUSANDS = re.compile(r"\d{1,3}(?:[,_'\u00a0\u2009\u202f ]\d{3})+(?:\.\d+)?(?!\d)")
_NUMBER = re.compile(r"\d+(?:[.,_]\d+)*")
_PART = r"\d+(?:\.\d+)?"
"""A number inside a date, a version or a list of numbers."""
_MEASURE = re.compile(rf"({_NUMBER.pattern})(?:[-.]?[^\W\d_]{{1,12}})?")
"""A number with its unit, if any: `5`, `1,234.5`, `30s`, `4x`, `2nd`, `30-day`."""
_HASH = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{7,64}", re.IGNORECASE)
_IDENTIFIER = re.compile(
    r".*[^\W_]_+[^\W_]"  # snake_case
    r"|.*[a-z][A-Z]"  # camelCase, CamelCase
    r"|.*\w[:\\@]\w"  # times, Windows paths, addresses
    r"|.*[^\W\d_]+[-.]?\d|.*\d[-.]?[^\W\d_]"  # letters and digits: K-77, sha256, 3fa9c2e
    r"|.*\d[-./]\d+[-./]\d"  # dates, versions, addresses
    r"|.*\w\.[^\W\d_]\w|.*\w\w\.\w|\.\w\w"  # dotted names; not "e.g"
)
_PATH = re.compile(r"[~.]{0,2}/\S*\w|.*\w/.*\w")


def unsupported_values(text: str, source: str) -> tuple[str, ...]:
    """Identifiers and numbers of *text* that do not occur in *source*, in order of appearance, NAMED_COUNT at most."""
    return Source(source).unsupported_in(text)


def still_in(values: Iterable[str], text: str) -> tuple[str, ...]:
    """Those of *values* that *text* says."""
    known = Source(text)
    return tuple(value for value in values if known.holds(value))


def _values(text: str) -> Iterator[str]:
    """What *text* names, in order: quoted code, addresses, identifiers, paths, numbers."""
    plain = _LIST_NUMBER.sub("", _HEADING.sub("", text))
    found = [(match.start(2), match[2].strip()) for match in _CODE.finditer(plain) if match[2]]
    plain = _CODE.sub(_blank, plain)
    found += [(match.start(2), match[2].rstrip(_AROUND)) for match in _URL.finditer(plain)]
    plain = _URL.sub(_blank, plain)
    found += _words(plain)
    yield from (value for _, value in sorted(found, key=lambda item: item[0]) if 0 < len(value) <= LONGEST_CHARACTERS)


def _blank(match: re.Match[str]) -> str:
    """Blanks for what is found; what stands before it stays."""
    return match[1] + " " * (len(match[0]) - len(match[1]))


def _words(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for separator in [*_SEPARATOR.finditer(text), None]:
        end = separator.start() if separator else len(text)
        if 0 < end - start <= LONGEST_CHARACTERS and (value := _value_of(text[start:end])):
            yield start, value
        if separator:
            start = separator.end()


def _value_of(word: str) -> str:
    """The identifier or number that *word* is; "" for a plain word."""
    word = word.lstrip(_OPENING).rstrip(_AROUND)
    if not _HASH.fullmatch(word) and (measure := _MEASURE.fullmatch(word)):
        return measure[1]
    return word if _IDENTIFIER.match(word) or _PATH.match(word) else ""


class Source:
    """What a text holds, for many questions about it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def unsupported_in(self, text: str) -> tuple[str, ...]:
        """As `unsupported_values`."""
        missing = (value for value in dict.fromkeys(_values(text)) if not self.holds(value))
        return tuple(itertools.islice(missing, NAMED_COUNT))

    def holds(self, value: str) -> bool:
        """Whether *value* occurs: a number by its amount, anything else as it is written, no part of a longer word."""
        if _NUMBER.fullmatch(value) and value.count(".") < 2:
            return _amount(value) in self._amounts or self._has_numbers(value.split(","))
        if self._has(value.removeprefix("./")):
            return True
        if _HASH.fullmatch(value):
            return self._has(value, is_beginning=True)
        if " " in value:
            return " ".join(value.split()) in self._spaced
        return value.count("/") == 1 and self._words.issuperset(value.casefold().split("/"))

    def _has_numbers(self, numbers: list[str]) -> bool:
        """Whether `80,443` may be a list of numbers that all occur."""
        return len(numbers) > 1 and self._amounts.issuperset(numbers)

    def _has(self, value: str, *, is_beginning: bool = False) -> bool:
        at = self._text.find(value)
        while at >= 0:
            end = at + len(value)
            if not self._joins(at) and (is_beginning or not self._joins(end)):
                return True
            at = self._text.find(value, at + 1)
        return False

    def _joins(self, boundary: int) -> bool:
        """Whether the characters on both sides of *boundary* belong to one word, or to one number."""
        if not 0 < boundary < len(self._text):
            return False
        before, after = self._text[boundary - 1], self._text[boundary]
        return (before.isdigit() and after.isdigit()) or (_is_letter(before) and _is_letter(after))

    @cached_property
    def _amounts(self) -> frozenset[str]:
        found = (
            re.findall(rf"(?<![^\W{_UNSPACED}]){form}", self._text)
            for form in (_NUMBER.pattern, _THOUSANDS.pattern, _PART)
        )
        return frozenset(map(_amount, itertools.chain(*found)))

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(re.findall(r"[^\W_]+", self._text.casefold()))

    @cached_property
    def _spaced(self) -> str:
        return " ".join(self._text.split())


def _is_letter(character: str) -> bool:
    return (character.isalpha() or character == "_") and not _IS_UNSPACED.match(character)


def _amount(number: str) -> str:
    """A number as it is compared: without separators of thousands, and without the zeros that end its decimals."""
    if _THOUSANDS.fullmatch(number):
        number = re.sub(r"[^\d.]", "", number)
    plain = number.replace("_", "").replace(",", ".")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
