"""Search: BM25 as bm25s has it, over postings however they were merged; exact values first; scopes; races."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import StoreUnavailable
from sessionlib.recall.contract import Scope
from sessionlib.recall.parts import parts_of
from sessionlib.recall.passages import passages_of
from sessionlib.recall.postings import hashes_of, postings_of
from sessionlib.recall.queries import Query
from sessionlib.recall.ranking import K1, METHOD, NEIGHBOUR_SHARES, B, TermPostings, best, exact_counts, scores_of
from sessionlib.recall.search import HITS_LIMIT, LOOKS, search
from sessionlib.recall.terms import terms_of
from sessionlib.stores.contract import Postings, PostingsRef
from tests.sessionlib.recalling import Archive

VOCABULARY = [f"word{number}" for number in range(12)]
DOCUMENTS = st.lists(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12), min_size=3, max_size=25)


def postings(places: Sequence[int], frequencies: Sequence[int] | None = None) -> TermPostings:
    return TermPostings(np.array(places, np.int64), np.array(frequencies or [1] * len(places), np.int64))


# --- Ranking


@given(DOCUMENTS, st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=5, unique=True), st.integers(1, 9))
def test_scores_are_those_of_bm25s(documents: list[list[str]], asked: list[str], chunk: int) -> None:
    """Its own index over all passages gives the same scores, whatever chunks ours were merged from, and so the same
    order."""
    entries = [Entry.user(" ".join(words)) for words in documents]
    archive = Archive(*(entries[start : start + chunk] for start in range(0, len(entries), chunk)))
    index = bm25s.BM25(method=METHOD, k1=K1, b=B, dtype="float64")
    index.index([terms_of(entry.text) for entry in entries], show_progress=False)
    known = [word for word in asked if word in index.vocab_dict]
    theirs = index.get_scores(known) if known else np.zeros(len(documents))
    common = {word for word in asked if sum(word in words for words in documents) > len(documents) / 3}
    rarer = {word for word in asked if any(word in words for words in documents)} - common

    whole = postings_of(archive.all, 1)
    counts = whole.passages.term_counts
    ours = scores_of(counts, [TermPostings(*whole.terms.of(hashes_of(word))) for word in asked], shares=())
    is_candidate = np.array([not rarer or bool(rarer & set(words)) for words in documents])
    assert np.allclose(ours, np.where(is_candidate, theirs, 0))

    found = search(Query(tuple(asked), ()), archive, Scope(first_seq=1, last_seq=len(entries)))
    beside = scores_of(counts, [TermPostings(*whole.terms.of(hashes_of(word))) for word in asked])
    assert [hit.seq - 1 for hit in found.hits] == best(beside, np.zeros(len(counts), np.int64), HITS_LIMIT).tolist()


def test_a_neighbour_counts_for_the_terms_that_a_passage_lacks() -> None:
    """Not for those that it has itself, and less from further away."""
    counts = np.full(9, 10, np.int64)
    alone = scores_of(counts, [postings([4])])
    near, far = NEIGHBOUR_SHARES
    assert alone[4] > 0
    assert np.allclose(alone, alone[4] * np.array([0, 0, far, near, 1, near, far, 0, 0]))
    both = scores_of(counts, [postings([4, 5])])
    assert np.isclose(both[4], both[5])
    assert np.isclose(both[3], near * both[4])


def test_the_first_and_the_last_passage_have_one_neighbour() -> None:
    """What would stand outside is nowhere."""
    counts = np.full(3, 10, np.int64)
    near, far = NEIGHBOUR_SHARES
    for place, shares in ((0, [1, near, far]), (2, [far, near, 1])):
        scores = scores_of(counts, [postings([place])])
        assert np.allclose(scores, scores[place] * np.array(shares))


def test_common_terms_make_no_candidates_where_there_is_a_rarer_one() -> None:
    """Alone, they do."""
    counts = np.full(30, 10, np.int64)
    common = postings(range(0, 30, 2))
    assert np.count_nonzero(scores_of(counts, [common], shares=())) == 15
    scores = scores_of(counts, [common, postings([3, 4])], shares=())
    assert np.flatnonzero(scores).tolist() == [3, 4]
    assert scores[4] > scores[3]


def test_the_newer_of_equals_is_first() -> None:
    """And what has more exact values before everything else, however few other words it has."""
    scores = np.array([2.0, 1.0, 2.0, 0.0, 0.5])
    assert best(scores, np.zeros(5, np.int64), 9).tolist() == [2, 0, 1, 4]
    assert best(scores, np.array([0, 0, 0, 1, 1]), 9).tolist() == [4, 2, 0, 1]
    assert best(scores, np.zeros(5, np.int64), 2).tolist() == [2, 0]


def test_a_value_needs_all_of_its_terms_and_must_be_rare() -> None:
    """What stands in a twentieth of everything says nothing."""
    assert exact_counts(9, [[postings([1, 2, 3]), postings([2, 3, 4])]]).tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert exact_counts(100, [[postings(range(11))]]).max() == 0
    assert exact_counts(100, [[postings(range(10))]]).sum() == 10
    assert exact_counts(400, [[postings(range(20))]]).sum() == 20


# --- Search


@given(
    st.lists(
        st.lists(st.sampled_from([*VOCABULARY, "数据库", "🚀", "a.b_c", "x" * 90, "\n" * 3]), max_size=200).map(
            " ".join
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_every_passage_is_found_by_its_own_rarest_term(texts: list[str], chunk: int) -> None:
    """Among those that hold it, as many as there are."""
    entries = [Entry.user(text) for text in texts]
    archive = Archive(*(entries[start : start + chunk] for start in range(0, len(entries), chunk)))
    passages = [
        (seq, start, end, terms_of(entry.text[start:end]))
        for seq, entry in enumerate(entries, 1)
        for start, end in passages_of(entry)
    ]
    frequency = Counter(term for *_, terms in passages for term in set(terms))
    for seq, start, end, terms in passages:
        if not terms:
            continue
        rarest = min(terms, key=lambda term: (frequency[term], term))
        query = Query((rarest,), ())
        found = search(query, archive, Scope(first_seq=1, last_seq=len(entries)))
        assert found.match_count >= frequency[rarest]
        if found.match_count <= HITS_LIMIT:
            assert (seq, start, end) in [(hit.seq, hit.start, hit.end) for hit in found.hits]


def test_exact_values_are_first() -> None:
    """A passage that has the identifier stands before one that has all the other words."""
    archive = Archive(
        [
            Entry.user("where is the handler of the upload, the one with the limit, defined?"),
            Entry.assistant("handlers.upload_limit"),
            *(Entry.user(f"nothing of note in message {number}") for number in range(20)),
        ]
    )
    first = archive.search("where is the limit of the upload defined: handlers.upload_limit?").hits[0]
    assert (first.seq, first.exact_count) == (2, 1)


def test_a_call_is_found_by_its_tool_and_its_arguments() -> None:
    """Escapes in arguments are no words."""
    archive = Archive(
        [
            Entry.tool_call("c", r'{"command":"make\nharbour","path":"docs/quay.md"}', "run_command"),
            Entry.tool_result("c", "done", "run_command"),
            Entry.user("and now?"),
        ]
    )
    for query in ("run_command", "harbour", "docs/quay.md", "quay"):
        assert archive.search(query).hits[0].seq == 1, query


def test_a_search_keeps_to_its_scope() -> None:
    """Spans and roles; what is outside is neither found nor counted."""
    entries = [entry for number in range(10) for entry in (Entry.user("port"), Entry.assistant("port"))]
    archive = Archive(entries[:8], entries[8:12], entries[12:])
    found = archive.search("port", first_seq=6, last_seq=9)
    assert sorted(hit.seq for hit in found.hits) == [6, 7, 8, 9]
    assert found.match_count == 4
    assert found.searched == ((1, 12),)
    roles = frozenset({EntryKind.ASSISTANT})
    assert {hit.seq % 2 for hit in archive.search("port", roles=roles).hits} == {0}


def test_two_hundred_parallel_calls_are_told_apart() -> None:
    """Each has a passage of its own."""
    calls = [Entry.tool_call(f"c{number}", f'{{"ship": "vessel-{number}"}}', "look") for number in range(200)]
    archive = Archive([*calls, *(Entry.tool_result(f"c{n}", f"berth {n * 7}", "look") for n in range(200))])
    assert archive.search("vessel-133").hits[0].seq == 134
    assert archive.search("berth 931").hits[0].seq == 334


def test_nothing_matches() -> None:
    """An empty archive, or words that nobody said."""
    assert Archive().search("port").hits == ()
    archive = Archive([Entry.user("the port")])
    found = archive.search("harbour")
    assert (found.hits, found.match_count, found.searched) == ((), 0, ((1, 1),))


class Merging(Archive):
    """An archive whose newest postings are merged between the look at the index and the reading."""

    merges = 1

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        if self.merges:
            self.merges -= 1
            return [b""] * len(wanted)
        return super().postings(wanted)


class Growing(Archive):
    """An archive that has other postings at each look, all gone when they are read."""

    looks = 0

    def postings_index(self) -> Sequence[PostingsRef]:
        self.looks += 1
        return [PostingsRef(first_seq=1, last_seq=self.looks, level=0, part_count=2)]

    def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return [b""] * len(wanted)


GAPS: tuple[list[None], ...] = ([], [None], [None, None])


def test_postings_that_are_merged_meanwhile_are_looked_for_again() -> None:
    """The index has others then."""
    archive = Merging([Entry.user("the port is 80")])
    assert archive.search("port").hits[0].seq == 1
    assert archive.merges == 0


def test_looking_for_merged_postings_has_an_end() -> None:
    """Never an answer from a part of them."""
    archive = Growing()
    with pytest.raises(StoreUnavailable, match="search again"):
        archive.search("port", last_seq=9)
    assert archive.looks == LOOKS


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("data", [b"damaged", b""])
def test_damaged_and_lost_postings_are_left_out(place: int, data: bytes) -> None:
    """With their span; the rest is searched, without a scope too."""
    archive = Archive(*([Entry.user(f"the port is {number}")] for number in range(3)))
    parts = list(archive.kept[1].parts)
    parts[place] = data
    archive.kept[1] = replace(archive.kept[1], parts=tuple(parts))
    found = archive.search("port")
    assert ({hit.seq for hit in found.hits}, found.searched) == ({1, 3}, ((1, 1), (3, 3)))
    assert archive.search("port", first_seq=2, last_seq=2).hits == ()
    assert archive.search("port", first_seq=3).searched == ((3, 3),)


def test_an_entry_that_cannot_be_read_is_never_a_hit() -> None:
    """Not for its neighbours' terms either; its place is no part of what was searched."""
    unarchived = [postings_of([Entry.user("the port is 80"), *gap, Entry.user("the quay")], 1) for gap in GAPS]
    for segment, gap in zip(unarchived, GAPS, strict=True):
        archive = Archive()
        archive.kept.append(Postings(first_seq=1, last_seq=segment.last_seq, level=0, parts=parts_of(segment)))
        archive.all = [Entry.user("")] * segment.last_seq
        found = archive.search("port")
        last_seq = 2 + len(gap)
        assert {hit.seq for hit in found.hits} <= {1, last_seq}
        assert found.match_count == len(found.hits)
        assert found.searched == (((1, 1), (last_seq, last_seq)) if gap else ((1, 2),))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我家的猫喜欢水", "水"),
        ("我家的猫喜欢水", "猫"),
        ("犬を飼う", "犬"),
        ("집에 물이 없다", "물"),
        ("ราคาของกรุงเทพมหานครอมรรัตนโกสินทร์", "มหานคร"),
        ("ພາສາລາວແລະພາສາໄທ", "ລາວ"),
        ("ខ្ញុំរៀនភាសាខ្មែរ", "ភាសា"),
        ("မြန်မာဘာသာစကား", "ဘာသာ"),
        ("यह हिन्दी है", "हिन्दी"),
    ],
)
def test_words_are_found_in_scripts_without_blanks_and_with_marks(text: str, query: str) -> None:
    """In the postings of an archive, and in those of entries that are not archived."""
    others = [Entry.user("金木土火 หมู หมา ກາ ကား តូច हद नल द न ह"), Entry.user("the port")]
    for found in (
        Archive([*others, Entry.user(text), *others]).search(query),
        search(
            Query.of(query), Archive(), Scope(first_seq=1, last_seq=3), [postings_of([*others, Entry.user(text)], 1)]
        ),
    ):
        assert found.hits[0].seq == 3, query


