"""What a rotation refuses, replaces and notes: faults of answers, secrets, values that no source supports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sessionlib.codec import decode, encode
from sessionlib.entries import Entry
from sessionlib.layout import Layout, Method, Record, make_record
from sessionlib.policies.ageing import cut_record, unsupported_in
from sessionlib.policies.contract import Policy
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.rotation import rotate
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.steps import Consolidation, Effect, EffectResult, drive
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from sessionlib.summaries.redaction import Redacted
from tests.sessionlib.rotating import (
    CHARACTERS,
    Driven,
    appended,
    budgets_of,
    echoing,
    keeping,
    message,
    never,
    planned,
    transcript,
    words,
)

POLICY = LogMerge(record_fraction=0.10)
WIDE = budgets_of(POLICY, 8_000)
SECRET = "AKIA" + "QX7Z2MPLK4TRV9WB"
BOTH = pytest.mark.parametrize("policy", [POLICY, Tiers()], ids=["log_merge", "tiers"])


@dataclass
class Answering:
    """Drives a rotation with whole results, so that an answer can carry its fault."""

    answer: Callable[[ConsolidationRequest], Consolidated]
    requests: list[ConsolidationRequest] = field(default_factory=list)

    def perform(self, effect: Effect) -> EffectResult:
        assert isinstance(effect, Consolidation)
        self.requests.append(effect.request)
        return self.answer(effect.request)

    def rotate(self, layout: Layout, policy: Policy = POLICY) -> RotationOutcome:
        plan = planned(layout, budgets_of(policy, 8_000))
        steps = rotate(plan, policy, summarizer_window_tokens=100_000, cancelled=never)
        return drive(steps, self.perform, {}, lambda name, result: None)


def messages(number: int = 60, tokens: int = 100) -> Layout:
    return Layout(live=transcript(message(tokens, f"m{at}") for at in range(number)))


def saying(text: str) -> Layout:
    """A conversation whose oldest message says *text*."""
    return Layout(live=transcript([Entry.user(f"{text} {words(60)}"), *messages().live.entries]))


def test_an_invalid_answer_escalates() -> None:
    """Once more, terser; then the extractive summarizer. Both faults are noted with their reasons."""
    driven = Answering(lambda request: Consolidated(text="", fault="validation: the answer is blank"))
    outcome = driven.rotate(messages())
    assert [request.terse for request in driven.requests] == [False, True]
    assert outcome.methods == (Method.EXTRACTIVE,)
    assert outcome.faults == ("validation: the answer is blank",) * 2
    assert outcome.figures()["faults"] == {"validation": 2}
    assert outcome.figures()["fault_reasons"] == ["validation: the answer is blank"]


def test_a_valid_second_answer_ends_the_escalation() -> None:
    """What was wrong with the first is noted."""
    driven = Answering(
        lambda request: Consolidated(text=words(40)) if request.terse else Consolidated(text="", fault="validation: x")
    )
    outcome = driven.rotate(messages())
    assert (outcome.methods, outcome.faults) == ((Method.TERSE,), ("validation: x",))


def test_what_does_not_fit_is_not_asked_for_again() -> None:
    """A terser request is no smaller: the extractive summarizer follows at once."""
    driven = Answering(lambda request: Consolidated(text="", fault="size: too large"))
    outcome = driven.rotate(messages())
    assert [request.terse for request in driven.requests] == [False]
    assert (outcome.methods, outcome.figures()["faults"]) == ((Method.EXTRACTIVE,), {"size": 1})


def test_the_text_of_a_fault_is_not_taken() -> None:
    """Whatever comes beside it."""
    driven = Answering(lambda request: Consolidated(text=words(40, "bad"), fault="validation: x"))
    assert "bad" not in driven.rotate(messages()).layout.records[0].text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (" \n", "validation: the answer is blank"),
        ("half \ud800", "validation: the answer holds a lone surrogate"),
        (words(7_000), "validation: the answer takes 7,000 tokens; 373 are accepted"),
    ],
    ids=["blank", "surrogate", "large"],
)
def test_what_the_rotation_itself_refuses_is_noted_alike(answer: str, reason: str) -> None:
    """Summarizers are anybody's: their answers are looked at, whether they name a fault or not."""
    outcome = Answering(lambda request: Consolidated(text=answer)).rotate(messages())
    assert outcome.faults == (reason, reason)


