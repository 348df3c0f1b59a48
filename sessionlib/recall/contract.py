"""What is searched, where it is kept, and what is found. Light: numpy is loaded by those who search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sessionlib.entries import EntryKind
from sessionlib.stores.contract import PostingsRef

ROLES = (EntryKind.USER, EntryKind.ASSISTANT, EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT)
"""Kinds of entries that have passages; postings know them by their place here."""

Span = tuple[int, int]
"""Sequence numbers of the first and the last entry."""


class Shelf(Protocol):
    """Where a session's postings are, as its store keeps them."""

    def postings_index(self) -> Sequence[PostingsRef]: ...

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is searched: entries *first_seq* … *last_seq* of some roles."""

    first_seq: int
    last_seq: int
    roles: frozenset[EntryKind] = frozenset(ROLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that was found: characters *start* … *end* of an entry's readable text."""

    seq: int
    start: int
    end: int
    score: float
    exact_count: int
    """Exact values of the query that it may hold: the terms of all of them occur in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found, best first."""

    hits: tuple[Hit, ...]
    match_count: int
    """Passages that match, those that are not among the hits included."""
    searched: tuple[Span, ...]
    """Spans of entries that there are sound postings of, and such as know all of the query's terms; oldest first."""
