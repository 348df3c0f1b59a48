"""The extractive summarizer: what it keeps, what it never does, how long it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.entries import Entry, render
from sessionlib.errors import InvalidInput
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.summaries.extractive import ExtractiveSummarizer, extract
from sessionlib.summaries.grounding import unsupported_values
from sessionlib.tokens import CharactersCounter

COUNTER = CharactersCounter()


def never() -> bool:
    return False


def chatter(count: int) -> list[Entry]:
    return [
        Entry.assistant(f"That is a lovely thought and we may come back to it someday, {word}.")
        for word in "ab" * count
    ]


@given(text=st.text(max_size=2_000), budget_tokens=st.integers(1, 200))
@settings(max_examples=300, deadline=None)
def test_extract_is_bounded_and_never_blank(text: str, budget_tokens: int) -> None:
    """What comes back fits the budget, and says something unless there was nothing to say."""
    extracted = extract(text, budget_tokens, COUNTER)
    assert COUNTER.text(extracted) <= budget_tokens
    assert bool(extracted.strip()) == bool(text.strip())


@given(
    lines=st.lists(st.sampled_from(["Use port 8080.", "Hello!", "The key is K-77.", "x", "Was it Ada?"]), max_size=60)
)
def test_extract_is_deterministic(lines: list[str]) -> None:
    """Equal text gives an equal extract."""
    text = "\n".join(lines)
    assert extract(text, 12, COUNTER) == extract(text, 12, COUNTER)


def test_sentences_keep_their_order_and_wording() -> None:
    """The extract is made of the source's sentences, in its order."""
    facts = [f"Decided: service {name} listens on port {port}." for name, port in (("alpha", 8101), ("beta", 8202))]
    text = "\n".join([facts[0], *["It was a nice day and everybody was happy with it."] * 20, facts[1]])
    assert extract(text, 26, COUNTER) == "\n".join(facts)


def test_short_text_comes_back_whole() -> None:
    """Text within the budget is not cut."""
    assert extract("  Hello.\nPort 80.  ", 100, COUNTER) == "Hello.\nPort 80."


