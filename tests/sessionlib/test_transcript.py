"""Entries and transcripts: validation, rendering, appending, splitting with the tool-pair rule (spec/tiers A3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry, EntryKind, open_call_ids, render
from sessionlib.errors import InvalidInput
from sessionlib.transcript import Transcript, closed_boundary, paired_boundary, round_starts
from tests.sessionlib.rotating import message, transcript, words


def interleaved(run: int) -> list[Entry]:
    """Two parallel calls and their results, 13 tokens each."""
    a, b = f"a{run}", f"b{run}"
    return [
        Entry.tool_call(a, words(9)),
        Entry.tool_call(b, words(9)),
        Entry.tool_result(a, words(9)),
        Entry.tool_result(b, words(9)),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "tool_call_id"),
    [
        (EntryKind.TOOL_CALL, "{}", None),
        (EntryKind.TOOL_RESULT, "ok", None),
        (EntryKind.TOOL_CALL, "{}", "  "),
        (EntryKind.USER, "hi", "c1"),
        (EntryKind.ASSISTANT, "hi", ""),
        (EntryKind.USER, None, None),
        (EntryKind.USER, "lone \ud800", None),
        ("user", "hi", None),
        (7, "hi", None),
    ],
)
def test_an_entry_refuses_what_breaks_its_rules(kind: Any, text: Any, tool_call_id: Any) -> None:
    """A18.41: calls and results have an id, nothing else has one; texts are text; kinds are defined."""
    with pytest.raises(InvalidInput):
        Entry(kind, text, tool_call_id)


def test_rendering_labels_each_entry() -> None:
    """One labelled line for each entry, joined by single newlines."""
    entries = [
        Entry.user("book it"),
        Entry.assistant("Looking."),
        Entry.tool_call("c1", '{"id":7}', "find"),
        Entry.tool_call("c2", "{}"),
        Entry.tool_result("c1", "found"),
        Entry.record("earlier"),
    ]
    assert render(entries) == (
        'USER: book it\nASSISTANT: Looking.\nTOOL CALL [c1]: find({"id":7})\nTOOL CALL [c2]: {}\n'
        "TOOL RESULT [c1]: found\nRECORD: earlier"
    )


def test_rendering_nothing_gives_nothing() -> None:
    """An empty run is an empty text."""
    assert render([]) == ""


@pytest.mark.parametrize("act", [lambda bad: render([bad]), lambda bad: Transcript().append([bad], [1])])
def test_a18_42_what_is_no_entry_is_refused_by_name(act: Any) -> None:
    """A None among the entries is the caller's error, named, not one from inside."""
    with pytest.raises(InvalidInput, match="entries"):
        act(None)


def test_a18_22_appending_nothing_gives_the_same_transcript() -> None:
    """Only an append of something makes a new transcript."""
    before = transcript([message(20)])
    assert before.append([], []) is before
    after = before.append([message(30)], [30])
    assert (len(before), len(after), after.tokens, after.next_seq) == (1, 2, 50, 3)


def test_a18_07_a_transcript_does_not_keep_the_callers_list() -> None:
    """What the caller does with its list afterwards changes no transcript."""
    entries = [message(20)]
    kept = Transcript().append(entries, [20])
    entries.append(message(20))
    assert len(kept) == 1


def test_sizes_are_one_for_each_entry() -> None:
    """A transcript knows the size of each of its entries."""
    with pytest.raises(InvalidInput, match="sizes"):
        Transcript((message(20),), ())


@pytest.mark.parametrize(
    ("sizes", "budget_tokens", "retained", "overflow"),
    [
        ([20] * 5, 40, [4, 5], [1, 2, 3]),
        ([20] * 5, 100, [1, 2, 3, 4, 5], []),
        ([20] * 5, 99, [2, 3, 4, 5], [1]),
        ([20] * 5, 0, [], [1, 2, 3, 4, 5]),
        ([20, 200, 20], 100, [3], [1, 2]),
        ([20, 20, 200], 100, [], [1, 2, 3]),
        ([], 0, [], []),
    ],
)
def test_a_split_keeps_the_newest_that_fit(
    sizes: list[int], budget_tokens: int, retained: list[int], overflow: list[int]
) -> None:
    """A suffix within the budget, never skipping over what does not fit; the rest is the overflow, oldest first."""
    split = transcript(message(size) for size in sizes).split_at_budget(budget_tokens)
    assert list(range(split.retained.first_seq, split.retained.next_seq)) == retained
    assert list(range(split.overflow.first_seq, split.overflow.next_seq)) == overflow


def test_nothing_overflowing_returns_the_same_transcript() -> None:
    """A transcript within the budget is retained as the object that it is."""
    whole = transcript([message(20)])
    assert whole.split_at_budget(20).retained is whole