def test_reasons_in_figures_are_few() -> None:
    """Five different ones at most, however many there were."""
    driven = Answering(lambda request: Consolidated(text="", fault=f"validation: {len(driven.requests)}"))
    layout = Layout(
        records=tuple(make_record(CHARACTERS, words(150, f"r{at}"), at, at, show_span=False) for at in range(1, 13)),
        live=transcript(messages(40).live.entries, first_seq=13),
    )
    figures = driven.rotate(layout).figures()
    assert figures["faults"]["validation"] > 5
    assert len(figures["fault_reasons"]) == 5


@BOTH
def test_secrets_are_shown_to_no_summarizer(policy: Policy) -> None:
    """They are replaced before anything is asked, and counted."""
    driven = Answering(lambda request: Consolidated(text=words(40)))
    outcome = driven.rotate(saying(f"the key is {SECRET}"), policy)
    assert "[redacted: " in driven.requests[0].material
    assert not any(SECRET in request.material for request in driven.requests)
    assert (outcome.redaction_count, outcome.figures()["redaction_count"]) == (1, 1)


def test_a_secret_of_an_older_record_is_replaced_too() -> None:
    """A record made before anybody looked for secrets loses them when it is consolidated again."""
    policy = Tiers()
    record = make_record(CHARACTERS, f"the key is {SECRET}", 1, 1, show_span=False)
    layout = Layout(records=(record,), live=transcript(messages().live.entries, first_seq=2))
    driven = Answering(lambda request: Consolidated(text=words(40)))
    assert driven.rotate(layout, policy).redaction_count == 1
    assert driven.requests[0].previous_record == "the key is [redacted: aws-access-key-id]"


def test_secrets_in_an_answer_are_replaced_and_counted() -> None:
    """Those that the rotation finds, and those that the summarizer says it found."""
    outcome = Answering(lambda request: Consolidated(text=f"key {SECRET}", redaction_count=2)).rotate(messages())
    assert outcome.layout.records[0].text == "key [redacted: aws-access-key-id]"
    assert outcome.redaction_count == 3


def test_the_redactor_is_handed_in() -> None:
    """Whoever has one of their own passes it."""
    steps = rotate(
        planned(messages(), WIDE),
        POLICY,
        summarizer_window_tokens=100_000,
        cancelled=never,
        redact=lambda text: Redacted(text.replace("m7", "[name]"), text.count("m7")),
    )
    outcome = drive(steps, Driven(keeping(0.03)).perform, {}, lambda name, result: None)
    assert outcome.redaction_count == 1


@BOTH
def test_a_record_names_what_its_source_does_not_say(policy: Policy) -> None:
    """Against all that was shown, and counted for the whole layout."""
    driven = Answering(lambda request: Consolidated(text="port 9090 of K-77 in src/none.py"))
    outcome = driven.rotate(saying("K-77"), policy)
    (record,) = outcome.layout.records
    assert record.unsupported_values == ("9090", "src/none.py")
    assert outcome.unsupported_count == outcome.figures()["unsupported_count"] == 2


def test_chunks_are_compared_with_the_whole_source() -> None:
    """A value of the first chunk is supported in the record of all of them."""
    driven = Driven(lambda request: "K-77 and K-78")
    outcome = driven.rotate(planned(saying("K-77"), WIDE), POLICY, summarizer_window_tokens=2_000)
    assert len(driven.effects) > 2
    assert outcome.layout.records[0].unsupported_values == ("K-78",)


def test_an_extract_has_nothing_unsupported() -> None:
    """It is made of its source's own words."""
    outcome = Driven(echoing).rotate(planned(saying("K-77 in src/a.py at 8080."), WIDE), POLICY)
    assert outcome.methods == (Method.EXTRACTIVE,)
    assert outcome.unsupported_count == 0


