"""The benches of the archive: that they run, and that what they count as found is found."""

from __future__ import annotations

from bench.archive import rows
from bench.archives import MemoryArchive, chunked
from bench.recall_questions import (
    Dialogue,
    Plant,
    Planted,
    by_newest,
    by_plain_bm25,
    by_tool,
    demo_planted,
    evidence_recall,
    planted,
    planted_share,
    shown_by_plain_bm25,
    shown_by_tool,
)
from bench.recall_times import timed
from sessionlib.archive import pack
from sessionlib.entries import Entry
from sessionlib.stores.sqlite import SqliteStore

TALK = [Entry.user(f"Please look at berth {number}. It is late again.") for number in range(400)]


def test_chunks_are_the_entries_in_order() -> None:
    """Each is as large as asked for, but for the last."""
    chunks = list(chunked(TALK, 1_000))
    assert [entry for chunk in chunks for entry in chunk] == TALK
    for chunk in chunks[:-1]:
        assert sum(len(entry.text) for entry in chunk[:-1]) < 1_000 <= sum(len(entry.text) for entry in chunk)


def test_planted_values_stand_once_and_in_no_question() -> None:
    """Deterministic by its seed, and nothing else of the entries is changed."""
    made = planted(TALK, 3)
    assert made == planted(TALK, 3) != planted(TALK, 4)
    text = "\n".join(entry.text for entry in made.entries)
    assert len(made.plants) >= 4
    for plant in made.plants:
        assert text.count(plant.value) == 1
        assert plant.value not in plant.question
    assert sum(before != after for before, after in zip(TALK, made.entries, strict=True)) == len(made.plants)


def test_a_share_counts_what_is_shown() -> None:
    """A value that nobody said is not found; what is asked for in its own words is."""
    entries = [*TALK, Entry.user("For the record: the lease length is 48113 ms from now on."), *TALK[:50]]
    plants = [
        Plant(value="48113", question="What is the lease length now?"),
        Plant(value="99999", question="What is the lease length now?"),
    ]
    for way in (by_tool, by_plain_bm25):
        share = planted_share([Planted(entries, plants)], way)
        assert (share.found, share.count) == (1, 2), way
    assert planted_share([Planted(entries, plants)], by_newest).found == 0


def test_the_demo_session_brings_its_own_decisions() -> None:
    """Another seed writes another session with others."""
    made = demo_planted(1)
    text = "\n".join(entry.text for entry in made.entries)
    assert len(made.plants) == 36
    assert all(text.count(plant.value) == 1 for plant in made.plants)


def test_evidence_is_what_is_shown_of_what_is_cited() -> None:
    """The mean over questions, and those that are shown all of it."""
    entries = [*TALK, Entry.user("My sister moved to Lisbon."), Entry.assistant("How is the weather there?")]
    dialogue = Dialogue(entries, [("Where did the sister move?", {401}), ("Where did the sister move?", {401, 300})])
    for made in (shown_by_tool, shown_by_plain_bm25):
        found = evidence_recall([dialogue], made)
        assert (found.questions, found.recall, found.whole.found) == (2, 0.75, 1), made


def test_searches_are_timed_in_a_store() -> None:
    """At each size, the first search left out."""
    with SqliteStore(":memory:") as store:
        found = list(timed("memory", store, [200, 400], 5))
    assert [(row.entries, row.milliseconds.count) for row in found] == [(200, 5), (400, 5)]
    assert found[0].text_megabytes < found[1].text_megabytes


def test_bytes_of_an_archive_are_those_of_its_parts() -> None:
    """For a thousand entries; compressed they are fewer."""
    (row,) = rows({"talk": TALK})
    assert row.chunk_bytes == round(len(pack(TALK)) * 1_000 / len(TALK))
    assert row.postings_bytes == round(MemoryArchive(TALK).postings_bytes * 1_000 / len(TALK))
    assert 0 < row.ratio < 1
    assert row.plain_bytes > row.chunk_bytes + row.postings_bytes
