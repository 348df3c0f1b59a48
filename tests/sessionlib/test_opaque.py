"""Opaque items: recorded where the model put them, sent to who can read them, shown to nobody, parted from nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.codec import decode, encode
from sessionlib.counters import counter_named
from sessionlib.entries import OUTPUT_KINDS, Entry, EntryKind, render
from sessionlib.layout import Layout
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest, ModelReply, OpaqueItem, Shape
from sessionlib.replies import recordable
from sessionlib.stores.contract import Handle, Trim
from sessionlib.summaries.evidence import project
from sessionlib.tokens import CharactersCounter
from sessionlib.transcript import Transcript, closed_boundary, paired_boundary, parts_opaque, round_starts
from sessionlib.window import build_entries, sent_sizes
from tests.sessionlib.test_turn import AGENT, BUDGETS, COUNTER, Played, call, play, snapshot_of, view_of

ORIGIN = "main/m"
THOUGHT = '{"type":"thinking","thinking":"They want a.py.","signature":"c2ln"}'


def thought(text: str = THOUGHT, origin: str = ORIGIN) -> Entry:
    return Entry.opaque(text, origin)


def item(index: int, data: str = THOUGHT) -> OpaqueItem:
    return OpaqueItem(data=data, index=index)


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        (ModelReply(text="a", opaque=(item(0),)), "oa"),
        (ModelReply(text="", opaque=(item(0),)), "oa"),
        (ModelReply(text="", calls=(call("1"), call("2")), opaque=(item(0), item(1))), "ococ"),
        (ModelReply(text="a", calls=(call("1"),), opaque=(item(0), item(0), item(1))), "ooaoc"),
        (ModelReply(text="a", opaque=(item(9),)), "ao"),
    ],
)
def test_a_reply_is_recorded_in_its_order(reply: ModelReply, kinds: str) -> None:
    """Each item stands before the text or call that it led to; reasoning alone stands before an empty answer."""
    letters = {EntryKind.OPAQUE: "o", EntryKind.ASSISTANT: "a", EntryKind.TOOL_CALL: "c"}
    assert "".join(letters[entry.kind] for entry in reply.entries(ORIGIN)) == kinds
    assert {entry.origin for entry in reply.entries(ORIGIN) if entry.kind is EntryKind.OPAQUE} == {ORIGIN}


@given(
    has_text=st.booleans(),
    call_count=st.integers(0, 4),
    indexes=st.lists(st.integers(0, 6), max_size=5),
    first_seq=st.integers(1, 50),
)
def test_an_id_that_is_made_names_the_entry(
    has_text: bool, call_count: int, indexes: list[int], first_seq: int
) -> None:
    """A call without an id gets the sequence number of its entry, whatever stands before it."""
    calls = tuple(CallRequest(call_id="", name="look", arguments="{}") for _ in range(call_count))
    reply = ModelReply(text="x" if has_text else "", calls=calls, opaque=tuple(item(index) for index in indexes))
    recorded = recordable(reply, first_seq, set()).entries(ORIGIN)
    for seq, entry in enumerate(recorded, start=first_seq):
        if entry.kind is EntryKind.TOOL_CALL:
            assert entry.tool_call_id == f"call_{seq}"


def test_what_cannot_be_encoded_is_mended() -> None:
    """A lone surrogate inside an item does not stop the reply from being recorded."""
    reply = recordable(ModelReply(text="a", opaque=(item(0, '{"thinking":"\ud800"}'),)), 1, set())
    assert reply.opaque[0].data == '{"thinking":"�"}'


def test_an_item_comes_back_from_the_store() -> None:
    """With its origin, and as a saved step with its place."""
    assert decode(Entry, encode(thought())) == thought()
    reply = ModelReply(text="a", opaque=(item(1),))
    assert decode(ModelReply, encode(reply)) == reply


@pytest.mark.parametrize("name", ["characters", "o200k_base", "estimate"])
def test_an_item_is_counted_as_its_text(name: str) -> None:
    """It goes over the wire as it is: its quotes are not escaped."""
    counter = counter_named(name)
    assert counter.text(THOUGHT) <= counter.entry(thought()) <= counter.text(THOUGHT) + 4


def test_nobody_is_shown_an_item() -> None:
    """Neither a summarizer nor whoever reads a transcript."""
    entries = [Entry.user("hi"), thought(), Entry.assistant("hello")]
    assert render(entries) == "USER: hi\nASSISTANT: hello"
    assert [piece.text for piece in project(entries).items] == ["hi", "hello"]


# --- what is sent


def sent(*entries: Entry, origin: str = ORIGIN) -> list[EntryKind]:
    counter = CharactersCounter()
    layout = Layout(live=Transcript(entries, sent_sizes(entries, BUDGETS, counter)))
    return [entry.kind for entry in build_entries(layout, Trim(), Projection(counter, 300, origin=origin)).entries]


def test_items_of_another_origin_are_not_sent() -> None:
    """Neither those of another model nor those of another provider."""
    entries = (Entry.user("a"), thought(), Entry.assistant("b"), thought(origin="main/other"), Entry.assistant("c"))
    assert sent(*entries).count(EntryKind.OPAQUE) == 1
    assert sent(*entries, origin="main/none") == [EntryKind.USER, EntryKind.ASSISTANT, EntryKind.ASSISTANT]


def test_items_go_back_within_the_tool_loop_and_in_the_next_turn() -> None:
    """In their place, and their sizes are in what is counted."""
    asked = ModelReply(text="", calls=(call(),), opaque=(item(0),))
    outcome = play(view_of(), asked)
    assert [entry.kind for entry in outcome.entries][1:3] == [EntryKind.OPAQUE, EntryKind.TOOL_CALL]
    assert outcome.sizes == tuple(map(COUNTER.entry, outcome.entries))
    played = Played([ModelReply(text="done")])
    played.play(view_of(*outcome.entries, round=1, pending=()))
    assert played.requests[0].entries == outcome.entries
    assert played.requests[0].counted_tokens == BUDGETS.fixed_tokens + sum(outcome.sizes)


def test_a_new_version_of_the_agent_is_sent_none_of_the_old_model() -> None:
    """The entries stay; what is sent is without them from then on."""
    played = Played([ModelReply(text="done")])
    live = (Entry.user("a"), thought(), Entry.assistant("b"))
    played.play(replace(view_of(*live), agent=AGENT.model_copy(update={"model": "other"})))
    assert played.requests[0].entries == (Entry.user("a"), Entry.assistant("b"), Entry.user("hello"))


@pytest.mark.parametrize(("model", "is_continued"), [("m", True), ("other", False)])
def test_a_held_session_counts_its_items(model: str, is_continued: bool) -> None:
    """What the provider holds is not sent again; another model gets a session of its own, since it would be given
    none of them."""
    first = play(view_of(shape=Shape.HELD), ModelReply(text="b", opaque=(item(0),), handle="h1"))
    assert first.handle == Handle(handle="h1", epoch=2, next_seq=4, trim=Trim(), provider="main", model="m")
    played = Played([ModelReply(text="done", handle="h2")])
    snapshot = snapshot_of(*first.entries, handle=first.handle)
    agent = AGENT.model_copy(update={"model": model})
    outcome = played.play(view_of(snapshot=snapshot, shape=Shape.HELD, agent=agent))
    request = played.requests[0]
    assert (request.handle, request.held_count) == (("h1", 3) if is_continued else (None, 0))
    assert not outcome.is_reseeded


# --- boundaries


def kinds_of(letters: str) -> list[Entry]:
    made = {"u": Entry.user("u"), "a": Entry.assistant("a"), "o": thought()}
    return [made[letter] for letter in letters]


@pytest.mark.parametrize(
    ("letters", "boundary", "moved"), [("uoau", 2, 3), ("uooau", 2, 4), ("uoau", 1, 1), ("uo", 2, 2), ("ouau", 1, 1)]
)
def test_a_boundary_moves_past_what_an_item_belongs_to(letters: str, boundary: int, moved: int) -> None:
    """Output leaves with the reasoning that led to it."""
    assert paired_boundary(kinds_of(letters), boundary) == moved


@pytest.mark.parametrize(("letters", "limit", "closed"), [("uoa", 2, 1), ("uoa", 3, 3), ("uooa", 3, 1), ("uo", 2, 2)])
def test_a_closed_boundary_stays_before_an_item(letters: str, limit: int, closed: int) -> None:
    """What it belongs to is not there yet."""
    assert closed_boundary(kinds_of(letters), limit) == closed


def test_a_round_begins_with_its_reasoning() -> None:
    """A trim that drops a round drops that too."""
    entries = [
        *kinds_of("uo"),
        Entry.tool_call("1", "{}"),
        Entry.tool_result("1", "r"),
        *kinds_of("ooau"),
    ]
    assert round_starts(entries) == (0, 4, 7)


@given(letters=st.text("uao", max_size=12), budget_tokens=st.integers(0, 300), limit=st.integers(0, 12))
def test_nothing_parts_an_item_from_its_output(letters: str, budget_tokens: int, limit: int) -> None:
    """Neither a budget nor a span."""
    entries = tuple(kinds_of(letters))
    split = Transcript(entries, sent_sizes(entries, BUDGETS, COUNTER)).split_at_budget(budget_tokens)
    assert (*split.overflow.entries, *split.retained.entries) == entries
    for boundary in (len(split.overflow), closed_boundary(entries, limit)):
        assert not parts_opaque(entries, boundary)
        before = entries[boundary - 1] if 0 < boundary < len(entries) else None
        assert before is None or before.kind is not EntryKind.OPAQUE or entries[boundary].kind not in OUTPUT_KINDS
