"""The fake provider server: what it answers, refuses, holds and reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.chat_completions import ChatCompletions, serialised
from sessionlib.providers.checking import check
from sessionlib.providers.contract import CallRequest, ModelRequest, ToolDeclaration
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.testing.observations import Prompt
from sessionlib.testing.server import FakeProviderServer
from sessionlib.testing.traits import Traits
from sessionlib.window_facts import _REPORTED, WindowFact, WindowSource
from tests.sessionlib.summarizing import summarizer
from tests.sessionlib.talks import ADAPTERS
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProviderServer]:
    with FakeProviderServer() as server:
        yield server


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.cache.clear()
    running.change(**{trait.name: trait.default for trait in fields(Traits)})
    return running


@pytest.fixture
def provider(server: FakeProviderServer) -> Iterator[ChatCompletions]:
    provider = ChatCompletions(server.base_url)
    yield provider
    provider.close()


def request_of(*entries: Entry, **fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {
        "model": "m-1",
        "instructions": "Be kind.",
        "tools": (),
        "parameters": {},
        "session_id": "team/s-1",
        "turn_id": "t-1",
        "step": "model:0",
        "timeout_seconds": 30.0,
    }
    return ModelRequest(entries=entries or (Entry.user("Hello"),), **{**defaults, **fields})


def test_it_echoes_and_counts_exactly(provider: ChatCompletions) -> None:
    """Usage is the exact count of the request's bytes as text."""
    request = request_of()
    reply = provider.complete(request)
    assert reply.text == "Acknowledged: Hello"
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == counter_named("o200k_base").text(serialised(request).decode())


