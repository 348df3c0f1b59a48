"""The chat-completions provider: what it sends, what it makes of answers, and how it names failures."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.chat_completions import ChatCompletions, parsed_reply, serialised, wire_messages
from sessionlib.providers.contract import CallRequest, ModelRequest, ToolDeclaration
from sessionlib.providers.http import ProcessClient
from sessionlib.providers.wire_names import from_wire, to_wire
from sessionlib.tokens import Usage

Handler = Callable[[httpx.Request], httpx.Response]
KEY = "sk-very-secret-key"


def request_of(*entries: Entry, **fields: Any) -> ModelRequest:
    defaults: dict[str, Any] = {
        "model": "m-1",
        "instructions": "Be kind.",
        "tools": (),
        "parameters": {},
        "session_id": "s/1",
        "turn_id": "t:1",
        "step": "model:0",
        "timeout_seconds": 5.0,
    }
    return ModelRequest(entries=entries or (Entry.user("Hello"),), **{**defaults, **fields})


def provider_with(handler: Handler) -> ChatCompletions:
    return ChatCompletions(
        "http://model.test/v1/",
        SecretStr(KEY),
        build_client=lambda: httpx.Client(transport=httpx.MockTransport(handler)),
    )


def answering(status: int = 200, **content: Any) -> ChatCompletions:
    return provider_with(lambda _: httpx.Response(status, **content))


def completion(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}}], **fields}


def test_a_request_carries_everything() -> None:
    """Model, parameters, tools and messages go out in one body, with the key, the session and the idempotency key."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=completion({"content": "Hi"}))

    tool = ToolDeclaration(name="history.read_item", description="Read", parameters={"type": "object"})
    provider_with(handler).complete(request_of(tools=(tool,), parameters={"temperature": 0.5, "max_tokens": 9}))

    assert str(seen[0].url) == "http://model.test/v1/chat/completions"
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert seen[0].headers["idempotency-key"] == "s/1/t:1/model:0"
    assert seen[0].headers["x-session-id"] == "s/1"
    assert json.loads(seen[0].content) == {
        "model": "m-1",
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {"name": "history-2e-read_item", "description": "Read", "parameters": {"type": "object"}},
            }
        ],
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
    }


@pytest.mark.parametrize(
    ("entries", "messages"),
    [
        ([Entry.user("a"), Entry.assistant("b")], [("user", "a"), ("assistant", "b")]),
        ([Entry.record("r"), Entry.user("a")], [("user", "r"), ("user", "a")]),
        (
            [Entry.assistant("t"), Entry.tool_call("1", "{}", "f"), Entry.tool_call("2", "", "g.h")],
            [("assistant", "t", [("1", "f", "{}"), ("2", "g-2e-h", "{}")])],
        ),
        (
            [Entry.user("a"), Entry.tool_call("1", "x"), Entry.tool_result("1", "r"), Entry.assistant("b")],
            [
                ("user", "a"),
                ("assistant", None, [("1", "tool", '{"INVALID_JSON": "x"}')]),
                ("tool", "r", "1"),
                ("assistant", "b"),
            ],
        ),
        ([Entry.tool_result("9", "r")], [("user", "Tool result [9]: r")]),
    ],
)
def test_entries_become_messages(entries: list[Entry], messages: list[tuple[Any, ...]]) -> None:
    """Records are the user's, text and calls are one message, a result without its call is text."""

    def short(message: dict[str, Any]) -> tuple[Any, ...]:
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
        extra = [calls] if calls else [message["tool_call_id"]] if "tool_call_id" in message else []
        return (message["role"], message["content"], *extra)

    assert [short(message) for message in wire_messages("", entries)] == messages


def tool_round(text: str) -> list[Entry]:
    thought = [Entry.assistant(text)] if len(text) % 2 else []
    calls = [Entry.tool_call("1", text, "f"), Entry.tool_call("2", "{}", "g")]
    return [*thought, *calls, Entry.tool_result("2", text), Entry.tool_result("1", "")]


def turn_of(texts: list[str]) -> list[list[Entry]]:
    """A turn's rounds: those with tools, then the answer. The message belongs to the first."""
    first, *others = [*(tool_round(text) for text in texts), [Entry.assistant("Done.")]]
    return [[Entry.user("Go on"), *first], *others]


TURNS = st.lists(st.lists(st.text(max_size=5), max_size=3).map(turn_of), min_size=1, max_size=4)