def test_merging_does_not_make_an_invention_true() -> None:
    """What was unsupported in a merged record stays so in the record of the merge, as far as that repeats it."""
    values = {1: ("9090", "K-9"), 2: ("FooBaz",)}
    records = tuple(
        make_record(
            CHARACTERS,
            words(300, f"9090 K-9 FooBaz r{at}"),
            at,
            at,
            show_span=False,
            unsupported_values=values.get(at, ()),
        )
        for at in range(1, 7)
    )
    layout = Layout(records=records, live=transcript(messages().live.entries, first_seq=7))
    merged = Answering(lambda request: Consolidated(text="9090 by FooBaz and 77")).rotate(layout).layout.records[0]
    assert merged.unsupported_values == ("77", "9090", "FooBaz")


def test_a_tier_s_record_hands_on_what_was_unsupported() -> None:
    """Through a merge with new material, and on its way into the next tier."""
    policy = Tiers()
    record = make_record(CHARACTERS, words(40, "9090 K-9"), 1, 1, show_span=False, unsupported_values=("9090", "K-9"))
    layout = Layout(records=(record,), live=transcript(messages().live.entries, first_seq=2))
    (kept,) = Answering(lambda request: Consolidated(text="9090 only")).rotate(layout, policy).layout.records
    assert kept.unsupported_values == ("9090",)
    grown = Answering(lambda request: Consolidated(text=words(30 if request.is_degradation else 600, "9090 K-9")))
    moved = grown.rotate(layout, policy).layout.records
    assert [(one.tier, one.unsupported_values) for one in moved] == [(2, ("9090", "K-9")), (1, ("9090", "K-9"))]


def test_records_that_are_joined_keep_their_values() -> None:
    """A layout of a policy with several records to a tier is taken over whole."""
    records = tuple(
        make_record(CHARACTERS, words(20, f"K-{at}"), at, at, show_span=False, unsupported_values=(f"K-{at}",))
        for at in (1, 2)
    )
    layout = appended(Layout(records=records, live=transcript([], first_seq=3)), messages(5).live.entries)
    joined = Answering(lambda request: Consolidated(text="x")).rotate(layout, Tiers())
    assert joined.layout.records[0].unsupported_values == ("K-1", "K-2")


def test_a_record_that_is_cut_keeps_the_values_that_it_still_says() -> None:
    """Its newest text stays."""
    record = make_record(CHARACTERS, f"9090 {words(40)} K-9", 1, 1, show_span=False, unsupported_values=("9090", "K-9"))
    cut = cut_record(record, 20, 100, planned(messages(), WIDE))
    assert cut is not None
    assert cut.unsupported_values == ("K-9",)


def test_at_most_twenty_values_are_handed_on() -> None:
    """Each once, those of the text itself first."""
    values = [f"K-{at}" for at in range(30)]
    assert unsupported_in(" ".join(values), values[5:7], values) == (*values[5:7], *values[:5], *values[7:20])


def test_a_record_without_the_field_is_read() -> None:
    """As it was stored before records named such values."""
    record = Record(first_seq=1, last_seq=2, text="gist", tokens=9)
    stored = json.loads(encode(record))
    del stored["value"]["unsupported_values"]
    assert decode(Record, json.dumps(stored, separators=(",", ":"))) == record


def test_a_script_that_costs_more_tokens_is_shown_in_smaller_parts() -> None:
    """What admission would estimate counts, where it is more than the counter says: no part is refused for its size."""
    layout = Layout(live=transcript(Entry.user("港口八零八零。" * 60) for _ in range(40)))
    driven = Driven(keeping(0.05))
    driven.rotate(planned(layout, WIDE), POLICY, summarizer_window_tokens=8_000)
    assert len(driven.effects) > 5
    for effect in driven.effects.values():
        shown = effect.request.previous_record + effect.request.material
        assert len(shown.encode()) <= 4_000
