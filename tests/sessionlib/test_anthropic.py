"""The Anthropic provider: what it sends, what it makes of answers, and how it names failures."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.errors import ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.anthropic import (
    API_VERSION,
    BLANK,
    DEFAULT_MAX_TOKENS,
    EFFORTS,
    OPENING,
    Anthropic,
    parsed_reply,
    serialised,
    wire_messages,
)
from sessionlib.providers.contract import CallRequest, ModelRequest
from sessionlib.providers.wire_values import REFUSED
from sessionlib.testing.observations import Prompt
from sessionlib.tokens import Usage
from tests.sessionlib.asking import KEY, answering, request_of

MARK = {"cache_control": {"type": "ephemeral"}}
CALLS = [Entry.tool_call("1", '{"a": 1}', "f"), Entry.tool_call("2", "", "g.h")]
RESULTS = [Entry.tool_result("2", "r2"), Entry.tool_result("1", " ")]


def message(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": "end_turn", **fields}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "history-2e-look", "input": arguments}


def test_a_request_carries_everything() -> None:
    """Model, limit, parameters, tools, instructions and messages in one body, with key, version and idempotency key."""
    provider, seen = answering(Anthropic, json=message(text("Hi")))
    provider.complete(request_of(parameters={"top_k": 5}))
    assert str(seen[0].url) == "http://model.test/v1/messages"
    assert seen[0].headers["x-api-key"] == KEY
    assert seen[0].headers["anthropic-version"] == API_VERSION
    assert seen[0].headers["idempotency-key"] == "team/single/t1/model:0"
    assert json.loads(seen[0].content) == {
        "model": "m-1",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "top_k": 5,
        "tools": [{"name": "history-2e-look", "description": "Read a file.", "input_schema": {"type": "object"}}],
        "system": [{**text("Be kind."), **MARK}],
        "messages": [{"role": "user", "content": [{**text("Hello"), **MARK}]}],
    }


@pytest.mark.parametrize(
    ("entries", "turns"),
    [
        ([Entry.record("r"), Entry.user("a")], [("user", [text("r"), text("a")])]),
        ([Entry.user("a"), Entry.assistant(" "), Entry.user("b")], [("user", [text("a"), text("b")])]),
        ([Entry.user(" ")], [("user", [text(BLANK)])]),
        ([Entry.assistant("a")], [("user", [text(OPENING)]), ("assistant", [text("a")])]),
        (
            [Entry.user("a"), Entry.assistant("t"), *CALLS, *RESULTS, Entry.user("b")],
            [
                ("user", [text("a")]),
                (
                    "assistant",
                    [
                        text("t"),
                        {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                        {"type": "tool_use", "id": "2", "name": "g-2e-h", "input": {}},
                    ],
                ),
                (
                    "user",
                    [
                        {"type": "tool_result", "tool_use_id": "2", "content": "r2"},
                        {"type": "tool_result", "tool_use_id": "1"},
                        text("b"),
                    ],
                ),
            ],
        ),
    ],
)
def test_entries_become_messages(entries: list[Entry], turns: list[tuple[str, list[Any]]]) -> None:
    """Neighbours of one role are one message; what the API would refuse is left out or stated."""
    assert [(given["role"], given["content"]) for given in wire_messages(entries)] == turns


def test_a18_54_a_seeded_result_without_its_call_is_not_dropped() -> None:
    """It goes as the user's text, with the id that it had."""
    (only,) = wire_messages([Entry.tool_result("9", "r")])
    assert only == {"role": "user", "content": [text("Tool result [9]: r")]}


def test_a18_57_seeded_history_stays_out_of_the_system_channel() -> None:
    """Records are the user's; the system prompt is the instructions and nothing else."""
    body = json.loads(serialised(request_of(Entry.record("Obey me."), Entry.user("Hello"))))
    assert [block["text"] for block in body["system"]] == ["Be kind."]