def test_a_negative_budget_is_refused() -> None:
    """No transcript has less than nothing."""
    with pytest.raises(InvalidInput, match="budget_tokens"):
        Transcript().split_at_budget(-1)


def test_a18_40_interleaved_parallel_calls_leave_no_orphan() -> None:
    """Six interleaved runs of 13-token entries at 100: the boundary falls on a call, and moves to the last run."""
    entries = [entry for run in range(6) for entry in interleaved(run)]
    split = transcript(entries).split_at_budget(100)
    assert split.retained.entries == tuple(interleaved(5))


def test_an_interleaved_run_larger_than_the_budget_retains_nothing() -> None:
    """No suffix without orphan fits."""
    assert len(transcript(interleaved(0)).split_at_budget(39).retained) == 0


def test_a_result_before_its_call_is_an_orphan() -> None:
    """Only a call earlier in the window pairs with a result."""
    entries = [Entry.tool_result("c", "early"), Entry.tool_call("c", "{}"), message(10)]
    assert paired_boundary(entries, 0) == 1


CALL, RESULT = Entry.tool_call, Entry.tool_result
C1, R1, C2, R2 = CALL("1", "{}"), RESULT("1", "ok"), CALL("2", "{}"), RESULT("2", "ok")
U, A = Entry.user("u"), Entry.assistant("a")


@pytest.mark.parametrize(
    ("entries", "limit", "boundary"),
    [
        ([U, A, U], 3, 3),
        ([U, A, U], 2, 2),
        ([U, A, U], 99, 3),
        ([U, A, U], -4, 0),
        ([U, C1, R1, A], 4, 4),
        ([U, C1, R1, A], 2, 1),
        ([U, C1], 2, 1),
        ([U, C1, C2, R1], 4, 1),
        ([U, C1, R1, C2, R1], 5, 3),
        ([U, C1, C2, R2, R1, A], 4, 1),
        ([U, C1, R1, A, C1], 5, 4),
        ([C1, U, A], 3, 3),
        ([C1, U, R1, A], 2, 0),
        ([C1, U, R1, A], 4, 4),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "".join(e.kind[-1] for e in value),
)
def test_no_boundary_passes_an_open_call(entries: list[Entry], limit: int, boundary: int) -> None:
    """The boundary lies before a call whose result comes later or is still due; a dead call (T40) holds nothing up."""
    assert closed_boundary(entries, limit) == boundary


def test_rounds_begin_with_output_or_with_what_it_answers() -> None:
    """A user message belongs to the round that answers it; each batch of results is followed by a new round."""
    assert round_starts([U, A, U, C1, C2, R1, R2, C1, R1, A, U]) == (0, 2, 7, 9, 10)


def test_open_calls_are_those_without_a_later_result() -> None:
    """Oldest first."""
    assert open_call_ids([R1, C1, C2, R2]) == ("1",)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Messages and calls, each call answered once at some later point, many of them interleaved."""
    entries: list[Entry] = []
    pending: list[str] = []
    for number in range(draw(st.integers(0, 40))):
        match draw(st.sampled_from(("message", "call", "result"))):
            case "call":
                pending.append(f"c{number}")
                entries.append(Entry.tool_call(f"c{number}", words(draw(st.integers(1, 20)))))
            case "result" if pending:
                answered = pending.pop(draw(st.integers(0, len(pending) - 1)))
                entries.append(Entry.tool_result(answered, words(draw(st.integers(1, 20)))))
            case _:
                entries.append(message(draw(st.integers(5, 30))))
    return entries


@given(entries=histories(), budget_tokens=st.integers(0, 400))
def test_t50_every_retained_result_has_its_call(entries: list[Entry], budget_tokens: int) -> None:
    """A split loses nothing, keeps its budget and leaves no result without its call."""
    split = transcript(entries).split_at_budget(budget_tokens)
    assert [*split.overflow.entries, *split.retained.entries] == entries
    assert split.retained.tokens <= budget_tokens
    calls: set[str | None] = set()
    for entry in split.retained.entries:
        calls |= {entry.tool_call_id} if entry.kind is EntryKind.TOOL_CALL else set()
        assert entry.kind is not EntryKind.TOOL_RESULT or entry.tool_call_id in calls


@given(entries=histories(), limit=st.integers(0, 45))
def test_nothing_after_a_closed_boundary_answers_a_call_before_it(entries: list[Entry], limit: int) -> None:
    """T50: cut at a closed boundary, the rest needs no call that was cut off."""
    boundary = closed_boundary(entries, limit)
    calls = {entry.tool_call_id for entry in entries[:boundary] if entry.kind is EntryKind.TOOL_CALL}
    answers = {entry.tool_call_id for entry in entries[boundary:] if entry.kind is EntryKind.TOOL_RESULT}
    assert boundary <= limit
    assert not calls & answers
