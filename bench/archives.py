"""Archives for benches: recorded sessions as they lie in a store, chunk by chunk, and real transcripts to fill them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sessionlib.archive import pack
from sessionlib.entries import Entry
from sessionlib.recall.contract import Found, Scope, Span
from sessionlib.recall.queries import Query
from sessionlib.recall.search import search
from sessionlib.recall.upkeep import upkeep
from sessionlib.recordings import read_recording
from sessionlib.recordings.decoding import decode
from sessionlib.running.history import gaps
from sessionlib.stores.contract import ChunkRef, Postings, PostingsRef
from workers.replay.history import recorded_entries

CHUNK_CHARACTERS = 64_000
"""What leaves at one rotation: a window of 32,000 tokens lets some 16,000 go."""

DATA = Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[2] / "shared" / "data")


def data_sets() -> Mapping[str, Sequence[Entry]]:
    """Each real transcript that is there, by name; none where the directory is absent. Dialogues of a file follow each
    other."""
    found: dict[str, Sequence[Entry]] = {}
    for path in sorted(DATA.glob("*.json")) if DATA.is_dir() else ():
        data = path.read_bytes()
        document = decode(data, path.name)
        names = [each["id"] for each in document.get("conversations", [])] if isinstance(document, dict) else []
        recordings = (read_recording(data, path.name, name) for name in names or [""])
        found[path.stem] = tuple(entry for recording in recordings for entry in recorded_entries(recording))
    return found


def chunked(entries: Sequence[Entry], characters: int = CHUNK_CHARACTERS) -> Iterator[Sequence[Entry]]:
    """*entries* in runs of about so many characters, one entry at least."""
    start, held = 0, 0
    for end, entry in enumerate(entries, 1):
        held += len(entry.text)
        if held >= characters or end == len(entries):
            yield entries[start:end]
            start, held = end, 0


class MemoryArchive:
    """An archive without a store: the same chunks, the same postings, merged as rotations merge them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._postings: list[Postings] = []
        self._windows: list[ChunkRef] = []
        self.chunk_bytes = 0
        for epoch, chunk in enumerate(chunked(entries), 1):
            first_seq = self._windows[-1].last_seq + 1 if self._windows else 1
            kept = upkeep(chunk, first_seq, self, self.entries)
            self._postings[len(self._postings) - kept.merged_count :] = [kept.postings]
            self._windows.append(ChunkRef(first_seq=first_seq, last_seq=first_seq + len(chunk) - 1, epoch=epoch))
            self.chunk_bytes += len(pack(chunk))

    @property
    def postings_bytes(self) -> int:
        return sum(len(part) for postings in self._postings for part in postings.parts)

    def postings_index(self) -> Sequence[PostingsRef]:
        return [
            PostingsRef(first_seq=p.first_seq, last_seq=p.last_seq, level=p.level, part_count=len(p.parts))
            for p in self._postings
        ]

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        by_seq = {postings.last_seq: postings.parts for postings in self._postings}
        return [by_seq[last_seq][part] for last_seq, part in wanted]

    # What the history tools ask of a session.

    def windows(self) -> Sequence[ChunkRef]:
        return self._windows

    def last_seq(self) -> int:
        return len(self._entries)

    def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
        return self._entries[first_seq - 1 : last_seq]

    def at(self, seqs: Sequence[int]) -> Mapping[int, Entry]:
        return {seq: self._entries[seq - 1] for seq in seqs}

    def found(self, query: Query, scope: Scope) -> Found:
        return search(query, self, scope)

    def unsearchable(self, scope: Scope, searched: Sequence[Span]) -> Sequence[Span]:
        return tuple(gaps(scope.first_seq, min(scope.last_seq, len(self._entries)), searched))