@pytest.mark.parametrize(
    "arguments", ["not JSON", "[1]", '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "[" * 9_999]
)
def test_arguments_that_are_no_object_are_sent_as_one(arguments: str) -> None:
    """As the API's guide says, so that history of any kind can be sent."""
    body = json.loads(serialised(request_of(Entry.user("a"), Entry.tool_call("1", arguments, "f"))))
    assert body["messages"][1]["content"][0]["input"] == {"INVALID_JSON": arguments}


def marked(request: ModelRequest) -> list[str]:
    """Texts of the blocks that carry a breakpoint, in the order of the prompt."""
    body = json.loads(serialised(request))
    blocks = [*body.get("tools", []), *body.get("system", []), *chain(*(m["content"] for m in body["messages"]))]
    return [block.get("text") or block.get("content") or block["name"] for block in blocks if "cache_control" in block]


def test_breakpoints_stand_where_what_is_cached_ends() -> None:
    """Tools and system, records, the request before this one, and this one: four at most."""
    records = [Entry.record("r1"), Entry.record("r2")]
    rounds = [Entry.user("a"), Entry.assistant("b"), Entry.user("c"), Entry.assistant("d"), Entry.user("e")]
    assert marked(request_of(*records, *rounds)) == ["Be kind.", "r2", "c", "e"]
    assert marked(request_of(*rounds[:1], instructions="")) == ["history-2e-look", "a"]
    assert marked(request_of(*rounds[:1], instructions="", tools=())) == ["a"]


def test_results_that_cannot_be_marked_are_passed_over() -> None:
    """Empty ones, however many end the request: what was cached before them is still found."""
    rounds = [(Entry.tool_call(f"c{n}", "{}", "f"), Entry.tool_result(f"c{n}", text)) for n, text in enumerate("abc")]
    empty = [(Entry.tool_call(f"e{n}", "{}", "f"), Entry.tool_result(f"e{n}", "")) for n in range(2)]
    assert marked(request_of(Entry.user("u"), *chain(*rounds, *empty))) == ["Be kind.", "b", "c"]


def tool_round(value: str) -> list[Entry]:
    thought = [Entry.assistant(value)] if len(value) % 2 else []
    calls = [Entry.tool_call("1", value, "f"), Entry.tool_call("2", "{}", "g")]
    return [*thought, *calls, Entry.tool_result("2", value), Entry.tool_result("1", "")]


def turn_of(texts: list[str]) -> list[list[Entry]]:
    """A turn's rounds: those with tools, then the answer. The message belongs to the first."""
    first, *others = [*(tool_round(value) for value in texts), [Entry.assistant("Done.")]]
    return [[Entry.user("Go on"), *first], *others]


TURNS = st.lists(st.lists(st.text(max_size=5), max_size=3).map(turn_of), min_size=1, max_size=4)


@given(turns=TURNS, cut=st.integers(1, 16))
def test_a_longer_history_extends_the_blocks(turns: list[list[list[Entry]]], cut: int) -> None:
    """Appending rounds leaves every block of the request before it, and all that precedes the messages."""
    rounds = [entries for turn in turns for entries in turn]
    shorter, longer = (
        json.loads(serialised(request_of(*chain.from_iterable(part)))) for part in (rounds[:cut], rounds)
    )
    assert blockwise(longer).first_difference(blockwise(shorter)) is None


def blockwise(body: dict[str, Any]) -> Prompt:
    flat = [{**block, "role": turn["role"]} for turn in body["messages"] for block in turn["content"]]
    return Prompt.of({**body, "messages": flat})


@pytest.mark.parametrize(
    ("parameters", "max_tokens"),
    [
        ({}, DEFAULT_MAX_TOKENS),
        ({"max_tokens": 9}, 9),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, DEFAULT_MAX_TOKENS + 2_000),
        (EFFORTS["high"], DEFAULT_MAX_TOKENS),
    ],
)
def test_the_limit_is_the_agents_or_stated(parameters: dict[str, Any], max_tokens: int) -> None:
    """The API requires one; a thinking budget has to fit in it."""
    assert json.loads(serialised(request_of(parameters=parameters)))["max_tokens"] == max_tokens


def test_a_thinking_budget_pauses_in_the_tool_loop() -> None:
    """The API would want the thinking that came before the calls back; adaptive thinking goes on."""
    entries = [Entry.user("a"), *CALLS, *RESULTS]
    budget = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    assert "thinking" in json.loads(serialised(request_of(Entry.user("a"), parameters=budget)))
    assert "thinking" not in json.loads(serialised(request_of(*entries, parameters=budget)))
    assert "thinking" in json.loads(serialised(request_of(*entries, parameters=EFFORTS["low"])))


@pytest.mark.parametrize("parameters", [{"system": "x"}, {"stream": True}, {"cache_control": {}}, {"x": float("nan")}])
def test_parameters_that_cannot_be_sent_are_refused(parameters: dict[str, Any]) -> None:
    """Parameters neither replace the provider's own fields nor smuggle in what JSON cannot carry."""
    with pytest.raises(ProviderRejected):
        serialised(request_of(parameters=parameters))


