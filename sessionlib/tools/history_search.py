"""What a search of the history returns: the best passages that fit, word for word, and where to read on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sessionlib.entries import Entry
from sessionlib.recall.contract import Found, Hit, Scope, Span
from sessionlib.recall.passages import whole_character
from sessionlib.recall.queries import QUERY_CHARACTERS, Query
from sessionlib.tools.history_lists import what
from sessionlib.tools.history_room import ResultRoom

BATCH = 8
"""Entries that are read at once: about what a result shows."""

CHECKED = 12
"""Passages that are read to see whether they hold what was quoted."""

MOST_READ = 32
"""Passages that are read at most: of a file that was read a hundred times, each copy is found, and shown once."""

LEAST_TOKENS = 40
"""A passage that does not fit is shown in part if so much room is left, heading included."""


ROOM_TOKENS = 160
"""What a passage has room in for certain, heading included."""

MOST_NAMED = 5
"""Spans or entries that a notice names."""


class Searched(Protocol):
    """What a search needs of a session."""

    def found(self, query: Query, scope: Scope) -> Found:
        """The passages that answer best. Raises StoreError."""
        ...

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        """Entries by their numbers, as far as they can be read. Raises StoreError."""
        ...

    def unsearchable(self, scope: Scope, searched: Sequence[Span]) -> Sequence[Span]:
        """Archived spans of the scope that are in none of those that were searched in full."""
        ...


@dataclass(frozen=True, slots=True)
class Passage:
    """A hit with its text."""

    hit: Hit
    entry: Entry

    @property
    def text(self) -> str:
        return self.entry.readable[self.hit.start : self.hit.end]

    def shown(self, end: int | None = None) -> str:
        """The passage under its heading, up to character *end* of its text."""
        start = f" +{self.hit.start}" if self.hit.start else ""
        return f"[{self.hit.seq} {what(self.entry)}{start}]\n{self.text[:end]}"


def search_text(query: Query, scope: Scope, history: Searched, limit_tokens: int, room: ResultRoom) -> str:
    """The best passages within *limit_tokens*, or what is the matter. Raises StoreError."""
    found = history.found(query, scope)
    notices = [*_notices(query, history.unsearchable(scope, found.searched))]
    if not found.hits:
        return "\n".join(("Nothing was found.", *notices))
    head = [f"Of {found.match_count} passages, the best first, by [entry role +offset]:", *notices]
    shelf = _Shelf(history)
    rows = _rows(head, _passages(query, found.hits, shelf), limit_tokens, room)
    if shelf.unread:
        head.append(f"Not shown, being damaged: {_named(map(str, sorted(shelf.unread)))}.")
    if not rows and len(shelf.unread) == len({hit.seq for hit in found.hits}):
        return "\n".join(head)
    return _fitted(head, rows, limit_tokens, room) or _no_room(found.match_count, head, limit_tokens, room)


def _notices(query: Query, gaps: Sequence[Span]) -> Iterator[str]:
    """What was not looked for, and where nobody looked."""
    if query.is_cut:
        yield f"Only the first {QUERY_CHARACTERS:,} characters of the query were looked for."
    if gaps:
        yield f"Not searched in full, for want of sound postings: {_named(f'{first}-{last}' for first, last in gaps)}."


def _named(numbers: Iterable[str]) -> str:
    """Entries or spans of them, and how many more there are."""
    named = list(numbers)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"entries {', '.join(named[:MOST_NAMED])}{more}"


class _Shelf:
    """Reads the entries of hits, and remembers what cannot be read."""

    def __init__(self, history: Searched) -> None:
        self.history = history
        self.unread: set[int] = set()

    def passages(self, hits: Sequence[Hit]) -> Iterator[Passage]:
        for start in range(0, len(hits), BATCH):
            batch = hits[start : start + BATCH]
            entries = self.history.at([hit.seq for hit in batch])
            self.unread.update(hit.seq for hit in batch if hit.seq not in entries)
            yield from (Passage(hit, entries[hit.seq]) for hit in batch if hit.seq in entries)


def _passages(query: Query, hits: Sequence[Hit], shelf: _Shelf) -> Iterator[Passage]:
    """Passages in the order in which they are shown, none with the text of one before."""
    said: set[str] = set()
    for passage in islice(_ordered(query, hits, shelf), MOST_READ):
        words = " ".join(passage.text.split())
        if words not in said:
            said.add(words)
            yield passage


def _ordered(query: Query, hits: Sequence[Hit], shelf: _Shelf) -> Iterator[Passage]:
    """Those that hold an exact value word for word first, the others by their score."""
    if not query.needs_reading:
        yield from shelf.passages(hits)
        return
    likely = list(shelf.passages([hit for hit in hits[:CHECKED] if hit.exact_count]))
    counts = [query.held_in(passage.text) for passage in likely]
    exact = sorted((place for place, count in enumerate(counts) if count), key=lambda place: -counts[place])
    yield from (likely[place] for place in exact)
    shown = {likely[place].hit for place in exact}
    yield from shelf.passages(sorted((hit for hit in hits if hit not in shown), key=lambda hit: -hit.score))


def _rows(head: Sequence[str], passages: Iterator[Passage], limit_tokens: int, room: ResultRoom) -> list[str]:
    """Passages, as many as fit beside the head; the last may be cut."""
    rows: list[str] = []
    left_tokens = limit_tokens - sum(room.tokens(line) + 1 for line in head)
    for passage in passages:
        row = passage.shown()
        row_tokens = room.tokens(row) + 1
        if row_tokens > left_tokens:
            rows.extend(_cut(passage, left_tokens, room))
            break
        rows.append(row)
        left_tokens -= row_tokens
    return rows


def _fitted(head: Sequence[str], rows: Sequence[str], limit_tokens: int, room: ResultRoom) -> str:
    """Head and as many rows as fit with it; "" if none does."""

    def text_of(count: int) -> str:
        return "\n".join([*head, *rows[:count]])

    count = room.most(len(rows), text_of, limit_tokens)
    return text_of(count) if count else ""


def _no_room(match_count: int, head: Sequence[str], limit_tokens: int, room: ResultRoom) -> str:
    """Why nothing is shown, and what limit would do."""
    needed_tokens = sum(room.tokens(line) + 1 for line in head) + ROOM_TOKENS
    hint = f"; {needed_tokens} has" if limit_tokens < needed_tokens else ""
    return f"Of {match_count} passages none is shown: limit_tokens={limit_tokens} has no room for one{hint}."


def _cut(passage: Passage, left_tokens: int, room: ResultRoom) -> Iterator[str]:
    """The beginning of a passage that fits what is left, if that is worth showing."""
    if left_tokens < LEAST_TOKENS:
        return
    low, high = 0, len(passage.text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if room.tokens(passage.shown(middle)) + 2 <= left_tokens else (low, middle - 1)
    yield passage.shown(whole_character(passage.text, 0, low)) + "…"
