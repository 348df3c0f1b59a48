"""Parts: postings as bytes, so that a search reads only those that hold its terms.

Part 0 is the table of passages. The others are the terms, cut by the first bits of their hashes into a power of two of
parts. Each is a zstd frame with a checksum. The numbers of a column stand byte by byte in planes, the lowest bytes of
all, then the next: the high ones are nearly all zero, and cost nearly nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import zstandard

from sessionlib.errors import StoreCorrupt
from sessionlib.recall.postings import HASH_BITS, Numbers, PassageTable, Segment, TermTable, as_one
from sessionlib.stores.contract import PostingsRef

FORMAT = 2
"""Raised when parts change in a way that this code could not read, or terms in a way that it could not find."""

FIRST_FORMAT = 1
"""Its parts are alike. Its terms are not where they are not ASCII: hashes of pairs began with no character's, words
ended at combining marks, and some scripts were taken for spaced ones."""

LEVEL = 3
"""zstd's default, as for archive chunks."""

POSTINGS_PER_PART = 8_192
"""At most, on average: some 12,000 bytes, a fraction of a millisecond to read."""

LARGEST_PART_COUNT = 2_048
"""More postings make larger parts: a store takes 4,096 in one adoption."""

PASSAGE_COLUMNS, TERM_COLUMNS = 5, 4

_COLUMN = struct.Struct("<IB")
"""How many numbers a column has, and how many bytes each takes: as many as the largest needs."""


class Part:
    """One part, decompressed: columns of numbers. Raises StoreCorrupt for bytes that are no such part."""

    def __init__(self, data: bytes, column_count: int) -> None:
        try:
            raw = zstandard.ZstdDecompressor().decompress(data)
        except (zstandard.ZstdError, MemoryError) as exc:  # a damaged head may name any size
            raise StoreCorrupt(f"search postings cannot be read: {exc}") from exc
        head = 1 + column_count * _COLUMN.size
        if not raw or raw[0] not in (FORMAT, FIRST_FORMAT) or len(raw) < head:
            raise StoreCorrupt("search postings cannot be read: they were written in another format")
        self.is_first_format = raw[0] == FIRST_FORMAT
        self._planes = np.frombuffer(raw, np.uint8, offset=head)
        self._columns: list[tuple[int, int, int]] = []
        offset = 0
        for count, width in _COLUMN.iter_unpack(raw[1:head]):
            self._columns.append((offset, count, width))
            offset += count * width
        if offset != len(self._planes):
            raise StoreCorrupt("search postings cannot be read: they are not as long as they say")

    def column(self, place: int, start: int = 0, end: int | None = None) -> Numbers:
        """The numbers of a column from row *start* to before row *end*."""
        offset, count, width = self._columns[place]
        rows = range(count)[start:end]
        numbers = np.zeros(len(rows), np.int64)
        for number in range(width):
            first = offset + number * count
            plane = self._planes[first + rows.start : first + rows.stop]
            numbers |= plane.astype(np.int64) << 8 * number
        return numbers

    @cached_property
    def hashes(self) -> Numbers:
        """Of the terms in a part of terms: a query may have several in one part."""
        return np.cumsum(self.column(0))


def packed(columns: Sequence[Numbers]) -> bytes:
    """Columns as a part."""
    head, planes = [bytes([FORMAT])], []
    for column in columns:
        width = (int(column.max(initial=0)).bit_length() + 7) // 8
        head.append(_COLUMN.pack(len(column), width))
        planes.append(np.ascontiguousarray(column, "<i8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes())
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(b"".join(head + planes))


def parts_of(segment: Segment) -> tuple[bytes, ...]:
    """A segment as parts."""
    passages, terms = segment.passages, segment.terms
    seqs = np.diff(passages.seqs, prepend=segment.first_seq)
    table = packed((seqs, *passages.columns()[1:]))
    count = part_count(len(terms.passages))
    borders = np.array([part << _shift(count) for part in range(1, count)], np.int64)
    cuts = [0, *np.searchsorted(terms.hashes, borders).tolist(), len(terms.hashes)]
    firsts = _firsts(terms.passage_counts)
    deltas = np.diff(terms.passages, prepend=0)
    deltas[firsts[:-1]] = terms.passages[firsts[:-1]]
    return table, *(
        packed(
            (
                np.diff(terms.hashes[start:end], prepend=0),
                terms.passage_counts[start:end],
                deltas[firsts[start] : firsts[end]],
                terms.frequencies[firsts[start] : firsts[end]],
            )
        )
        for start, end in pairwise(cuts)
    )


def segment_of(ref: PostingsRef, parts: Sequence[bytes]) -> Segment:
    """The segment that `parts_of` cut, from all its parts. Raises StoreCorrupt, also for those of the first format,
    whose terms are not ours."""
    tables = [Part(part, TERM_COLUMNS) for part in parts[1:]]
    if any(table.is_first_format for table in tables):
        raise StoreCorrupt("search postings cannot be merged: they were written in the first format")
    counts = np.concatenate([table.column(1) for table in tables])
    deltas = np.concatenate([table.column(2) for table in tables])
    return Segment(
        first_seq=ref.first_seq,
        last_seq=ref.last_seq,
        passages=passage_table(parts[0], ref.first_seq),
        terms=TermTable(
            hashes=np.concatenate([table.hashes for table in tables]),
            passage_counts=counts,
            passages=_summed(deltas, counts),
            frequencies=np.concatenate([table.column(3) for table in tables]),
        ),
    )


def passage_table(data: bytes, first_seq: int) -> PassageTable:
    """Part 0 of a segment that begins at *first_seq*. Raises StoreCorrupt."""
    part = Part(data, PASSAGE_COLUMNS)
    seqs, *others = (part.column(place) for place in range(PASSAGE_COLUMNS))
    return PassageTable.of((np.cumsum(seqs) + first_seq, *others))


def postings_in(part: Part, hashes: range) -> tuple[Numbers, Numbers] | None:
    """The passages that hold terms of these hashes, all of one part, and how often each does; None if none does."""
    first, last = np.searchsorted(part.hashes, (hashes.start, hashes.stop)).tolist()
    if first == last:
        return None
    counts = part.column(1, 0, last)
    end = int(counts.sum())
    start = end - int(counts[first:].sum())
    return as_one(last - first, _summed(part.column(2, start, end), counts[first:]), part.column(3, start, end))


def part_count(posting_count: int) -> int:
    """In how many parts so many postings are cut, the table of passages not counted."""
    return min(LARGEST_PART_COUNT, 1 << (max(0, posting_count - 1) // POSTINGS_PER_PART).bit_length())


def part_of(term_hash: int, count: int) -> int:
    """Which part holds a term, of a segment that has *count* parts and the table of passages."""
    return 1 + (term_hash >> _shift(count))


def _shift(count: int) -> int:
    return HASH_BITS - (count.bit_length() - 1)


def _summed(deltas: Numbers, counts: Numbers) -> Numbers:
    """Numbers from the differences to the one before; the first of each run, of which there are *counts*, is given."""
    firsts, sums = _firsts(counts)[:-1], np.cumsum(deltas)
    return sums - np.repeat(sums[firsts] - deltas[firsts], counts)


def _firsts(counts: Numbers) -> Numbers:
    """Where the postings of each term begin, and where the last end."""
    return np.concatenate([[0], np.cumsum(counts)])