def test_it_answers_from_a_recording(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A recorded reply goes to its idempotency key; a call without one is refused."""
    call = {"call_id": "c1", "name": "history.read_item", "arguments": '{"item": 1}'}
    server.record("team/rec", {"answers": {"team/rec/t-1/model:0": {"text": "Looking", "calls": [call]}}})
    reply = provider.complete(request_of(session_id="team/rec"))
    assert reply.text == "Looking"
    assert reply.calls == (CallRequest(call_id="c1", name="history.read_item", arguments='{"item": 1}'),)
    with pytest.raises(ProviderRejected, match="not_recorded"):
        provider.complete(request_of(session_id="team/rec", step="model:1"))


def test_a_recording_is_uploaded_over_http(server: FakeProviderServer) -> None:
    """Ids in paths are percent-encoded; results are read back as plain text; a deleted recording is gone."""
    url = f"{server.url}/recordings/team%2Fup"
    httpx.post(url, json={"answers": {}, "results": {"c/1": "42 – ok"}}).raise_for_status()
    assert httpx.get(f"{url}/results/c%2F1").text == "42 – ok"
    assert httpx.get(f"{url}/results/c2").status_code == 404
    httpx.delete(url).raise_for_status()
    assert httpx.get(f"{url}/results/c%2F1").status_code == 404


def test_a_consolidation_is_a_record_of_the_evidence(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """Asked as model `summarizer` it extracts, is noted with its times, and belongs to no session."""
    material = "\n".join(f"USER: Decided that queue {n} uses limit {n * 7}." for n in range(400))
    request = ConsolidationRequest(tier=1, first_seq=1, last_seq=400, material=material, budget_tokens=9_999)
    started = time.time()
    consolidated = summarizer(provider, model="summarizer", parameters={}).consolidate(request, lambda: False)
    assert consolidated.fault == ""
    assert "\n- USER: Decided that queue" in consolidated.text
    assert len(consolidated.text) < len(material) / 2
    (seen,) = server.report()["consolidations"]
    assert started <= seen["started"] <= seen["ended"]
    assert seen["prompt_tokens"] == consolidated.prompt_tokens
    assert server.report()["sessions"] == {}


def test_above_the_window_it_refuses(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A request above the window is refused with the limit, and counted."""
    server.change(window_tokens=1_100)
    with pytest.raises(WindowOverflow) as caught:
        provider.complete(request_of(Entry.user("word " * 2_000)))
    assert caught.value.limit_tokens == 1_100
    session = server.report()["sessions"]["team/s-1"]
    assert session["refused"] == 1
    assert session["fill"] > 1


@pytest.mark.parametrize(
    ("failure", "error"), [(429, ProviderUnavailable), (503, ProviderUnavailable), ("garbage", ProviderUnavailable)]
)
def test_it_fails_as_told(
    server: FakeProviderServer, provider: ChatCompletions, failure: int | str, error: type[Exception]
) -> None:
    """The next calls fail as often as told, then answers come again."""
    server.fail(failure, count=2)
    for _ in range(2):
        with pytest.raises(error):
            provider.complete(request_of())
    assert provider.complete(request_of()).text


def test_a_failure_can_be_for_summaries_only(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """Answers and consolidations fail apart, and the wish to wait is passed on."""
    server.fail(429, kind="summaries", retry_after_seconds=3)
    assert provider.complete(request_of()).text
    with pytest.raises(ProviderUnavailable) as caught:
        provider.complete(request_of(model="summarizer"))
    assert caught.value.retry_after_seconds == 3.0


def test_latency_is_for_answers_and_summaries_apart(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """Each kind of call takes its own time."""
    server.change(summary_latency_seconds=0.2)
    started = time.monotonic()
    provider.complete(request_of(model="summarizer"))
    assert time.monotonic() - started >= 0.2


def test_an_answer_takes_the_time_that_its_tokens_take(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A plain answer comes when it is whole; a stream's first piece does not wait for the others."""
    server.change(tokens_per_second=100.0, first_token_seconds=0.1)
    heard: list[float] = []
    started = time.monotonic()
    provider.complete(request_of(), lambda _: heard.append(time.monotonic() - started))
    assert 0.1 <= heard[0] < heard[-1]
    assert heard[-1] >= 0.1 + (len(heard) - 1) / 100
    (span,) = server.trace("team/s-1")
    assert span["started"] + 0.1 <= span["first_token"] < span["ended"]
    started = time.monotonic()
    usage = provider.complete(request_of(turn_id="t-2")).usage
    assert usage is not None
    assert time.monotonic() - started >= 0.1 + usage.completion_tokens / 100


@pytest.mark.parametrize("ratio", [0.5, 2.0, 4.0])
def test_its_tokenizer_may_be_another(server: FakeProviderServer, provider: ChatCompletions, ratio: float) -> None:
    """Everything that it counts is in tokens of its own."""
    entries = [Entry.user("Hello " * 1_500)]
    before = provider.complete(request_of(*entries)).usage
    server.change(token_ratio=ratio)
    after, again = (provider.complete(request_of(*entries, turn_id=turn)).usage for turn in ("t-2", "t-3"))
    assert before is not None
    assert after is not None
    assert again is not None
    assert after.prompt_tokens == round(before.prompt_tokens * ratio)
    assert after.completion_tokens == round(before.completion_tokens * ratio)
    assert again.cached_tokens == (0 if ratio < 1 else after.prompt_tokens // 128 * 128)


def test_it_thinks_before_it_answers(server: FakeProviderServer) -> None:
    """As long as it is told to."""
    server.change(reasoning="Hm.")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    message = httpx.post(f"{server.base_url}/chat/completions", json=body).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Acknowledged: Hello")


def test_streams_are_held_after_their_first_piece(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """Whoever listens has it; the rest comes when it is released."""
    server.hold("streams")
    heard: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(provider.complete, request_of(), heard.append)
        wait_for(lambda: server.report([])["held"]["streams"] == 1)
        wait_for(lambda: heard == ["Ackn"])
        server.release("streams")
        assert held.result(timeout=20).text == "".join(heard)


def test_a_failure_may_have_headers(server: FakeProviderServer) -> None:
    """Over HTTP, whatever they are."""
    failure = {"failure": 429, "headers": {"X-RateLimit-Reset-Requests": "1s"}, "retry_after_seconds": 2}
    httpx.post(f"{server.url}/failures", json=failure).raise_for_status()
    response = httpx.post(f"{server.base_url}/chat/completions", json={"model": "m", "messages": [USER]})
    assert response.status_code == 429
    assert (response.headers["x-ratelimit-reset-requests"], response.headers["retry-after"]) == ("1s", "2")


def test_its_cache_is_emptied_over_http(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """What was read before is not known any more."""
    entry = Entry.user("Hello " * 1_500)
    provider.complete(request_of(entry))
    httpx.delete(f"{server.url}/cache").raise_for_status()
    usage = provider.complete(request_of(entry, turn_id="t-2")).usage
    assert usage is not None
    assert usage.cached_tokens == 0


def test_summaries_are_held_while_answers_pass(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A held consolidation stays open until it is released; answers come meanwhile."""
    server.hold("summaries")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(provider.complete, request_of(model="summarizer"))
        wait_for(lambda: server.report()["held"]["summaries"] == 1)
        assert provider.complete(request_of()).text
        assert not held.done()
        server.release()
        assert held.result(timeout=20).text


def test_extending_requests_are_no_breaks(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """Requests that repeat or extend the one before keep the prefix, and what they share counts as cached."""
    history = [Entry.user("Hello " * 1_500), Entry.assistant("Hi " * 50), Entry.user("More")]
    provider.complete(request_of(*history[:1]))
    provider.complete(request_of(*history[:1]))
    usage = provider.complete(request_of(*history, turn_id="t-2")).usage
    session = server.report()["sessions"]["team/s-1"]
    assert session["calls"] == 3
    assert session["break_count"] == 0
    assert session["asked_again"] == {"team/s-1/t-1/model:0": 2}
    assert usage is not None
    assert 1_024 <= usage.cached_tokens < usage.prompt_tokens
    assert usage.cached_tokens % 128 == 0
    assert session["cached_tokens"] == 2 * usage.cached_tokens


def test_a_changed_message_is_a_break(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A break names both keys, the first message that changed, and its time."""
    provider.complete(request_of(Entry.user("one"), Entry.assistant("a"), Entry.user("two")))
    provider.complete(request_of(Entry.user("one"), Entry.assistant("b"), Entry.user("two"), turn_id="t-2"))
    session = server.report()["sessions"]["team/s-1"]
    (seen,) = session["breaks"]
    assert session["break_count"] == 1
    assert seen["first_difference"] == 2  # the system message is the first
    assert (seen["previous_key"], seen["key"]) == ("team/s-1/t-1/model:0", "team/s-1/t-2/model:0")
    assert time.time() - 60 < seen["time"] <= time.time()


@pytest.mark.parametrize(
    ("changes", "first_difference"),
    [
        ({"model": "other"}, -1),
        ({"parameters": {"temperature": 1}}, -1),
        ({"tools": (ToolDeclaration(name="f", description="", parameters={}),)}, -1),
        ({"instructions": "Be quick."}, 0),
    ],
)
def test_a_changed_head_is_a_break(
    server: FakeProviderServer, provider: ChatCompletions, changes: dict[str, Any], first_difference: int
) -> None:
    """What precedes the messages is part of the prefix."""
    provider.complete(request_of())
    provider.complete(request_of(**changes))
    (seen,) = server.report()["sessions"]["team/s-1"]["breaks"]
    assert seen["first_difference"] == first_difference


def test_a_shorter_request_is_a_break() -> None:
    """Messages that went missing at the end are a difference too."""
    longer, shorter = (
        Prompt.of({"messages": [{"role": "user", "content": n} for n in range(count)]}) for count in (3, 2)
    )
    assert longer.first_difference(shorter) is None
    assert shorter.first_difference(longer) == 2


def test_cache_markers_are_no_part_of_a_prompt() -> None:
    """A marker that moves with the conversation changes nothing that is cached."""
    plain = {"role": "user", "content": [{"type": "text", "text": "x"}]}
    marked = {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}
    assert Prompt.of({"messages": [marked]}) == Prompt.of({"messages": [plain]})


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}
USER = {"role": "user", "content": "u"}


@pytest.mark.parametrize(
    ("messages", "is_accepted"),
    [
        ([USER], True),
        ([USER, CALL, RESULT], True),
        ([USER, CALL, RESULT, USER], True),
        ([], False),
        ([USER, RESULT], False),
        ([USER, CALL], False),
        ([USER, CALL, USER], False),
        ([USER, CALL, RESULT, RESULT], False),
        ([{"role": "robot", "content": "x"}], False),
        ([{"role": "user"}], False),
    ],
)
def test_t50_broken_structure_is_refused(server: FakeProviderServer, messages: list[Any], is_accepted: bool) -> None:
    """Like a real API it refuses results without calls, and calls without results."""
    response = httpx.post(f"{server.base_url}/chat/completions", json={"model": "m", "messages": messages})
    assert response.status_code == (200 if is_accepted else 400)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 3}', b"\xff", b'{"model": "m", "messages": "x"}'])
def test_nonsense_is_refused(server: FakeProviderServer, body: bytes) -> None:
    """Whatever is no chat completion gets a plain 400."""
    assert httpx.post(f"{server.base_url}/chat/completions", content=body).status_code == 400


ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": "m", "messages": [USER]},
    "messages": {"model": "m", "max_tokens": 9, "messages": [USER]},
    "responses": {"model": "m", "input": [USER]},
}


@pytest.mark.parametrize("path", ASKED)
def test_unknown_keys_are_refused(server: FakeProviderServer, path: str) -> None:
    """By the server itself, whoever checks its requests beside it; the key is named."""
    headers = {"anthropic-version": "2023-06-01"}
    assert httpx.post(f"{server.base_url}/{path}", json=ASKED[path], headers=headers).status_code == 200
    refused = httpx.post(f"{server.base_url}/{path}", json={**ASKED[path], "bogus": 1}, headers=headers)
    assert (refused.status_code, "bogus" in refused.json()["error"]["message"]) == (400, True)
    assert server.report()["sessions"][""]["calls"] == 1


def test_models_report_no_window_by_default(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """As OpenAI's do not; nothing else is asked for then."""
    assert provider.reported_window("m") is None


@pytest.mark.parametrize("name", _REPORTED)
def test_a_compatible_server_reports_its_window_in_its_own_way(
    server: FakeProviderServer, provider: ChatCompletions, name: str
) -> None:
    """Under each of the names that are understood; of a model that is named, and of the only one that is listed."""
    server.change(reported_window_tokens=16_000, reported_window_field=name)
    assert [provider.reported_window(model) for model in ("m", "vendor/m 1", "")] == [16_000] * 3


@pytest.mark.parametrize("kind", ADAPTERS)
def test_the_smaller_window_is_found_by_asking(server: FakeProviderServer, kind: str) -> None:
    """What an agent declares, or what its provider reports; each API's adapter asks where that is told."""
    server.change(reported_window_tokens=16_000)
    found = []
    for declared_tokens in (8_000, 64_000):
        made = Agent(name="a", model="m", window_tokens=declared_tokens)
        catalog = Catalog({"a": made}, {"default": ADAPTERS[kind](server)})
        found.append(check(catalog, "default", "m", declared_tokens, timeout_seconds=20).window)
    assert found == [WindowFact(8_000, WindowSource.DECLARED), WindowFact(16_000, WindowSource.REPORTED)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("settings", {"latency_seconds": -1}),
        ("settings", {"latency_seconds": "1"}),
        ("settings", {"window_tokens": 0}),
        ("settings", {"window": 5}),
        ("hold", {"kind": "some"}),
        ("settings", {"token_ratio": 0}),
        ("settings", {"reasoning": 1}),
        ("settings", {"reported_window_tokens": -1}),
        ("hold", {"kind": "disposals"}),
        ("failures", {"failure": 200}),
        ("failures", {"failure": "explosion"}),
        ("failures", {"failure": 500, "kind": "streams"}),
        ("failures", {"failure": 500, "count": -1}),
        ("failures", {}),
        ("recordings/s", {"answers": {"k": {"calls": [{}]}}}),
        ("recordings/s", {"other": 1}),
        ("recordings/s", [1]),
    ],
)
def test_bad_instructions_are_refused(server: FakeProviderServer, path: str, value: Any) -> None:
    """A wrong setting is an error that changes nothing."""
    traits = server.traits
    assert httpx.post(f"{server.url}/{path}", json=value).status_code == 400
    assert server.traits == traits


def test_the_report_is_read_and_cleared_over_http(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """All of it, or one session's; and a fresh start."""
    provider.complete(request_of())
    provider.complete(request_of(session_id="other"))
    assert httpx.get(f"{server.url}/report").json()["sessions"].keys() == {"team/s-1", "other"}
    assert httpx.get(f"{server.url}/report/team%2Fs-1").json()["sessions"].keys() == {"team/s-1"}
    httpx.delete(f"{server.url}/report").raise_for_status()
    assert httpx.get(f"{server.url}/report").json()["sessions"] == {}


def test_it_holds_a_thousand_requests(server: FakeProviderServer, provider: ChatCompletions) -> None:
    """A thousand calls are held open at once, and all are answered when released."""
    server.hold("answers")
    texts: list[str] = []

    def call(number: int) -> None:
        texts.append(provider.complete(request_of(session_id=f"s-{number}", timeout_seconds=120)).text)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(1_000)]
    try:
        for thread in threads:
            thread.start()
        wait_for(lambda: server.report([])["held"]["answers"] == 1_000, seconds=90)
    finally:
        server.release()
        for thread in threads:
            thread.join()
    assert len(texts) == 1_000


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    """It writes its port once it listens, takes its traits from options, and ends at SIGTERM."""
    port_file = tmp_path / "port"
    command = [
        sys.executable,
        "-m",
        "sessionlib.testing.server",
        "--port-file",
        str(port_file),
        "--window-tokens",
        "77",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(port_file.exists, seconds=60)
        report = httpx.get(f"http://127.0.0.1:{port_file.read_text()}/report").json()
        assert report["window_tokens"] == 77
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "fake provider at http://127.0.0.1:" in output
    finally:
        process.kill()
        process.wait()


def test_it_explains_itself() -> None:
    """`--help` names every option and every request."""
    command = [sys.executable, "-m", "sessionlib.testing.server", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options = ("--window-tokens", "--token-ratio", "--port-file")
    for part in (*options, "/recordings/SESSION", "/v1/models", "/report", "/hold"):
        assert part in text
