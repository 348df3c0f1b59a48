"""Postings: built, merged, cut into parts and read again; upkeep as rotations do it."""

from __future__ import annotations

import base64
import random
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.errors import StoreCorrupt
from sessionlib.recall.parts import (
    LARGEST_PART_COUNT,
    POSTINGS_PER_PART,
    TERM_COLUMNS,
    Part,
    part_count,
    part_of,
    parts_of,
    passage_table,
    postings_in,
    segment_of,
)
from sessionlib.recall.passages import passages_of
from sessionlib.recall.postings import HASH_BITS, Segment, hashes_of, merged, postings_of, term_hash
from sessionlib.recall.terms import terms_of
from sessionlib.recall.upkeep import FAN_OUT, merge_plan, upkeep
from sessionlib.stores.contract import Postings, PostingsRef
from tests.sessionlib.recalling import Archive

WORDS = ["port", "retry_ceiling", "src/app.py", "数据库", "🚀", "10,240", "the", "the", "\n", ". "]

TEXTS = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
ENTRIES = st.one_of(
    TEXTS.map(Entry.user),
    TEXTS.map(Entry.assistant),
    TEXTS.map(lambda text: Entry.tool_call("c", text, "search")),
    TEXTS.map(lambda text: Entry.tool_result("c", text, "history.search")),
    st.just(Entry.opaque("{}", "a/b")),
)
CHUNKS = st.lists(st.lists(ENTRIES, min_size=1, max_size=6), min_size=1, max_size=8)


def ref_of(segment: Segment, level: int = 0) -> PostingsRef:
    parts = parts_of(segment)
    return PostingsRef(first_seq=segment.first_seq, last_seq=segment.last_seq, level=level, part_count=len(parts))


def segments_of(chunks: Sequence[Sequence[Entry]]) -> list[Segment]:
    """A segment for each chunk."""
    found, first_seq = [], 1
    for chunk in chunks:
        found.append(postings_of(chunk, first_seq))
        first_seq += len(chunk)
    return found


@given(CHUNKS)
def test_merged_postings_are_those_of_the_whole(chunks: list[list[Entry]]) -> None:
    """Byte for byte, however often what is merged was stored in between."""
    whole = parts_of(postings_of([entry for chunk in chunks for entry in chunk], 1))
    stored = [segment_of(ref_of(segment), parts_of(segment)) for segment in segments_of(chunks)]
    assert parts_of(merged(stored)) == whole
    middle = len(stored) // 2
    if middle:
        assert parts_of(merged([merged(stored[:middle]), merged(stored[middle:])])) == whole


@given(st.lists(ENTRIES, min_size=1, max_size=8))
def test_every_term_of_every_passage_is_in_the_postings(entries: list[Entry]) -> None:
    """As often as it occurs there; the table of passages says where each stands."""
    segment = postings_of(entries, 5)
    parts = parts_of(segment)
    table = passage_table(parts[0], 5)
    expected = [(seq, start, end - start) for seq, entry in enumerate(entries, 5) for start, end in passages_of(entry)]
    assert list(zip(table.seqs.tolist(), table.starts.tolist(), table.lengths.tolist(), strict=True)) == expected
    for place, (seq, start, length) in enumerate(expected):
        terms = terms_of(entries[seq - 5].readable[start : start + length], is_json=False)
        for term in set(terms):
            hashes = hashes_of(term)
            part = Part(parts[part_of(hashes.start, len(parts) - 1)], TERM_COLUMNS)
            passages, frequencies = postings_in(part, hashes) or pytest.fail(term)
            assert dict(zip(passages.tolist(), frequencies.tolist(), strict=True))[place] >= terms.count(term) > 0


def test_a_term_that_nobody_wrote_is_in_no_passage() -> None:
    """Neither in the parts nor in the table before they are cut."""
    segment = postings_of([Entry.user("the port is 80")], 1)
    hashes = hashes_of("harbour")
    assert postings_in(Part(parts_of(segment)[1], TERM_COLUMNS), hashes) is None
    assert [len(column) for column in segment.terms.of(hashes)] == [0, 0]
    assert [column.tolist() for column in segment.terms.of(hashes_of("port"))] == [[0], [1]]


RUNS = st.lists(st.text(st.sampled_from("数据库ไี a"), max_size=12).map(Entry.user), min_size=1, max_size=6)


