"""The rotation generator: cancellation, step names, chunking, acceptance, escalation, and what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.entries import Entry, EntryKind, open_call_ids, render
from sessionlib.errors import Cancelled, InvalidInput, ProviderRejected, ProviderUnavailable
from sessionlib.layout import Layout, Method, make_record, seeded_record
from sessionlib.ledger_record import ledger_tokens, without_ledger
from sessionlib.policies.contract import Policy, Saturation, SaturationReason
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.rotation import plan_for, rotate
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.summaries.chunks import Shown
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from tests.sessionlib.rotating import (
    CHARACTERS,
    CHARACTERS_OF_SUMMARIZERS,
    Answer,
    Conversation,
    Driven,
    appended,
    blank,
    budgets_of,
    echoing,
    filling,
    keeping,
    message,
    never,
    planned,
    room,
    transcript,
    words,
    wordy,
)

SMALL = Tiers(tier_tokens=(100, 60, 40, 30), convergence_ratio=1.0)
BUDGETS = budgets_of(SMALL, 600)
POLICY = LogMerge(record_fraction=0.10)
WIDE = budgets_of(POLICY, 8_000)
WIDE_TIERS = budgets_of(Tiers(), 8_000)


def messages(number: int, tokens: int = 20) -> Layout:
    return Layout(live=transcript(message(tokens, f"m{at}") for at in range(number)))


def rotated(layout: Layout, answer: Answer, policy: Policy = SMALL, window_tokens: int = 600) -> RotationOutcome:
    return Driven(answer).rotate(planned(layout, budgets_of(policy, window_tokens)), policy)


def after(calls: int) -> Callable[[], bool]:
    """Says "cancelled" from the question number *calls* on, 0 being the first."""
    asked = count()
    return lambda: next(asked) >= calls


def cascading(request: ConsolidationRequest) -> str:
    return words(20 if request.is_degradation else 65)


def with_a_record() -> Layout:
    """A layout whose next rotation is a full cascade of three consolidations."""
    return appended(rotated(messages(10), cascading).layout, messages(10).live.entries)


def test_the_cascade_runs_through_the_engine() -> None:
    """The golden cascade of spec/tiers A8, each consolidation accepted as it is."""
    driven = Driven(keeping(0.2))
    outcome = driven.rotate(planned(messages(10), BUDGETS), SMALL)
    assert list(driven.effects) == ["consolidation:1-5:0"]
    assert (outcome.dropped_count, outcome.dropped_tokens, outcome.consolidation_count) == (5, 100, 1)
    assert outcome.methods == (Method.NORMAL,)


@pytest.mark.parametrize("layout", [messages(3), messages(10)], ids=["no work", "work"])
def test_a18_14_a_cancelled_rotation_does_not_succeed(layout: Layout) -> None:
    """Cancelled before it starts, it raises, with work to do and without, and asks nothing."""
    driven = Driven(echoing)
    with pytest.raises(Cancelled):
        driven.rotate(planned(layout, BUDGETS), SMALL, cancelled=lambda: True)
    assert driven.effects == {}


@pytest.mark.parametrize(("questions", "calls"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_a18_15_16_cancellation_is_checked_around_every_consolidation(questions: int, calls: int) -> None:
    """Before each one, so that a cascade does not run on, and after it, whatever the summarizer made of it."""
    driven = Driven(keeping(0.9))
    with pytest.raises(Cancelled):
        driven.rotate(planned(with_a_record(), BUDGETS), SMALL, cancelled=after(questions))
    assert len(driven.effects) == calls


@pytest.mark.parametrize("is_cascade", [False, True], ids=["the only call", "full cascade"])
def test_a18_16_an_answer_that_comes_after_the_cancellation_is_not_taken(is_cascade: bool) -> None:
    """Cancelled inside the first call, by a summarizer that pays no heed: one call, and nothing comes of it."""
    calls: list[ConsolidationRequest] = []

    def inattentive(request: ConsolidationRequest) -> str:
        calls.append(request)
        return cascading(request)

    layout = with_a_record() if is_cascade else messages(10)
    with pytest.raises(Cancelled):
        Driven(inattentive).rotate(planned(layout, BUDGETS), SMALL, cancelled=lambda: bool(calls))
    assert len(calls) == 1


def test_a18_23_nothing_to_do_is_a_noop() -> None:
    """Nothing consolidated and nothing dropped: the same layout, no calls, nothing to adopt."""
    plan = planned(messages(3), BUDGETS)
    outcome = Driven(echoing).rotate(plan, SMALL)
    assert outcome.is_noop
    assert outcome.layout is plan.layout
    assert (outcome.consolidation_count, outcome.dropped_count, outcome.tokens_after) == (0, 0, outcome.tokens_before)


def test_t57_a_rotation_that_shortens_nothing_changes_nothing() -> None:
    """One small entry overflows and its record would be larger, framing included: nothing is adopted."""
    plan = planned(messages(6), BUDGETS)
    outcome = Driven(keeping(0.9)).rotate(plan, SMALL)
    assert outcome.is_noop
    assert outcome.layout is plan.layout
    assert outcome.consolidation_count == 1


@pytest.mark.parametrize(
    ("answer", "method", "calls"),
    [
        (keeping(0.04), Method.NORMAL, 1),
        (lambda request: keeping(0.04 if request.terse else 1.0)(request), Method.TERSE, 2),
        (echoing, Method.EXTRACTIVE, 2),
        (wordy, Method.EXTRACTIVE, 2),
        (blank, Method.EXTRACTIVE, 2),
        (lambda request: "half \ud800 a character", Method.EXTRACTIVE, 2),
    ],
    ids=["normal", "terse", "echo", "wordy", "t66 blank", "surrogate"],
)
def test_an_answer_that_does_not_do_is_asked_for_once_more_then_extracted(
    answer: Answer, method: Method, calls: int
) -> None:
    """T57, T66: what is blank, unsound or not smaller than its source is never stored."""
    driven = Driven(answer)
    outcome = driven.rotate(planned(messages(60, tokens=100), WIDE), POLICY)
    assert outcome.methods == (method,)
    assert outcome.consolidation_count == len(driven.effects) == calls
    assert [effect.request.terse for effect in driven.effects.values()] == [False, True][:calls]
    (record,) = outcome.layout.records
    assert record.method is method
    assert record.text.strip()
    assert record.tokens < outcome.dropped_tokens


def test_a18_49_a_blank_summarizer_loses_nothing_from_view() -> None:
    """History that a summarizer has nothing to say about is extracted, under either policy."""
    for policy in (POLICY, SMALL):
        outcome = rotated(messages(60, tokens=50), blank, policy, 2_000)
        assert (outcome.layout.records[0].first_seq, outcome.layout.records[-1].last_seq) == (1, outcome.dropped_count)


@pytest.mark.parametrize("window_tokens", [4_259, 5_073, 6_109, 7_108, 8_588])
def test_an_answer_of_exactly_what_is_allowed_is_accepted(window_tokens: int) -> None:
    """Merges that fill their budget; of windows at which budget and source, divided and multiplied again, give less."""
    conversation = Conversation(POLICY, budgets_of(POLICY, window_tokens), filling)
    number = 0
    while not any(record.tier > 1 for record in conversation.layout.records):
        number += 1
        assert number < 400
        conversation.say([message(60, f"m{number}")])
    assert {method for outcome in conversation.outcomes for method in outcome.methods} == {Method.NORMAL}


def test_an_extract_of_a_merge_is_half_of_its_source() -> None:
    """A summarizer that shortens merges to 0.9 is set aside for the extractive one, which is given half."""
    targets: list[int] = []

    def extract(text: str, budget_tokens: int, _counter: object) -> str:
        targets.append(budget_tokens)
        return text[: 4 * budget_tokens]

    records = tuple(make_record(CHARACTERS, words(40, f"r{at}"), at, at, show_span=False) for at in range(1, 13))
    layout = Layout(records=records, live=transcript(messages(30, tokens=100).live.entries, first_seq=13))
    driven = Driven(lambda request: keeping(0.9 if request.tier > 1 else 0.05)(request))
    outcome = driven.rotate(planned(layout, WIDE), POLICY, extract=extract)
    merged = outcome.layout.records[0]
    assert (merged.tier, merged.method, merged.source_tokens) == (2, Method.EXTRACTIVE, 81)
    assert targets[0] == 40


def test_t36_t37_everything_removed_is_shown_in_chunks_that_fit() -> None:
    """Material above the summarizer's window is shown in parts, each folded into the record so far."""
    plan = planned(messages(60, tokens=100), WIDE)
    driven = Driven(keeping(0.05))
    outcome = driven.rotate(plan, POLICY, summarizer_window_tokens=2_000)
    requests = [effect.request for effect in driven.effects.values()]
    assert len(requests) > 5
    assert "".join(request.material for request in requests) == render(
        plan.layout.live.entries[: outcome.dropped_count]
    )
    assert all(CHARACTERS.text(r.previous_record) + CHARACTERS.text(r.material) <= 1_000 for r in requests)
    assert [bool(request.previous_record) for request in requests] == [False] + [True] * (len(requests) - 1)
    assert all(request.material.endswith("\n") for request in requests[:-1])
    assert outcome.layout.records[0].rewrite_count == len(requests)


