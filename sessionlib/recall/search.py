"""Search: the passages of a session's archive that answer a query best, from its postings alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sessionlib.errors import StoreUnavailable
from sessionlib.recall import ranking
from sessionlib.recall.contract import ROLES, Found, Hit, Scope, Shelf, Span
from sessionlib.recall.parts import TERM_COLUMNS, Part, part_of, passage_table, postings_in
from sessionlib.recall.postings import PassageTable, Segment, term_hash
from sessionlib.recall.queries import Query
from sessionlib.recall.ranking import TermPostings
from sessionlib.stores.contract import PostingsRef

HITS_LIMIT = 64
"""Passages that are ranked to their place: some 8,000 tokens, more than anybody wants to read."""

LOOKS = 4
"""How often the index is looked at, if rotations merge postings while they are read: once a rotation, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """What a query needs of all segments, as if they were one."""

    passages: PassageTable
    terms: dict[str, TermPostings]
    searched: tuple[Span, ...]


def search(query: Query, shelf: Shelf, scope: Scope, unarchived: Sequence[Segment] = ()) -> Found:
    """Rank the passages of *scope*. *unarchived*: postings of newer entries, of which the store has none.

    Raises StoreCorrupt, StoreUnavailable.
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
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = places[passages.roles]
    return mask & (seqs >= scope.first_seq) & (seqs <= scope.last_seq)


def _load(query: Query, shelf: Shelf, scope: Scope, unarchived: Sequence[Segment]) -> _Loaded:
    hashes = {term: term_hash(term) for term in query.all_terms}
    refs, data = _read(shelf, scope, list(hashes.values()))
    tables = [passage_table(data[ref.last_seq, 0], ref.first_seq) for ref in refs]
    parts = {place: Part(part, TERM_COLUMNS) for place, part in data.items() if place[1]}
    found: dict[str, list[TermPostings]] = {term: [] for term in hashes}
    offset = 0
    for ref, table in zip(refs, tables, strict=True):
        for term, hashed in hashes.items():
            held = postings_in(parts[ref.last_seq, part_of(hashed, ref.part_count - 1)], hashed)
            if held is not None:
                found[term].append(TermPostings(held[0] + offset, held[1]))
        offset += len(table)
    for segment in unarchived:
        for term, hashed in hashes.items():
            passages, frequencies = segment.terms.of(hashed)
            found[term].append(TermPostings(passages + offset, frequencies))
        tables.append(segment.passages)
        offset += len(segment.passages)
    spans = [(ref.first_seq, ref.last_seq) for ref in refs] + [(s.first_seq, s.last_seq) for s in unarchived]
    return _Loaded(
        PassageTable.joined(tables),
        {term: TermPostings.joined(held) for term, held in found.items()},
        _runs(spans),
    )


def _read(
    shelf: Shelf, scope: Scope, hashes: Sequence[int]
) -> tuple[Sequence[PostingsRef], dict[tuple[int, int], bytes]]:
    """The segments of the scope, and the parts of them that are needed, by last sequence number and part."""
    for _ in range(LOOKS):
        refs = [
            ref for ref in shelf.postings_index() if ref.first_seq <= scope.last_seq and ref.last_seq >= scope.first_seq
        ]
        wanted = list(
            dict.fromkeys(
                (ref.last_seq, part)
                for ref in refs
                for part in (0, *(part_of(hashed, ref.part_count - 1) for hashed in hashes))
            )
        )
        data = shelf.postings(wanted) if wanted else ()
        if all(data):
            return refs, dict(zip(wanted, data, strict=True))
    raise StoreUnavailable("the archive's postings were merged each time they were looked for; search again")


def _runs(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans, oldest first, those that touch as one."""
    runs: list[Span] = []
    for first, last in spans:
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return tuple(runs)