@given(RUNS, st.sampled_from("数据库"))
def test_a_character_is_found_as_often_as_it_occurs(entries: list[Entry], character: str) -> None:
    """In the tables and in the parts that are made of them."""
    segment = postings_of(entries, 1)
    hashes = hashes_of(character)
    parts = parts_of(segment)
    found = postings_in(Part(parts[part_of(hashes.start, len(parts) - 1)], TERM_COLUMNS), hashes)
    passages, frequencies = segment.terms.of(hashes)
    assert [column.tolist() for column in found or (passages[:0], frequencies[:0])] == [
        column.tolist() for column in (passages, frequencies)
    ]
    counts = {int(segment.passages.seqs[p]): f for p, f in zip(passages.tolist(), frequencies.tolist(), strict=True)}
    bare = [unicodedata.normalize("NFKC", entry.text).replace(f"{character}ี", "") for entry in entries]
    assert counts == {seq: text.count(character) for seq, text in enumerate(bare, 1) if character in text}


def test_characters_take_no_postings_of_their_own() -> None:
    """But the last of a run."""
    text = "数据库连接失败请重试操作"
    assert len(postings_of([Entry.user(text)], 1).terms.hashes) == len(text)


def test_the_hashes_of_a_character_are_of_one_part() -> None:
    """However many there are."""
    hashes = hashes_of("数")
    assert term_hash("数") in hashes
    assert term_hash("数据") in hashes
    assert term_hash("据数") not in hashes
    assert part_of(hashes.start, LARGEST_PART_COUNT) == part_of(hashes.stop - 1, LARGEST_PART_COUNT)
    assert hashes_of("数据") == range(term_hash("数据"), term_hash("数据") + 1)


def test_hashes_are_the_same_in_every_process() -> None:
    """They are stored; the part is their first bits."""
    assert term_hash("port") == 0xB25AB54B4265
    assert term_hash("数据") == 0x94DD75513E5F
    assert part_of(0, 1) == part_of(2**HASH_BITS - 1, 1) == 1
    assert (part_of(0, 8), part_of(2**HASH_BITS - 1, 8), part_of(2 ** (HASH_BITS - 1), 8)) == (1, 8, 5)


@pytest.mark.parametrize(
    ("postings", "count"),
    [
        (0, 1),
        (1, 1),
        (POSTINGS_PER_PART, 1),
        (POSTINGS_PER_PART + 1, 2),
        (3 * POSTINGS_PER_PART, 4),
        (10**9, LARGEST_PART_COUNT),
    ],
)
def test_parts_have_a_readable_size(postings: int, count: int) -> None:
    """A power of two of them, bounded by what a store takes."""
    assert part_count(postings) == count


def test_a_large_segment_has_many_parts() -> None:
    """Each term is in the part that its hash names, and together they are the segment."""
    entries = [Entry.user(" ".join(f"w{number * 40 + word}" for word in range(40))) for number in range(300)]
    segment = postings_of(entries, 1)
    parts = parts_of(segment)
    assert len(parts) == 1 + part_count(len(segment.terms.passages)) > 3
    again = segment_of(ref_of(segment), parts)
    assert parts_of(again) == parts
    for number in range(0, 12_000, 1_000):
        hashes = hashes_of(f"w{number}")
        found = postings_in(Part(parts[part_of(hashes.start, len(parts) - 1)], TERM_COLUMNS), hashes)
        assert found is not None
        assert found[0].tolist() == [number // 40]


def test_entries_that_cannot_be_read_have_their_place() -> None:
    """Without a term, also when they were stored."""
    segment = postings_of([Entry.user("port"), None, None, Entry.user("port")], 7)
    parts = parts_of(segment)
    again = segment_of(ref_of(segment), parts)
    assert again.passages.unread.tolist() == [8, 9]
    assert again.terms.of(hashes_of("port"))[0].tolist() == [0, 3]
    assert parts_of(merged([again])) == parts


def test_entries_without_a_word_have_postings_too() -> None:
    """So that the span counts as searched."""
    segment = postings_of([Entry.opaque("{}", "a/b"), Entry.user("--- ***")], 7)
    parts = parts_of(segment)
    assert (segment.first_seq, segment.last_seq, len(parts)) == (7, 8, 2)
    assert parts_of(segment_of(ref_of(segment), parts)) == parts


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "endless", "foreign", "other format"])
def test_damaged_parts_are_refused(damage: str) -> None:
    """Never read as something else."""
    segment = postings_of([Entry.user("the port is 80, the retry ceiling 40 ms")], 1)
    part = parts_of(segment)[1]
    other = parts_of(segment)[0]
    damaged = {
        "empty": b"",
        "short": part[:-3],
        "flipped": part[:-8] + bytes([part[-8] ^ 1]) + part[-7:],
        "endless": b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little"),
        "foreign": b"not a part at all",
        "other format": other,
    }[damage]
    with pytest.raises(StoreCorrupt, match="postings cannot be read"):
        Part(damaged, TERM_COLUMNS)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_part_or_refused(data: bytes) -> None:
    """With a text that says so."""
    with pytest.raises(StoreCorrupt):
        Part(data, TERM_COLUMNS)


