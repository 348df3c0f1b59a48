"""A session's own history: archived by its rotations, searched by its turns; what the window has but does not show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sessionlib import Agent, Session
from sessionlib.archive import pack
from sessionlib.counters import counter_named
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import StoreCorrupt
from sessionlib.layout import Layout
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.recall.contract import Scope, Span
from sessionlib.recall.queries import Query
from sessionlib.running.history import SessionHistory, gaps, indexed
from sessionlib.stores.contract import AgentRef, Chunk, ChunkRef, PostingsRef, SessionStore, Snapshot, Trim
from sessionlib.transcript import Transcript
from tests.sessionlib.recalling import Archive

COUNTER = counter_named("o200k_base")
CAP_TOKENS = 200


class Kept(Archive):
    """An archive with a store's methods."""

    def chunks(self, session_id: str, first_seq: int = 1, last_seq: int | None = None) -> Sequence[Chunk]:
        return [
            Chunk(
                first_seq=ref.first_seq,
                last_seq=ref.last_seq,
                epoch=ref.epoch,
                data=pack(self.all[ref.first_seq - 1 : ref.last_seq]),
            )
            for ref in self.refs
            if ref.last_seq >= first_seq and (last_seq is None or ref.first_seq <= last_seq)
        ]

    def archive_index(self, session_id: str, limit: int) -> Sequence[ChunkRef]:
        return self.refs[-limit:]


