"""The window: what is sent of a layout, and how it is cut to the limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.counters import counter_named
from sessionlib.entries import Entry, EntryKind, open_call_ids
from sessionlib.errors import InputTooLarge
from sessionlib.layout import Carried, Layout, Record, make_record
from sessionlib.projection import Projection, exceeds, sent_size
from sessionlib.stores.contract import Trim
from sessionlib.tokens import CharactersCounter, Counter
from sessionlib.transcript import Transcript, paired_boundary
from sessionlib.window import (
    LIMIT_FRACTION,
    Budgets,
    Room,
    Sent,
    build_entries,
    fit,
    narrowed,
    require_fits,
    rotation_line,
    sent_sizes,
)

COUNTER = CharactersCounter()
CAP_TOKENS = 120


def budgets(limit_tokens: int = 400, cap_tokens: int = CAP_TOKENS) -> Budgets:
    return Budgets(
        window_tokens=600,
        fixed_tokens=50,
        line_tokens=300,
        limit_tokens=limit_tokens,
        trim_tokens=limit_tokens * 4 // 5,
        tail_tokens=60,
        stretched_tail_tokens=100,
        record_tokens=60,
        result_cap_tokens=cap_tokens,
    )


def projection(counter: Counter = COUNTER, cap_tokens: int = CAP_TOKENS, *, history_tool: bool = True) -> Projection:
    return Projection(counter, cap_tokens, history_tool)


def layout_of(entries: Sequence[Entry], *, records: tuple[Record, ...] = (), first_seq: int = 1) -> Layout:
    sizes = sent_sizes(entries, budgets(), COUNTER)
    return Layout(records=records, live=Transcript(tuple(entries), sizes, first_seq))


def a_round(number: int, result: str = "done", arguments: str = "{}") -> list[Entry]:
    """A call and its result."""
    call_id = f"c{number}"
    return [Entry.tool_call(call_id, arguments, "work"), Entry.tool_result(call_id, result, "work")]


def a_record(first_seq: int, last_seq: int, text: str = "They agreed on the plan.") -> Record:
    return make_record(COUNTER, text, first_seq, last_seq, show_span=True)


def require_sound(entries: Sequence[Entry]) -> None:
    """Every result has its call before it, every call its result after it."""
    assert paired_boundary(entries, 0) == 0
    assert open_call_ids(entries) == ()


def texts_of(sent: Sent) -> list[str]:
    return [entry.text for entry in sent.entries]


# --- figures


@pytest.mark.parametrize(
    ("effective_tokens", "fraction", "line_tokens"),
    [(128_000, 0.70, 89_600), (600, 0.70, 420), (400, 0.70, 280), (1, 0.70, 1), (5_000, 0.0001, 1)],
)
def test_a18_11_the_rotation_line_is_never_zero(effective_tokens: int, fraction: float, line_tokens: int) -> None:
    """Rounded down, but at least one token."""
    assert rotation_line(effective_tokens, fraction) == line_tokens


def test_the_limit_is_a_share_of_the_window_less_the_reserve() -> None:
    """Nine tenths of what instructions and tools leave, less the room for the answer."""
    room = Room(window_tokens=10_000, fixed_tokens=1_000, output_reserve_tokens=500)
    assert room.limit_tokens == int(9_000 * LIMIT_FRACTION) - 500


def test_narrowed_budgets_hold_in_a_denser_tokenizer() -> None:
    """Limits made for a window half the size are those of that window."""
    room = Room(window_tokens=5_000, fixed_tokens=1_000, output_reserve_tokens=100)
    wide = Room(window_tokens=10_000, fixed_tokens=1_000, output_reserve_tokens=100)
    made = narrowed(replace(budgets(wide.limit_tokens), window_tokens=10_000, fixed_tokens=1_000), 2.0)
    assert (made.window_tokens, made.limit_tokens) == (5_000, room.limit_tokens)
    assert made.trim_tokens < made.limit_tokens
    assert made.line_tokens <= made.limit_tokens


# --- single entries


@pytest.mark.parametrize("counter_name", ["characters", "o200k_base", "estimate"])
@pytest.mark.parametrize("cap_tokens", [150, 900])
@pytest.mark.parametrize(
    "text", ["word " * 5_000, "x" * 20_000, "中文" * 4_000, '"\\\n' * 5_000, "\x01" * 5_000, "😀" * 5_000, " " * 50_000]
)
def test_t38_a_long_result_is_sent_within_the_cap(counter_name: str, cap_tokens: int, text: str) -> None:
    """Head and tail stay, a pointer between them says what is missing and how to read it."""
    counter = counter_named(counter_name)
    entry = Entry.tool_result("call_7", f"FIRST {text} LAST", "work")
    sent = projection(counter, cap_tokens).project(entry, 41)
    if not exceeds(entry, cap_tokens, counter):
        assert sent is entry
        return
    assert counter.entry(sent) <= cap_tokens
    assert sent.text.startswith("FIRST") or counter.entry(Entry.tool_result("call_7", sent.text)) > cap_tokens * 0.5
    assert "entry 41" in sent.text
    assert sent_size(entry, cap_tokens, counter) == cap_tokens


def test_a_shortened_result_keeps_its_ends() -> None:
    """The beginning and the end are word for word, and the number of missing characters is right."""
    text = "".join(f"line {number}\n" for number in range(2_000))
    sent = projection(cap_tokens=300).project(Entry.tool_result("c1", text), 9).text
    head, tail = sent.split("\n[… ")[0], sent.split("…]\n")[1]
    left_out = int(sent.split("\n[… ")[1].split(" ")[0])
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 100
    assert left_out == len(text) - len(head) - len(tail)


def test_ends_of_a_shortened_result_never_overlap() -> None:
    """Also where the counter finds less in the parts than in the whole."""
    counter = counter_named("estimate")
    text = "x" * 20_000
    sent = projection(counter, 8_000).project(Entry.tool_result("c1", text), 5).text
    assert len(sent) < len(text)
    assert counter.entry(Entry.tool_result("c1", sent)) <= 8_000


def test_only_long_results_are_shortened() -> None:
    """Messages, calls and results within the cap are sent as they are."""
    long = "x" * 10_000
    for entry in (Entry.user(long), Entry.assistant(long), Entry.tool_call("c", long), Entry.tool_result("c", "short")):
        assert projection().project(entry, 3) is entry


def test_projecting_is_deterministic() -> None:
    """The same entry is sent in the same words each time."""
    entry = Entry.tool_result("c1", "some output\n" * 3_000)
    assert projection().project(entry, 5) == projection().project(entry, 5)


def test_without_the_history_tool_nothing_advertises_it() -> None:
    """An agent that cannot read again is not told to."""
    silent = projection(history_tool=False)
    entry = Entry.tool_result("c1", "x" * 10_000)
    for made in (silent.project(entry, 5), silent.pointer(entry, 5), silent.marker(2, 9)):
        assert "history" not in made.text
        assert "entry 5" not in made.text


# --- a layout within the limit


def test_wire_order_is_records_carried_input_live_entries() -> None:
    """The oldest record first, then the input that is still being answered, then live entries."""
    live = Transcript((Entry.assistant("go"),), (5,), 8)
    carried = Carried(3, Entry.user("the task"), 6)
    sent = build_entries(Layout((a_record(1, 2, "old"), a_record(4, 7, "new")), carried, live), Trim(), projection())
    assert sent.seqs == (0, 0, 3, 8)
    assert "old" in sent.entries[0].text
    assert "[entries 4-7]" in sent.entries[1].text
    assert sent.entries[2:] == (Entry.user("the task"), Entry.assistant("go"))
    assert sent.tokens == a_record(1, 2, "old").tokens + a_record(4, 7, "new").tokens + 11


def test_within_the_limit_nothing_is_trimmed() -> None:
    """A layout that fits is sent whole, under the trim it has."""
    sent, trim = fit(layout_of([Entry.user("hi"), *a_round(1)]), Trim(), budgets(), projection())
    assert trim == Trim()
    assert len(sent.entries) == 3


def test_held_count_is_what_the_handle_has() -> None:
    """Records, markers and entries before the handle's end are held already."""
    layout = layout_of([Entry.user("a"), Entry.assistant("b"), Entry.user("c")], records=(a_record(1, 4),), first_seq=5)
    assert build_entries(layout, Trim(), projection()).held_count(7) == 3


