"""Queries: the terms that are looked for, and the values that are meant word for word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sessionlib.recall.terms import terms_of

MOST_TERMS = 32
"""Terms of a query that are looked for; more of them is a text, not a question. Each costs up to a millisecond."""

MOST_VALUES = 8
"""Exact values of a query."""

QUERY_CHARACTERS = 2_000
"""What is read of a query. MOST_TERMS stand in a tenth of that."""

_QUOTED = re.compile(r'"([^"\n]{2,200})"|`([^`\n]{2,200})`|“([^”\n]{2,200})”|(?<!\w)\'([^\'\n]{2,200})\'(?!\w)')
_WORD = re.compile(r"\S+")
_IS_VALUE = re.compile(r"\d|\w[_/\\:@#]\w|\w\.\w|[a-z][A-Z]")
"""Whether a word reads as an identifier, a number or a path. In one expression with the word it would be tried at each
of its characters, each time to the word's end."""
_AROUND = ".,;:!?()[]{}<>\"'`*“”‘’"


@dataclass(frozen=True, slots=True)
class Value:
    """Something that is meant word for word."""

    text: str
    terms: tuple[str, ...]
    """Terms that every text has which holds the value."""
    is_term: bool
    """The value is a term by itself: a text that has the term holds the value."""

    @classmethod
    def of(cls, text: str) -> Value:
        """One without a word has no terms."""
        terms = tuple(dict.fromkeys(terms_of(text)))
        is_term = bool(terms) and terms[0] == text.lower()
        return cls(text, terms[:1] if is_term else terms, is_term)


@dataclass(frozen=True, slots=True)
class Query:
    """What a search looks for."""

    terms: tuple[str, ...]
    """Distinct, in order."""
    values: tuple[Value, ...]
    """Quoted strings, identifiers, numbers, paths."""
    is_cut: bool = False
    """It is longer than QUERY_CHARACTERS; the rest is not looked for."""

    @classmethod
    def of(cls, text: str) -> Query:
        """What the beginning of a query says, QUERY_CHARACTERS of it; one without a word looks for nothing."""
        is_cut, text = len(text) > QUERY_CHARACTERS, text[:QUERY_CHARACTERS]
        quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
        words = _WORD.findall(_QUOTED.sub(" ", text))
        named = [word.strip(_AROUND) for word in words if _IS_VALUE.search(word)]
        values = [Value.of(value) for value in dict.fromkeys((*quoted, *named))]
        terms = dict.fromkeys(terms_of(text))
        return cls(tuple(terms)[:MOST_TERMS], tuple(value for value in values if value.terms)[:MOST_VALUES], is_cut)

    @property
    def all_terms(self) -> tuple[str, ...]:
        """Those that are ranked by and those of the values, each once."""
        return tuple(dict.fromkeys((*self.terms, *(term for value in self.values for term in value.terms))))

    @property
    def needs_reading(self) -> bool:
        """Whether only a passage's text says if it holds the values."""
        return not all(value.is_term for value in self.values)

    def held_in(self, text: str) -> int:
        """How many of the values a text holds, in capitals or not."""
        folded = text.casefold()
        return sum(value.text.casefold() in folded for value in self.values)
