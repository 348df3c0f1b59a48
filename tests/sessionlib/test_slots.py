"""The policy `slots`: the tables and test lists of spec/tiers A15 and A16 on the policy itself."""

from __future__ import annotations

from collections import Counter as Occurrences
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sessionlib.entries import Entry, EntryKind, render
from sessionlib.errors import Cancelled, CannotConverge, InvalidInput, ProviderRejected
from sessionlib.layout import Carried, Layout, Level, Record, make_record
from sessionlib.policies.contract import Origin, Rotated, SaturationReason
from sessionlib.policies.slots import Pressure, Slots, escalated, relaxed, rounds_kept, settled, whole_round_starts
from sessionlib.rotation import rotate
from sessionlib.steps import Consolidation
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from sessionlib.transcript import paired_boundary
from tests.sessionlib.rotating import (
    CHARACTERS,
    Answer,
    Asked,
    Driven,
    appended,
    blank,
    budgets_of,
    echoing,
    keeping,
    message,
    planned,
    transcript,
    words,
    wordy,
)

LOW, MEDIUM, HIGH = Level
POLICY = Slots(verbatim_rounds=4)
BUDGETS = budgets_of(POLICY, 8_000)
"""Tail 1,600, a slot 200, all slots 2,400, line 5,600, landing 4,480."""
BRIEF = keeping(0.02)


def rounds(count: int, first: int = 1) -> list[Entry]:
    """Rounds of a message and an answer, 50 tokens each."""
    return [
        entry
        for number in range(first, first + count)
        for entry in (message(50, f"q{number}"), Entry.assistant(words(46, f"a{number}")))
    ]


def slot(seq: int, tier: int = 1, *, level: Level | None = None, rotated_seq: int = 0, tokens: int = 60) -> Record:
    """A slot of one entry, named for it."""
    made = make_record(CHARACTERS, words(tokens - 27, f"s{seq}"), seq, seq, show_span=False, tier=tier)
    return replace(made, level=level, rotated_seq=rotated_seq)


def with_slots(*counts: int, level: Level | None = None, since: int = 0, count: int = 60) -> Layout:
    """So many slots in tier 3, 2 and 1, and *count* rounds, the newest *since* of them after the last rotation."""
    tiers = [tier for tier, count in zip((3, 2, 1), counts, strict=True) for _ in range(count)]
    slots = [slot(seq, tier) for seq, tier in enumerate(tiers, start=1)]
    live = transcript(rounds(count), first_seq=len(slots) + 1)
    slots[-1] = replace(slots[-1], level=level, rotated_seq=live.next_seq - 1 - 2 * since)
    return Layout(records=tuple(slots), live=live)


def decided(layout: Layout, answer: Answer = BRIEF, policy: Slots = POLICY) -> tuple[Rotated, Asked]:
    asked = Asked(answer)
    return asked.decide(policy.rotate(planned(layout, budgets_of(policy, 8_000)))), asked


def shape(asked: Asked) -> list[tuple[int, Level | None]]:
    return [(request.tier, request.level) for request in asked.requests]


def spans(rotated: Rotated) -> list[tuple[int, int, int]]:
    return [(record.tier, record.first_seq, record.last_seq) for record in rotated.layout.records]


def dropped(rotated: Rotated) -> list[int]:
    """Tiers of the records that left with nothing in their place."""
    return [s.tier for s in rotated.saturations if s.reason is SaturationReason.MATERIAL_DROPPED]


@pytest.mark.parametrize(("level", "higher", "lower"), [(LOW, MEDIUM, LOW), (MEDIUM, HIGH, LOW), (HIGH, HIGH, MEDIUM)])
def test_a15_levels_saturate_at_their_ends(level: Level, higher: Level, lower: Level) -> None:
    """One step up, one step down, and no further."""
    assert (escalated(level), relaxed(level)) == (higher, lower)


@pytest.mark.parametrize(("most", "kept"), [(20, (20, 10, 5)), (1, (1, 1, 1)), (2, (2, 1, 1)), (12, (12, 6, 3))])
def test_a15_a_level_keeps_all_a_half_a_quarter(most: int, kept: tuple[int, ...]) -> None:
    """Of the rounds that stay verbatim; at least one."""
    assert tuple(rounds_kept(level, most) for level in Level) == kept


