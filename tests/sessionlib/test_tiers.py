"""The policy `tiers`: the golden vectors of spec/tiers A8 on the policy itself, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sessionlib.entries import Entry
from sessionlib.layout import Layout, Record, make_record
from sessionlib.policies.contract import Origin, Rotated, SaturationReason
from sessionlib.policies.tiers import Tiers
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.tokens import CharactersCounter
from tests.sessionlib.rotating import (
    CHARACTERS,
    CHARACTERS_OF_SUMMARIZERS,
    Answer,
    Asked,
    Conversation,
    appended,
    budgets_of,
    echoing,
    filling,
    keeping,
    message,
    planned,
    transcript,
    words,
)

SMALL = Tiers(tier_tokens=(100, 60, 40, 30), convergence_ratio=1.0)
BUDGETS = budgets_of(SMALL, 600)
NO_REDUNDANCY, OVER_BUDGET = SaturationReason.NO_REDUNDANCY, SaturationReason.TIER_OVER_BUDGET


def messages(count: int) -> Layout:
    """A layout of *count* user messages of 20 tokens."""
    return Layout(live=transcript(message(20, f"m{number}") for number in range(count)))


def decided(layout: Layout, answer: Answer, policy: Tiers = SMALL, origin: Origin = Origin.ESTIMATED) -> Rotated:
    plan = planned(layout, budgets_of(policy, 600), origin=origin)
    return Asked(answer).decide(policy.rotate(plan))


def tier(rotated: Rotated, index: int) -> Record | None:
    return next((record for record in rotated.layout.records if record.tier == index), None)


def signals(rotated: Rotated) -> list[tuple[SaturationReason, int, int, int]]:
    return [(s.reason, s.tier, s.input_tokens, s.output_tokens) for s in rotated.saturations]


def scripted(first: int, merge: int) -> Answer:
    """A summarizer that returns so many tokens for a first recording, and so many for a merge."""
    return lambda request: words(first if request.is_degradation else merge)


def test_nothing_overflows_the_tail() -> None:
    """Three entries of 20 within 100: the same layout object, no call."""
    layout = messages(3)
    plan = planned(layout, BUDGETS)
    rotated = Asked(echoing).decide(SMALL.rotate(plan))
    assert rotated.layout is plan.layout
    assert rotated.consolidation_count == 0


def test_a_first_overflow_is_recorded_once() -> None:
    """Ten entries: five are consolidated in one degradation, five stay, the coarser tiers stay empty."""
    asked = Asked(keeping(0.25))
    rotated = asked.decide(SMALL.rotate(planned(messages(10), BUDGETS)))
    assert asked.shape == [(1, "D")]
    assert [record.tier for record in rotated.layout.records] == [1]
    assert rotated.layout.live.first_seq == 6
    assert len(rotated.layout.live) == 5


def test_a_record_that_outgrows_its_tier_moves_on() -> None:
    """A merge of 65 does not fit 60: the older record is recorded at tier 2, the new material alone at tier 1."""
    asked = Asked(scripted(20, 65))
    first = asked.decide(SMALL.rotate(planned(messages(10), BUDGETS)))
    grown = appended(first.layout, messages(10).live.entries)
    second = asked.decide(SMALL.rotate(planned(grown, BUDGETS)))
    assert asked.shape == [(1, "D"), (1, "M"), (2, "D"), (1, "D")]
    assert second.consolidation_count == 3
    assert [(record.tier, CHARACTERS.text(record.text)) for record in second.layout.records] == [(2, 20), (1, 20)]
    assert [(record.first_seq, record.last_seq) for record in second.layout.records] == [(1, 5), (6, 15)]
    assert signals(second) == [(NO_REDUNDANCY, 2, 20, 20)]


def test_a18_20_the_recording_after_a_move_is_tested_for_redundancy() -> None:
    """Record of 60, merge 65, moved 20, alone 17 of 18: exactly one signal, at tier 1."""
    first = decided(messages(6), lambda request: words(60))
    answers = iter((65, 20, 17))
    second = decided(appended(first.layout, [message(20)]), lambda request: words(next(answers)))
    assert signals(second) == [(NO_REDUNDANCY, 1, 18, 17)]


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "is_redundant"),
    [(20, 17, False), (20, 18, True), (20, 19, True), (18, 16, False), (18, 17, True), (20, 0, False)],
)
def test_a7_an_output_of_nine_tenths_is_hardly_shorter(
    input_tokens: int, output_tokens: int, is_redundant: bool
) -> None:
    """Redundancy is told from exactly the ratio on, and of no blank answer."""
    layout = Layout(live=transcript([message(input_tokens + 2), *messages(5).live.entries]))
    rotated = decided(layout, lambda request: words(output_tokens) if output_tokens else "")
    expected = [(NO_REDUNDANCY, 1, input_tokens, output_tokens)] if is_redundant else []
    assert signals(rotated) == expected


@pytest.mark.parametrize("budgets", [(100, 60, 40, 30), (100, 30)])
def test_an_echo_is_reported_twice_and_cut(budgets: tuple[int, ...]) -> None:
    """A summarizer that echoes: no redundancy, then over budget, both (89, 89); the newest text is kept."""
    policy = Tiers(tier_tokens=budgets, convergence_ratio=1.0)
    rotated = decided(messages(10), echoing, policy)
    assert signals(rotated) == [(NO_REDUNDANCY, 1, 89, 89), (OVER_BUDGET, 1, 89, 89)]
    stored = tier(rotated, 1)
    assert stored is not None
    assert CHARACTERS.text(stored.text) <= budgets[1]
    assert messages(10).live.entries[4].text.endswith(stored.text[-20:])


def test_a18_36_37_38_a_whitespace_answer_is_an_empty_record() -> None:
    """Whitespace of three times the budget is no content: nothing stored, nothing reported, nothing seeded."""
    rotated = decided(messages(10), lambda request: " " * (4 * 3 * 60))
    assert rotated.layout.records == ()
    assert rotated.saturations == ()
    assert rotated.layout.record_tokens == 0


def test_a18_39_a_blank_record_is_followed_by_a_huge_answer() -> None:
    """After a blank record the next rotation completes, and no request ever carries blank material."""
    asked = Asked(lambda request: "  ")
    first = asked.decide(SMALL.rotate(planned(messages(10), BUDGETS)))
    asked.answer = lambda request: words(500)
    second = asked.decide(SMALL.rotate(planned(appended(first.layout, messages(10).live.entries), BUDGETS)))
    assert all(request.material.strip() for request in asked.requests)
    assert asked.shape == [(1, "D"), (1, "D")]
    assert [reason for reason, *_ in signals(second)] == [NO_REDUNDANCY, OVER_BUDGET]


def test_a18_33_a_reported_alarm_is_not_vetoed_by_an_estimate() -> None:
    """The provider says that the line is passed while nothing overflows by our count: everything is consolidated."""
    rotated = decided(messages(3), keeping(0.25), origin=Origin.REPORTED)
    assert len(rotated.layout.live) == 0
    assert [(record.first_seq, record.last_seq) for record in rotated.layout.records] == [(1, 3)]


def test_a_reported_alarm_over_an_empty_transcript_consolidates_nothing() -> None:
    """There is nothing to consolidate, whoever raised the alarm."""
    assert decided(messages(0), echoing, origin=Origin.REPORTED).consolidation_count == 0


def test_the_coarsest_tier_lets_its_record_go() -> None:
    """With one coarse tier a merge that does not fit drops the older record whole and records the new alone."""
    policy = Tiers(tier_tokens=(100, 30), convergence_ratio=1.0)
    first = decided(messages(10), scripted(20, 65), policy)
    second = decided(appended(first.layout, messages(10).live.entries), scripted(20, 65), policy)
    assert [(record.first_seq, record.last_seq) for record in second.layout.records] == [(6, 15)]


def test_the_cascade_reaches_the_coarsest_tier() -> None:
    """What moves out of tier 2 is recorded at tier 3, one record to each tier, coarsest and oldest first."""
    layout = messages(10)
    for _ in range(3):
        layout = decided(layout, scripted(20, 65)).layout
        layout = appended(layout, messages(10).live.entries)
    rotated = decided(layout, scripted(20, 65))
    assert [(kept.tier, kept.first_seq, kept.last_seq) for kept in rotated.layout.records] == [
        (3, 6, 15),
        (2, 16, 25),
        (1, 26, 35),
    ]


def test_the_seeded_size_of_a_tier_holds_where_joining_costs_a_token() -> None:
    """A text that fits its budget alone is cut if, joined to its label, it takes more than both apart."""

    class Joining(CharactersCounter):
        def entry(self, entry: Entry) -> int:
            return super().entry(entry) + (not entry.text.endswith("\n"))

    plan = replace(planned(messages(10), BUDGETS), counter=Joining())
    (record,) = Asked(filling).decide(SMALL.rotate(plan)).layout.records
    assert record.tokens <= 60 + 27


def test_rewrites_are_counted_for_the_oldest_content() -> None:
    """Each merge rewrites the oldest content once more; what is recorded alone starts at one."""
    first = decided(messages(10), scripted(20, 30))
    merged = decided(appended(first.layout, messages(10).live.entries), scripted(20, 30))
    moved = decided(appended(merged.layout, messages(10).live.entries), scripted(20, 65))
    assert [record.rewrite_count for record in merged.layout.records] == [2]
    assert [(record.tier, record.rewrite_count) for record in moved.layout.records] == [(2, 3), (1, 1)]


def test_equal_inputs_give_equal_layouts() -> None:
    """The policy is deterministic."""
    assert decided(messages(12), keeping(0.3)) == decided(messages(12), keeping(0.3))


def test_a18_13_the_records_of_another_policy_become_tiers() -> None:
    """Several records to a tier, or a coarser one than there are tiers, are joined in their order."""
    made = [
        make_record(CHARACTERS, f"part {number}", number, number, show_span=False, tier=tier)
        for number, tier in enumerate((5, 3, 2, 2, 1), start=1)
    ]
    layout = Layout(records=tuple(made), live=transcript([message(20)] * 3, first_seq=6))
    records = decided(layout, echoing).layout.records
    assert [(record.tier, record.text, record.first_seq, record.last_seq) for record in records] == [
        (3, "part 1\npart 2", 1, 2),
        (2, "part 3\npart 4", 3, 4),
        (1, "part 5", 5, 5),
    ]


def test_a18_13_a_tier_above_a_shrunken_budget_is_cut() -> None:
    """After its budget has shrunk a record is cut to it at the next rotation, between words, and that is reported."""
    record = make_record(CHARACTERS, words(50), 1, 5, show_span=False, tier=2)
    rotated = decided(Layout(records=(record,), live=transcript([message(20)] * 3, first_seq=6)), echoing)
    assert [CHARACTERS.text(kept.text) for kept in rotated.layout.records] == [39]
    assert [reason for reason, *_ in signals(rotated)] == [OVER_BUDGET]


@pytest.mark.parametrize(
    "fields",
    [
        {"tier_tokens": (100,)},
        {"tier_tokens": ()},
        {"tier_tokens": (100, 0)},
        {"tier_tokens": (100, -1)},
        {"tier_tokens": (60, 100)},
        {"tier_fractions": (0.1, 0.2)},
        {"line_fraction": 0.0},
        {"line_fraction": -0.1},
        {"line_fraction": 1.1},
        {"line_fraction": float("nan")},
        {"line_fraction": -float("nan")},
        {"saturation_ratio": 0.0},
        {"saturation_ratio": 1.5},
        {"saturation_ratio": float("nan")},
        {"saturation_ratio": -float("nan")},
        {"unknown": 1},
    ],
)
def test_a18_10_a_configuration_without_sense_is_refused(fields: dict[str, object]) -> None:
    """Tiers that are too few, growing, or empty; fractions outside their range, NaN among them; unknown fields."""
    with pytest.raises(ValidationError):
        Tiers.model_validate(fields)


def test_a18_07_a_configuration_cannot_be_changed() -> None:
    """A policy is a frozen value."""
    with pytest.raises(ValidationError):
        SMALL.line_fraction = 0.5  # type: ignore[misc]


def test_a18_48_a_filling_summarizer_never_thrashes() -> None:
    """With a summarizer that fills its budget, 40 turns rotate 3 to 20 times and never twice running."""
    conversation = Conversation(SMALL, BUDGETS, filling)
    rotated = [conversation.say([message(45), message(45)]) for _ in range(40)]
    assert 3 <= sum(rotated) <= 20
    assert not any(first and second for first, second in pairwise(rotated))
    assert all(outcome.tokens_after <= 311 for outcome in conversation.outcomes)


def test_a14_the_third_turn_of_148_tokens_rotates_once() -> None:
    """Messages and answers of 70 tokens in a window of 600: 444 reach the line of 420; the seed has record and tail."""
    conversation = Conversation(SMALL, BUDGETS, keeping(0.1))
    assert [conversation.say([message(74), message(74)]) for _ in range(3)] == [False, False, True]
    assert [record.tier for record in conversation.layout.records] == [1]
    assert len(conversation.layout.live) == 1


def test_a14_twenty_turns_of_ninety_tokens_rotate_three_to_ten_times() -> None:
    """With a summarizer that returns a tenth."""
    conversation = Conversation(SMALL, BUDGETS, keeping(0.1))
    assert 3 <= sum(conversation.say([message(45), message(45)]) for _ in range(20)) <= 10


def test_a_fact_of_the_first_turn_survives_a_summarizer_that_keeps_everything() -> None:
    """After five rotations and more, what a summarizer carries forward is still in the seed."""

    def carrying(request: ConsolidationRequest) -> str:
        return "The code word is heron." if "heron" in request.previous_record + request.material else "Nothing."

    conversation = Conversation(SMALL, BUDGETS, carrying)
    conversation.say([message(20, "The code word is heron.")])
    for _ in range(40):
        conversation.say([message(45), message(45)])
    assert len(conversation.outcomes) >= 5
    assert any("heron" in record.text for record in conversation.layout.records)


@given(
    name=st.sampled_from(sorted(CHARACTERS_OF_SUMMARIZERS)),
    sizes=st.lists(st.integers(5, 60), min_size=20, max_size=80),
    show_span=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a18_43_the_bound_holds_after_each_rotation(name: str, sizes: list[int], show_span: bool) -> None:
    """Whatever the summarizer answers, each tier is within its budget and the layout within its bound."""
    policy = SMALL
    budgets = budgets_of(policy, 600, show_span=show_span)
    conversation = Conversation(policy, budgets, CHARACTERS_OF_SUMMARIZERS[name], show_span=show_span)
    for number, size in enumerate(sizes):
        if not conversation.say([message(size, f"m{number}")]):
            continue
        layout = conversation.layout
        assert layout.record_tokens <= budgets.record_tokens
        assert layout.live.tokens <= budgets.tail_tokens
        assert layout.conversation_tokens < budgets.line_tokens
        assert all(CHARACTERS.text(r.text) <= budgets.tier_tokens[r.tier] for r in layout.records)
        assert layout.records[-1].last_seq + 1 == layout.live.first_seq
        for older, newer in pairwise(layout.records):
            assert (older.last_seq + 1, older.tier > newer.tier) == (newer.first_seq, True)
