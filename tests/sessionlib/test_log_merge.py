"""The policy `log_merge`: what it consolidates, which neighbours it merges, and what must always hold."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sessionlib.entries import Entry, render
from sessionlib.layout import Carried, Layout, Method, Record, make_record
from sessionlib.policies.contract import Rotated, SaturationReason
from sessionlib.policies.log_merge import LogMerge, next_pair
from sessionlib.window import Budgets
from tests.sessionlib.rotating import (
    CHARACTERS,
    CHARACTERS_OF_SUMMARIZERS,
    Answer,
    Asked,
    Conversation,
    Driven,
    appended,
    blank,
    budgets_of,
    echoing,
    keeping,
    message,
    planned,
    room,
    transcript,
    words,
    wordy,
)

POLICY = LogMerge(record_fraction=0.10)
BUDGETS = budgets_of(POLICY, 8_000)
"""Tail 800, records 800, line 5,600, landing 4,480."""


def record(first_seq: int, last_seq: int, tier: int, tokens: int = 150, rewrite_count: int = 1) -> Record:
    text = words(tokens - 27, f"r{first_seq}")
    return make_record(CHARACTERS, text, first_seq, last_seq, show_span=False, tier=tier, rewrite_count=rewrite_count)


def rounds(count: int, tokens: int = 100, first: int = 0) -> list[Entry]:
    """Rounds of a message and an answer, each of *tokens*."""
    return [
        entry
        for number in range(first, first + count)
        for entry in (message(tokens, f"q{number}"), Entry.assistant(words(tokens - 4, f"a{number}")))
    ]


def decided(layout: Layout, answer: Answer, budgets: Budgets = BUDGETS) -> tuple[Rotated, Asked]:
    asked = Asked(answer)
    return asked.decide(POLICY.rotate(planned(layout, budgets))), asked


def test_the_overflow_is_consolidated_once() -> None:
    """Everything older than the tail becomes one record of tier 1, from one request that shows all of it."""
    layout = Layout(live=transcript(rounds(28)))
    rotated, asked = decided(layout, keeping(0.02))
    assert asked.shape == [(1, "D")]
    assert [(kept.first_seq, kept.last_seq, kept.tier) for kept in rotated.layout.records] == [(1, 48, 1)]
    assert asked.requests[0].material == render(layout.live.entries[:48])
    assert rotated.layout.live.entries == layout.live.entries[48:]


def test_a_new_record_comes_at_the_newest_end() -> None:
    """Older records stay as they were while the budget holds."""
    older = record(1, 9, tier=2)
    rotated, _ = decided(Layout(records=(older,), live=transcript(rounds(28), first_seq=10)), keeping(0.02))
    assert rotated.layout.records[0] is older
    assert (rotated.layout.records[1].first_seq, rotated.layout.records[1].last_seq) == (10, 57)


@pytest.mark.parametrize(
    ("tiers", "pair"),
    [
        ([1, 1], 0),
        ([2, 1], 0),
        ([1, 1, 1], 0),
        ([2, 1, 1], 1),
        ([2, 2, 1], 0),
        ([3, 2, 2, 1, 1], 3),
        ([3, 2, 2, 1], 1),
        ([4, 3, 2, 1], 2),
    ],
)
def test_the_finest_neighbours_are_merged_first(tiers: list[int], pair: int) -> None:
    """The pair with the lowest highest tier; of several, the oldest."""
    assert next_pair([record(at, at, tier) for at, tier in enumerate(tiers, start=1)]) == pair


def test_a_merge_is_one_tier_above_its_sources() -> None:
    """Over budget, two neighbours become one record of their span, the oldest content rewritten once more."""
    records = tuple(record(at, at, tier=1, tokens=200, rewrite_count=3) for at in range(1, 5))
    rotated, asked = decided(Layout(records=records, live=transcript(rounds(28), first_seq=5)), keeping(0.02))
    merged = rotated.layout.records[0]
    assert asked.shape == [(1, "D"), (2, "D")]
    assert (merged.first_seq, merged.last_seq, merged.tier, merged.rewrite_count) == (1, 2, 2, 4)
    assert asked.requests[1].material == f"{records[0].text}\n{records[1].text}"
    assert rotated.layout.records[1:3] == records[2:]


def test_a_merge_may_take_six_tenths_of_its_source() -> None:
    """What is accepted for a merge is 0.6 of its source, and never more than a fifth of the record budget."""
    small = tuple(record(at, at, tier=1, tokens=60) for at in range(1, 15))
    large = tuple(record(at, at, tier=1, tokens=280) for at in range(1, 4))
    ratios = []
    for records in (small, large):
        layout = Layout(records=records, live=transcript(rounds(28), first_seq=20))
        _, asked = decided(layout, keeping(0.02))
        merge = next(request for request in asked.requests if request.tier == 2)
        allowed = POLICY.accepted_ratio(merge, planned(layout, BUDGETS))
        ratios.append(allowed * CHARACTERS.text(merge.material))
    source_tokens = CHARACTERS.text(f"{small[0].text}\n{small[1].text}")
    assert ratios[0] == math.floor(0.6 * source_tokens)
    assert ratios[1] == BUDGETS.record_tokens // 5 - 27


def test_a_fresh_record_is_taken_up_to_half_of_the_budget() -> None:
    """Asked for within a third; an answer of up to a half is not asked for again, and a larger one is."""
    layout = Layout(live=transcript(rounds(28)))
    plan = planned(layout, BUDGETS)
    _, asked = decided(layout, keeping(0.02))
    assert asked.requests[0].budget_tokens == BUDGETS.record_tokens // 3 - 27
    methods = []
    for tokens in (BUDGETS.record_tokens // 2 - 27, BUDGETS.record_tokens // 2 - 26):
        outcome = Driven(lambda _, tokens=tokens: words(tokens)).rotate(plan, POLICY)  # type: ignore[misc]
        methods.append(outcome.methods)
    assert methods == [(Method.NORMAL,), (Method.EXTRACTIVE,)]


def rewrites_of_the_oldest(conversation: Conversation) -> int:
    """How often the oldest text was written anew in 400 rotations, at most."""
    number = 0
    while len(conversation.outcomes) < 400:
        conversation.say([message(500, f"m{number}")])
        number += 1
    return max(int(outcome.figures()["rewrite_count"]) for outcome in conversation.outcomes)


@pytest.mark.parametrize("share", [0.34, 0.42, 0.49])
@pytest.mark.parametrize("kept", [0.5, 0.6])
def test_large_fresh_records_rewrite_the_oldest_text_rarely(share: float, kept: float) -> None:
    """Fresh records between a third and a half of the budget keep to the logarithm too, over 400 rotations."""
    fresh = words(int(BUDGETS.record_tokens * share) - 27)
    conversation = Conversation(POLICY, BUDGETS, lambda request: keeping(kept)(request) if request.tier > 1 else fresh)
    assert rewrites_of_the_oldest(conversation) <= 2 * math.log2(400) + 4


def test_the_last_two_rounds_stay_where_they_fit() -> None:
    """The tail stretches past its budget to the last two rounds, up to what still converges."""
    layout = Layout(live=transcript([*rounds(20), *rounds(2, tokens=600, first=20)]))
    rotated, _ = decided(layout, keeping(0.02))
    assert rotated.layout.live.entries == layout.live.entries[-4:]
    assert BUDGETS.tail_tokens < rotated.layout.live.tokens <= BUDGETS.stretched_tail_tokens


def test_one_round_stays_where_two_do_not_fit() -> None:
    """Two rounds of 3,000 are more than converges with: the last one stays."""
    layout = Layout(live=transcript([*rounds(5), *rounds(2, tokens=1_500, first=5)]))
    rotated, _ = decided(layout, keeping(0.02))
    assert rotated.layout.live.entries == layout.live.entries[-2:]


def test_a_carried_input_takes_its_room_from_the_tail() -> None:
    """Records, carried input and tail together stay within what a rotated layout may hold."""
    carried = Carried(3, message(3_000), 3_000)
    layout = Layout(carried=carried, live=transcript(rounds(2, tokens=700)))
    rotated, _ = decided(layout, keeping(0.02))
    assert rotated.layout.carried is carried
    assert rotated.layout.live.tokens <= BUDGETS.stretched_tail_tokens - carried.tokens


def test_an_input_that_leaves_keeps_its_room_free() -> None:
    """The newest user message may be carried on: the tail leaves room for the copy."""
    calls = [
        entry
        for number in range(6)
        for entry in (
            Entry.tool_call(f"c{number}", words(346)),
            Entry.tool_result(f"c{number}", words(346)),
        )
    ]
    layout = Layout(live=transcript([message(3_200), *calls]))
    rotated, _ = decided(layout, keeping(0.02))
    assert rotated.layout.live.first_seq > 1
    assert rotated.layout.live.tokens + 3_200 <= BUDGETS.stretched_tail_tokens


def test_a18_49_a_blank_answer_loses_nothing_from_view() -> None:
    """Where a summarizer has nothing to say the history stays verbatim, and the layout is the very same."""
    layout = Layout(live=transcript(rounds(28)))
    plan = planned(layout, BUDGETS)
    assert Asked(blank).decide(POLICY.rotate(plan)).layout is plan.layout


def test_a18_49_a_blank_answer_keeps_what_has_no_record_although_others_merge() -> None:
    """Records above their budget are merged, and the history that was not consolidated stays verbatim."""
    records = tuple(record(at, at, tier=1, tokens=300) for at in range(1, 4))
    layout = Layout(records=records, live=transcript(rounds(28), first_seq=4))
    rotated, _ = decided(layout, lambda request: words(50) if request.tier > 1 else "")
    assert len(rotated.layout.records) == 2
    assert rotated.layout.live == layout.live


def test_t57_a_record_that_is_not_smaller_than_its_entries_is_refused() -> None:
    """A summarizer that only adds leaves the history as it was."""
    layout = Layout(live=transcript(rounds(28)))
    rotated, _ = decided(layout, wordy)
    assert rotated.layout == layout


def test_a18_50_a_blank_merge_keeps_text_of_its_sources() -> None:
    """A merge that comes back blank is cut from its sources instead, and reported."""
    records = tuple(record(at, at, tier=1, tokens=300) for at in range(1, 4))
    rotated, _ = decided(Layout(records=records, live=transcript(rounds(2), first_seq=4)), blank)
    assert [kept.tier for kept in rotated.layout.records] == [2, 1]
    assert rotated.layout.records[0].text in f"{records[0].text}\n{records[1].text}"
    assert [s.reason for s in rotated.saturations] == [SaturationReason.TIER_OVER_BUDGET]


def test_a_record_above_a_shrunken_budget_is_condensed() -> None:
    """A single record that the budget no longer holds is consolidated by itself, cut at worst, and reported."""
    layout = Layout(records=(record(1, 9, tier=3, tokens=2_000),), live=transcript(rounds(2), first_seq=10))
    rotated, asked = decided(layout, echoing)
    (kept,) = rotated.layout.records
    assert asked.shape == [(4, "D")]
    assert (kept.tier, kept.first_seq, kept.last_seq) == (4, 1, 9)
    assert kept.tokens <= BUDGETS.record_tokens
    assert [s.reason for s in rotated.saturations] == [
        SaturationReason.NO_REDUNDANCY,
        SaturationReason.TIER_OVER_BUDGET,
    ]


def test_t57_an_overflow_too_small_for_a_record_stays_verbatim() -> None:
    """A record of 27 tokens of framing cannot be smaller than an entry of 20: nothing is asked, nothing changes."""
    layout = Layout(live=transcript([message(20), *rounds(4)]))
    rotated, asked = decided(layout, echoing)
    assert rotated.layout.live.entries == layout.live.entries
    assert asked.requests == []


def test_an_absolute_budget_replaces_its_fraction() -> None:
    """Tail, records and line may be given in tokens."""
    budgets = LogMerge(tail_tokens=500, record_tokens=400, line_tokens=3_000).budgets(
        room(8_000), CHARACTERS, show_span=True
    )
    assert (budgets.tail_tokens, budgets.record_tokens, budgets.line_tokens) == (500, 400, 3_000)
    assert budgets.stretched_tail_tokens == 2_400 - 400


@pytest.mark.parametrize(
    "fields",
    [
        {"tail_fraction": 0.0},
        {"record_fraction": -0.1},
        {"merge_ratio": 1.1},
        {"line_fraction": float("nan")},
        {"tail_tokens": 0},
        {"record_tokens": -5},
        {"surprise": True},
    ],
)
def test_a18_10_a_configuration_without_sense_is_refused(fields: dict[str, object]) -> None:
    """Fractions outside their range, NaN, budgets that hold nothing, unknown fields."""
    with pytest.raises(ValidationError):
        LogMerge.model_validate(fields)


def test_a_stubborn_summarizer_rewrites_the_oldest_text_rarely() -> None:
    """400 rotations with a summarizer that returns 0.9 of its input: rewrites grow with the logarithm at most."""
    conversation = Conversation(POLICY, BUDGETS, keeping(0.9))
    number = 0
    while len(conversation.outcomes) < 400:
        conversation.say([message(500, f"m{number}")])
        number += 1
        assert conversation.layout.record_tokens <= BUDGETS.record_tokens
    rewrites = max(outcome.figures()["rewrite_count"] for outcome in conversation.outcomes)
    assert rewrites <= 2 * math.log2(400) + 4


def test_merges_at_six_tenths_rewrite_the_oldest_text_rarely_too() -> None:
    """The largest merges that are accepted keep to the same bound over 400 rotations."""
    conversation = Conversation(
        POLICY, BUDGETS, lambda request: keeping(0.6)(request) if request.tier > 1 else "x" * 600
    )
    assert rewrites_of_the_oldest(conversation) <= 2 * math.log2(400) + 4


def test_the_front_of_the_prompt_rarely_changes() -> None:
    """Over 100 rotations the oldest record stays as it was in three of four."""
    conversation = Conversation(POLICY, BUDGETS, keeping(0.02))
    firsts: list[str] = []
    number = 0
    while len(firsts) < 100:
        if conversation.say([message(500, f"m{number}")]):
            firsts.append(conversation.layout.records[0].text)
        number += 1
    changed = sum(before != after for before, after in pairwise(firsts))
    assert changed <= 25


@given(
    name=st.sampled_from(sorted(CHARACTERS_OF_SUMMARIZERS)),
    sizes=st.lists(st.integers(5, 300), min_size=30, max_size=120),
    show_span=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_must_hold_after_each_rotation(name: str, sizes: list[int], show_span: bool) -> None:
    """Within the budgets, no rotation twice running, spans without gap from the first entry to the tail."""
    budgets = budgets_of(POLICY, 3_000, show_span=show_span)
    conversation = Conversation(POLICY, budgets, CHARACTERS_OF_SUMMARIZERS[name], show_span=show_span)
    was_rotated = False
    for number, size in enumerate(sizes):
        is_rotated = conversation.say([message(size, f"m{number}")])
        assert not (is_rotated and was_rotated)
        was_rotated = is_rotated
        if not is_rotated:
            continue
        layout = conversation.layout
        assert layout.record_tokens <= budgets.record_tokens
        assert layout.conversation_tokens <= math.floor(0.8 * budgets.line_tokens)
        assert layout.records[0].first_seq == 1
        assert layout.records[-1].last_seq == layout.live.first_seq - 1 == len(conversation.removed)
        for older, newer in pairwise(layout.records):
            assert older.last_seq + 1 == newer.first_seq
            assert older.tier >= newer.tier


def test_a_growing_conversation_keeps_what_is_appended() -> None:
    """Between rotations the layout grows at its end only."""
    before, _ = decided(Layout(live=transcript(rounds(28))), keeping(0.02))
    after = appended(before.layout, rounds(1, first=28))
    assert after.records == before.layout.records
    assert after.live.entries[:-2] == before.layout.live.entries