def test_five_megabytes_are_indexed_in_seconds() -> None:
    """Encoded data, prose, blanks: what a tool may return."""
    blob = base64.b64encode(random.Random(7).randbytes(1_200_000)).decode()
    text = blob + " " * 1_000_000 + "the needle is 4711 " + "lorem ipsum dolor " * 140_000
    begun = time.process_time()
    segment = postings_of([Entry.tool_result("c", text, "read")], 1)
    assert time.process_time() - begun < 30
    assert len(segment.passages) > 6_000
    assert sum(map(len, parts_of(segment))) < len(text)
    assert segment.terms.of(hashes_of("4711"))[0].tolist()


# --- Upkeep


def refs(*levels: int) -> list[PostingsRef]:
    return [
        PostingsRef(first_seq=place + 1, last_seq=place + 1, level=level, part_count=2)
        for place, level in enumerate(levels)
    ]


@pytest.mark.parametrize(
    ("levels", "plan"),
    [
        ((), (0, 0)),
        ((0,) * 6, (0, 0)),
        ((0,) * 7, (1, 7)),
        ((1,) + (0,) * 7, (1, 7)),
        ((1,) * 7 + (0,) * 7, (2, 14)),
        ((1,) * 7 + (0,) * 6, (0, 0)),
        ((2,) * 7 + (1,) * 7 + (0,) * 7, (3, 21)),
        ((2,) * 7 + (1,) * 6 + (0,) * 7, (1, 7)),
        ((3, 1) + (0,) * 7, (1, 7)),
        ((0,) * 9, (1, 9)),
    ],
)
def test_when_segments_are_merged(levels: tuple[int, ...], plan: tuple[int, int]) -> None:
    """Eight of a level become one of the next, and that may be the eighth there."""
    assert merge_plan(refs(*levels)) == plan


def sentences(number: int) -> list[Entry]:
    return [Entry.user(f"word{number} and word{number + 1}"), Entry.assistant(f"answer {number}")]


def test_many_chunks_have_few_segments() -> None:
    """They follow each other without gap, and are what one segment of everything would be."""
    archive = Archive(*(sentences(number) for number in range(100)))
    index = archive.postings_index()
    assert [ref.level for ref in index] == [2, 1, 1, 1, 1, 0, 0, 0, 0]
    assert [ref.first_seq for ref in index] == [1, *(ref.last_seq + 1 for ref in index[:-1])]
    assert index[-1].last_seq == 200
    stored = [segment_of(ref, kept.parts) for ref, kept in zip(index, archive.kept, strict=True)]
    assert parts_of(merged(stored)) == parts_of(postings_of(archive.all, 1))


@settings(max_examples=20)
@given(st.integers(1, 600))
def test_segments_stay_few(rotations: int) -> None:
    """At most seven of a level, whatever the number of rotations."""
    stored: list[PostingsRef] = []
    for seq in range(1, rotations + 1):
        level, merged_count = merge_plan(stored)
        first_seq = stored[len(stored) - merged_count].first_seq if merged_count else seq
        stored[len(stored) - merged_count :] = [
            PostingsRef(first_seq=first_seq, last_seq=seq, level=level, part_count=2)
        ]
    for level in range(5):
        assert sum(ref.level == level for ref in stored) < FAN_OUT
    assert stored[0].first_seq == 1


def test_chunks_without_postings_are_indexed_by_the_next_rotation() -> None:
    """An archive that is older than its search."""
    archive = Archive()
    for number in range(3):
        archive.archive(sentences(number), with_postings=False)
    archive.archive(sentences(3))
    (ref,) = archive.postings_index()
    assert (ref.first_seq, ref.last_seq) == (1, 8)
    assert archive.search("word0").hits[0].seq == 1