def test_a_record_so_far_leaves_room_for_the_next_chunk() -> None:
    """However little a summarizer shortens, each request fits its window, and progress is made."""
    policy = Tiers()
    driven = Driven(keeping(0.95))
    driven.rotate(planned(messages(60, tokens=100), WIDE_TIERS), policy, summarizer_window_tokens=1_000)
    requests = [effect.request for effect in driven.effects.values()]
    assert len(requests) < 60
    assert all(CHARACTERS.text(r.previous_record) + CHARACTERS.text(r.material) <= 500 for r in requests)


@pytest.mark.parametrize("policy", [POLICY, SMALL], ids=["log_merge", "tiers"])
def test_t35_a_summary_that_quotes_itself_does_not_grow(policy: Policy) -> None:
    """A record that holds the record before it, and all that was shown beside it: cut at every rotation, for ever."""
    budgets = budgets_of(policy, 1_500)
    conversation = Conversation(
        policy, budgets, lambda request: f"So far: {request.previous_record} Now: {request.material}"
    )
    sizes: list[int] = []
    for number in range(120):
        if conversation.say([message(60, f"m{number}")]):
            sizes.append(conversation.layout.record_tokens)
    assert len(sizes) >= 5
    assert max(sizes) <= budgets.record_tokens


@pytest.mark.parametrize("policy", [POLICY, SMALL], ids=["log_merge", "tiers"])
def test_t40_a_call_that_nobody_ever_answered_holds_no_rotation_up(policy: Policy) -> None:
    """The conversation went on without its result: it ages with the rest, however old it is."""
    entries = [message(20, "ask"), Entry.tool_call("dead", "{}"), *messages(60, tokens=50).live.entries]
    outcome = rotated(Layout(live=transcript(entries)), keeping(0.2), policy, 1_500)
    assert outcome.dropped_count > 2
    assert outcome.layout.records[0].first_seq == 1