def test_an_answer_becomes_a_reply() -> None:
    """Text, parallel calls and usage are read; thinking is no text; the prompt is all that was read or written."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
        "output_tokens": 4,
    }
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("Look"), text("ing")]
    calls = [tool_use("c1", {"item": 3}), tool_use("c2", {})]
    reply = parsed_reply(message(*blocks, *calls, stop_reason="tool_use", usage=usage), "k")
    assert reply.text == "Looking"
    assert reply.calls == (
        CallRequest(call_id="c1", name="history.look", arguments='{"item": 3}'),
        CallRequest(call_id="c2", name="history.look", arguments="{}"),
    )
    assert reply.usage == Usage(60, 4, 30, 20)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [(None, None), ({"input_tokens": -1}, None), ({"input_tokens": 7, "cache_read_input_tokens": None}, Usage(7))],
)
def test_usage_is_read_or_absent(usage: Any, expected: Usage | None) -> None:
    """A report that makes no sense is no report."""
    assert parsed_reply(message(usage=usage), "k").usage == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (message(), ""),
        (message({"type": "thinking", "thinking": "hm", "signature": "s"}), ""),
        (message(text("\ud800")), "\ufffd"),
        (message(stop_reason="refusal"), REFUSED),
        (message(stop_reason="refusal", stop_details={"type": "refusal", "explanation": "No."}), "No."),
        (message(text("I will not."), stop_reason="refusal"), "I will not."),
        (message(text("It is"), stop_reason="max_tokens"), "It is"),
    ],
)
def test_every_ending_is_an_answer(answer: dict[str, Any], expected: str) -> None:
    """Empty content, reasoning only, refusals and answers that were cut short."""
    assert parsed_reply(answer, "k").text == expected


def test_a_call_that_was_cut_short_does_not_parse() -> None:
    """No tool runs on half of its arguments; those of the calls before it are whole."""
    calls = [tool_use("c1", {"path": "a"}), tool_use("c2", {"path": "b"})]
    first, second = parsed_reply(message(*calls, stop_reason="max_tokens"), "k").calls
    assert json.loads(first.arguments) == {"path": "a"}
    assert second.arguments == '{"path": "b"'


def refused(status: int, kind: str, said: str = "no") -> dict[str, Any]:
    return {"status": status, "json": {"type": "error", "error": {"type": kind, "message": said}}}


@pytest.mark.parametrize(
    ("answer", "error", "limit_tokens"),
    [
        (
            refused(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            WindowOverflow,
            200_000,
        ),
        (
            refused(
                400,
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000, decrease one of them",
            ),
            WindowOverflow,
            191_808,
        ),
        (refused(400, "invalid_request_error"), ProviderRejected, None),
        (refused(401, "authentication_error"), ProviderRejected, None),
        (refused(413, "request_too_large"), ProviderRejected, None),
        (refused(429, "rate_limit_error"), ProviderUnavailable, None),
        (refused(500, "api_error"), ProviderUnavailable, None),
        (refused(529, "overloaded_error"), ProviderUnavailable, None),
        (refused(200, "overloaded_error"), ProviderUnavailable, None),
        (refused(200, "invalid_request_error"), ProviderRejected, None),
        ({"status": 200, "text": "<html>gateway</html>"}, ProviderUnavailable, None),
        ({"status": 200, "text": '{"type": "mess'}, ProviderUnavailable, None),
        ({"status": 200, "json": {"choices": []}}, ProviderRejected, None),
        ({"status": 200, "json": [1]}, ProviderRejected, None),
        ({"status": 200, "json": {"content": [{"type": "text"}]}}, ProviderRejected, None),
    ],
)
def test_failures_are_translated(answer: dict[str, Any], error: type[ProviderError], limit_tokens: int | None) -> None:
    """Each failure is worth another try, not worth one, or above the window with its limit."""
    provider, _ = answering(Anthropic, **answer)
    with pytest.raises(error) as caught:
        provider.complete(request_of())
    assert type(caught.value) is error
    assert getattr(caught.value, "limit_tokens", None) == limit_tokens


def test_the_key_is_not_shown() -> None:
    """Neither by the provider, nor by an error that repeats it."""
    provider, _ = answering(Anthropic, **refused(401, "authentication_error", f"invalid x-api-key {KEY}"))
    with pytest.raises(ProviderRejected) as caught:
        provider.complete(request_of())
    assert KEY not in f"{provider!r} {caught.value}"
