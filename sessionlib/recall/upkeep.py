"""Upkeep: the postings that a rotation adopts, so that a session has few segments however many chunks it archived.

A log-structured merge tree: a chunk's postings have level 0. When FAN_OUT segments of a level are the newest, they
become one of the next level. Each entry's postings are so rewritten once a level, and there are at most
(FAN_OUT - 1) × levels segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt
from sessionlib.recall.contract import Shelf
from sessionlib.recall.parts import parts_of, segment_of
from sessionlib.recall.postings import Segment, merged, postings_of
from sessionlib.stores.contract import Postings, PostingsRef

Archived = Callable[[int, int], Sequence[Entry | None]]
"""The archived entries of a span, None for each that cannot be read."""

FAN_OUT = 8
"""Segments of a level that become one. More would be read by each search, fewer rewritten oftener."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a rotation adopts with its chunk."""

    postings: Postings
    merged_count: int
    """How many of the newest stored postings these take the place of."""


def upkeep(leaving: Sequence[Entry], first_seq: int, shelf: Shelf, archived: Archived) -> Upkeep:
    """The postings of the entries that leave, merged with stored ones where it is time.

    Archived entries without postings, right before those that leave, are indexed with them. Of what cannot be read the
    place is kept, so that damage does not spread to what came later.
    """
    now: Sequence[Entry | None] = leaving
    stored = shelf.postings_index()
    next_seq = stored[-1].last_seq + 1 if stored else 1
    if next_seq < first_seq:
        now, first_seq = (*archived(next_seq, first_seq - 1), *leaving), next_seq
    level, merged_count = merge_plan(stored)
    older = stored[len(stored) - merged_count :]
    segment = merged([*(_segment(ref, shelf, archived) for ref in older), postings_of(now, first_seq)])
    return Upkeep(
        Postings(first_seq=segment.first_seq, last_seq=segment.last_seq, level=level, parts=parts_of(segment)),
        merged_count,
    )


def merge_plan(stored: Sequence[PostingsRef]) -> tuple[int, int]:
    """The level of the next postings, and how many of the newest stored ones they are merged with."""
    level = merged_count = 0
    while (run := _newest_run(stored[: len(stored) - merged_count], level)) >= FAN_OUT - 1:
        level, merged_count = level + 1, merged_count + run
    return level, merged_count


def _newest_run(stored: Sequence[PostingsRef], level: int) -> int:
    """How many of the newest are of *level*, up to the first that is not."""
    return sum(1 for _ in takewhile(lambda ref: ref.level == level, reversed(stored)))


def _segment(ref: PostingsRef, shelf: Shelf, archived: Archived) -> Segment:
    """A stored segment; one that is damaged, lost or of the first format is made again, being nothing but a function of
    its entries. So is one that lacks entries which can be read by now."""
    try:
        segment = segment_of(ref, shelf.postings([(ref.last_seq, part) for part in range(ref.part_count)]))
        is_whole = not _is_more_legible(segment.passages.unread.tolist(), archived)
    except StoreCorrupt:
        is_whole = False
    return segment if is_whole else postings_of(archived(ref.first_seq, ref.last_seq), ref.first_seq)


def _is_more_legible(unread: Sequence[int], archived: Archived) -> bool:
    """Whether some of the entries that could not be read now can: an old program cannot read what a newer one wrote."""
    if not unread:
        return False
    entries = archived(unread[0], unread[-1])
    return any(entries[seq - unread[0]] is not None for seq in unread)
