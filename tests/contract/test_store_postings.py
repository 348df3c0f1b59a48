"""Contract of search postings: adopted with their chunk, merged, read part by part; and of the archive's index."""

from __future__ import annotations

from typing import Any

import pytest

from sessionlib.errors import InvalidInput
from sessionlib.stores.contract import Adopted, ChunkRef, Lane, Postings, PostingsRef
from tests.contract.arena import SESSION, Arena

PARTS = (b"\x00zstd\n", b"", b"one:two")


def postings(first_seq: int, last_seq: int, *parts: bytes, level: int = 0) -> Postings:
    return Postings(first_seq=first_seq, last_seq=last_seq, level=level, parts=parts)


def archive(arena: Arena, count: int, kept: Postings | None, merged_count: int = 0, **fields: Any) -> Adopted:
    """A turn of two entries, and a rotation by which *count* leave with these postings."""
    arena.answer(arena.token("t"))
    return arena.rotate(count, postings=kept, merged_count=merged_count, **fields)


def spans(arena: Arena) -> list[tuple[int, int]]:
    return [(ref.first_seq, ref.last_seq) for ref in arena.store.postings_index(SESSION)]


def ref(first_seq: int, last_seq: int, level: int, part_count: int) -> PostingsRef:
    return PostingsRef(first_seq=first_seq, last_seq=last_seq, level=level, part_count=part_count)


def test_postings_come_with_their_chunk(arena: Arena) -> None:
    """They are there part by part, byte for byte."""
    archive(arena, 2, postings(1, 2, *PARTS))
    assert list(arena.store.postings_index(SESSION)) == [ref(1, 2, 0, 3)]
    assert list(arena.store.postings(SESSION, [(2, 2), (2, 0), (2, 1)])) == [PARTS[2], PARTS[0], PARTS[1]]


def test_rotation_without_postings(arena: Arena) -> None:
    """A chunk may have none."""
    archive(arena, 2, None)
    assert list(arena.store.postings_index(SESSION)) == []


def test_postings_of_nothing(arena: Arena) -> None:
    """Entries without a word have no part."""
    archive(arena, 2, postings(1, 2))
    assert list(arena.store.postings_index(SESSION)) == [ref(1, 2, 0, 0)]


def test_merged_postings_take_the_place_of_others(arena: Arena) -> None:
    """The newest so many go with all of their parts, the older ones stay."""
    for number, last_seq in enumerate((2, 4, 6)):
        archive(arena, 2, postings(last_seq - 1, last_seq, b"%d" % number, b"x"))
    archive(arena, 2, postings(3, 8, b"merged", level=1), merged_count=2)
    assert list(arena.store.postings_index(SESSION)) == [ref(1, 2, 0, 2), ref(3, 8, 1, 1)]
    wanted = [(2, 0), (4, 0), (6, 1), (8, 0)]
    assert list(arena.store.postings(SESSION, wanted)) == [b"0", b"", b"", b"merged"]


def test_all_may_be_merged(arena: Arena) -> None:
    """One list is left, with nothing of what it replaced."""
    archive(arena, 2, postings(1, 2, b"a", b"b"))
    archive(arena, 2, postings(1, 4, b"ab", level=1), merged_count=1)
    assert spans(arena) == [(1, 4)]
    assert list(arena.store.postings(SESSION, [(2, 0), (2, 1), (4, 0)])) == [b"", b"", b"ab"]


def test_adopt_sent_twice_keeps_them_once(arena: Arena) -> None:
    """Nothing more is merged the second time."""
    archive(arena, 2, postings(1, 2, b"a"))
    archive(arena, 2, postings(3, 4, b"b"))
    arena.answer("t")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    adoption = arena.adoption(grant, 2, postings=postings(3, 6, b"c", level=1), merged_count=1)
    assert arena.store.adopt(grant, adoption) == arena.store.adopt(grant, adoption)
    assert spans(arena) == [(1, 2), (3, 6)]


def test_stale_adopt_keeps_none(arena: Arena) -> None:
    """They are adopted with the layout, or not at all."""
    archive(arena, 2, postings(1, 2, b"a"))
    assert not archive(arena, 2, postings(1, 4, b"b"), merged_count=1, tail_token="other").is_adopted
    assert spans(arena) == [(1, 2)]
    assert list(arena.store.postings(SESSION, [(2, 0), (4, 0)])) == [b"a", b""]


