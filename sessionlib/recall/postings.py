"""Postings: in which passages of a run of archived entries each term occurs, and how often.

A term is known by 48 bits of its BLAKE2b hash: among a million different terms, one in three hundred million that were
never written is taken for one of them. Terms in the order of their hashes make everything else slicing and sorting: a
part is a range of hashes, and merging is one stable sort.

Numpy takes a tenth of a second to load: whoever imports this module does so where the first search, or the first chunk
to be archived, needs it.
"""

from __future__ import annotations

import hashlib
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sessionlib.entries import Entry, EntryKind
from sessionlib.recall.contract import ROLES
from sessionlib.recall.passages import passages_of
from sessionlib.recall.terms import terms_of

Numbers = NDArray[np.int64]

HASH_BITS = 48


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PassageTable:
    """The passages of a run of entries, in order: a column each."""

    seqs: Numbers
    """The entry that each belongs to."""
    starts: Numbers
    """Where it begins in the entry, in characters."""
    lengths: Numbers
    """In characters."""
    term_counts: Numbers
    roles: Numbers
    """Places in ROLES."""

    @classmethod
    def of(cls, columns: Sequence[Numbers]) -> PassageTable:
        """A table by its columns, in their order here."""
        seqs, starts, lengths, term_counts, roles = columns
        return cls(seqs=seqs, starts=starts, lengths=lengths, term_counts=term_counts, roles=roles)

    @classmethod
    def joined(cls, tables: Sequence[PassageTable]) -> PassageTable:
        """Tables one after the other."""
        empty = [np.zeros(0, np.int64)] * 5
        return cls.of([np.concatenate(columns) for columns in zip(empty, *(t.columns() for t in tables), strict=True)])

    def columns(self) -> tuple[Numbers, ...]:
        return self.seqs, self.starts, self.lengths, self.term_counts, self.roles

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TermTable:
    """Postings by term. `passages` and `frequencies` hold those of the first term, then those of the second, …"""

    hashes: Numbers
    """Ascending, each once."""
    passage_counts: Numbers
    """How many passages hold the term."""
    passages: Numbers
    """Places in the passage table, ascending for each term."""
    frequencies: Numbers
    """How often the term occurs in the passage."""

    def of(self, hashed: int) -> tuple[Numbers, Numbers]:
        """The passages of one term, and how often each holds it."""
        place = int(np.searchsorted(self.hashes, hashed))
        if place == len(self.hashes) or self.hashes[place] != hashed:
            return self.passages[:0], self.frequencies[:0]
        start = int(self.passage_counts[:place].sum())
        end = start + int(self.passage_counts[place])
        return self.passages[start:end], self.frequencies[start:end]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Segment:
    """The postings of the entries *first_seq* … *last_seq*."""

    first_seq: int
    last_seq: int
    passages: PassageTable
    terms: TermTable


@lru_cache(maxsize=65_536)
def term_hash(term: str) -> int:
    """What a term is known by, the same in every process. Remembered, since few terms make up most of every text."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=HASH_BITS // 8).digest(), "big")


def postings_of(entries: Sequence[Entry], first_seq: int) -> Segment:
    """The postings of *entries*, the first of which has sequence number *first_seq*. There must be one at least."""
    rows: list[tuple[int, int, int, int, int]] = []
    hashes: list[int] = []
    passages: list[int] = []
    frequencies: list[int] = []
    for seq, entry in enumerate(entries, first_seq):
        for start, end in passages_of(entry):
            tally = Tally(_terms(entry, start, end))
            hashes.extend(map(term_hash, tally))
            passages.extend([len(rows)] * len(tally))
            frequencies.extend(tally.values())
            rows.append((seq, start, end - start, tally.total(), ROLES.index(entry.kind)))
    columns = list(np.array(rows, np.int64).reshape(-1, 5).T)
    return Segment(
        first_seq=first_seq,
        last_seq=first_seq + len(entries) - 1,
        passages=PassageTable.of(columns),
        terms=_by_term(*(np.array(column, np.int64) for column in (hashes, passages, frequencies))),
    )


def merged(segments: Sequence[Segment]) -> Segment:
    """The postings of all entries of *segments*, which are given oldest first: what `postings_of` makes of them all."""
    offsets = np.cumsum([0, *(len(segment.passages) for segment in segments)])
    tables = [segment.terms for segment in segments]
    return Segment(
        first_seq=segments[0].first_seq,
        last_seq=segments[-1].last_seq,
        passages=PassageTable.joined([segment.passages for segment in segments]),
        terms=_by_term(
            np.concatenate([np.repeat(table.hashes, table.passage_counts) for table in tables]),
            np.concatenate([table.passages + offset for table, offset in zip(tables, offsets, strict=False)]),
            np.concatenate([table.frequencies for table in tables]),
        ),
    )


def _terms(entry: Entry, start: int, end: int) -> Iterable[str]:
    """The terms of a passage; the first of a call has the tool's name among its own."""
    terms = terms_of(entry.readable[start:end], is_json=_is_json(entry))
    if start == 0 and entry.kind is EntryKind.TOOL_CALL and entry.tool_name:
        terms += terms_of(entry.tool_name)
    return terms


def _is_json(entry: Entry) -> bool:
    """Whether escapes in the entry stand for characters."""
    return entry.kind is EntryKind.TOOL_CALL or entry.text[:1] in ("{", "[")


def _by_term(hashes: Numbers, passages: Numbers, frequencies: Numbers) -> TermTable:
    """Single postings, those of each term in the order of their passages, sorted into a table."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else order
    return TermTable(
        hashes=ordered[firsts],
        passage_counts=np.diff(np.append(firsts, len(ordered))),
        passages=passages[order],
        frequencies=frequencies[order],
    )