# --- trimming, step by step


def test_old_results_become_pointers_first() -> None:
    """The oldest results go, one by one; messages and the newest round stay as they are."""
    entries = [Entry.user("do it"), *[e for n in range(5) for e in a_round(n, "r" * 400)]]
    sent, trim = fit(layout_of(entries), Trim(), budgets(), projection())
    assert trim.dropped_before_seq == 0
    assert trim.pointers_before_seq > 0
    assert sent.tokens <= budgets().trim_tokens
    assert sent.entries[-1] == entries[-1]
    assert sent.entries[2].text == projection().pointer(entries[2], 3).text


def test_no_more_results_become_pointers_than_must() -> None:
    """Two results are enough here: the frontier stands right behind the second."""
    entries = [Entry.user("do it"), *[e for n in range(4) for e in a_round(n, "r" * 430)]]
    _, trim = fit(layout_of(entries), Trim(), budgets(430), projection())
    assert trim == Trim(pointers_before_seq=6)


def test_then_the_oldest_exchanges_leave_behind_one_marker() -> None:
    """The marker names the span, and a cut falls where an exchange begins."""
    exchanges = [e for n in range(10) for e in (Entry.user(f"question {n} " + "q" * 90), Entry.assistant("a" * 90))]
    sent, trim = fit(layout_of(exchanges), Trim(), budgets(), projection())
    assert sent.entries[0].kind is EntryKind.RECORD
    assert f"Entries 1-{trim.dropped_before_seq - 1} " in sent.entries[0].text
    assert sent.entries[1].kind is EntryKind.USER
    assert sent.tokens <= budgets().trim_tokens