@pytest.mark.parametrize(
    ("level", "rounds_since", "after", "is_beyond"),
    [
        (LOW, 4, MEDIUM, False),
        (MEDIUM, 4, HIGH, False),
        (HIGH, 4, HIGH, True),
        (HIGH, 0, HIGH, True),
        (LOW, 5, LOW, False),
        (MEDIUM, 5, MEDIUM, False),
        (HIGH, 7, HIGH, False),
        (HIGH, 8, MEDIUM, False),
        (MEDIUM, 8, LOW, False),
        (LOW, 8, LOW, False),
    ],
)
def test_a15_pressure_raises_the_level_and_quiet_relaxes_it(
    level: Level, rounds_since: int, after: Level, is_beyond: bool
) -> None:
    """With 4 rounds verbatim: up to 4 rounds between rotations press, from 8 on it is quiet."""
    assert settled(level, rounds_since, 4) == Pressure(after, is_beyond)


def test_a16_the_older_rounds_become_one_slot() -> None:
    """One request of tier 1 with the level's clause; the tail stays; what it shows is the older rounds, in order."""
    layout = Layout(live=transcript(rounds(60)))
    rotated, asked = decided(layout)
    assert shape(asked) == [(1, LOW)]
    assert spans(rotated) == [(1, 1, 112)]
    assert rotated.layout.live.entries == layout.live.entries[112:]
    assert asked.requests[0].material == render(layout.live.entries[:112])
    assert "a57" not in asked.requests[0].material


@pytest.mark.parametrize(("level", "kept"), [(LOW, 4), (MEDIUM, 2), (HIGH, 1)])
def test_a15_each_level_leaves_its_tail(level: Level, kept: int) -> None:
    """In a stretch that neither presses nor is quiet the level stays, and so many rounds with it."""
    rotated, asked = decided(with_slots(0, 0, 1, level=level, since=6))
    assert shape(asked) == [(1, level)]
    assert len(rotated.layout.live) == 2 * kept
    newest = rotated.layout.records[-1]
    assert (newest.level, newest.rotated_seq) == (level, 121)


def test_a16_a_full_tier_is_folded_as_peers() -> None:
    """Its four slots become one of the next tier, in one request without a previous record; then the new one comes."""
    rotated, asked = decided(with_slots(0, 0, 4))
    assert shape(asked) == [(1, LOW), (2, LOW)]
    fold = asked.requests[1]
    assert fold.is_degradation
    assert [name in fold.material for name in ("s1", "s2", "s3", "s4")] == [True] * 4
    assert spans(rotated) == [(2, 1, 4), (1, 5, 116)]
    assert [record.rewrite_count for record in rotated.layout.records] == [2, 1]


def test_a15_a_fold_cascades() -> None:
    """A fold that arrives at a full tier folds that one first."""
    rotated, asked = decided(with_slots(0, 4, 4))
    assert shape(asked) == [(1, LOW), (2, LOW), (3, LOW)]
    assert spans(rotated) == [(3, 1, 4), (2, 5, 8), (1, 9, 120)]


def test_a16_all_tiers_full_the_ring_lets_its_oldest_go() -> None:
    """The coarsest tier drops one slot and takes the arriving one; that is reported."""
    rotated, _ = decided(with_slots(4, 4, 4))
    assert spans(rotated) == [(3, 2, 2), (3, 3, 3), (3, 4, 4), (3, 5, 8), (2, 9, 12), (1, 13, 124)]
    assert dropped(rotated) == [3]


@pytest.mark.parametrize(("rotations", "requests"), [(21, {1: 21, 2: 5, 3: 1}), (84, {1: 84, 2: 20, 3: 4})])
def test_a16_requests_by_tier(rotations: int, requests: dict[int, int]) -> None:
    """After 21 rotations 21, 5 and 1."""
    layout, asked = Layout(), Asked(keeping(0.02))
    for number in range(rotations):
        layout = appended(layout, rounds(60, first=60 * number))
        layout = asked.decide(POLICY.rotate(planned(layout, BUDGETS))).layout
    assert Occurrences(request.tier for request in asked.requests) == requests


def test_a15_the_ring_loses_its_first_slot_at_the_85th_rotation() -> None:
    """4 + 16 + 64 rotations fill the tiers; the next one is the first that drops."""
    layout, drops = Layout(), list[list[int]]()
    for number in range(86):
        rotated, _ = decided(appended(layout, rounds(60, first=60 * number)))
        layout = rotated.layout
        drops.append(dropped(rotated))
    assert drops[:84] == [[]] * 84
    assert drops[84] == [3]


