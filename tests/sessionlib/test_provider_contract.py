"""One contract for all providers behind an API, plain or streamed: whichever answers, the session is the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from sessionlib.entries import Entry, EntryKind
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import CallRequest, Shape
from sessionlib.recordings import read_recording
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.asking import SINGLE, request_of
from tests.sessionlib.talks import (
    ADAPTERS,
    ANSWERS,
    BROKEN_ARGUMENTS,
    PAGE,
    SESSION,
    Told,
    call,
    play,
    provider_of,
)

EACH = pytest.mark.parametrize("name", ADAPTERS)
BOTH = pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.forget_recording(SESSION)
    running.responses.forget()
    running.cache.clear()
    running.change(window_tokens=128_000)
    return running


@cache
def expected_talk() -> Told:
    """The talk with chat completions, plain."""
    with FakeProviderServer() as server:
        return play(server, ChatCompletions(server.base_url))


@BOTH
@EACH
def test_the_same_talk_gives_the_same_history(server: FakeProviderServer, name: str, is_streamed: bool) -> None:
    """Parallel calls, broken arguments, empty content, a refusal, reasoning, and two rotations: history, records and
    answers do not tell who the provider was, and no request was one that the official client's types refuse."""
    expected = expected_talk()
    told = play(server, provider_of(server, name, is_streamed=is_streamed))
    assert told.entries == expected.entries
    assert told.records == expected.records
    assert told.records
    assert told.answers == ANSWERS


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
def test_reasoning_that_only_its_provider_reads_is_kept(server: FakeProviderServer, is_streamed: bool) -> None:
    """Signed or redacted, whole or in pieces: the server takes it back in the tool loop and after it."""
    assert play(server, provider_of(server, "anthropic", is_streamed=is_streamed)).opaque_count == 3


@BOTH
@EACH
def test_a_prompt_changes_at_rotations_only(server: FakeProviderServer, name: str, is_streamed: bool) -> None:
    """Between rotations each request extends the one before, as the provider sees it; and none is above the window."""
    report = play(server, provider_of(server, name, is_streamed=is_streamed)).report
    assert report is not None
    assert [seen["key"] for seen in report["breaks"]] == [f"{SESSION}/t2/model:0", f"{SESSION}/t4/model:0"]
    assert report["refused"] == 0
    assert report["asked_again"] == {}


@BOTH
@EACH
def test_arguments_that_do_not_parse_go_back_to_the_model(
    server: FakeProviderServer, name: str, is_streamed: bool
) -> None:
    """They are history as the model wrote them, and their result says what is wrong; no tool ran on them."""
    entries = play(server, provider_of(server, name, is_streamed=is_streamed)).entries
    asked = next(entry for entry in entries if entry.kind is EntryKind.TOOL_CALL and entry.tool_call_id == "c3")
    result = next(entry for entry in entries if entry.kind is EntryKind.TOOL_RESULT and entry.tool_call_id == "c3")
    assert asked.text == BROKEN_ARGUMENTS
    assert result.text.startswith("InvalidInput: arguments must fit the schema of add")


@BOTH
@EACH
def test_what_a_provider_reports_is_accounted(server: FakeProviderServer, name: str, is_streamed: bool) -> None:
    """The prompt counts whole, whoever holds it, and what came from the cache is part of it."""
    provider = provider_of(server, name, is_streamed=is_streamed)
    first = provider.complete(request_of(Entry.user(PAGE * 4)))
    assert first.usage is not None
    again = provider.complete(request_of(Entry.user(PAGE * 4), turn_id="t2"))
    assert again.usage is not None
    assert first.usage.cached_tokens == 0
    assert 1_024 <= again.usage.cached_tokens <= again.usage.prompt_tokens
    assert abs(again.usage.prompt_tokens - first.usage.prompt_tokens) <= 1
    assert again.usage.completion_tokens == first.usage.completion_tokens


@EACH
def test_disposal_is_harmless(server: FakeProviderServer, name: str) -> None:
    """What is not there can be let go of twice; a stateless provider has nothing to let go of."""
    provider = provider_of(server, name)
    handle = provider.complete(request_of()).handle
    assert (handle is not None) == (provider.shape is Shape.HELD)
    provider.dispose(handle or "none")
    provider.dispose(handle or "none")
    assert server.responses.handles == ()


@EACH
def test_calls_have_their_names_and_ids_back(server: FakeProviderServer, name: str) -> None:
    """What the wire cannot carry comes back as it was: names with dots, and ids as the provider gave them."""
    asked = call("call_1b2c-4d5e-6f", "history.read_item", '{"item": 3}')
    server.record(SINGLE, {"answers": {f"{SINGLE}/t1/model:0": {"calls": [asked]}}})
    reply = provider_of(server, name).complete(request_of())
    server.forget_recording(SINGLE)
    assert reply.calls == (CallRequest(call_id="call_1b2c-4d5e-6f", name="history.read_item", arguments='{"item": 3}'),)


@EACH
def test_a_history_from_elsewhere_can_be_sent(server: FakeProviderServer, name: str) -> None:
    """Odd call ids, arguments of every kind, blank texts and a beginning by the assistant are no fault of a request."""
    rounds = [
        (Entry.tool_call(call_id, arguments, "look"), Entry.tool_result(call_id, result))
        for call_id, arguments, result in [
            ("call:1/ü", "", ""),
            ("x" * 300, "[1, 2]", " "),
            ("c3", "not JSON", "r"),
            ("c4", '{"a": NaN}', "r"),
            ("c5", '{"a": "\\ud800"}', "r"),
        ]
    ]
    entries = [Entry.assistant("Hi"), Entry.user("Go"), *(entry for pair in rounds for entry in pair)]
    entries += [Entry.assistant(""), Entry.user("On"), Entry.tool_result("gone", "late"), Entry.user("?")]
    assert provider_of(server, name).complete(request_of(*entries)).text == "Acknowledged: ?"


@EACH
@pytest.mark.parametrize("source", ["claude_code_4d5611e5.json", "tau_airline_gpt4o.json"])
def test_real_sessions_can_be_sent(server: FakeProviderServer, data_dir: Path, name: str, source: str) -> None:
    """All that a real agent recorded goes into one request that the API takes: names, ids, arguments, results."""
    server.change(window_tokens=10_000_000)
    recording = read_recording((data_dir / source).read_bytes(), source)
    entries = [Entry.user(recording.turns[0].input)]
    for turn in recording.turns[1:]:
        for played in turn.rounds:
            results = (Entry.tool_result(call_id, text) for call_id, text in played.results)
            entries += [*played.reply().entries(), *results]
        entries.append(Entry.user(turn.input))
    request = request_of(*entries, tools=recording.tool_declarations())
    assert provider_of(server, name).complete(request).text.startswith("Acknowledged: ")
