"""The policy `slots` over many rotations: its bound, its levels, and a session that changes its policy on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import CannotConverge
from sessionlib.layout import Layout, Record, make_record, seeded_record
from sessionlib.policies.contract import Origin, Policy, SaturationReason
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.slots_shelf import SLOTS_PER_TIER, TIER_COUNT
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.recordings.reading import read_recording
from sessionlib.rotation import plan_for
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.summaries.extractive import extract
from sessionlib.window import Budgets
from tests.sessionlib.rotating import (
    CHARACTERS,
    CHARACTERS_OF_SUMMARIZERS,
    Asked,
    Conversation,
    Driven,
    appended,
    blank,
    budgets_of,
    filling,
    keeping,
    message,
    planned,
    room,
    source_of,
    transcript,
    words,
)
from tests.sessionlib.test_ageing_of_real_transcripts import rounds_of

POLICY = Slots()
BUDGETS = budgets_of(POLICY, 8_000)
FRESH = WorkRoom(least_work_tokens=0, least_work_multiple=0, trail_tokens=50)
OTHERS = (LogMerge(), Tiers(), FRESH)
MATERIAL_DROPPED = SaturationReason.MATERIAL_DROPPED


def assert_sound(layout: Layout, budgets: Budgets, policy: Policy = POLICY) -> None:
    """Within the bound; records without gap or overlap up to the live entries, coarser ones older."""
    assert layout.record_tokens <= budgets.record_tokens
    assert layout.conversation_tokens <= 0.8 * budgets.line_tokens
    assert layout.records[-1].last_seq + 1 == layout.live.first_seq
    for older, newer in pairwise(layout.records):
        assert older.last_seq + 1 == newer.first_seq
        assert older.tier >= newer.tier
    if isinstance(policy, Slots):
        tiers = [record.tier for record in layout.records]
        assert max(tiers.count(tier) for tier in range(1, TIER_COUNT + 1)) <= SLOTS_PER_TIER
        assert max(tiers) <= TIER_COUNT


def spoken(tokens: int, number: int) -> list[Entry]:
    """A round of a message and an answer, of so many tokens each."""
    return [message(tokens, f"q{number}"), Entry.assistant(words(tokens - 4, f"a{number}"))]


def dropped(outcome: RotationOutcome) -> bool:
    return any(saturation.reason is MATERIAL_DROPPED for saturation in outcome.saturations)


@pytest.mark.parametrize(("name", "rotations"), [("terse", 200), ("filling", 200), ("stubborn", 90), ("blank", 90)])
def test_many_rotations_stay_within_the_bound(name: str, rotations: int) -> None:
    """Whatever the summarizer answers: within the bound, without gap, no text rewritten more than three times."""
    conversation = Conversation(POLICY, BUDGETS, CHARACTERS_OF_SUMMARIZERS[name])
    number = 0
    while len(conversation.outcomes) < rotations:
        if conversation.say(spoken(200, number)):
            assert_sound(conversation.layout, BUDGETS)
        number += 1
    rewritten = max(outcome.figures()["rewrite_count"] for outcome in conversation.outcomes)
    assert rewritten == TIER_COUNT
    drops = [number for number, outcome in enumerate(conversation.outcomes, start=1) if dropped(outcome)]
    assert drops[0] == SLOTS_PER_TIER + SLOTS_PER_TIER**2 + SLOTS_PER_TIER**3 + 1


def test_the_front_of_the_prompt_rarely_changes() -> None:
    """Until the ring turns, the oldest slot changes only where a tier is folded for the first time."""
    conversation = Conversation(POLICY, BUDGETS, keeping(0.02))
    firsts: list[str] = []
    number = 0
    while len(firsts) < 84:
        if conversation.say(spoken(200, number)):
            firsts.append(conversation.layout.records[0].text)
        number += 1
    assert sum(before != after for before, after in pairwise(firsts)) == 2


def test_a18_48_a_filling_summarizer_never_thrashes() -> None:
    """Slots filled to the last token: never two rotations running."""
    conversation = Conversation(POLICY, BUDGETS, filling)
    rotated = [conversation.say(spoken(50, number)) for number in range(1_000)]
    assert 20 <= sum(rotated) <= 50
    assert not any(first and second for first, second in pairwise(rotated))


@given(
    name=st.sampled_from(sorted(CHARACTERS_OF_SUMMARIZERS)),
    sizes=st.lists(st.integers(5, 350), min_size=30, max_size=60),
    verbatim_rounds=st.integers(1, 30),
    show_span=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_must_hold_after_each_rotation(name: str, sizes: list[int], verbatim_rounds: int, show_span: bool) -> None:
    """Any sizes, any summarizer: sound; what has no record any more was reported as dropped."""
    policy = Slots(verbatim_rounds=verbatim_rounds)
    budgets = budgets_of(policy, 3_000, show_span=show_span)
    conversation = Conversation(policy, budgets, CHARACTERS_OF_SUMMARIZERS[name], show_span=show_span)
    first_seq = 1
    for number, size in enumerate(sizes):
        if not conversation.say(spoken(size, number)):
            continue
        assert_sound(conversation.layout, budgets)
        outcome = conversation.outcomes[-1]
        assert (conversation.layout.records[0].first_seq != first_seq) == dropped(outcome)
        first_seq = conversation.layout.records[0].first_seq
        assert outcome.dropped_count >= 1


@dataclass
class Metered:
    """A session of 100 tokens a turn whose provider counts *ratio* times as many, which its rotations are not told."""

    ratio: int
    outcomes: list[RotationOutcome] = field(default_factory=list)
    fills: list[int] = field(default_factory=list)
    """Tokens of the conversation after each turn, by the provider's count."""

    def play(self, turns: int) -> Metered:
        policy = Slots(verbatim_rounds=8, tail_tokens=300, slot_tokens=54)
        budgets, layout = budgets_of(policy, 2_000), Layout()
        for number in range(turns):
            layout = appended(layout, spoken(50, number))
            if self.ratio * layout.conversation_tokens >= budgets.line_tokens:
                plan = planned(layout, budgets, origin=Origin.REPORTED)
                self.outcomes.append(Driven(keeping(0.05)).rotate(plan, policy))
                layout = self.outcomes[-1].layout
            self.fills.append(self.ratio * layout.conversation_tokens)
        return self

    @property
    def levels(self) -> list[str | None]:
        return [outcome.level for outcome in self.outcomes]


