"""Search: the passages of a session's archive that answer a query best, from its postings alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from sessionlib.errors import StoreCorrupt, StoreUnavailable
from sessionlib.recall import ranking
from sessionlib.recall.contract import ROLES, Found, Hit, Scope, Shelf, Span
from sessionlib.recall.parts import TERM_COLUMNS, Part, part_of, passage_table, postings_in
from sessionlib.recall.postings import Numbers, PassageTable, Segment, first_format_hash, hashes_of
from sessionlib.recall.queries import Query
from sessionlib.recall.ranking import TermPostings
from sessionlib.stores.contract import PostingsRef

HITS_LIMIT = 64
"""Passages that are ranked to their place: some 8,000 tokens, more than anybody wants to read."""

LOOKS = 4
"""How often the index is looked at, if rotations merge postings while they are read: once a rotation, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What a query needs of one segment."""

    passages: PassageTable
    postings: Mapping[str, tuple[Numbers, Numbers]]
    """By term: which of the passages hold it, and how often each does."""
    searched: tuple[Span, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """What a query needs of all segments, as if they were one."""

    passages: PassageTable
    terms: dict[str, TermPostings]
    searched: tuple[Span, ...]


def search(query: Query, shelf: Shelf, scope: Scope, unarchived: Sequence[Segment] = ()) -> Found:
    """Rank the passages of *scope*. *unarchived*: postings of newer entries, of which the store has none.

    Postings that are damaged or lost are left out, with their spans. Raises StoreUnavailable.
    """
    loaded = _load(query, shelf, scope, unarchived)
    count, postings = len(loaded.passages), [loaded.terms[term] for term in query.terms]
    scores = ranking.scores_of(loaded.passages.term_counts, postings)
    scores[~_in_scope(loaded.passages, scope)] = 0
    exact = ranking.exact_counts(count, [[loaded.terms[term] for term in value.terms] for value in query.values])
    best = ranking.best(scores, exact, HITS_LIMIT)
    return Found(
        hits=tuple(_hit(loaded.passages, int(place), float(scores[place]), int(exact[place])) for place in best),
        match_count=int(np.count_nonzero(scores)),
        searched=loaded.searched,
    )


def _hit(passages: PassageTable, place: int, score: float, exact_count: int) -> Hit:
    start = int(passages.starts[place])
    return Hit(
        seq=int(passages.seqs[place]),
        start=start,
        end=start + int(passages.lengths[place]),
        score=score,
        exact_count=exact_count,
    )


def _in_scope(passages: PassageTable, scope: Scope) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    places = np.array([role in scope.roles for role in ROLES])
    seqs = passages.seqs
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = places[passages.roles] & (passages.lengths > 0)
    return mask & (seqs >= scope.first_seq) & (seqs <= scope.last_seq)


def _load(query: Query, shelf: Shelf, scope: Scope, unarchived: Sequence[Segment]) -> _Loaded:
    terms = query.all_terms
    read = [_stored(ref, data, terms) for ref, data in _read(shelf, scope, terms)]
    runs = [run for run in read if run] + [_unstored(segment, terms) for segment in unarchived]
    offsets = accumulate((len(run.passages) for run in runs), initial=0)
    found: dict[str, list[TermPostings]] = {term: [] for term in terms}
    for offset, run in zip(offsets, runs, strict=False):
        for term, (passages, frequencies) in run.postings.items():
            found[term].append(TermPostings(passages + offset, frequencies))
    return _Loaded(
        PassageTable.joined([run.passages for run in runs]),
        {term: TermPostings.joined(held) for term, held in found.items()},
        _joined([span for run in runs for span in run.searched]),
    )


def _stored(ref: PostingsRef, data: Mapping[int, bytes], terms: Sequence[str]) -> _Run | None:
    """What a stored segment has, from those of its parts that hold the terms; None if one of them is damaged."""
    try:
        table = passage_table(data[0], ref.first_seq)
        parts = {place: Part(part, TERM_COLUMNS) for place, part in data.items() if place}
    except StoreCorrupt:
        return None
    is_first_format = any(part.is_first_format for part in parts.values())
    postings: dict[str, tuple[Numbers, Numbers]] = {}
    for term in terms:
        hashes = _first_format_hashes(term) if is_first_format else hashes_of(term)
        held = postings_in(parts[part_of(hashes.start, ref.part_count - 1)], hashes)
        if held is not None:
            postings[term] = held
    is_searched = not is_first_format or all(map(str.isascii, terms))
    readable = _readable(ref.first_seq, ref.last_seq, table.unread.tolist())
    return _Run(table, postings, tuple(readable) if is_searched else ())


def _unstored(segment: Segment, terms: Sequence[str]) -> _Run:
    postings = {term: segment.terms.of(hashes_of(term)) for term in terms}
    return _Run(segment.passages, postings, ((segment.first_seq, segment.last_seq),))


def _read(shelf: Shelf, scope: Scope, terms: Sequence[str]) -> Iterator[tuple[PostingsRef, Mapping[int, bytes]]]:
    """The segments of the scope, each with those of its parts that are needed, b"" where one is lost.

    What is not there was merged since the index was read, and the next index has something else; what that names again
    is lost. Raises StoreUnavailable.
    """
    missing: AbstractSet[PostingsRef] = frozenset()
    for _ in range(LOOKS):
        refs = [
            ref for ref in shelf.postings_index() if ref.first_seq <= scope.last_seq and ref.last_seq >= scope.first_seq
        ]
        parts = {ref: _parts_wanted(ref, terms) for ref in refs}
        wanted = [(ref.last_seq, part) for ref in refs for part in parts[ref]]
        data = dict(zip(wanted, shelf.postings(wanted) if wanted else (), strict=True))
        lost, missing = missing, {ref for ref in refs if not all(data[ref.last_seq, part] for part in parts[ref])}
        if missing <= lost:
            return ((ref, {part: data[ref.last_seq, part] for part in parts[ref]}) for ref in refs)
    raise StoreUnavailable("the archive's postings were merged each time they were looked for; search again")


def _parts_wanted(ref: PostingsRef, terms: Sequence[str]) -> Sequence[int]:
    """The table of passages, and the parts that hold the terms, of whichever format they are."""
    hashes = (hashes.start for term in terms for hashes in (hashes_of(term), _first_format_hashes(term)))
    return tuple(dict.fromkeys((0, *(part_of(hashed, ref.part_count - 1) for hashed in hashes))))


def _first_format_hashes(term: str) -> range:
    hashed = first_format_hash(term)
    return range(hashed, hashed + 1)


def _readable(first_seq: int, last_seq: int, unread: Sequence[int]) -> Iterator[Span]:
    """What of *first_seq* … *last_seq* is not among *unread*, which ascend."""
    for seq in unread:
        if first_seq < seq:
            yield first_seq, seq - 1
        first_seq = seq + 1
    if first_seq <= last_seq:
        yield first_seq, last_seq


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans, oldest first, those that touch as one."""
    runs: list[Span] = []
    for first, last in spans:
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return tuple(runs)
