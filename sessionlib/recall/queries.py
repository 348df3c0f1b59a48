"""Queries: the terms that are looked for, and the values that are meant word for word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sessionlib.recall.terms import terms_of

MOST_TERMS = 32
"""Terms of a query that are looked for; more of them is a text, not a question. Each costs up to a millisecond."""

MOST_VALUES = 8
"""Exact values of a query."""

_QUOTED = re.compile(r'"([^"\n]{2,200})"|`([^`\n]{2,200})`|“([^”\n]{2,200})”|(?<!\w)\'([^\'\n]{2,200})\'(?!\w)')
_VALUE = re.compile(r"\S*(?:\d|\w[_/\\:@#]\w|\w\.\w|[a-z][A-Z])\S*")
"""What reads as an identifier, a number or a path."""
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

    @classmethod
    def of(cls, text: str) -> Query:
        """What a query says; one without a word looks for nothing."""
        quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
        named = [match.strip(_AROUND) for match in _VALUE.findall(_QUOTED.sub(" ", text))]
        values = [Value.of(value) for value in dict.fromkeys((*quoted, *named))]
        terms = dict.fromkeys(terms_of(text))
        return cls(tuple(terms)[:MOST_TERMS], tuple(value for value in values if value.terms)[:MOST_VALUES])

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