def test_a16_a_denser_provider_means_more_rotations_and_a_higher_level() -> None:
    """Tokenizers of one, two and three times our count, 40 turns each: strictly more of both."""
    played = [Metered(ratio).play(40) for ratio in (1, 2, 3)]
    assert len(played[0].outcomes) < len(played[1].outcomes) < len(played[2].outcomes)
    assert [meter.levels[-1] for meter in played] == ["low", "medium", "high"]


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_a16_any_tokenizer_keeps_answering(ratio: int) -> None:
    """30 turns: each rotation shortens, and the conversation stays within the window by the provider's count too."""
    meter = Metered(ratio).play(30)
    assert meter.outcomes
    assert not any(outcome.is_noop for outcome in meter.outcomes)
    assert max(meter.fills) < 2_000


def test_a16_a_window_that_is_too_small_reaches_the_highest_level_and_drops() -> None:
    """A provider that counts ten times as much: the highest level, and slots leave, which is reported."""
    meter = Metered(10).play(30)
    assert meter.levels[-1] == "high"
    assert any(dropped(outcome) for outcome in meter.outcomes)


def test_a16_a_window_without_room_is_refused() -> None:
    """What would drop from its first rotation on is no configuration: a window of 100."""
    with pytest.raises(CannotConverge):
        budgets_of(Slots(verbatim_rounds=2), 100)