class Store:
    """What a session's history asks of its store."""

    def __init__(self, kept: Kept) -> None:
        self.chunks, self.archive_index = kept.chunks, kept.archive_index
        self._kept = kept

    def postings_index(self, session_id: str) -> Sequence[PostingsRef]:
        return self._kept.postings_index()

    def postings(self, session_id: str, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return self._kept.postings(wanted)


def history_of(
    kept: Kept, live: Sequence[Entry], trim: Trim | None = None, *, store: Store | None = None
) -> SessionHistory:
    transcript = Transcript(tuple(live), (1,) * len(live), len(kept.all) + 1)
    snapshot = Snapshot(
        session_id="s",
        agent=AgentRef(name="a", digest="d"),
        epoch=len(kept.refs),
        layout=Layout(live=transcript),
        layout_token="l",
        tail_token="t",
        trim=trim or Trim(),
    )
    asked: SessionStore = store or Store(kept)  # type: ignore[assignment]
    return SessionHistory(asked, Projection(COUNTER, CAP_TOKENS), lambda: snapshot)


def seqs(history: SessionHistory, query: str) -> list[int]:
    found = history.found(Query.of(query), Scope(first_seq=1, last_seq=history.last_seq()))
    return sorted(hit.seq for hit in found.hits)


ARCHIVED = [[Entry.user("the old harbour"), Entry.assistant("noted")], [Entry.user("the port"), Entry.assistant("so")]]
LIVE = [Entry.user("a harbour that is shown"), Entry.assistant("yes")]


def test_entries_are_read_wherever_they_are() -> None:
    """Archived, live, across the border; none where there are none."""
    history = history_of(Kept(*ARCHIVED), LIVE)
    everything = [*ARCHIVED[0], *ARCHIVED[1], *LIVE]
    for first in range(1, 9):
        for last in range(first, 9):
            assert list(history.entries(first, last)) == everything[first - 1 : last], (first, last)
    assert history.at([6, 1, 4, 2, 9]) == {seq: everything[seq - 1] for seq in (1, 2, 4, 6)}
    assert history.last_seq() == 6


def test_the_window_that_is_now_is_the_last() -> None:
    """Its number is the next rotation's."""
    windows = history_of(Kept(*ARCHIVED), LIVE).windows()
    assert [(window.first_seq, window.last_seq, window.epoch) for window in windows] == [
        (1, 2, 1),
        (3, 4, 2),
        (5, 6, 3),
    ]


def test_what_the_window_shows_is_not_searched() -> None:
    """The model has it before its eyes."""
    assert seqs(history_of(Kept(*ARCHIVED), LIVE), "harbour") == [1, 2, 3]


def test_what_a_trim_leaves_out_is_searched() -> None:
    """Whole exchanges, and results of which only a pointer is sent."""
    kept = Kept(*ARCHIVED)
    assert 5 in seqs(history_of(kept, LIVE, Trim(dropped_before_seq=6)), "harbour")
    live = [Entry.tool_call("c", "{}", "look"), Entry.tool_result("c", "a harbour", "look"), Entry.user("harbour")]
    found = seqs(history_of(kept, live, Trim(pointers_before_seq=7)), "harbour")
    assert 6 in found
    assert 7 not in found


def test_long_results_are_searched_while_they_are_live() -> None:
    """Only their head and tail are sent."""
    live = [
        Entry.tool_call("c", "{}", "look"),
        Entry.tool_result("c", "some words " * 400 + "hidden harbour " + "some words " * 400, "look"),
    ]
    assert 6 in seqs(history_of(Kept(*ARCHIVED), live), "hidden harbour")


def test_an_archive_without_postings_is_named() -> None:
    """Span by span, within what was asked for."""
    kept = Kept(ARCHIVED[0])
    kept.archive(ARCHIVED[1], with_postings=False)
    history = history_of(kept, LIVE)
    found = history.found(Query.of("port"), Scope(first_seq=1, last_seq=6))
    assert history.unsearchable(Scope(first_seq=1, last_seq=6), found.searched) == ((3, 4),)
    assert history.unsearchable(Scope(first_seq=4, last_seq=6), found.searched) == ((4, 4),)
    assert history.unsearchable(Scope(first_seq=1, last_seq=2), found.searched) == ()


@pytest.mark.parametrize(
    ("first", "last", "spans", "left"),
    [
        (1, 9, (), ((1, 9),)),
        (1, 9, ((1, 9),), ()),
        (1, 9, ((3, 4), (6, 7)), ((1, 2), (5, 5), (8, 9))),
        (4, 6, ((1, 4), (6, 20)), ((5, 5),)),
        (4, 6, ((8, 9),), ((4, 6),)),
        (4, 3, ((8, 9),), ()),
    ],
)
def test_gaps(first: int, last: int, spans: Sequence[Span], left: Sequence[Span]) -> None:
    """What of a span is in none of others."""
    assert tuple(gaps(first, last, spans)) == tuple(left)


class Damaged(Store):
    """A store of which one chunk is damaged, or cannot be read at all."""

    def __init__(self, kept: Kept, epoch: int, *, refuses: bool = False) -> None:
        super().__init__(kept)
        self._epoch, self._refuses = epoch, refuses
        self.chunks = self._damaged

    def _damaged(self, session_id: str, first_seq: int = 1, last_seq: int | None = None) -> Sequence[Chunk]:
        chunks = self._kept.chunks(session_id, first_seq, last_seq)
        if self._refuses and any(chunk.epoch == self._epoch for chunk in chunks):
            raise StoreCorrupt("damaged")
        return [replace(chunk, data=b"damaged") if chunk.epoch == self._epoch else chunk for chunk in chunks]


def messages(number: int) -> list[Entry]:
    return [Entry.user(f"message {number} about the harbour"), Entry.assistant(f"noted {number}")]


def rotated(kept: Kept, store: Store, number: int) -> None:
    """A rotation archives two messages, with the postings that it makes."""
    sound: SessionStore = store  # type: ignore[assignment]
    made = indexed(sound, "s", messages(number), len(kept.all) + 1)
    kept.archive(messages(number), with_postings=False)
    if made:
        kept.kept[len(kept.kept) - made.merged_count :] = [made.postings]


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("has_postings", [False, True])
def test_one_damaged_chunk_does_not_end_the_indexing_of_what_comes_later(has_postings: bool, refuses: bool) -> None:
    """Whether it had no postings yet, or damaged ones: its entries are named, all others are found."""
    kept = Kept()
    for number in range(3):
        kept.archive(messages(number), with_postings=has_postings)
    if has_postings:
        kept.kept[1] = replace(kept.kept[1], parts=(b"damaged", b"damaged"))
    store = Damaged(kept, 2, refuses=refuses)
    for number in range(3, 30):
        rotated(kept, store, number)
    history = history_of(kept, LIVE, store=store)
    scope = Scope(first_seq=1, last_seq=history.last_seq())
    for number in {*range(30)} - {1}:
        found = history.found(Query.of(f'"message {number} about"'), scope)
        assert found.hits[0].seq == 1 + 2 * number
        assert history.unsearchable(scope, found.searched) == ((3, 4),)
    assert [kept.level for kept in kept.kept] == [1] * 3 + [0] * (6 if has_postings else 3)


def test_entries_that_can_be_read_again_are_found_again() -> None:
    """When their postings are merged."""
    kept = Kept()
    kept.archive(messages(0), with_postings=False)
    for number in range(1, 8):
        rotated(kept, Damaged(kept, 1), number)
    history = history_of(kept, LIVE)
    scope = Scope(first_seq=1, last_seq=history.last_seq())
    assert history.unsearchable(scope, history.found(Query.of("harbour"), scope).searched) == ((1, 2),)
    rotated(kept, Store(kept), 8)
    found = history_of(kept, LIVE).found(Query.of('"message 0 about"'), scope)
    assert (found.hits[0].seq, found.searched) == (1, ((1, 18),))


def test_a_damaged_chunk_is_left_out_of_what_is_read() -> None:
    """Its postings may be sound."""
    kept = Kept(*ARCHIVED)
    history = history_of(kept, LIVE, store=Damaged(kept, 1))
    assert sorted(history.at([1, 2, 3, 5])) == [3, 5]


def test_a_rotation_goes_on_without_postings_where_none_can_be_read() -> None:
    """The next makes them; entries that do not leave need none."""
    kept = Kept(ARCHIVED[0])

    class Torn(Store):
        def postings_index(self, session_id: str) -> Sequence[PostingsRef]:
            raise StoreCorrupt("damaged")

    torn: SessionStore = Torn(kept)  # type: ignore[assignment]
    assert indexed(torn, "s", ARCHIVED[1], 3) is None
    rotated(kept, Torn(kept), 1)
    rotated(kept, Store(kept), 2)
    assert [(ref.first_seq, ref.last_seq) for ref in kept.postings_index()] == [(1, 2), (3, 6)]
    sound: SessionStore = Store(kept)  # type: ignore[assignment]
    assert indexed(sound, "s", (), 7) is None


def test_a_decision_that_left_the_window_is_found_by_asking_for_it() -> None:
    """The model's question has no word of the value; one search shows it."""
    question = '{"query": "which retry ceiling did we settle on?"}'
    ask = ModelReply(text="", calls=(CallRequest(call_id="r", name="history.search", arguments=question),))

    def answer(request: ModelRequest) -> ModelReply | str:
        last = request.entries[-1]
        if last.kind is EntryKind.TOOL_RESULT:
            return last.text
        return ask if last.text == "What was it?" else "noted"

    agent = Agent(name="a", window_tokens=8_000)
    with Session(agent, {"default": ScriptedProvider(answer)}) as session:
        session.send("By the way, we settled on 48113 ms for the retry ceiling.")
        while session.view().epoch < 3:
            session.send("Please go on with the next file, as it was agreed before. " * 40)
        assert session.layout().live.first_seq > 2
        assert "48113 ms for the retry ceiling" in session.send("What was it?").text
        assert session.send("What was it?").text.count("48113") == 1  # its own searches are not found again


def test_numpy_is_loaded_by_those_who_search() -> None:
    """Not by everybody who imports the engine, the tools or a front worker."""
    program = "import sessionlib, sessionlib.running, workers.front, sys; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