def test_a_cut_inside_a_turn_keeps_what_was_asked() -> None:
    """The message that began the turn stands after the marker, word for word."""
    entries = [Entry.user("the task"), *[e for n in range(40) for e in a_round(n, arguments="a" * 60)]]
    sent, trim = fit(layout_of(entries), Trim(), budgets(), projection())
    assert trim.dropped_before_seq > 1
    assert sent.entries[1] == Entry.user("the task")
    assert sent.seqs[:2] == (0, 1)
    require_sound(sent.entries)


def test_a_carried_input_outlasts_every_trim() -> None:
    """What the running turn was asked stays, even where its whole round must leave."""
    rounds = [e for n in range(30) for e in a_round(n, arguments="a" * 3_000)]
    layout = replace(layout_of(rounds, first_seq=10), carried=Carried(2, Entry.user("the task"), 6))
    sent, _ = fit(layout, Trim(), budgets(), projection())
    assert Entry.user("the task") in sent.entries


def test_results_not_seen_yet_become_pointers_only_when_they_must() -> None:
    """Parallel results that do not fit together: the oldest of them, no more than needed."""
    calls = [Entry.tool_call(f"c{n}", "{}", "work") for n in range(4)]
    results = [Entry.tool_result(f"c{n}", "r" * 440, "work") for n in range(4)]
    sent, trim = fit(layout_of([Entry.user("do it"), *calls, *results]), Trim(), budgets(), projection())
    assert trim == Trim(pointers_before_seq=trim.pointers_before_seq)
    assert sent.entries[-1] == results[-1]
    assert sent.tokens <= budgets().limit_tokens


def test_records_are_the_last_but_one_to_go() -> None:
    """Only what cannot fit otherwise takes the records' room."""
    layout = layout_of([Entry.user("q" * 1_200)], records=(a_record(1, 9, "r" * 600),), first_seq=10)
    sent, trim = fit(layout, Trim(), budgets(), projection())
    assert trim.records_dropped
    assert "Entries 1-9 " in sent.entries[0].text
    assert sent.entries[-1] == Entry.user("q" * 1_200)


