"""The bench of retention: its model forgets as calibrated, its probes judge nothing, its figures are the product's."""

from __future__ import annotations

import json
import math

import pytest

from bench.retention.__main__ import main
from bench.retention.arrangements import LOSSY, Arrangement, arrangements, checked_flat, controls, room_of
from bench.retention.conversation import AnswerProbe, Conversation, Fact, Passages, ValueProbe, causal
from bench.retention.lossy import LossySummarizer, draw, lines_of
from bench.retention.made import BLOCK_TURNS, PHRASINGS, made
from bench.retention.play import Played, Prepared, common_characters, play
from bench.retention.shares import Share
from sessionlib.entries import Entry
from sessionlib.summaries.contract import ConsolidationRequest

SEED = 3


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    return made(SEED, blocks=4)


@pytest.fixture(scope="module")
def prepared(conversation: Conversation) -> Prepared:
    return Prepared.of(conversation, SEED)


def request(material: str, *, previous: str = "", tier: int = 1, terse: bool = False) -> ConsolidationRequest:
    return ConsolidationRequest(
        tier=tier,
        first_seq=1,
        last_seq=9,
        material=material,
        previous_record=previous,
        budget_tokens=1_000,
        terse=terse,
    )


def plain_lines(count: int) -> str:
    return "\n".join(f"line {number} tells something of little weight that nobody asked for" for number in range(count))


def answer(summarizer: LossySummarizer, asked: ConsolidationRequest) -> str:
    return summarizer.consolidate(asked, lambda: False).text


@pytest.mark.parametrize(
    ("found", "count", "low", "high"),
    [(0, 10, 0.0, 0.278), (5, 10, 0.237, 0.763), (10, 10, 0.722, 1.0), (5, 23, 0.097, 0.419), (13, 17, 0.527, 0.904)],
)
def test_wilsons_interval(found: int, count: int, low: float, high: float) -> None:
    """Published values; the last two are those of the spec's headline."""
    assert Share(found, count).interval == pytest.approx((low, high), abs=0.001)


def test_nothing_is_known_of_an_empty_sample() -> None:
    """No share, and every one possible."""
    assert Share().interval == (0.0, 1.0)
    assert math.isnan(Share().value)


def test_exactly_the_planted_lines_are_key_lines(conversation: Conversation) -> None:
    """The lossy model takes every decision for one, and nothing else."""
    keys = [line.text for text in conversation.texts for line in lines_of(text) if line.is_key]
    assert len(keys) == len(conversation.facts) == 4
    assert all(any(fact.probe.found_in(Passages([key])) for fact in conversation.facts) for key in keys)


def test_a_planted_value_stands_in_one_turn(conversation: Conversation) -> None:
    """Found in the whole transcript, and in no other turn."""
    for fact in conversation.facts:
        told = [
            number
            for number, unit in enumerate(conversation.units)
            if fact.probe.found_in(Passages(entry.text for entry in unit))
        ]
        assert told == [fact.unit]


@pytest.mark.parametrize("phrasing", PHRASINGS)
def test_every_phrasing_is_recognised_by_its_value(phrasing: str) -> None:
    """The probe has the value and its anchor only."""
    probe = ValueProbe("K-48213", "amber-pier")
    assert probe.found_in(Passages([phrasing.format(anchor="amber-pier", value="K-48213")]))
    assert not probe.found_in(Passages([phrasing.format(anchor="olive-pier", value="K-48213")]))
    assert not probe.found_in(Passages([phrasing.format(anchor="amber-pier", value="K-482139")]))


def test_a_value_far_from_its_anchor_does_not_count() -> None:
    """What it is the value of must be told too."""
    assert not ValueProbe("48213", "amber-pier").found_in(Passages([f"48213 {'and so on ' * 30}amber-pier"]))


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("Caroline moved. She lives in Oslo now.", True),
        ("Caroline moved. One. Two. Three. Four. She lives in Oslo now.", False),
        ("She lives in Bergen now, Caroline moved.", False),
        ("Oslo is cold in winter.", False),
    ],
)
def test_an_answer_counts_within_two_sentences_of_its_question(text: str, is_told: bool) -> None:
    """All words of a short answer and a third of the question's, close together."""
    probe = AnswerProbe(frozenset({"oslo"}), frozenset({"caroline", "moved", "town"}))
    assert bool(probe.found_in(Passages([text]))) is is_told


def test_a_fact_that_is_told_elsewhere_is_left_out() -> None:
    """The whole transcript passes, and so does the transcript without the evidence: nothing would be measured."""
    fact = Fact("exact", 0, ValueProbe("48213", "pier"))
    once = [[Entry.user("pier 48213")], [Entry.user("nothing")]]
    twice = [[Entry.user("pier 48213")], [Entry.user("the pier has 48213")]]
    evidence = frozenset({0})
    assert causal([(fact, evidence)], once) == (fact,)
    assert causal([(fact, evidence)], twice) == ()
    assert causal([(fact, evidence)], [[Entry.user("nothing")]]) == ()


def test_an_answers_length_follows_from_what_is_shown() -> None:
    """0.30 · tokens^0.78 at most, and never less than one line."""
    material = plain_lines(500)
    shown_tokens = len(material) / 4
    told = answer(LossySummarizer(seed=1), request(material))
    assert 0.8 * 0.30 * shown_tokens**0.78 < len(told) / 4 <= 0.30 * shown_tokens**0.78
    assert answer(LossySummarizer(seed=1), request("one long line " * 40)).strip()