@given(turns=TURNS, cut=st.integers(1, 16))
def test_a_longer_history_extends_the_bytes(turns: list[list[list[Entry]]], cut: int) -> None:
    """Appending rounds leaves every byte of the request before it, up to the end of its messages."""
    rounds = [entries for turn in turns for entries in turn]
    shorter, longer = (serialised(request_of(*chain.from_iterable(part))) for part in (rounds[:cut], rounds))
    assert longer.startswith(shorter.removesuffix(b"]}"))


@given(st.text(min_size=1, max_size=20))
def test_tool_names_come_back(name: str) -> None:
    """Any name survives the way over the wire, in the wire's alphabet."""
    wire = to_wire(name)
    assert set(wire) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert from_wire(wire) == name


@pytest.mark.parametrize("name", ["a-2e-b", "a-2e.", "-2e-", "a.b-c", "run_tests", "get-weather"])
def test_tool_names_that_look_escaped_come_back(name: str) -> None:
    """A name that holds an escape sequence by itself is not mistaken for one."""
    assert from_wire(to_wire(name)) == name


def test_an_answer_becomes_a_reply() -> None:
    """Text, calls and usage are read; arguments stay as the model wrote them."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "history-2e-read_item", "arguments": '{"item": 3'}}]
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 7}}
    reply = answering(json=completion({"content": "x", "tool_calls": calls}, usage=usage)).complete(request_of())
    assert reply.text == "x"
    assert reply.calls == (CallRequest(call_id="c1", name="history.read_item", arguments='{"item": 3'),)
    assert reply.usage == Usage(10, 4, 7)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": "12"}, None),
        ({"prompt_tokens": 12}, Usage(12)),
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_cache_hit_tokens": 8}, Usage(12, 3, 8)),
    ],
)
def test_usage_is_read_or_absent(usage: Any, expected: Usage | None) -> None:
    """A report that makes no sense is no report."""
    assert parsed_reply(completion({"content": ""}, usage=usage), "k").usage == expected


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("\ud800x", "\ufffdx"),
        ([{"type": "text", "text": "a"}, {"type": "image"}], "a"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_content_is_read_in_every_form(content: Any, text: str) -> None:
    """No content, parts, and surrogates that JSON escaped all become text that UTF-8 can carry."""
    assert parsed_reply(completion({"content": content}), "k").text == text


def test_missing_and_repeated_call_ids_are_made_up_the_same_at_each_try() -> None:
    """Every call of a reply has its own id, and a second try of the same step gives the same ones."""
    calls = [{"id": i, "function": {"name": "f", "arguments": {"a": 1}}} for i in (None, "x", "x", " ")]
    first, again = (parsed_reply(completion({"content": None, "tool_calls": calls}), "key").calls for _ in range(2))
    assert first == again
    assert len({call.call_id for call in first}) == 4
    assert first[0].arguments == '{"a": 1}'


def overflow(message: str, **fields: Any) -> dict[str, Any]:
    return {"status": 400, "json": {"error": {"message": message, **fields}}}


@pytest.mark.parametrize(
    ("answer", "error", "limit_tokens"),
    [
        (
            overflow("This model's maximum context length is 8,192 tokens, not 9000."),
            WindowOverflow,
            8192,
        ),
        (overflow("boom", code="context_length_exceeded"), WindowOverflow, None),
        (overflow("prompt is too long: 210000 tokens > 200000 maximum"), WindowOverflow, 200_000),
        (overflow("the request exceeds the available context size (4096 tokens)"), WindowOverflow, 4096),
        (overflow("unknown field"), ProviderRejected, None),
        ({"status": 401, "text": "<html>no</html>"}, ProviderRejected, None),
        ({"status": 404, "json": {"error": "no such model"}}, ProviderRejected, None),
        ({"status": 302, "headers": {"location": "http://elsewhere.test"}}, ProviderRejected, None),
        ({"status": 429, "json": {"error": {"code": "insufficient_quota"}}}, ProviderRejected, None),
        ({"status": 408}, ProviderUnavailable, None),
        ({"status": 409}, ProviderUnavailable, None),
        ({"status": 429}, ProviderUnavailable, None),
        ({"status": 500}, ProviderUnavailable, None),
        ({"status": 529, "json": {"error": {"type": "overloaded_error"}}}, ProviderUnavailable, None),
        ({"text": "<html>gateway</html>"}, ProviderUnavailable, None),
        ({"text": '{"choices": [{"mess'}, ProviderUnavailable, None),
        ({"json": {"choices": []}}, ProviderUnavailable, None),
        ({"json": {"error": {"code": 429, "message": "slow down"}}}, ProviderUnavailable, None),
        ({"json": {"error": {"code": 400, "message": "bad"}}}, ProviderRejected, None),
        ({"json": {"hello": "world"}}, ProviderRejected, None),
        ({"json": [1]}, ProviderRejected, None),
        ({"json": {"choices": [{"message": {"content": 7}}]}}, ProviderRejected, None),
        ({"json": {"choices": "abc"}}, ProviderRejected, None),
    ],
)
def test_failures_are_translated(answer: dict[str, Any], error: type[ProviderError], limit_tokens: int | None) -> None:
    """Each failure is worth another try, not worth one, or above the window with its limit; it survives pickling."""
    provider = answering(**answer) if "status" not in answer else answering(answer.pop("status"), **answer)
    with pytest.raises(error) as caught:
        provider.complete(request_of())
    assert type(caught.value) is error
    assert getattr(caught.value, "limit_tokens", None) == limit_tokens
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (httpx.ConnectError("refused"), ProviderUnavailable),
        (httpx.ReadTimeout("late"), ProviderUnavailable),
        (httpx.RemoteProtocolError("cut"), ProviderUnavailable),
        (httpx.UnsupportedProtocol("ftp"), ProviderRejected),
    ],
)
def test_connection_failures_are_translated(raised: Exception, error: type[ProviderError]) -> None:
    """Errors of the connection keep their cause."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(error) as caught:
        provider_with(handler).complete(request_of())
    assert caught.value.__cause__ is raised