def test_decisions_outrank_small_talk() -> None:
    """A sentence with a decision and a number survives a cut to a tenth of its surroundings."""
    text = render([*chatter(40), Entry.user("We decided to keep the retry limit at 17."), *chatter(40)])
    assert "retry limit at 17" in extract(text, COUNTER.text(text) // 10, COUNTER)


def test_a_label_opens_each_entry() -> None:
    """Who said it stays visible, and stands once for all that is kept of an entry."""
    text = render([*chatter(30), Entry.user("Use Postgres 16. Um, well then.\nDeploy to eu-west-1."), *chatter(30)])
    assert extract(text, 13, COUNTER) == "USER: Use Postgres 16.\nDeploy to eu-west-1."


def test_tool_output_cannot_push_decisions_out() -> None:
    """Rows of JSON, full of numbers, take no more than their quota while there is prose to keep."""
    decisions = [Entry.assistant(f"Decided: queue {n} uses limit {n * 37}.") for n in range(10, 30)]
    rows = json.dumps([{"id": n, "sku": f"SKU-{n * 7919}", "price": n * 1.25} for n in range(3_000)])
    text = render([Entry.tool_call("c1", '{"path": "rows"}', "query"), Entry.tool_result("c1", rows), *decisions])
    extracted = extract(text, 400, COUNTER)
    assert all(entry.text in extracted for entry in decisions)


def test_tool_output_fills_what_prose_leaves() -> None:
    """The quota is a floor for prose, not waste: without prose the whole budget goes to tool material."""
    rows = "\n".join(f"row {n}: value {n * 7919}" for n in range(1_000))
    extracted = extract(render([Entry.tool_call("c", "{}"), Entry.tool_result("c", rows)]), 400, COUNTER)
    assert COUNTER.text(extracted) > 300


def test_what_was_said_is_not_said_again() -> None:
    """A repeated sentence is kept once."""
    text = "\n".join(["The build 4711 failed on host ci-3."] * 50 + ["The deadline is 2026-12-01."])
    assert extract(text, 20, COUNTER) == "The build 4711 failed on host ci-3.\nThe deadline is 2026-12-01."


@pytest.mark.parametrize(
    "text",
    [
        "QUJD" * 1_250_000,
        " " * 1_000_000 + "end",
        "😀🎉" * 250_000,
        "今天我们决定使用数据库。" * 40_000,
        "word one two 3 " * 330_000,
        "a\n" * 100_000,
    ],
    ids=["base64", "blanks", "emoji", "chinese", "one line", "many lines"],
)
def test_hard_texts_are_extracted(text: str) -> None:
    """Megabytes of anything give a bounded extract that is not blank."""
    extracted = extract(text, 500, COUNTER)
    assert extracted.strip()
    assert COUNTER.text(extracted) <= 500


def test_time_grows_about_linearly() -> None:
    """Eight times the text takes about eight times as long: far from the sixty-four of a quadratic ranking."""

    def seconds(paragraphs: int) -> float:
        text = "\n".join(
            f"Step {n}: module m{n % 97} was set to {n * 31}. It went well, I think." for n in range(paragraphs)
        )
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            extract(text, paragraphs * 5, COUNTER)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(8_000) < 24 * seconds(1_000)


def test_every_process_extracts_the_same() -> None:
    """The order in which a process hashes strings changes nothing."""
    code = (
        "from sessionlib.summaries.extractive import extract; from sessionlib.tokens import CharactersCounter;"
        "text = ' '.join(f'The {w} went to Rome with {v}.' for w in 'abcde' for v in 'fghij');"
        "print(extract(text, 60, CharactersCounter()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


DATA = Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


def words_of(text: object) -> set[str]:
    return set(re.findall(r"\w+", str(text).lower()))


def natural_facts(conversations: list[dict[str, Any]]) -> Iterator[tuple[str, set[str]]]:
    """Turns that hold the answer to a question by themselves, with the words of that answer."""
    for conversation in conversations:
        turns = {entry["id"]: entry["content"] for entry in conversation["entries"]}
        for question in conversation["qa"]:
            answer = words_of(question.get("answer", ""))
            turn = turns.get(question["evidence"][0], "") if len(question["evidence"]) == 1 else ""
            if answer and "audit" not in question and answer <= words_of(turn):
                yield turn, answer


@pytest.mark.skipif(not (DATA / "locomo5.json").is_file(), reason=f"no transcripts in {DATA}")
def test_natural_facts_survive() -> None:
    """A quarter of a real dialogue keeps well over a third of its facts (a random quarter keeps a quarter)."""
    conversations = json.loads((DATA / "locomo5.json").read_text())["conversations"]
    entries = [Entry.user(entry["content"]) for conversation in conversations for entry in conversation["entries"]]
    text = render(entries)
    extracted = extract(text, COUNTER.text(text) // 4, COUNTER)
    facts = list(natural_facts(conversations))
    kept = 0
    for turn, answer in facts:
        sentences = [sentence for sentence in re.split(r"(?<=[.!?])\s+", turn) if sentence in extracted]
        kept += answer <= words_of(" ".join(sentences))
    assert len(facts) > 100
    assert kept / len(facts) > 0.4


def test_a_budget_without_room_is_refused() -> None:
    """A budget below one token is nonsense."""
    with pytest.raises(InvalidInput):
        extract("text", 0, COUNTER)


@pytest.mark.parametrize(
    ("tier", "previous_record", "material_tokens", "budget_tokens", "terse", "expected_tokens"),
    [
        (1, "", 10_000, 100_000, False, 2_500),  # a quarter of new material
        (1, "", 10_000, 1_000, False, 1_000),  # the budget at most
        (1, "", 10_000, 100_000, True, 1_250),  # terse: half as much
        (2, "", 1_000, 100_000, False, 500),  # a merge of records keeps half
        (1, "x" * 400, 1_000, 4_000, False, 300),  # half of the record, a quarter of what is new
        (1, "", 40, 4_000, False, 20),  # never more than half of the source
        (1, "", 160, 4_000, False, 60),  # the floor
    ],
)
def test_the_summarizer_chooses_its_size(
    tier: int, previous_record: str, material_tokens: int, budget_tokens: int, terse: bool, expected_tokens: int
) -> None:
    """The size follows the source; the budget is a ceiling."""
    request = ConsolidationRequest(
        tier=tier,
        first_seq=1,
        last_seq=9,
        material="x" * material_tokens * 4,
        previous_record=previous_record,
        budget_tokens=budget_tokens,
        terse=terse,
    )
    assert ExtractiveSummarizer(counter=COUNTER).budget_tokens(request) == expected_tokens


def test_the_previous_record_is_a_source() -> None:
    """What a record holds already is carried forward beside what is new."""
    material = render([*chatter(20), Entry.user("Renamed api_v1 to api_v2.")])
    request = ConsolidationRequest(
        tier=1, first_seq=1, last_seq=9, material=material, previous_record="Port is 8080.", budget_tokens=1_000
    )
    text = ExtractiveSummarizer(counter=COUNTER).consolidate(request, never).text
    assert text.index("Port is 8080.") < text.index("Renamed api_v1 to api_v2.")


@pytest.mark.parametrize("padding", range(0, 60, 7))
def test_no_identifier_is_broken_in_two(padding: int) -> None:
    """Data without blanks is cut between its values: half an identifier would look made up."""
    rows = ",".join(f'{{"payment_id":"certificate_{75_040_000 + row}","amount":{row}}}' for row in range(40))
    text = render([Entry.tool_call("c1", f"{'x' * padding}[{rows}]", "book")])
    for budget_tokens in (90, 200, 300):
        assert unsupported_values(extract(text, budget_tokens, COUNTER), text) == ()