def test_only_the_parts_of_the_terms_are_read() -> None:
    """Of a large segment a few of many."""
    asked: list[tuple[int, int]] = []

    class Watched(Archive):
        def postings(self, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
            asked.extend(wanted)
            return super().postings(wanted)

    archive = Watched([Entry.user(" ".join(f"w{number * 40 + w}" for w in range(40))) for number in range(1_000)])
    (ref,) = archive.postings_index()
    assert isinstance(ref, PostingsRef)
    asked.clear()
    assert archive.search("w5 w39999").hits
    assert len(asked) <= 6 < ref.part_count  # the passages, and five terms: w5 is w and 5, too


def test_unarchived_segments_are_searched_with_the_rest() -> None:
    """What the window has but does not show."""
    archive = Archive([Entry.user("the old port"), Entry.user("nothing")])
    unarchived = [postings_of([Entry.tool_result("c", "the new port", "look")], 9)]
    found = search(Query.of("port"), archive, Scope(first_seq=1, last_seq=9), unarchived)
    assert [hit.seq for hit in found.hits if hit.score == found.hits[0].score] == [9, 1]
    assert found.searched == ((1, 2), (9, 9))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_the_best_are_those_of_a_whole_sort(scored: list[tuple[int, int]], limit: int) -> None:
    """Whatever is left out of the sorting for being unlikely."""
    scores, exact = (np.array(column) for column in zip(*scored, strict=True))
    ordered = sorted((place for place, (score, _) in enumerate(scored) if score), key=lambda p: (-exact[p], -scores[p]))
    found = best(scores.astype(np.float64), exact, limit).tolist()
    assert [scored[place][::-1] for place in found] == [scored[place][::-1] for place in ordered[:limit]]