def test_t38_one_line_above_the_window_is_shown_too() -> None:
    """A tool result of one endless line is split within it; blanks alone are not shown, but passed over."""
    endless = Entry.user("x" * 30_000 + " " * 30_000 + "y" * 30_000)
    layout = Layout(live=transcript([endless, *(message(100) for _ in range(8))]))
    driven = Driven(keeping(0.1))
    driven.rotate(planned(layout, WIDE), POLICY, summarizer_window_tokens=2_000)
    shown = "".join(effect.request.material for effect in driven.effects.values() if not effect.request.terse)
    assert (shown.count("x"), shown.count("y")) == (30_000, 30_000)
    assert all(effect.request.material.strip() for effect in driven.effects.values())


def test_a_previous_record_above_the_window_is_shown_as_material() -> None:
    """A record that leaves no room beside it is consolidated with the new material, not beside it."""
    wide = Tiers(tier_tokens=(100, 100, 40, 30), convergence_ratio=1.0)
    budgets = budgets_of(wide, 600)
    first = Driven(lambda request: words(80)).rotate(planned(messages(15), budgets), wide)
    grown = appended(first.layout, messages(10).live.entries)
    driven = Driven(keeping(0.3))
    driven.rotate(planned(grown, budgets), wide, summarizer_window_tokens=200)
    shown = [effect.request for effect in driven.effects.values() if not effect.request.terse]
    assert shown[0].previous_record == ""
    assert first.layout.records[0].text in "".join(request.material for request in shown)


def test_a_record_of_half_of_what_is_shown_stays_beside_the_material() -> None:
    """It leaves the other half to it. One token less, and it is shown as material."""
    wide = Tiers(tier_tokens=(100, 100, 40, 30), convergence_ratio=1.0)
    budgets = budgets_of(wide, 600)
    first = Driven(lambda request: words(80)).rotate(planned(messages(15), budgets), wide)
    record_text = first.layout.records[0].text
    grown = appended(first.layout, messages(10).live.entries)

    def first_shown(shown_tokens: int) -> ConsolidationRequest:
        driven = Driven(keeping(0.3))
        driven.rotate(planned(grown, budgets), wide, summarizer_window_tokens=2 * shown_tokens)
        return next(iter(driven.effects.values())).request

    half_tokens = Shown(CHARACTERS).text(record_text)
    assert first_shown(2 * half_tokens).previous_record == record_text
    assert first_shown(2 * half_tokens - 1).previous_record == ""