def test_the_wordy_variant_says_three_times_as_much_and_a_terse_second_attempt_half() -> None:
    """By the length of their answers."""
    material = plain_lines(500)
    normal, wordy, terse = (
        len(answer(LossySummarizer(seed=1, wordy=is_wordy), request(material, terse=is_terse)))
        for is_wordy, is_terse in ((False, False), (True, False), (False, True))
    )
    assert wordy == pytest.approx(3 * normal, rel=0.1)
    assert terse == pytest.approx(normal / 2, rel=0.2)


def test_the_keeping_variant_leaves_nearly_all_of_the_previous_record() -> None:
    """About 95 % of its lines, word for word; a rewriting one leaves few."""
    previous, material = plain_lines(200).replace("line", "older line"), plain_lines(300)
    kept, rewritten = (
        sum(line.startswith("older") for line in answer(summarizer, request(material, previous=previous)).split("\n"))
        for summarizer in (LossySummarizer(seed=1, keeps=True), LossySummarizer(seed=1))
    )
    assert 175 <= kept <= 200
    assert rewritten < 40


def test_key_lines_survive_where_others_do_not() -> None:
    """One line in two hundred: kept by nine seeds of ten or so."""
    material = f"{plain_lines(150)}\nWe decided on 48213 for the pier.\n{plain_lines(150)}"
    kept = sum("48213" in answer(LossySummarizer(seed=seed), request(material)) for seed in range(200))
    assert 165 <= kept <= 195


def test_draws_depend_on_seed_call_and_line_alone() -> None:
    """The same three give the same number, evenly spread; another seed or call gives another."""
    drawn = [draw(seed, call, hashed) for seed in range(10) for call in range(10) for hashed in range(10)]
    assert len(set(drawn)) == len(drawn)
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)
    assert draw(1, 2, 3) == draw(1, 2, 3)


def test_a_run_is_deterministic(prepared: Prepared) -> None:
    """Two runs of one arrangement come to the same, figure by figure."""
    arrangement = arrangements(16_000, {"terse": LOSSY["terse"]})[-1]
    assert play(prepared, arrangement, SEED) == play(prepared, arrangement, SEED)


def _by_name(rows: list[Arrangement], name: str) -> Arrangement:
    return next(row for row in rows if row.policy_name == name)


def test_what_is_left_out_is_not_told(prepared: Prepared) -> None:
    """Without any record only the newest facts are told; with the records of log_merge more of them."""
    none = play(prepared, _by_name(controls(16_000), "none"), SEED)
    merged = play(prepared, _by_name(arrangements(16_000, {"wordy": LOSSY["wordy"]}), "log_merge"), SEED)
    assert none.calls == none.summarizer_tokens == 0
    assert none.final["planted"].found < merged.final["planted"].found


def test_requests_and_records_stay_within_their_budgets(prepared: Prepared) -> None:
    """No break under any policy and variant, and prompts that mostly repeat the one before."""
    for arrangement in arrangements(16_000, LOSSY):
        played = play(prepared, arrangement, SEED)
        assert played.budget_breaks == played.fabricated == 0
        assert played.rotations > 0
        assert 0.9 < played.cached_tokens / played.prompt_tokens < 1


def test_results_add_up(prepared: Prepared) -> None:
    """Counts are summed, the largest prompt is the largest of both."""
    arrangement = _by_name(arrangements(16_000, {"terse": LOSSY["terse"]}), "tiers")
    once, sums = play(prepared, arrangement, SEED), Played(runs=0)
    for _ in range(2):
        sums.add(play(prepared, arrangement, SEED))
    assert (sums.runs, sums.units, sums.calls) == (2, 2 * once.units, 2 * once.calls)
    assert sums.most_prompt_tokens == once.most_prompt_tokens
    assert sums.final["planted"] == once.final["planted"] + once.final["planted"]


def test_a_wordy_summarizer_is_not_paid_twice() -> None:
    """log_merge takes a fresh record of up to half its budget: asking again would show everything again."""
    wordy = Prepared.of(made(SEED, blocks=8), SEED)
    row = _by_name(arrangements(16_000, {"wordy": LOSSY["wordy"]}), "log_merge")
    played = play(wordy, row, SEED)
    assert played.methods["terse"] + played.methods["extractive"] == 0


def test_the_check_row_forgets_as_the_model_was_calibrated() -> None:
    """A flat record over 50 rotations: about 360 tokens, about a fifth of the facts."""
    told, record_tokens = Share(), 0
    for seed in range(4):
        played = play(Prepared.of(made(seed), seed), checked_flat(room_of(16_000)), seed)
        told += played.final["planted"]
        record_tokens += played.final_record_tokens
    assert 0.13 <= told.value <= 0.30
    assert 320 <= record_tokens / 4 <= 400


def test_common_beginnings_are_counted_in_characters() -> None:
    """Up to the first difference, or the end of the shorter."""
    assert common_characters("abcd", "abxd") == 2
    assert common_characters("ab", "abcd") == common_characters("abcd", "ab") == 2


def test_the_command_prints_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms from one quick run; every policy and summarizer in them."""
    assert main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "simulated" in printed
    assert "extractive" in printed
    assert "controls" in printed
    assert main(["--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {(row["policy"], row["summarizer"]) for row in rows} >= {
        (policy, summarizer)
        for policy in ("flat", "tiers", "slots", "log_merge")
        for summarizer in (*LOSSY, "extractive")
    }
    assert all(row["budget_breaks"] == 0 for row in rows)


def test_a_block_is_fifty_turns(conversation: Conversation) -> None:
    """As ages are counted, of about 170 tokens each."""
    assert len(conversation.units) == 4 * BLOCK_TURNS
    assert 160 < sum(map(len, conversation.texts)) / 4 / len(conversation.units) < 180
