"""Ranking: which passages answer a query best. The formula is BM25's, as bm25s has it (Lucene's variant)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer
from numpy.typing import NDArray

from sessionlib.recall.postings import Numbers

Scores = NDArray[np.float64]

METHOD, K1, B = "lucene", 0.9, 0.75
"""bm25s's defaults, except that k1 is 1.5 there: said five times in a passage, a word says little more than once."""

COMMON_FRACTION = 1 / 3
"""A term that so many passages hold makes none of them a candidate, where the query has a rarer one."""

NEIGHBOUR_SHARES = (0.5, 0.35)
"""What a term counts for in the passages beside one that holds it, and in those two away, unless they hold it too: an
answer stands near its question, and need not repeat its words. Of the evidence of LoCoMo's questions 68 % is found with
it and 56 % without; more, or the sum in the place of the largest, finds fewer decisions planted in coding sessions."""

EXACT_FRACTION = 1 / 20
EXACT_COUNT = 10
"""An exact value in more passages than this share, and this number, says nothing: `1`, `src`. It ranks as a term."""

LIKELY_FRACTION = 1 / 4
"""Passages below this share of the best score are only sorted where too few are above it: that saves milliseconds."""

_idf = _select_idf_scorer(METHOD)
_tfc = _select_tfc_scorer(METHOD)


@dataclass(frozen=True, slots=True, eq=False)
class TermPostings:
    """The passages of a whole archive that hold a term, ascending, and how often each does."""

    passages: Numbers
    frequencies: Numbers

    @classmethod
    def joined(cls, runs: Sequence[TermPostings]) -> TermPostings:
        """Those of consecutive runs of passages."""
        if len(runs) == 1:
            return runs[0]
        empty = np.zeros(0, np.int64)
        return cls(
            np.concatenate([empty, *(run.passages for run in runs)]),
            np.concatenate([empty, *(run.frequencies for run in runs)]),
        )

    def __len__(self) -> int:
        return len(self.passages)


def scores_of(
    term_counts: Numbers, postings: Sequence[TermPostings], shares: Sequence[float] = NEIGHBOUR_SHARES
) -> Scores:
    """The score of each passage: the sum over the query's terms; 0 for one that is no candidate.

    *term_counts* are the lengths of all passages. Without *shares* it is plain BM25.
    """
    count = len(term_counts)
    total, is_candidate = np.zeros(count), np.zeros(count, np.bool_)
    found = [held for held in postings if len(held)]
    has_rarer = any(not _is_common(held, count) for held in found)
    for held in found:
        says_nothing = has_rarer and _is_common(held, count)
        scores = _spread(count, held.passages, _bm25(term_counts, held), () if says_nothing else shares)
        total += scores
        if not says_nothing:
            is_candidate |= scores > 0
    total[~is_candidate] = 0
    return total


def _is_common(held: TermPostings, passage_count: int) -> bool:
    return len(held) > passage_count * COMMON_FRACTION


def _bm25(term_counts: Numbers, held: TermPostings) -> Scores:
    """The scores of the passages that hold a term, for that term."""
    lengths = term_counts[held.passages].astype(np.float64)
    frequencies = held.frequencies.astype(np.float64)
    tfc: Scores = _tfc(tf_array=frequencies, l_d=lengths, l_avg=term_counts.mean(), k1=K1, b=B)
    idf: float = _idf(len(held), N=len(term_counts))
    return idf * tfc


def _spread(count: int, passages: Numbers, scores: Scores, shares: Sequence[float]) -> Scores:
    """The scores of *passages*, and what those around them have of them."""
    reach = len(shares)
    spread = np.zeros(count + 2 * reach)  # room for what stands before the first passage and after the last
    places = passages + reach
    spread[places] = scores
    for distance, share in enumerate(shares, 1):
        shared = share * scores
        for beside in (places - distance, places + distance):
            spread[beside] = np.maximum(spread[beside], shared)
    return spread[reach : reach + count]


def exact_counts(passage_count: int, values: Sequence[Sequence[TermPostings]]) -> Numbers:
    """How many of the exact *values*, each given by its terms, a passage may hold. Common values do not count."""
    counts = np.zeros(passage_count, np.int64)
    for terms in values:
        has_all = np.ones(passage_count, np.bool_)
        for held in terms:
            has = np.zeros(passage_count, np.bool_)
            has[held.passages] = True
            has_all &= has
        if np.count_nonzero(has_all) <= max(EXACT_COUNT, passage_count * EXACT_FRACTION):
            counts += has_all
    return counts


def best(scores: Scores, exact: Numbers, limit: int) -> Numbers:
    """The best *limit* passages of those with a score: exact values first, then by score, the newer first of equals."""
    floor = scores.max(initial=0.0) * LIKELY_FRACTION
    found = np.flatnonzero((scores > floor) | ((exact > 0) & (scores > 0)))
    if len(found) < limit:  # few are near the best: all are looked at
        found = np.flatnonzero(scores > 0)
    keys = exact[found] * (float(scores.max(initial=0.0)) + 1) + scores[found]
    if len(found) > limit:
        kept = np.argpartition(-keys, limit - 1)[:limit]
        found, keys = found[kept], keys[kept]
    return found[np.lexsort((-found, -keys))]