@pytest.mark.parametrize(("said", "is_noted"), [(Entry.user, False), (Entry.assistant, True)])
def test_a_ledger_is_begun_when_there_is_something_to_note(said: Callable[[str], Entry], is_noted: bool) -> None:
    """Of what users say it notes nothing. It is counted as it is seeded, its span included."""
    share_tokens = ledger_tokens(CHARACTERS, show_span=True)
    budgets = POLICY.budgets(room(8_000), CHARACTERS, show_span=True, ledger_tokens=share_tokens)
    layout = Layout(live=transcript(said(words(100, f"m{at}")) for at in range(60)))
    outcome = Driven(keeping(0.1)).rotate(planned(layout, budgets, show_span=True), POLICY)
    _, ledger = without_ledger(outcome.layout)
    assert not outcome.is_noop
    assert (ledger is not None) == is_noted
    if ledger:
        assert ledger.tokens == CHARACTERS.entry(seeded_record(ledger, show_span=True))


def test_names_of_steps_are_unique_within_a_rotation() -> None:
    """Two requests for one span, of different tiers or tries, differ in their attempt number."""
    records = rotated(messages(10), filling).layout
    driven = Driven(wordy)
    driven.rotate(planned(appended(records, messages(10).live.entries), BUDGETS), SMALL)
    assert list(driven.effects) == ["consolidation:1-15:0", "consolidation:1-15:1"]


def test_tries_are_counted_for_each_span_alone() -> None:
    """A step's name tells nothing of what was asked for another span before it."""
    driven = Driven(cascading)
    driven.rotate(planned(with_a_record(), BUDGETS), SMALL)
    names = [f"consolidation:{span}" for span in ("1-15:0", "1-5:0", "1-5:1", "6-15:0")]
    assert list(driven.effects) == names


