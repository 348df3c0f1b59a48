"""A session's history as its private tools read it: what is live from the snapshot, what is archived from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sessionlib.archive import entries_at, entries_of
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import StoreCorrupt
from sessionlib.projection import Projection, exceeds
from sessionlib.recall.contract import Found, Scope, Span
from sessionlib.recall.queries import Query
from sessionlib.stores.contract import ChunkRef, PostingsRef, SessionStore, Snapshot, Trim

if TYPE_CHECKING:
    from sessionlib.recall.postings import Segment
    from sessionlib.recall.upkeep import Upkeep

ALL_CHUNKS = 1_000_000
"""Rotations of a session, at most: their spans are a few bytes each."""


class StoredPostings:
    """A session's postings in a store."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store, self._session_id = store, session_id

    def postings_index(self) -> Sequence[PostingsRef]:
        return self._store.postings_index(self._session_id)

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return self._store.postings(self._session_id, wanted)


class SessionHistory:
    """One session's history during one turn. *snapshot* gives the session as the turn knows it by now."""

    def __init__(self, store: SessionStore, projection: Projection, snapshot: Callable[[], Snapshot]) -> None:
        self._store, self._projection, self._snapshot = store, projection, snapshot
        self._segments: dict[int, Segment] = {}
        """Of live entries that were searched, by number: they never change."""

    def windows(self) -> Sequence[ChunkRef]:
        """What left the window, one chunk a rotation, oldest first, and the window that is now."""
        snapshot = self._snapshot()
        live = snapshot.layout.live
        now = ChunkRef(first_seq=live.first_seq, last_seq=live.next_seq - 1, epoch=snapshot.epoch + 1)
        archived = self._store.archive_index(snapshot.session_id, ALL_CHUNKS)
        return (*(chunk for chunk in archived if chunk.last_seq < live.first_seq), now)

    def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
        """Those of a span, as far as there are any. Raises StoreError."""
        snapshot = self._snapshot()
        live = snapshot.layout.live
        last_archived = min(last_seq, live.first_seq - 1)
        archived: Sequence[Entry] = ()
        if first_seq <= last_archived:
            chunks = self._store.chunks(snapshot.session_id, first_seq, last_archived)
            archived = entries_of(chunks, first_seq, last_archived)
        start, end = max(0, first_seq - live.first_seq), max(0, last_seq - live.first_seq + 1)
        return (*archived, *live.entries[start:end])

    def last_seq(self) -> int:
        """The newest entry."""
        return self._snapshot().layout.live.next_seq - 1

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        """Entries by their numbers, as far as they can be read; each sound archive chunk is read once.

        Raises StoreUnavailable.
        """
        snapshot = self._snapshot()
        live = snapshot.layout.live
        found = {seq: live.entries[seq - live.first_seq] for seq in seqs if live.first_seq <= seq < live.next_seq}
        for seq in seqs:
            if seq not in found and seq < live.first_seq:
                with suppress(StoreCorrupt):
                    for chunk in self._store.chunks(snapshot.session_id, seq, seq):
                        found |= entries_at(chunk, seqs)
        return found

    def found(self, query: Query, scope: Scope) -> Found:
        """The passages that answer best, archived ones and those of unseen live entries. Raises StoreError."""
        from sessionlib.recall.search import search  # numpy is loaded by those who search

        postings = StoredPostings(self._store, self._snapshot().session_id)
        return search(query, postings, scope, [self._segment(seq, entry) for seq, entry in self._unseen(scope)])

    def unsearchable(self, scope: Scope, searched: Sequence[Span]) -> Sequence[Span]:
        """Archived spans of the scope that are in none of those that were searched in full."""
        last_seq = min(scope.last_seq, self._snapshot().layout.live.first_seq - 1)
        return tuple(gaps(scope.first_seq, last_seq, searched))

    def _unseen(self, scope: Scope) -> Iterator[tuple[int, Entry]]:
        """Live entries that the model is not shown in full: what a trim leaves out, and long tool results."""
        snapshot = self._snapshot()
        for seq, entry in enumerate(snapshot.layout.live.entries, snapshot.layout.live.first_seq):
            if scope.first_seq <= seq <= scope.last_seq and self._is_unseen(seq, entry, snapshot.trim):
                yield seq, entry

    def _is_unseen(self, seq: int, entry: Entry, trim: Trim) -> bool:
        if seq < trim.dropped_before_seq:
            return True
        return entry.kind is EntryKind.TOOL_RESULT and (
            seq < trim.pointers_before_seq or exceeds(entry, self._projection.cap_tokens, self._projection.counter)
        )

    def _segment(self, seq: int, entry: Entry) -> Segment:
        from sessionlib.recall.postings import postings_of  # as above

        if seq not in self._segments:
            self._segments[seq] = postings_of((entry,), seq)
        return self._segments[seq]


def indexed(store: SessionStore, session_id: str, leaving: Sequence[Entry], first_seq: int) -> Upkeep | None:
    """The postings that a rotation adopts with what leaves; None if nothing does.

    None as well if what postings there are cannot be read: a damaged archive does not stop a session. The next rotation
    makes them.
    """
    from sessionlib.recall.upkeep import upkeep  # numpy is loaded by those who archive

    def archived(first: int, last: int) -> Sequence[Entry | None]:
        found = _legible(store, session_id, first, last)
        return [found.get(seq) for seq in range(first, last + 1)]

    try:
        return upkeep(leaving, first_seq, StoredPostings(store, session_id), archived) if leaving else None
    except StoreCorrupt:
        return None


def _legible(store: SessionStore, session_id: str, first_seq: int, last_seq: int) -> Mapping[int, Entry]:
    """The archived entries of a span, without those of chunks that cannot be read, by their numbers."""
    found: dict[int, Entry] = {}
    for ref in store.archive_index(session_id, ALL_CHUNKS):
        first, last = max(first_seq, ref.first_seq), min(last_seq, ref.last_seq)
        if first <= last:
            with suppress(StoreCorrupt):
                found |= enumerate(entries_of(store.chunks(session_id, first, last), first, last), first)
    return found


def gaps(first_seq: int, last_seq: int, spans: Sequence[Span]) -> Iterator[Span]:
    """What of *first_seq* … *last_seq* is in none of *spans*, which are given oldest first."""
    for first, last in spans:
        if first > first_seq and first_seq <= last_seq:
            yield first_seq, min(first - 1, last_seq)
        first_seq = max(first_seq, last + 1)
    if first_seq <= last_seq:
        yield first_seq, last_seq