def test_a16_the_level_relaxes_after_a_quiet_stretch() -> None:
    """Large rounds beside full slots raise it; many small ones between two rotations bring it down again."""
    policy = Slots(tail_fraction=0.25, slot_fraction=0.02)
    conversation = Conversation(policy, budgets_of(policy, 8_000), filling)
    while not conversation.outcomes or conversation.outcomes[-1].level == "low":
        conversation.say(spoken(600, len(conversation.removed)))
    assert conversation.outcomes[-1].level == "medium"
    for number in range(200):
        conversation.say(spoken(20, number))
    assert conversation.outcomes[-1].level == "low"


def test_a16_a_small_window_rotates_where_a_large_one_does_not() -> None:
    """20 turns in the smallest window that converges, and in 100,000."""
    policy = Slots(verbatim_rounds=2, slot_tokens=54, tail_tokens=80)
    small, large = (Conversation(policy, budgets_of(policy, tokens), keeping(0.1)) for tokens in (1_400, 100_000))
    for number in range(20):
        for conversation in (small, large):
            conversation.say(spoken(60, number))
    assert len(small.outcomes) >= 2
    assert large.outcomes == []


def test_a16_a_marker_of_the_first_turn_is_there_after_thirty() -> None:
    """A summarizer that carries a fact forward is asked in a way that lets it."""

    def carrying(request: ConsolidationRequest) -> str:
        return "The code word is heron." if "heron" in source_of(request) else "Nothing."

    conversation = Conversation(POLICY, BUDGETS, carrying)
    conversation.say([Entry.user("The code word is heron."), Entry.assistant("Noted.")])
    for number in range(60):
        conversation.say(spoken(300, number))
    assert len(conversation.outcomes) >= 5
    assert any("heron" in record.text for record in conversation.layout.records)


@given(
    first=st.sampled_from((POLICY, *OTHERS)),
    switches=st.lists(st.tuples(st.sampled_from((POLICY, *OTHERS)), st.integers(1, 4)), min_size=1, max_size=6),
    name=st.sampled_from(["terse", "stubborn", "filling", "blank"]),
    size=st.integers(50, 300),
)
@settings(max_examples=40, deadline=None)
def test_a_session_may_change_its_policy_at_any_time(
    first: Policy, switches: list[tuple[Policy, int]], name: str, size: int
) -> None:
    """The next rotation plans from the layout that is there: records cover all that left, without gap or overlap.

    What has no record any more at the front was reported (slots) or is what a full coarsest tier lets go (tiers); a
    fresh window stands for all of it.
    """
    conversation = Conversation(first, budgets_of(first, 4_000), CHARACTERS_OF_SUMMARIZERS[name])
    first_seq, number = 1, 0
    for policy, rotations in [(first, 2), *switches]:
        conversation.policy, conversation.budgets = policy, budgets_of(policy, 4_000)
        due = len(conversation.outcomes) + rotations
        while len(conversation.outcomes) < due:
            number += 1
            if not conversation.say(spoken(size, number)):
                continue
            layout, outcome = conversation.layout, conversation.outcomes[-1]
            assert_sound(layout, conversation.budgets, policy)
            assert all(record.tokens == counted(record) for record in layout.records)
            assert len(conversation.removed) + 1 == layout.live.first_seq
            front = layout.records[0].first_seq
            if isinstance(policy, WorkRoom):
                assert front == 1
                assert len(layout.records) == 1
                first_seq = 1
            assert front >= first_seq
            assert front == first_seq or dropped(outcome) or isinstance(policy, Tiers)
            first_seq = front


def records_in(tiers: list[int], tokens: int) -> tuple[Record, ...]:
    return tuple(
        make_record(CHARACTERS, words(tokens - 27, f"r{seq}"), seq, seq, show_span=False, tier=tier)
        for seq, tier in enumerate(tiers, start=1)
    )


