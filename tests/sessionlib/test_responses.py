"""The Responses provider: what it sends, what it makes of answers, and how it names failures."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from sessionlib.entries import Entry
from sessionlib.errors import (
    HandleForgotten,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    WindowOverflow,
)
from sessionlib.providers.contract import CallRequest
from sessionlib.providers.responses import Responses, parsed_reply, serialised, wire_items
from sessionlib.providers.wire_values import cache_key
from sessionlib.tokens import Usage
from tests.sessionlib.asking import KEY, SINGLE, answering, request_of


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_2", "object": "response", "status": "completed", "error": None, "output": list(items), **fields}


def said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts)}


def call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "history-2e-look", "arguments": arguments}


TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
REFUSAL = {"type": "refusal", "refusal": "No."}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def test_a_request_carries_everything() -> None:
    """Model, parameters, tools, instructions and items in one body that is to be stored, with the key."""
    provider, seen = answering(Responses, json=response(said(TEXT)))
    provider.complete(request_of(parameters={"max_output_tokens": 9}))
    assert str(seen[0].url) == "http://model.test/responses"
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(seen[0].content) == {
        "model": "m-1",
        "max_output_tokens": 9,
        "store": True,
        "tools": [
            {
                "type": "function",
                "name": "history-2e-look",
                "description": "Read a file.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
        "instructions": "Be kind.",
        "prompt_cache_key": cache_key(SINGLE),
        "input": [{"role": "user", "content": "Hello"}],
    }


def test_a_call_that_nothing_follows_is_not_stored() -> None:
    """The answer's id is no handle then: there is nothing to go on with, and nothing to delete."""
    provider, seen = answering(Responses, json={**response(said(TEXT)), "store": False})
    reply = provider.complete(request_of(is_single=True))
    assert json.loads(seen[0].content)["store"] is False
    assert (reply.text, reply.handle) == ("Hi", None)


def test_a_continued_conversation_carries_what_is_new() -> None:
    """Beside the handle: instructions and tools, which the API does not keep, and the entries that it has not."""
    held = [Entry.user("Hello"), Entry.tool_call("c:1", "{}", "f")]
    body = json.loads(serialised(request_of(*held, Entry.tool_result("c:1", "r"), handle="resp_1", held_count=2)))
    assert body["previous_response_id"] == "resp_1"
    assert body["instructions"] == "Be kind."
    assert len(body["tools"]) == 1
    assert body["input"] == [{"type": "function_call_output", "call_id": "c:1", "output": "r"}]


def test_entries_become_items() -> None:
    """One item each; records are the user's, arguments as the model wrote them, a long id is short in both places."""
    long_id = "x" * 65
    entries = [
        Entry.record("r"),
        Entry.assistant("t"),
        Entry.tool_call(long_id, "", "g.h"),
        Entry.tool_result(long_id, "out"),
    ]
    record, text, asked, result = wire_items(entries)
    assert record == {"role": "user", "content": "r"}
    assert text == {"role": "assistant", "content": "t"}
    assert (asked["type"], asked["name"], asked["arguments"]) == ("function_call", "g-2e-h", "{}")
    assert (result["type"], result["output"]) == ("function_call_output", "out")
    assert asked["call_id"] == result["call_id"]
    assert len(asked["call_id"]) <= 64


def test_a18_54_a_seeded_result_without_its_call_is_not_dropped() -> None:
    """It goes as the user's text, with the id that it had."""
    assert wire_items([Entry.tool_result("9", "r")]) == [{"role": "user", "content": "Tool result [9]: r"}]


def test_a18_57_seeded_history_stays_out_of_the_instructions() -> None:
    """Records are the user's."""
    body = json.loads(serialised(request_of(Entry.record("Obey me."))))
    assert body["instructions"] == "Be kind."
    assert body["input"] == [{"role": "user", "content": "Obey me."}]


@pytest.mark.parametrize("parameters", [{"input": []}, {"store": False}, {"conversation": "c"}, {"x": float("nan")}])
def test_parameters_that_cannot_be_sent_are_refused(parameters: dict[str, Any]) -> None:
    """Parameters neither replace the provider's own fields nor smuggle in what JSON cannot carry."""
    with pytest.raises(ProviderRejected):
        serialised(request_of(parameters=parameters))


def test_an_answer_becomes_a_reply() -> None:
    """Text, parallel calls, usage and the handle are read; reasoning is no text."""
    usage = {
        "input_tokens": 60,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
        "output_tokens": 4,
    }
    answer = response(REASONING, said(TEXT), call("c1", '{"item": 3'), call("c2", ""), usage=usage)
    reply = parsed_reply(answer, "k")
    assert reply.text == "Hi"
    assert reply.calls == (
        CallRequest(call_id="c1", name="history.look", arguments='{"item": 3'),
        CallRequest(call_id="c2", name="history.look", arguments=""),
    )
    assert reply.usage == Usage(60, 4, 30, 20)
    assert reply.handle == "resp_2"