def test_damaged_postings_are_made_again_when_they_are_merged() -> None:
    """They are nothing but a function of their entries."""
    archive = Archive(*(sentences(number) for number in range(7)))
    archive.kept[2] = type(archive.kept[2])(
        first_seq=archive.kept[2].first_seq, last_seq=archive.kept[2].last_seq, level=0, parts=(b"", b"damaged")
    )
    archive.archive(sentences(7))
    (kept,) = archive.kept
    assert kept.parts == parts_of(postings_of(archive.all, 1))


def test_what_cannot_be_read_keeps_its_place() -> None:
    """What left after it is indexed as ever."""
    asked: list[tuple[int, int]] = []

    def unreadable(first_seq: int, last_seq: int) -> Sequence[None]:
        asked.append((first_seq, last_seq))
        return [None] * (last_seq + 1 - first_seq)

    archive = Archive(sentences(0))
    assert upkeep(sentences(1), 3, archive, unreadable).merged_count == 0
    assert not asked
    made = upkeep(sentences(1), 5, archive, unreadable)
    assert asked == [(3, 4)]
    archive.kept.append(made.postings)
    archive.all = [*sentences(0), *sentences(9), *sentences(1)]
    assert (made.postings.first_seq, made.postings.last_seq) == (3, 6)
    assert archive.search("word2").hits[0].seq == 5
    assert archive.search("word2").searched == ((1, 2), (5, 6))


def test_damaged_postings_of_entries_that_cannot_be_read_are_merged_with_the_rest() -> None:
    """They take nothing with them but what is lost."""

    class Torn(Archive):
        def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
            lost: list[Entry] = [None] * (last_seq + 1 - first_seq)  # type: ignore[list-item]
            return lost

    archive = Torn(*(sentences(number) for number in range(7)))
    archive.kept[2] = replace(archive.kept[2], parts=(b"", b"damaged"))
    archive.archive(sentences(7))
    assert [kept.level for kept in archive.kept] == [1]
    for number in range(8, 16):
        archive.archive(sentences(number))
    assert [kept.level for kept in archive.kept] == [1, 1]
    found = archive.search("word0 word14")
    assert {hit.seq for hit in found.hits} & {1, 29} == {1, 29}
    assert found.searched == ((1, 4), (7, 32))


# Of `the port is 48113` and `数据库连接 हिन्दी`.
FIRST_FORMAT_PARTS = (
    "KLUv/SQixQAAeAECAAAAAAEAAREMBAcAAQMAYAXYRVu0xncAIQ==",
    "KLUv/SR4/QIA9AQBCwAAAAYBlDdLXWvhxHthDfmkOjlcOaqXA0rkH6zbA7UtWNtLZL08H+S3V6aoVpgNITU8zBYtpRnHtUdbLxYQAgARDiIOCwkj"
    "AQABAAEBBQCAgF3RAbcPWAGrFAGsc9pa",
)


def older_archive() -> Archive:
    """One whose oldest postings are of the first format."""
    archive = Archive()
    archive.archive([Entry.user("the port is 48113"), Entry.assistant("数据库连接 हिन्दी")], with_postings=False)
    parts = tuple(base64.b64decode(part) for part in FIRST_FORMAT_PARTS)
    archive.kept.append(Postings(first_seq=1, last_seq=2, level=0, parts=parts))
    return archive


def test_postings_of_the_first_format_are_searched() -> None:
    """By words and by pairs of characters; where they may lack what is asked for, that is said."""
    archive = older_archive()
    found = archive.search("48113")
    assert (found.hits[0].seq, found.searched) == (1, ((1, 2),))
    found = archive.search("连接")
    assert (found.hits[0].seq, found.searched) == (2, ())
    assert (archive.search("हिन्दी").hits, archive.search("हिन्दी").searched) == ((), ())


def test_postings_of_the_first_format_are_made_again_when_they_are_merged() -> None:
    """From their entries."""
    archive = older_archive()
    for number in range(7):
        archive.archive(sentences(number))
    (kept,) = archive.kept
    assert kept.parts == parts_of(postings_of(archive.all, 1))
    for query in ("库", "हिन्दी", "连接"):
        assert (archive.search(query).hits[0].seq, archive.search(query).searched) == (2, ((1, 16),))


def test_columns_have_no_more_bytes_than_they_need() -> None:
    """A part of small numbers has a plane for each column."""
    segment = postings_of([Entry.user("one two three")], 1)
    assert np.array_equal(Part(parts_of(segment)[1], TERM_COLUMNS).column(1), [1, 1, 1])
    assert len(parts_of(segment)[1]) < 80