def test_an_input_that_cannot_fit_is_refused_with_the_arithmetic() -> None:
    """Nothing can be left out any more: the error says what it takes and what there is."""
    with pytest.raises(InputTooLarge) as caught:
        fit(layout_of([Entry.user("q" * 4_000)]), Trim(), budgets(), projection())
    assert caught.value.input_tokens == 1_004
    assert (caught.value.fixed_tokens, caught.value.limit_tokens) == (50, 450)


def test_require_fits_agrees_with_what_fit_can_send() -> None:
    """An input that is let in can be sent in whatever state the session is."""

    class Agent:
        def budgets(self, counter: Counter, calibration: float = 1.0) -> Budgets:
            return budgets()

    history = [e for n in range(30) for e in (Entry.user("old" * 50), *a_round(n, "r" * 300))]
    accepted = 0
    for length in range(0, 2_000, 50):
        entry = Entry.user("q" * length)
        try:
            require_fits(entry, Agent(), COUNTER)
        except InputTooLarge:
            continue
        accepted += 1
        layout = layout_of([*history, entry], records=(a_record(1, 9, "r" * 300),), first_seq=10)
        assert fit(layout, Trim(), budgets(), projection())[0].tokens <= budgets().limit_tokens
    assert accepted > 10


# --- what must always hold

CALL_COUNTS = st.integers(1, 4)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Turns of rounds with parallel calls, small and huge."""
    entries: list[Entry] = []
    sizes = st.sampled_from([0, 3, 50, 400, 3_000])
    for _ in range(draw(st.integers(1, 5))):
        entries.append(Entry.user("u" * draw(st.sampled_from([1, 50, 300]))))
        for _ in range(draw(st.integers(0, 4))):
            ids = [f"c{len(entries)}_{n}" for n in range(draw(CALL_COUNTS))]
            entries += [Entry.tool_call(call_id, "a" * draw(sizes), "work") for call_id in ids]
            entries += [Entry.tool_result(call_id, "r" * draw(sizes), "work") for call_id in ids]
        entries.append(Entry.assistant("a" * draw(st.sampled_from([0, 50, 500]))))
    return entries


def request_ends(entries: Sequence[Entry]) -> list[int]:
    """Positions at which a request was made: after a message, and after a round's results."""
    return [
        end
        for end in range(1, len(entries) + 1)
        if entries[end - 1].kind is EntryKind.USER
        or (
            entries[end - 1].kind is EntryKind.TOOL_RESULT
            and (end == len(entries) or entries[end].kind is not EntryKind.TOOL_RESULT)
        )
    ]


@settings(max_examples=150)
@given(history=histories(), records=st.booleans())
def test_t50_t117_every_request_is_sound_within_the_limit_and_extends_the_one_before(
    history: list[Entry], records: bool
) -> None:
    """Pairs are whole, the newest input is there, and only a new trim changes what was sent before."""
    kept = (a_record(1, 9),) if records else ()
    trim, previous = Trim(), Sent((), (), 0)
    for end in request_ends(history):
        layout = layout_of(history[:end], records=kept, first_seq=10)
        sent, grown = fit(layout, trim, budgets(), projection())
        assert sent.tokens <= budgets().limit_tokens
        assert sum(map(COUNTER.entry, sent.entries)) <= sent.tokens
        assert len(sent.seqs) == len(sent.entries)
        assert list(sent.seqs) == sorted(sent.seqs)
        require_sound(sent.entries)
        assert [e for e in history[:end] if e.kind is EntryKind.USER][-1] in sent.entries
        if grown == trim:
            assert sent.entries[: len(previous.entries)] == previous.entries
        else:
            assert grown.pointers_before_seq >= trim.pointers_before_seq
            assert grown.dropped_before_seq >= trim.dropped_before_seq
            assert grown.records_dropped >= trim.records_dropped
        trim, previous = grown, sent