@pytest.mark.parametrize(
    ("tiers", "taken_over"),
    [
        ([3, 2, 1], [(3, 1, 1), (2, 2, 2), (1, 3, 3)]),
        ([10**9, 2, 1], [(3, 1, 1), (2, 2, 2), (1, 3, 3)]),
        ([9, 7, 5, 3], [(3, 1, 1), (3, 2, 2), (3, 3, 3), (3, 4, 4)]),
        ([9, 8, 7, 6, 5, 4], [(3, 1, 3), (3, 4, 4), (3, 5, 5), (3, 6, 6)]),
        ([1, 1, 1, 1, 1, 1], [(2, 1, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6)]),
        ([2, 1, 1, 1, 1, 1], [(2, 1, 1), (2, 2, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6)]),
        ([1, 1, 3, 1], [(3, 1, 1), (3, 2, 2), (3, 3, 3), (1, 4, 4)]),
    ],
)
def test_records_of_another_policy_become_slots(tiers: list[int], taken_over: list[tuple[int, int, int]]) -> None:
    """More to a tier than it holds are folded, never dropped; coarser than there are tiers is the coarsest."""
    layout = Layout(records=records_in(tiers, 60), live=transcript([message(100)] * 60, len(tiers) + 1))
    outcome = Driven(keeping(0.05)).rotate(planned(layout, BUDGETS), POLICY)
    spans = [(record.tier, record.first_seq, record.last_seq) for record in outcome.layout.records]
    last = outcome.layout.live.first_seq - 1
    assert spans == [*taken_over, (1, len(tiers) + 1, last)]
    assert not dropped(outcome)
    assert all(record.tokens == counted(record) for record in outcome.layout.records)


def counted(record: Record) -> int:
    return CHARACTERS.entry(seeded_record(record, show_span=False))


def test_slots_of_a_larger_window_are_condensed_as_far_as_they_must() -> None:
    """After the window has shrunk: the largest first, until all are within the budget; the rest stay as they were."""
    sizes = (300, 900, 300, 1_200, 300)
    records = tuple(
        replace(records_in([3] * seq, tokens)[-1], tier=tier)
        for seq, (tokens, tier) in enumerate(zip(sizes, (3, 3, 2, 2, 1), strict=True), start=1)
    )
    layout = Layout(records=records, live=transcript([message(100)] * 40, 6))
    outcome = Driven(keeping(0.1)).rotate(planned(layout, BUDGETS), POLICY)
    assert_sound(outcome.layout, BUDGETS)
    assert [record.first_seq for record in records if record not in outcome.layout.records] == [4]
    assert not dropped(outcome)


def test_what_a_condensed_slot_was_not_told_is_cut() -> None:
    """A summarizer that says nothing, without the engine around the policy: the newest text within the slot."""
    layout = Layout(records=records_in([2, 1], 1_500), live=transcript([message(100)] * 40, 3))
    rotated = Asked(blank).decide(POLICY.rotate(planned(layout, BUDGETS)))
    assert [record.tokens for record in rotated.layout.records] == [199, 1_500]


@pytest.mark.parametrize("name", ["claude_code_258c7280.json", "tau_airline_gpt4o.json"])
def test_real_transcripts_age_within_the_bound(data_dir: Path, name: str) -> None:
    """Counted exactly and consolidated without a model: sound after each of five rotations and more."""
    counter = counter_named("o200k_base")
    budgets = POLICY.budgets(room(32_000), counter, show_span=True)
    rotation_count, layout = 0, Layout()
    for entries in rounds_of(read_recording((data_dir / name).read_bytes(), name)):
        sizes = [min(counter.entry(entry), budgets.result_cap_tokens) for entry in entries]
        layout = layout.with_live(layout.live.append(entries, sizes))
        if layout.conversation_tokens < budgets.line_tokens:
            continue
        plan = plan_for(layout, layout.live.next_seq - 1, budgets=budgets, counter=counter, show_span=True)
        driven = Driven(lambda request: extract(source_of(request), request.budget_tokens, counter))
        layout = driven.rotate(plan, POLICY).layout
        rotation_count += 1
        assert_sound(layout, budgets)
        assert layout.records[0].first_seq == 1
    assert rotation_count >= 5