def test_a18_51_a_tail_that_is_shorter_than_its_maximum_still_moves_a_round() -> None:
    """Four rounds where twelve may stay: one leaves, three are left."""
    policy = Slots(verbatim_rounds=12)
    rotated, asked = decided(Layout(live=transcript(rounds(4))), policy=policy)
    assert [request.last_seq for request in asked.requests] == [2]
    assert len(rotated.layout.live) == 6


def test_a18_51_a_provider_that_counts_five_times_as_much_is_followed_down() -> None:
    """At five times our tokens each rotation still moves something, and the level rises until the window holds."""
    layout, levels, fills = Layout(), list[Level | None](), list[int]()
    for number in range(40):
        layout = appended(layout, rounds(1, first=number))
        if 5 * layout.conversation_tokens >= BUDGETS.line_tokens:
            plan = planned(layout, BUDGETS, origin=Origin.REPORTED)
            layout = Asked(BRIEF).decide(Slots().rotate(plan)).layout
            levels.append(layout.records[-1].level)
        fills.append(5 * layout.conversation_tokens)
    assert max(fills) < 8_000
    assert levels[:3] == [LOW, MEDIUM, HIGH]


def test_a16_an_empty_tail_asks_nothing() -> None:
    """No live entries: the same layout, no call."""
    plan = planned(Layout(), BUDGETS)
    asked = Asked(echoing)
    rotated = asked.decide(POLICY.rotate(plan))
    assert (rotated.layout is plan.layout, asked.requests, rotated.consolidation_count) == (True, [], 0)


def test_a18_49_a_blank_answer_keeps_every_round() -> None:
    """No slot, and the material stays verbatim: no loss, and none reported."""
    layout = Layout(live=transcript(rounds(60)))
    rotated, asked = decided(layout, blank)
    assert rotated.layout == layout
    assert (len(asked.requests), dropped(rotated)) == (1, [])


def test_a18_50_a_full_tier_is_not_cleared_for_a_slot_that_was_never_written() -> None:
    """A blank fold: the arriving slot displaces the oldest, which is reported; the next tier stays empty."""
    rotated, _ = decided(with_slots(0, 0, 4), lambda request: "" if request.tier > 1 else "told")
    assert spans(rotated) == [(1, 2, 2), (1, 3, 3), (1, 4, 4), (1, 5, 116)]
    assert dropped(rotated) == [1]


def test_a18_52_a_blank_summarizer_does_not_let_the_window_grow() -> None:
    """The engine records what a blank summarizer leaves unsaid: every rotation shortens, nothing leaves unrecorded."""
    layout = Layout()
    for number in range(200):
        layout = appended(layout, rounds(1, first=number))
        if layout.conversation_tokens >= BUDGETS.line_tokens:
            layout = Driven(blank).rotate(planned(layout, BUDGETS), POLICY).layout
        assert layout.conversation_tokens < BUDGETS.line_tokens
    assert layout.records[0].first_seq == 1
    assert layout.records[-1].last_seq + 1 == layout.live.first_seq


def test_a18_53_a_round_is_never_split() -> None:
    """Interleaved and parallel calls: all that leaves is shown in one request, whole rounds with their results."""
    used = [
        entry
        for number in range(40)
        for entry in (
            message(40, f"q{number}"),
            Entry.tool_call(f"c{number}", "{}"),
            Entry.tool_call(f"d{number}", "{}"),
            Entry.tool_result(f"d{number}", words(40)),
            Entry.tool_result(f"c{number}", words(40)),
            Entry.assistant(words(20, f"a{number}")),
        )
    ]
    rotated, asked = decided(Layout(live=transcript(used)))
    live = rotated.layout.live
    assert len(asked.requests) == 1
    assert asked.requests[0].material == render(used[: live.first_seq - 1])
    assert live.first_seq - 1 in whole_round_starts(used)
    assert paired_boundary(live.entries, 0) == 0


CALL_A, CALL_B = Entry.tool_call("a", "{}"), Entry.tool_call("b", "{}")
RESULT_A, RESULT_B = Entry.tool_result("a", "x"), Entry.tool_result("b", "x")
ASKED, SAID = Entry.user("x"), Entry.assistant("x")


