"""Postings: in which passages of a run of archived entries each term occurs, and how often.

A term is known by 48 bits of its BLAKE2b hash: among a million different terms, one in three hundred million that were
never written is taken for one of them. Terms in the order of their hashes make everything else slicing and sorting: a
part is a range of hashes, and merging is one stable sort.

The hash of a pair of characters (of a script that is not spaced) begins with that of its first character. A character
is so found as all pairs that begin with it, and takes no postings of its own but at the end of a run: with some, those
of Chinese and Japanese would take half as much again.

An entry that cannot be read, its archive chunk being damaged, has a passage of no length and no term: its place.

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
from sessionlib.recall.terms import first_character, terms_of

Numbers = NDArray[np.int64]

HASH_BITS = 48
CHARACTER_BITS = 24
"""Of the hash of a pair, those of its first character."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PassageTable:
    """The passages of a run of entries, in order: a column each."""

    seqs: Numbers
    """The entry that each belongs to, ascending."""
    starts: Numbers
    """Where it begins in the entry, in characters."""
    lengths: Numbers
    """In characters; 0 for an entry that could not be read."""
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

    @property
    def unread(self) -> Numbers:
        """The entries that could not be read."""
        unread: Numbers = self.seqs[self.lengths == 0]
        return unread

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

    def of(self, hashes: range) -> tuple[Numbers, Numbers]:
        """The passages that hold terms of these hashes, ascending, and how often each does."""
        first, last = np.searchsorted(self.hashes, (hashes.start, hashes.stop)).tolist()
        start = int(self.passage_counts[:first].sum())
        end = start + int(self.passage_counts[first:last].sum())
        return as_one(last - first, self.passages[start:end], self.frequencies[start:end])


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
    if character := first_character(term):
        low_bits = HASH_BITS - CHARACTER_BITS
        return _blake(character) >> low_bits << low_bits | _blake(term) & (1 << low_bits) - 1
    return _blake(term)


def hashes_of(term: str) -> range:
    """The hashes of all terms that hold *term*: its own, or those of all pairs that begin with a character."""
    hashed = term_hash(term)
    if term and term == first_character(term):
        first = hashed >> HASH_BITS - CHARACTER_BITS
        return range(first << HASH_BITS - CHARACTER_BITS, first + 1 << HASH_BITS - CHARACTER_BITS)
    return range(hashed, hashed + 1)


def first_format_hash(term: str) -> int:
    """What a term is known by in postings of the first format."""
    return _blake(term)


def _blake(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=HASH_BITS // 8).digest(), "big")


def as_one(term_count: int, passages: Numbers, frequencies: Numbers) -> tuple[Numbers, Numbers]:
    """The postings of several terms, one after the other, as those of one: each passage once, ascending."""
    if term_count <= 1:
        return passages, frequencies
    distinct, places = np.unique(passages, return_inverse=True)
    return distinct, np.bincount(places, weights=frequencies).astype(np.int64)


def postings_of(entries: Sequence[Entry | None], first_seq: int) -> Segment:
    """The postings of *entries*, the first of which has sequence number *first_seq*. There must be one at least.

    None stands for an entry that cannot be read.
    """
    rows: list[tuple[int, int, int, int, int]] = []
    hashes: list[int] = []
    passages: list[int] = []
    frequencies: list[int] = []
    for seq, entry in enumerate(entries, first_seq):
        if entry is None:
            rows.append((seq, 0, 0, 0, 0))
            continue
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
    terms = terms_of(entry.readable[start:end], is_json=_is_json(entry), with_ends=True)
    if start == 0 and entry.kind is EntryKind.TOOL_CALL and entry.tool_name:
        terms += terms_of(entry.tool_name, with_ends=True)
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