@settings(max_examples=15, deadline=None)
@given(
    count=st.sampled_from([1, 20, 200]),
    result=st.sampled_from(["", "ok", "r" * 5_000, "中" * 3_000]),
    arguments=st.sampled_from(["{}", "a" * 4_000]),
    name=st.sampled_from(["o200k_base", "estimate"]),
)
def test_t42_parallel_calls_never_cross_the_limit(count: int, result: str, arguments: str, name: str) -> None:
    """200 parallel calls, huge results, huge arguments: the request is below the limit all the same."""
    counter, limits = counter_named(name), budgets(1_500, 500)
    calls = [Entry.tool_call(f"call_{n}", arguments, "work") for n in range(count)]
    results = [Entry.tool_result(f"call_{n}", result, "work") for n in range(count)]
    entries = (Entry.user("do it"), *calls, *results)
    layout = Layout(live=Transcript(entries, sent_sizes(entries, limits, counter)))
    sent, _ = fit(layout, Trim(), limits, projection(counter, 500))
    assert sum(map(counter.entry, sent.entries)) <= sent.tokens <= limits.limit_tokens
    assert Entry.user("do it") in sent.entries
    require_sound(sent.entries)


def test_t38_a_result_of_five_megabytes_is_sent_within_its_cap() -> None:
    """It neither crosses the limit nor is it lost: the pointer tells where to read it."""
    counter, limits = counter_named("o200k_base"), budgets(3_000, 1_000)
    entries = (Entry.user("do it"), *a_round(1, "log line with words 12345\n" * 200_000))
    layout = Layout(live=Transcript(entries, sent_sizes(entries, limits, counter)))
    sent, trim = fit(layout, Trim(), limits, projection(counter, 1_000))
    assert trim == Trim()
    assert 500 < counter.entry(sent.entries[-1]) <= 1_000
    assert "entry 3" in sent.entries[-1].text


# --- repair on read


ORPHAN = Entry.tool_result("gone", "result without call")


@pytest.mark.parametrize(
    ("entries", "kinds"),
    [
        ([ORPHAN], "record"),
        ([Entry.user("a"), ORPHAN, Entry.assistant("b")], "user record assistant"),
        ([Entry.user("a"), Entry.tool_call("c", "{}"), Entry.user("b")], "user tool_call tool_result user"),
        ([Entry.tool_call("c", "{}")], "tool_call tool_result"),
        ([Entry.tool_call("c", "{}"), Entry.tool_call("d", "{}"), Entry.tool_result("c", "r")],
         "tool_call tool_call tool_result tool_result"),
        ([Entry.tool_call("c", "{}"), Entry.user("u"), Entry.tool_result("c", "r")],
         "tool_call tool_result user record"),
        ([Entry.tool_result("c", "r"), Entry.tool_call("c", "{}")], "record tool_call tool_result"),
        ([Entry.tool_call("c", "{}"), Entry.tool_call("d", "{}"), Entry.tool_result("c", "r"), Entry.assistant("t")],
         "tool_call tool_call tool_result tool_result assistant"),
        ([Entry.tool_call("c", "{}"), Entry.assistant("t"), Entry.tool_result("c", "r")],
         "tool_call assistant tool_result"),
    ],
)  # fmt: skip
def test_t52_broken_pairs_are_mended_when_sent(entries: list[Entry], kinds: str) -> None:
    """One orphan does not make a session unusable: it is sent as text, a call without result gets one."""
    sent = build_entries(layout_of(entries), Trim(), projection())
    assert " ".join(entry.kind for entry in sent.entries) == kinds
    assert sum(map(COUNTER.entry, sent.entries)) == sent.tokens
    require_sound(sent.entries)


@given(
    st.lists(
        st.builds(Entry.user, st.just("u"))
        | st.builds(Entry.assistant, st.just("a"))
        | st.builds(Entry.tool_call, st.sampled_from("xyz"), st.just("{}"))
        | st.builds(Entry.tool_result, st.sampled_from("xyz"), st.just("r")),
        max_size=14,
    )
)
def test_t50_whatever_is_stored_what_is_sent_is_sound(entries: list[Entry]) -> None:
    """Every result has its call, and what was said stays in order."""
    sent = build_entries(layout_of(entries), Trim(), projection())
    require_sound(sent.entries)
    said = [e for e in entries if e.kind in (EntryKind.USER, EntryKind.ASSISTANT)]
    assert [e for e in sent.entries if e.kind in (EntryKind.USER, EntryKind.ASSISTANT)] == said
    assert json.dumps(texts_of(sent))