@pytest.mark.parametrize(
    ("entries", "starts"),
    [
        ([], ()),
        ([ASKED, SAID, ASKED, SAID], (0, 2)),
        ([ASKED, CALL_A, RESULT_A, SAID], (0, 3)),
        ([CALL_A, CALL_B, RESULT_B, RESULT_A, SAID], (0, 4)),
        ([CALL_A, CALL_B, RESULT_B, SAID, RESULT_A, SAID], (0, 5)),
        ([RESULT_A, SAID, ASKED, SAID], (0, 1, 2)),
        ([CALL_A, RESULT_A, CALL_A, RESULT_A], (0, 2)),
    ],
)
def test_where_whole_rounds_begin(entries: list[Entry], starts: tuple[int, ...]) -> None:
    """With a message or with what the model says, but not while a result is awaited; an id may come again."""
    assert whole_round_starts(entries) == starts


CALLS = st.lists(st.tuples(st.sampled_from(["user", "said", "call", "result", "late"]), st.integers(0, 3)), max_size=40)


@given(steps=CALLS)
def test_no_whole_round_begins_between_a_call_and_its_result(steps: list[tuple[str, int]]) -> None:
    """Whatever was interleaved: each start leaves every later result its call, and the first is the oldest entry."""
    entries: list[Entry] = []
    opened: list[str] = []
    for position, (kind, pick) in enumerate(steps):
        if kind == "user":
            entries.append(Entry.user("x"))
        elif kind == "call":
            opened.append(f"c{position}")
            entries.append(Entry.tool_call(opened[-1], "{}"))
        elif kind in ("result", "late") and opened:
            entries.append(Entry.tool_result(opened.pop(pick % len(opened) if kind == "late" else -1), "x"))
        else:
            entries.append(Entry.assistant("x"))
    starts = whole_round_starts(entries)
    assert starts[:1] == ((0,) if entries else ())
    assert all(earlier < later for earlier, later in pairwise(starts))
    assert all(paired_boundary(entries, start) == start for start in starts)
    assert all(entries[start].kind is not EntryKind.TOOL_RESULT for start in starts)


def test_pressure_at_the_highest_level_lets_the_oldest_slot_go() -> None:
    """Of the coarsest tier that has any; the newest round always stays."""
    rotated, _ = decided(with_slots(0, 2, 1, level=HIGH, since=2))
    assert spans(rotated) == [(2, 2, 2), (1, 3, 3), (1, 4, 121)]
    assert dropped(rotated) == [2]
    assert len(rotated.layout.live) == 2


def test_a_blank_answer_under_pressure_drops_no_rounds() -> None:
    """The oldest slot goes, what has no record stays verbatim."""
    layout = with_slots(0, 2, 1, level=HIGH, since=2)
    rotated, _ = decided(layout, blank)
    assert rotated.layout.live == layout.live
    assert spans(rotated) == [(2, 2, 2), (1, 3, 3)]


def test_a_round_that_began_before_the_last_rotation_is_not_since() -> None:
    """Its input was there, its answer came later: four rounds since then press, a fifth would not."""
    layout = with_slots(0, 0, 1, level=LOW, since=5)
    newest = layout.records[-1]
    at_input = replace(newest, rotated_seq=newest.rotated_seq + 1)
    _, five = decided(layout)
    _, four = decided(replace(layout, records=(at_input,)))
    assert (shape(five), shape(four)) == ([(1, LOW)], [(1, MEDIUM)])


@pytest.mark.parametrize("level", [LOW, MEDIUM])
def test_pressure_below_the_highest_level_drops_nothing(level: Level) -> None:
    """It raises the level."""
    rotated, asked = decided(with_slots(0, 2, 1, level=level, since=2))
    assert shape(asked) == [(1, escalated(level))]
    assert dropped(rotated) == []


def test_the_first_rotation_does_not_press() -> None:
    """Records of another policy say nothing of a rotation: the level starts at the lowest."""
    _, asked = decided(with_slots(0, 1, 1, level=None, since=1))
    assert shape(asked) == [(1, LOW)]


def test_a_rotation_that_somebody_asked_for_does_not_press() -> None:
    """Below the line, and no alarm of the provider's: however soon after the last one, the level stays."""
    layout = with_slots(0, 0, 1, level=MEDIUM, since=1, count=8)
    _, asked = decided(layout)
    assert shape(asked) == [(1, MEDIUM)]
    reported = Asked(keeping(0.02))
    reported.decide(POLICY.rotate(planned(layout, BUDGETS, origin=Origin.REPORTED)))
    assert shape(reported) == [(1, HIGH)]