@given(name=st.sampled_from(sorted(CHARACTERS_OF_SUMMARIZERS)), kept_count=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_t103_saved_steps_are_not_paid_again(name: str, kept_count: int) -> None:
    """A rotation that starts again with some of its steps saved asks only for the rest, and ends the same."""
    plan = planned(messages(60, tokens=100), WIDE)
    answer = CHARACTERS_OF_SUMMARIZERS[name]
    whole, again = Driven(answer), Driven(answer)
    outcome = whole.rotate(plan, POLICY, summarizer_window_tokens=4_000)
    kept = dict(list(whole.saved.items())[:kept_count])
    assert again.rotate(plan, POLICY, summarizer_window_tokens=4_000, saved=kept) == outcome
    assert list(again.effects) == list(whole.effects)[kept_count:]


def test_t65_a_summarizer_that_fails_changes_nothing() -> None:
    """The provider's error is let out for the worker to retry; no text of it is stored."""

    def unavailable(request: ConsolidationRequest) -> str:
        raise ProviderUnavailable("overloaded")

    with pytest.raises(ProviderUnavailable):
        rotated(messages(10), unavailable)


def test_a_summarizer_that_answers_none_is_an_error() -> None:
    """None is no answer: the error names the tier."""
    steps = rotate(planned(messages(10), BUDGETS), SMALL, summarizer_window_tokens=1_000, cancelled=never)
    next(steps)
    with pytest.raises(ProviderRejected, match="tier 1"):
        steps.send(Consolidated(text=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [POLICY, Tiers()], ids=["log_merge", "tiers"])
def test_saturation_is_reported_although_the_answer_was_refused(policy: Policy) -> None:
    """A7: an echo is told as such even where the extractive summarizer stepped in, and changes nothing else."""
    outcome = rotated(messages(60, tokens=100), echoing, policy, 8_000)
    (saturation,) = outcome.saturations
    assert saturation.reason is SaturationReason.NO_REDUNDANCY
    assert saturation.output_tokens == saturation.input_tokens > 4_000


def test_an_echo_in_chunks_is_reported_for_the_whole() -> None:
    """What each chunk's answer added is compared with all that was shown."""
    plan = planned(messages(60, tokens=100), WIDE)
    outcome = Driven(lambda request: request.previous_record + request.material).rotate(
        plan, POLICY, summarizer_window_tokens=2_000
    )
    assert [s.reason for s in outcome.saturations] == [SaturationReason.NO_REDUNDANCY]
    assert outcome.methods == (Method.EXTRACTIVE,)


def test_an_echo_of_a_record_and_what_follows_it_is_reported_for_both() -> None:
    """The record that was there before is source as well: the first answer is not less it."""
    outcome = Driven(lambda request: request.previous_record + request.material).rotate(
        planned(with_a_record(), BUDGETS), SMALL
    )
    (saturation,) = outcome.saturations
    assert saturation.reason is SaturationReason.NO_REDUNDANCY
    assert saturation.output_tokens == saturation.input_tokens


def test_folding_chunks_is_no_saturation_in_itself() -> None:
    """A summarizer that halves what it is shown shortens, however often the record so far is shown to it again."""
    plan = planned(messages(60, tokens=100), WIDE_TIERS)
    outcome = Driven(keeping(0.5)).rotate(plan, Tiers(), summarizer_window_tokens=2_000)
    assert outcome.consolidation_count > 5
    assert outcome.saturations == ()


@pytest.mark.parametrize(
    "fields",
    [
        ("no_redundancy", 1, 1, 1),
        (SaturationReason.NO_REDUNDANCY, 0, 1, 1),
        (SaturationReason.NO_REDUNDANCY, 1, -1, 1),
        (SaturationReason.NO_REDUNDANCY, 1, 1, -1),
    ],
)
def test_a18_41_a_saturation_without_sense_is_refused(fields: tuple[Any, ...]) -> None:
    """An undefined reason, a tier below 1, negative figures."""
    with pytest.raises(InvalidInput):
        Saturation(*fields)


def test_figures_are_plain_values_without_content() -> None:
    """What goes into audit, events and answers: numbers and names, nothing that was said."""
    outcome = rotated(messages(60, tokens=100), echoing, POLICY, 8_000)
    figures = outcome.figures()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["tokens_before"] == 6_000
    assert figures["tokens_after"] == outcome.layout.conversation_tokens < 6_000
    assert (figures["summarizer_prompt_tokens"], figures["summarizer_completion_tokens"]) == (20, 2)
    assert figures["methods"] == {"extractive": 1}
    assert figures["saturations"][0]["reason"] == "no_redundancy"
    assert "lorem" not in json.dumps(figures)


def test_a_boundary_leaves_later_entries_to_the_caller() -> None:
    """A plan sees the live entries up to its boundary and to no open call; its outcome drops from the oldest on."""
    entries = [*messages(10, tokens=100).live.entries, Entry.tool_call("c", "{}"), message(20), message(20)]
    layout = Layout(live=transcript([*entries[:-2], Entry.tool_call("d", "{}")], first_seq=101))
    plan = plan_for(layout, 112, budgets=BUDGETS, counter=CHARACTERS, show_span=False)
    assert plan.layout.live.next_seq == 111
    assert plan_for(layout, 105, budgets=BUDGETS, counter=CHARACTERS, show_span=False).layout.live.next_seq == 106


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Rounds of messages, answers and interleaved calls, the last calls perhaps still open."""
    entries: list[Entry] = []
    for number in range(draw(st.integers(5, 25))):
        entries.append(message(draw(st.integers(5, 80)), f"m{number}"))
        ids = [f"c{number}-{index}" for index in range(draw(st.integers(0, 3)))]
        entries += [Entry.tool_call(call_id, words(draw(st.integers(1, 40)))) for call_id in ids]
        entries += [
            Entry.tool_result(call_id, words(draw(st.integers(1, 80)))) for call_id in draw(st.permutations(ids))
        ]
    entries += [Entry.tool_call(f"open{index}", "{}") for index in range(draw(st.integers(0, 2)))]
    return entries


@given(
    history=histories(),
    name=st.sampled_from(sorted(CHARACTERS_OF_SUMMARIZERS)),
    policy=st.sampled_from((POLICY, SMALL)),
)
@settings(max_examples=100, deadline=None)
def test_t41_t50_t53_a_rotation_keeps_its_tail_whole(history: list[Entry], name: str, policy: Policy) -> None:
    """What stays is the tail as it was, every result with its call; what left is covered; open calls stay; T57."""
    plan = planned(Layout(live=transcript(history)), budgets_of(policy, 1_500))
    outcome = Driven(CHARACTERS_OF_SUMMARIZERS[name]).rotate(plan, policy)
    layout = outcome.layout
    assert layout.live.entries == plan.layout.live.entries[outcome.dropped_count :]
    assert not set(open_call_ids(history)) & {entry.tool_call_id for entry in plan.layout.live.entries}
    calls: set[str | None] = set()
    for entry in layout.live.entries:
        calls |= {entry.tool_call_id} if entry.kind is EntryKind.TOOL_CALL else set()
        assert entry.kind is not EntryKind.TOOL_RESULT or entry.tool_call_id in calls
    if outcome.is_noop:
        assert layout is plan.layout
    else:
        assert outcome.tokens_after < outcome.tokens_before
        assert layout.records[0].first_seq == 1
        assert layout.records[-1].last_seq == outcome.dropped_count
