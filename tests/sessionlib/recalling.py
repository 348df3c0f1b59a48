"""An archive in memory, whose postings are kept by the product's own upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessionlib.entries import Entry
from sessionlib.recall.contract import Found, Scope, Span
from sessionlib.recall.queries import Query
from sessionlib.recall.search import search
from sessionlib.recall.upkeep import upkeep
from sessionlib.running.history import gaps
from sessionlib.stores.contract import ChunkRef, Postings, PostingsRef


class Archive:
    """Chunks of entries, archived one after the other."""

    def __init__(self, *chunks: Sequence[Entry]) -> None:
        self.all: list[Entry] = []
        self.kept: list[Postings] = []
        self.refs: list[ChunkRef] = []
        for chunk in chunks:
            self.archive(chunk)

    def archive(self, chunk: Sequence[Entry], *, with_postings: bool = True) -> None:
        """A chunk leaves the window."""
        first_seq = len(self.all) + 1
        if with_postings:
            made = upkeep(chunk, first_seq, self, self.entries)
            self.kept[len(self.kept) - made.merged_count :] = [made.postings]
        self.all.extend(chunk)
        epoch = len(self.refs) + 1
        self.refs.append(ChunkRef(first_seq=first_seq, last_seq=len(self.all), epoch=epoch))

    def search(self, query: str, **scope: object) -> Found:
        made = Scope(**{"first_seq": 1, "last_seq": len(self.all), **scope})  # type: ignore[arg-type]
        return search(Query.of(query), self, made)

    # A shelf.

    def postings_index(self) -> Sequence[PostingsRef]:
        return [
            PostingsRef(first_seq=p.first_seq, last_seq=p.last_seq, level=p.level, part_count=len(p.parts))
            for p in self.kept
        ]

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        parts = {postings.last_seq: postings.parts for postings in self.kept}
        return [parts[last_seq][part] if last_seq in parts else b"" for last_seq, part in wanted]

    # A session's history, as its tools read it.

    def windows(self) -> Sequence[ChunkRef]:
        now = ChunkRef(first_seq=len(self.all) + 1, last_seq=len(self.all), epoch=len(self.refs) + 1)
        return (*self.refs, now)

    def last_seq(self) -> int:
        return len(self.all)

    def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
        return self.all[first_seq - 1 : last_seq]

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        return {seq: self.all[seq - 1] for seq in seqs}

    def found(self, query: Query, scope: Scope) -> Found:
        return search(query, self, scope)

    def unsearchable(self, scope: Scope, searched: Sequence[Span]) -> Sequence[Span]:
        return tuple(gaps(scope.first_seq, min(scope.last_seq, len(self.all)), searched))