EIGHT_FIT = Slots(tail_tokens=800)


def test_rounds_that_the_tail_has_no_room_for_leave() -> None:
    """Twenty rounds may stay, eight fit: verbatim rounds are a maximum, not a quota."""
    rotated, _ = decided(Layout(live=transcript(rounds(60))), policy=EIGHT_FIT)
    assert len(rotated.layout.live) == 2 * 8


def test_pressure_is_told_by_the_rounds_that_fit() -> None:
    """Where eight of twenty rounds fit, nine since the last rotation do not press any more."""
    _, calm = decided(with_slots(0, 0, 1, level=LOW, since=9), policy=EIGHT_FIT)
    _, pressed = decided(with_slots(0, 0, 1, level=LOW, since=8), policy=EIGHT_FIT)
    assert (shape(calm), shape(pressed)) == ([(1, LOW)], [(1, MEDIUM)])


def test_a_round_that_is_larger_than_all_room_leaves_too() -> None:
    """What a rotation leaves stays within its bound, whatever the newest round is."""
    huge = [message(30, "q"), Entry.assistant(words(5_000, "a"))]
    rotated, _ = decided(Layout(live=transcript([*rounds(20), *huge])))
    assert (len(rotated.layout.live), spans(rotated)) == (0, [(1, 1, 42)])


def test_a_carried_input_takes_its_room_from_the_tail() -> None:
    """What is carried and what stays are within the tail's room together."""
    carried = Carried(seq=1, entry=message(1_000), tokens=1_000)
    calls = [
        entry
        for number in range(8)
        for entry in (Entry.tool_call(f"c{number}", "{}"), Entry.tool_result(f"c{number}", words(500)))
    ]
    rotated, _ = decided(Layout(carried=carried, live=transcript(calls, first_seq=2)))
    assert rotated.layout.carried is carried
    assert 0 < rotated.layout.live.tokens <= BUDGETS.stretched_tail_tokens - 1_000


def test_an_echo_is_cut_to_its_slot_and_reported() -> None:
    """A summarizer that repeats its material: the newest text within the slot."""
    rotated, _ = decided(Layout(live=transcript(rounds(60))), echoing)
    (record,) = rotated.layout.records
    assert record.tokens <= 200
    assert [s.reason for s in rotated.saturations] == [
        SaturationReason.NO_REDUNDANCY,
        SaturationReason.TIER_OVER_BUDGET,
    ]


def test_a_slot_that_would_save_nothing_is_not_made() -> None:
    """A record that would be as large as what it stands for: everything stays verbatim."""
    layout = Layout(live=transcript(rounds(2)))
    budgets = budgets_of(POLICY, 8_000)
    asked = Asked(lambda request: words(request.budget_tokens + 1))
    rotated = asked.decide(POLICY.rotate(planned(layout, budgets)))
    assert [request.budget_tokens for request in asked.requests] == [72]
    assert rotated.layout == layout


def test_what_leaves_is_larger_than_a_label() -> None:
    """A round smaller than the label of a record does not leave alone."""
    tiny = [entry for n in range(3) for entry in (message(6, f"q{n}"), Entry.assistant("ok"))]
    _, asked = decided(Layout(live=transcript([*tiny, *rounds(3)])), policy=Slots())
    assert asked.requests[0].last_seq > 2


def test_a_slot_names_its_span() -> None:
    """Seeded with the entries that it stands for, where the agent can read them; a fold with those of all its peers."""
    asked = Asked(keeping(0.02))
    budgets = budgets_of(POLICY, 8_000, show_span=True)
    rotated = asked.decide(POLICY.rotate(planned(with_slots(0, 0, 4), budgets, show_span=True)))
    for record in rotated.layout.records:
        span = (record.first_seq, record.last_seq)
        counted = make_record(CHARACTERS, record.text, *span, show_span=True, tier=record.tier)
        assert counted.tokens == record.tokens
    assert spans(rotated) == [(2, 1, 4), (1, 5, 116)]


def test_unsupported_values_stay_named_through_a_fold() -> None:
    """Those that the text still says."""
    layout = with_slots(0, 0, 4)
    invented = replace(layout.records[1], unsupported_values=("8080", "9090"))
    records = (layout.records[0], invented, *layout.records[2:])
    rotated, _ = decided(replace(layout, records=records), lambda request: "port 8080")
    assert rotated.layout.records[0].unsupported_values == ("8080",)


