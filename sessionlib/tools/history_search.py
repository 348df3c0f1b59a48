"""What a search of the history returns: the best passages that fit, word for word, and where to read on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sessionlib.entries import Entry
from sessionlib.recall.contract import Found, Hit, Scope, Span
from sessionlib.recall.passages import whole_character
from sessionlib.recall.queries import Query
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


class Searched(Protocol):
    """What a search needs of a session."""

    def found(self, query: Query, scope: Scope) -> Found:
        """The passages that answer best. Raises StoreError."""
        ...

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        """Entries by their numbers, as far as they are stored. Raises StoreError."""
        ...

    def unsearchable(self, scope: Scope, searched: Sequence[Span]) -> Sequence[Span]:
        """Archived spans of the scope that are in none of those that were searched."""
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
    gaps = history.unsearchable(scope, found.searched)
    notice = (
        f"Not searched, having no postings yet: entries {', '.join(f'{a}-{b}' for a, b in gaps[:5])}." if gaps else ""
    )
    if not found.hits:
        return "\n".join(filter(None, ("Nothing was found.", notice)))
    head = f"Of {found.match_count} passages, the best first, by [entry role +offset]:"
    return _fitted([*filter(None, (head, notice))], _passages(query, found.hits, history), limit_tokens, room)


def _passages(query: Query, hits: Sequence[Hit], history: Searched) -> Iterator[Passage]:
    """Passages in the order in which they are shown, none with the text of one before."""
    said: set[str] = set()
    for passage in islice(_ordered(query, hits, history), MOST_READ):
        words = " ".join(passage.text.split())
        if words not in said:
            said.add(words)
            yield passage


def _ordered(query: Query, hits: Sequence[Hit], history: Searched) -> Iterator[Passage]:
    """Those that hold an exact value word for word first, the others by their score."""
    if not query.needs_reading:
        yield from _read(hits, history)
        return
    likely = list(_read([hit for hit in hits[:CHECKED] if hit.exact_count], history))
    counts = [query.held_in(passage.text) for passage in likely]
    exact = sorted((place for place, count in enumerate(counts) if count), key=lambda place: -counts[place])
    yield from (likely[place] for place in exact)
    shown = {likely[place].hit for place in exact}
    yield from _read(sorted((hit for hit in hits if hit not in shown), key=lambda hit: -hit.score), history)


def _read(hits: Sequence[Hit], history: Searched) -> Iterator[Passage]:
    for start in range(0, len(hits), BATCH):
        batch = hits[start : start + BATCH]
        entries = history.at([hit.seq for hit in batch])
        yield from (Passage(hit, entries[hit.seq]) for hit in batch if hit.seq in entries)


def _fitted(head: list[str], passages: Iterator[Passage], limit_tokens: int, room: ResultRoom) -> str:
    """Head and passages, as many as fit; the last may be cut."""
    rows, left_tokens = list(head), limit_tokens - sum(room.tokens(line) + 1 for line in head)
    for passage in passages:
        row = passage.shown()
        row_tokens = room.tokens(row) + 1
        if row_tokens > left_tokens:
            rows.extend(_cut(passage, left_tokens, room))
            break
        rows.append(row)
        left_tokens -= row_tokens
    count = room.most(len(rows), lambda number: "\n".join(rows[:number]), limit_tokens)
    return "\n".join(rows[: max(count, 1)])


def _cut(passage: Passage, left_tokens: int, room: ResultRoom) -> Iterator[str]:
    """The beginning of a passage that fits what is left, if that is worth showing."""
    if left_tokens < LEAST_TOKENS:
        return
    low, high = 0, len(passage.text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if room.tokens(passage.shown(middle)) + 2 <= left_tokens else (low, middle - 1)
    yield passage.shown(whole_character(passage.text, 0, low)) + "…"