@pytest.mark.parametrize(
    ("first_seq", "merged_count"),
    [(3, 3), (3, 2), (1, 1), (4, 1), (1, 0)],
    ids=["more than there are", "one that begins before", "one that stays inside", "one that begins after", "covered"],
)
def test_postings_that_do_not_fit_are_not_adopted(arena: Arena, first_seq: int, merged_count: int) -> None:
    """What they say that they replace must be what lies in their span, or a search would find twice or not at all."""
    archive(arena, 2, postings(1, 2, b"a"))
    archive(arena, 2, postings(3, 4, b"b"))
    assert not archive(arena, 2, postings(first_seq, 6, b"c"), merged_count=merged_count).is_adopted
    assert spans(arena) == [(1, 2), (3, 4)]
    assert arena.store.view(SESSION).epoch == 2


def test_older_chunks_may_have_none(arena: Arena) -> None:
    """A session that was archived without postings gets them from some chunk on."""
    archive(arena, 2, None)
    archive(arena, 2, postings(3, 4, b"b"))
    assert spans(arena) == [(3, 4)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"postings": postings(1, 3)},
        {"postings": postings(2, 2)},
        {"postings": postings(0, 2)},
        {"postings": postings(1, 2, level=-1)},
        {"postings": postings(1, 2, *[b""] * 4_097)},
        {"postings": postings(1, 2), "merged_count": -1},
        {"postings": postings(1, 2), "merged_count": 65},
        {"merged_count": 1},
        {"dropped_count": 0, "chunk": b"", "postings": postings(1, 2)},
    ],
    ids=["end", "begin", "zero", "level", "parts", "negative", "many", "merged without", "no chunk"],
)
def test_postings_must_be_of_the_chunk(arena: Arena, wrong: dict[str, Any]) -> None:
    """Refused before any store is asked."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    with pytest.raises(InvalidInput):
        arena.store.adopt(grant, arena.adoption(grant, 2, **wrong))
    assert arena.store.view(SESSION).epoch == 0


def test_many_parts(arena: Arena) -> None:
    """As many as there may be, and all of them at once."""
    parts = tuple(b"%d" % number for number in range(4_096))
    archive(arena, 2, postings(1, 2, *parts))
    assert list(arena.store.postings(SESSION, [(2, number) for number in range(4_096)])) == list(parts)
    archive(arena, 2, postings(1, 4, b"all"), merged_count=1)
    assert set(arena.store.postings(SESSION, [(2, number) for number in range(4_096)])) == {b""}


def test_parts_that_are_not_there(arena: Arena) -> None:
    """Empty, as are those of a session that nobody knows."""
    assert list(arena.store.postings(SESSION, [(1, 0), (0, 0)])) == [b"", b""]
    assert list(arena.store.postings("never", [(1, 0)])) == [b""]
    assert list(arena.store.postings(SESSION, [])) == []
    assert list(arena.store.postings_index("never")) == []


def test_negative_parts_are_refused(arena: Arena) -> None:
    """No store has them."""
    with pytest.raises(InvalidInput):
        arena.store.postings(SESSION, [(-1, 0)])


def test_archived_bytes_are_those_of_the_chunks(arena: Arena) -> None:
    """What a search needs besides is not counted."""
    archive(arena, 2, postings(1, 2, b"x" * 100))
    [chunk] = arena.store.chunks(SESSION)
    assert arena.store.view(SESSION).archived_bytes == len(chunk.data)


def test_purge_takes_the_postings(arena: Arena) -> None:
    """Nothing is left of them, and a tombstone shows none."""
    archive(arena, 2, postings(1, 2, b"a"))
    arena.store.purge(SESSION, 1)
    assert list(arena.store.postings_index(SESSION)) == []
    assert list(arena.store.postings(SESSION, [(2, 0)])) == [b""]
    while not arena.store.purge(SESSION):
        pass
    arena.open()
    assert list(arena.store.postings_index(SESSION)) == []
    assert list(arena.store.postings(SESSION, [(2, 0)])) == [b""]


def test_archive_index_names_the_newest_chunks(arena: Arena) -> None:
    """Oldest first, without their data."""
    for _ in range(3):
        archive(arena, 2, None)
    refs = [ChunkRef(first_seq=2 * epoch - 1, last_seq=2 * epoch, epoch=epoch) for epoch in (1, 2, 3)]
    assert list(arena.store.archive_index(SESSION)) == refs
    assert list(arena.store.archive_index(SESSION, 2)) == refs[1:]
    assert list(arena.store.archive_index(SESSION, 0)) == []
    assert list(arena.store.archive_index("never")) == []


def test_archive_index_of_a_negative_number(arena: Arena) -> None:
    """It is no limit."""
    with pytest.raises(InvalidInput):
        arena.store.archive_index(SESSION, -1)