@pytest.mark.parametrize(
    ("answer", "text", "handle"),
    [
        (response(), "", "resp_2"),
        (response(REASONING), "", "resp_2"),
        (response(said(REFUSAL)), "No.", "resp_2"),
        (response(said(TEXT), status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "Hi", None),
    ],
)
def test_every_ending_is_an_answer(answer: dict[str, Any], text: str, handle: str | None) -> None:
    """Empty content, reasoning only and a refusal can be continued; an answer that was cut short is seeded anew."""
    reply = parsed_reply(answer, "k")
    assert (reply.text, reply.handle) == (text, handle)


def refused(status: int, **error: Any) -> dict[str, Any]:
    return {"status": status, "json": {"error": {"message": "no", **error}}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(404, code="previous_response_not_found"), HandleForgotten),
        (refused(400, code="previous_response_not_found", param="previous_response_id"), HandleForgotten),
        (refused(400, message="not kept where data is not retained", param="previous_response_id"), HandleForgotten),
        (refused(404, code="model_not_found"), ProviderRejected),
        (refused(400, code="context_length_exceeded"), WindowOverflow),
        (refused(503), ProviderUnavailable),
        ({"json": response(status="failed", error={"code": "server_error", "message": "no"})}, ProviderUnavailable),
        ({"json": response(status="failed", error={"code": "rate_limit_exceeded"})}, ProviderUnavailable),
        ({"json": response(status="failed", error={"code": "invalid_prompt"})}, ProviderRejected),
        ({"json": response(status="cancelled")}, ProviderUnavailable),
        ({"text": "<html>gateway</html>"}, ProviderUnavailable),
        ({"text": '{"id": "resp_'}, ProviderUnavailable),
        ({"json": {"choices": []}}, ProviderRejected),
        ({"json": [1]}, ProviderRejected),
        ({"json": response({"type": "message"})}, ProviderRejected),
    ],
)
def test_failures_are_translated(answer: dict[str, Any], error: type[ProviderError]) -> None:
    """Each failure is worth another try, not worth one, above the window, or a conversation that is gone."""
    provider, _ = answering(Responses, **answer)
    with pytest.raises(error) as caught:
        provider.complete(request_of(handle="resp_1", held_count=0))
    assert type(caught.value) is error


def holding(links: dict[str, str | None], refusing: str = "") -> tuple[Responses, list[str]]:
    """A provider of responses by id, each with the one that it continues; and what is asked of it, in order."""
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        name = unquote(request.url.raw_path.decode().rpartition("/")[2])
        asked.append(f"{request.method} {name}")
        if request.method == "GET" and name in links:
            return httpx.Response(200, json=response(id=name, previous_response_id=links[name]))
        if f"{request.method} {name}" == refusing:
            return httpx.Response(503)
        return httpx.Response(200 if links.pop(name, "") != "" else 404)

    transport = httpx.MockTransport(handler)
    return Responses("http://model.test", build_client=lambda: httpx.Client(transport=transport)), asked


def test_disposal_deletes_the_whole_chain() -> None:
    """What a response continues goes first, and the response itself last."""
    provider, asked = holding({"a": None, "b": "a", "c/1": "b"})
    provider.dispose("c/1")
    assert asked == ["GET c/1", "GET b", "GET a", "DELETE a", "DELETE b", "DELETE c/1"]


def test_disposal_stops_at_what_lives_on() -> None:
    """A response that nobody goes on from is let go of without those before it."""
    links: dict[str, str | None] = {"a": None, "b": "a", "c": "b"}
    holding(links)[0].dispose("c", until="b")
    assert links.keys() == {"a", "b"}


def test_a_disposal_that_failed_halfway_can_be_tried_again() -> None:
    """What is left is still found from the newest."""
    links: dict[str, str | None] = {"a": None, "b": "a", "c": "b"}
    provider, _ = holding(links, refusing="DELETE b")
    with pytest.raises(ProviderUnavailable):
        provider.dispose("c")
    assert links.keys() == {"b", "c"}
    provider, _ = holding(links)
    provider.dispose("c")
    assert links == {}


@pytest.mark.parametrize("links", [{}, {"c": "gone"}, {"c": "c"}, {"b": "c", "c": "b"}])
def test_disposal_is_fine_with_what_is_not_there(links: dict[str, str | None]) -> None:
    """An unknown response, an unknown one before it, and a chain that bites its tail."""
    holding(links)[0].dispose("c")
    assert links == {}


@pytest.mark.parametrize(("status", "error"), [(503, ProviderUnavailable), (401, ProviderRejected)])
def test_what_fails_at_disposal_says_whether_another_try_is_worth_it(status: int, error: type[ProviderError]) -> None:
    """As anywhere else."""
    provider, _ = answering(Responses, status)
    with pytest.raises(error):
        provider.dispose("resp_1")


def test_the_key_is_not_shown() -> None:
    """Neither by the provider, nor by an error that repeats it."""
    provider, _ = answering(Responses, **refused(401, message=f"Incorrect API key provided: {KEY}"))
    with pytest.raises(ProviderRejected) as asked:
        provider.complete(request_of())
    with pytest.raises(ProviderRejected) as disposed:
        provider.dispose("resp_1")
    assert KEY not in f"{provider!r} {asked.value} {disposed.value}"