def test_equal_inputs_give_equal_layouts() -> None:
    """The policy is deterministic."""
    assert decided(with_slots(4, 4, 4))[0] == decided(with_slots(4, 4, 4))[0]


def test_a16_a_summarizer_that_answers_none_is_an_error() -> None:
    """Not content, and not blank either."""
    steps = rotate(
        planned(with_slots(0, 0, 4), BUDGETS), POLICY, summarizer_window_tokens=100_000, cancelled=lambda: False
    )
    assert isinstance(next(steps), Consolidation)
    with pytest.raises(ProviderRejected):
        steps.send(Consolidated(text=None))  # type: ignore[arg-type]


def test_a16_a_cancelled_rotation_asks_no_further() -> None:
    """Cancelled before it begins: no call. Cancelled in its first call: no second."""
    plan = planned(with_slots(0, 0, 4), BUDGETS)
    asked: list[int] = []

    def answer(request: ConsolidationRequest) -> str:
        asked.append(request.tier)
        return "told"

    with pytest.raises(Cancelled):
        Driven(answer).rotate(plan, POLICY, cancelled=lambda: True)
    assert asked == []
    with pytest.raises(Cancelled):
        Driven(answer).rotate(plan, POLICY, cancelled=lambda: bool(asked))
    assert asked == [1]


REQUEST = ConsolidationRequest(tier=1, first_seq=1, last_seq=1, material="x", budget_tokens=9)


@pytest.mark.parametrize("value", [slot(1), REQUEST], ids=["record", "request"])
@pytest.mark.parametrize("level", ["low", "urgent", 1])
def test_a18_41_an_undefined_level_is_refused(value: Record | ConsolidationRequest, level: object) -> None:
    """On a record, and in a request."""
    with pytest.raises(InvalidInput, match="level"):
        replace(value, level=level)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"verbatim_rounds": 0},
        {"verbatim_rounds": -1},
        {"tail_fraction": 0.0},
        {"tail_tokens": 0},
        {"slot_fraction": 1.1},
        {"slot_fraction": float("nan")},
        {"slot_tokens": -5},
        {"line_fraction": 0.0},
        {"level": "low"},
        {"slots_per_tier": 8},
    ],
)
def test_a18_10_a_configuration_without_sense_is_refused(fields: dict[str, object]) -> None:
    """Counts below one, fractions outside their range, unknown fields: constants are no settings."""
    with pytest.raises(ValidationError):
        Slots.model_validate(fields)


def test_a_slot_that_holds_little_but_its_label_is_refused() -> None:
    """Half of it must be text."""
    with pytest.raises(InvalidInput, match="slot_tokens must be at least 54"):
        budgets_of(Slots(slot_tokens=53), 8_000)


@pytest.mark.parametrize(
    ("policy", "window_tokens", "arithmetic"),
    [
        (Slots(tail_fraction=0.4), 8_000, "tail of 3200 and records of 2400 make 5600; below a line of 5600"),
        (Slots(slot_tokens=400), 8_000, "tail of 1600 and records of 4800 make 6400; below a line of 5600"),
        (Slots(), 100, "tail of 20 and records of 648 make 668; below a line of 70 a rotated layout may have 56"),
    ],
)
def test_a_layout_that_would_rotate_again_is_refused(policy: Slots, window_tokens: int, arithmetic: str) -> None:
    """Tail and twelve slots above 0.8 of the line, with the arithmetic and the window that it takes."""
    with pytest.raises(CannotConverge, match=arithmetic) as refusal:
        budgets_of(policy, window_tokens)
    minimum = refusal.value.minimum_tokens
    if minimum < 2**31 - 1:
        assert budgets_of(policy, minimum)
        with pytest.raises(CannotConverge):
            budgets_of(policy, minimum - 1)


def test_a_wordy_summarizer_costs_two_calls_a_slot() -> None:
    """Refused, asked for once more, then extracted: the slot is within its size."""
    driven = Driven(wordy)
    outcome = driven.rotate(planned(Layout(live=transcript(rounds(60))), BUDGETS), POLICY)
    assert len(driven.effects) == 2
    assert outcome.layout.records[0].tokens <= 200
    assert outcome.figures()["level"] == "low"