def test_the_providers_wish_is_passed_on() -> None:
    """Retry-After reaches whoever tries again."""
    with pytest.raises(ProviderUnavailable) as caught:
        answering(429, headers={"retry-after": "7"}).complete(request_of())
    assert caught.value.retry_after_seconds == 7.0


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("message", ["Invalid value: {content}", f"Incorrect key: {KEY}", "Bad '{content}'"])
def test_error_texts_carry_no_content_and_no_key(status: int, message: str) -> None:
    """Whatever a provider repeats of a request or its key stays out of the error."""
    text = message.format(content="PRIVATE-MARKER-4711 in a message")
    with pytest.raises(ProviderError) as caught:
        answering(status, json={"error": {"message": text, "code": "bad_thing"}}).complete(
            request_of(Entry.user("PRIVATE-MARKER-4711 in a message"))
        )
    assert f"HTTP {status}, bad_thing" in str(caught.value)
    assert "PRIVATE" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_the_key_is_not_shown() -> None:
    """Neither repr nor str of a provider holds its key."""
    provider = answering()
    assert KEY not in f"{provider!r} {provider}"


@pytest.mark.parametrize("parameters", [{"messages": []}, {"stream": True}, {"x": float("nan")}, {"x": object()}])
def test_parameters_that_cannot_be_sent_are_refused(parameters: dict[str, Any]) -> None:
    """Parameters neither replace the provider's own fields nor smuggle in what JSON cannot carry."""
    with pytest.raises(ProviderRejected):
        serialised(request_of(parameters=parameters))


@pytest.mark.parametrize("url", ["", "model.test", "ftp://model.test", "http://user:pass@model.test"])
def test_a_bad_base_url_is_refused(url: str) -> None:
    """A URL that cannot work is refused when the provider is made, without showing a password."""
    with pytest.raises(InvalidInput) as caught:
        ChatCompletions(url)
    assert "pass@" not in str(caught.value)


def test_a_client_is_built_once() -> None:
    """The client is built at its first use, and then again and again the same."""
    built: list[httpx.Client] = []

    def build() -> httpx.Client:
        built.append(httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))))
        return built[-1]

    client = ProcessClient(build)
    assert built == []
    assert client.get() is client.get()
    assert len(built) == 1
    client.close()
    assert built[0].is_closed
    assert not client.get().is_closed


@pytest.mark.parametrize("module", ["sessionlib", "sessionlib.agent", "sessionlib.catalog"])
def test_importing_the_engine_loads_no_http_and_no_tokenizer(module: str) -> None:
    """Whoever imports the engine does not pay for httpx and tiktoken."""
    code = f"import {module}, sys; sys.exit(bool({{'httpx', 'tiktoken'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
