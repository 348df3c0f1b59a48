"""The fake provider server, driven by the official clients: it is not merely what our adapters expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from typing_extensions import get_type_hints

from sessionlib.testing.known_keys import KNOWN_KEYS
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.official import KINDS, fault_in

HISTORY_CALL = {"text": "Looking", "calls": [{"call_id": "c1", "name": "look", "arguments": '{"path": "a"}'}]}
LONG = "Go on with it. " * 400
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProviderServer]:
    with FakeProviderServer(check=fault_in) as server:
        yield server


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.change(window_tokens=128_000, reported_window_tokens=0)
    return running


@pytest.fixture
def openai_client(server: FakeProviderServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(server: FakeProviderServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def named(session: str) -> dict[str, str]:
    return {"X-Session-Id": session, "Idempotency-Key": f"{session}/t/model:0"}


def test_chat_completions(openai_client: openai.OpenAI) -> None:
    """Text and usage."""
    completion = openai_client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
    assert completion.choices[0].message.content == "Acknowledged: Hello"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > 0


def test_messages(server: FakeProviderServer, anthropic_client: anthropic.Anthropic) -> None:
    """A call, its result and the answer, all of it with cached tokens."""
    server.record("sdk", {"answers": {"sdk/t/model:0": HISTORY_CALL}})
    tool: Any = {"name": "look", "description": "Read", "input_schema": SCHEMA}
    ask: Any = {"role": "user", "content": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]}
    message = anthropic_client.messages.create(
        model="m", max_tokens=100, system="Be kind", tools=[tool], messages=[ask], extra_headers=named("sdk")
    )
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.usage.cache_creation_input_tokens
    result: Any = {"type": "tool_result", "tool_use_id": "c1", "content": "a is empty"}
    reply: Any = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    server.forget_recording("sdk")
    final = anthropic_client.messages.create(
        model="m", max_tokens=100, tools=[tool], messages=[ask, reply, {"role": "user", "content": [result]}]
    )
    assert final.stop_reason == "end_turn"
    assert final.content[0].type == "text"
    assert final.content[0].text == "Acknowledged: a is empty"


def test_responses(server: FakeProviderServer, openai_client: openai.OpenAI) -> None:
    """A conversation that the server holds, with a call; then it is deleted."""
    server.record("sdk2", {"answers": {"sdk2/t/model:0": HISTORY_CALL}})
    tool: Any = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
    first = openai_client.responses.create(model="m", input="Go", tools=[tool], extra_headers=named("sdk2"))
    assert [item.type for item in first.output] == ["message", "function_call"]
    server.forget_recording("sdk2")
    result: Any = {"type": "function_call_output", "call_id": "c1", "output": "a is empty"}
    second = openai_client.responses.create(model="m", input=[result], previous_response_id=first.id, tools=[tool])
    assert second.output_text == "Acknowledged: a is empty"
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    openai_client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.delete(first.id)
    third = openai_client.responses.create(model="m", input="On", previous_response_id=second.id)
    assert third.output_text == "Acknowledged: On"


def test_an_unknown_previous_response(openai_client: openai.OpenAI) -> None:
    """404, with OpenAI's code."""
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.responses.create(model="m", input="On", previous_response_id="resp_none")
    assert caught.value.code == "previous_response_not_found"


def test_responses_are_lost_over_http(server: FakeProviderServer, openai_client: openai.OpenAI) -> None:
    """One of them, or all."""
    handles = [openai_client.responses.create(model="m", input=text).id for text in ("a", "b", "c")]
    httpx.post(f"{server.url}/forget", json={"handles": handles[:1]}).raise_for_status()
    assert set(handles) & set(server.responses.handles) == set(handles[1:])
    httpx.post(f"{server.url}/forget", json={}).raise_for_status()
    assert server.responses.handles == ()


def test_what_is_not_to_be_stored_is_not(server: FakeProviderServer, openai_client: openai.OpenAI) -> None:
    """A response with `store: false` cannot be continued."""
    response = openai_client.responses.create(model="m", input="Go", store=False)
    assert response.id not in server.responses.handles


def test_chat_completions_are_streamed(server: FakeProviderServer, openai_client: openai.OpenAI) -> None:
    """The client puts the pieces together: text, a call, usage."""
    server.record("sdk3", {"answers": {"sdk3/t/model:0": HISTORY_CALL}})
    with openai_client.chat.completions.stream(
        model="m",
        messages=[{"role": "user", "content": "Go"}],
        tools=[{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        stream_options={"include_usage": True},
        extra_headers=named("sdk3"),
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        completion = stream.get_final_completion()
    server.forget_recording("sdk3")
    message = completion.choices[0].message
    assert message.content == "".join(pieces) == "Looking"
    assert len(pieces) > 1
    assert [call.function.arguments for call in message.tool_calls or []] == ['{"path": "a"}']
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0


def test_messages_are_streamed(server: FakeProviderServer, anthropic_client: anthropic.Anthropic) -> None:
    """Thinking with its signature, text and a call; the thinking can be sent back, but not changed."""
    server.record("sdk4", {"answers": {"sdk4/t/model:0": {**HISTORY_CALL, "reasoning": "Let me see: 你好."}}})
    tool: Any = {"name": "look", "description": "Read", "input_schema": SCHEMA}
    ask: Any = {"role": "user", "content": "Go"}
    with anthropic_client.messages.stream(
        model="m", max_tokens=100, tools=[tool], messages=[ask], extra_headers=named("sdk4")
    ) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    server.forget_recording("sdk4")
    assert "".join(pieces) == "Looking"
    thinking, text, call = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Let me see: 你好."
    assert (text.type, call.type) == ("text", "tool_use")
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 1
    reply: Any = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "empty"}]}
    answered = anthropic_client.messages.create(model="m", max_tokens=9, messages=[ask, reply, result])
    assert answered.stop_reason == "end_turn"
    reply["content"][0]["thinking"] = "Something else."
    with pytest.raises(anthropic.BadRequestError, match="signature"):
        anthropic_client.messages.create(model="m", max_tokens=9, messages=[ask, reply, result])


def test_responses_are_streamed(server: FakeProviderServer, openai_client: openai.OpenAI) -> None:
    """Sealed reasoning, text and a call; what was streamed is held like any other response."""
    server.record("sdk5", {"answers": {"sdk5/t/model:0": {**HISTORY_CALL, "reasoning": "Let me see."}}})
    with openai_client.responses.stream(
        model="m", input="Go", include=["reasoning.encrypted_content"], extra_headers=named("sdk5")
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    server.forget_recording("sdk5")
    assert response.output_text == "".join(pieces) == "Looking"
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert openai_client.responses.retrieve(response.id).output_text == "Looking"
    result: Any = {"type": "function_call_output", "call_id": "c1", "output": "a is empty"}
    following = openai_client.responses.create(model="m", input=[result], previous_response_id=response.id)
    assert following.output_text == "Acknowledged: a is empty"
    assert following.previous_response_id == response.id
    sent: list[Any] = [item.model_dump(exclude_none=True) for item in response.output]
    again = openai_client.responses.create(model="m", input=[{"role": "user", "content": "Go"}, *sent, result])
    assert again.output_text == "Acknowledged: a is empty"


def test_reasoning_that_was_tampered_with_is_refused(openai_client: openai.OpenAI) -> None:
    """Nor is it taken without what it led to."""
    reasoning: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "bm8="}
    following: Any = {"role": "assistant", "content": "Hi"}
    asked: Any = {"role": "user", "content": "Go"}
    with pytest.raises(openai.BadRequestError, match="encrypted content"):
        openai_client.responses.create(model="m", input=[asked, reasoning, following, asked])
    del reasoning["encrypted_content"]
    with pytest.raises(openai.BadRequestError, match="required following item"):
        openai_client.responses.create(model="m", input=[asked, reasoning, asked])


def test_streams_break_as_the_clients_know_it(
    server: FakeProviderServer, openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic
) -> None:
    """An error inside a stream is the vendor's own; a connection that ends is one of the connection."""
    ask: Any = [{"role": "user", "content": "Go"}]
    server.fail("error_event", count=3)
    with pytest.raises(anthropic.APIStatusError, match="a failure was asked for"):
        list(anthropic_client.messages.create(model="m", max_tokens=9, messages=ask, stream=True))
    with pytest.raises(openai.APIError, match="a failure was asked for"):
        list(openai_client.chat.completions.create(model="m", messages=ask, stream=True))
    *_, last = openai_client.responses.create(model="m", input="Go", stream=True)
    assert last.type == "error"  # this one the client leaves to its user
    server.fail("cut")
    with pytest.raises(openai.APIError, match=r"peer closed|Connection error"):
        list(openai_client.chat.completions.create(model="m", messages=ask, stream=True))


def test_breakpoints_are_where_a_cache_ends(anthropic_client: anthropic.Anthropic) -> None:
    """What stands before one is written, then read; a prompt without any is not cached."""
    marked: Any = {"type": "text", "text": f"Cached. {LONG}", "cache_control": {"type": "ephemeral"}}
    more: Any = {"type": "text", "text": "And this?"}

    def usage(*blocks: Any) -> tuple[int | None, int | None]:
        message = anthropic_client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": list(blocks)}]
        )
        return message.usage.cache_creation_input_tokens, message.usage.cache_read_input_tokens

    written, read = usage(marked)
    assert written is not None
    assert (written > 1_024, read) == (True, 0)
    assert usage(marked, more) == (0, written)
    assert usage({**marked, "cache_control": None}) == (0, 0)


def test_failures_have_the_clients_own_classes(
    server: FakeProviderServer, openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic
) -> None:
    """Each vendor's client knows the errors as its own."""
    server.fail(429, count=2, retry_after_seconds=3)
    with pytest.raises(openai.RateLimitError) as limited:
        openai_client.responses.create(model="m", input="Go")
    assert limited.value.response.headers["retry-after"] == "3"
    with pytest.raises(anthropic.RateLimitError):
        anthropic_client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Go"}])
    server.fail(529)
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        anthropic_client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Go"}])
    assert overloaded.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "a failure was asked for"},
    }


@pytest.mark.parametrize("api", ["chat/completions", "messages", "responses"])
def test_unknown_keys_are_refused(server: FakeProviderServer, api: str) -> None:
    """Neither at the top nor inside a message may be what the official client's types do not have."""
    whole = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    if api == "responses":
        whole = {"model": "m", "input": [{"role": "user", "content": "x"}]}
    inside = {**whole, "messages": [{"role": "user", "content": "x", "more": 1}]}
    if api == "responses":
        inside = {"model": "m", "input": [{"role": "user", "content": "x", "more": 1}]}
    statuses = [
        httpx.post(f"{server.base_url}/{api}", json=body, headers={"anthropic-version": "x"}).status_code
        for body in (whole, {**whole, "more": 1}, inside)
    ]
    assert statuses == [200, 400, 400]


@pytest.mark.parametrize("api", KINDS)
def test_the_servers_own_lists_of_keys_are_those_of_the_clients(api: str) -> None:
    """Without the clients it refuses the same keys: whoever takes in a new version of one reads its types again."""
    assert KNOWN_KEYS[api] == {name for kind in KINDS[api] for name in get_type_hints(kind)}


def test_models_tell_of_themselves(
    server: FakeProviderServer, openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic
) -> None:
    """One by one and all together; a window only where one is reported: what is no field of the client's is kept."""
    assert openai_client.models.retrieve("m/1").model_extra == {}
    assert anthropic_client.models.retrieve("m/1").max_input_tokens is None
    server.change(reported_window_tokens=16_000)
    named, listed = openai_client.models.retrieve("m/1"), list(openai_client.models.list())
    assert (named.id, [model.id for model in listed]) == ("m/1", ["fake"])
    assert [model.model_extra for model in (named, *listed)] == [{"context_length": 16_000}] * 2
    told, page = anthropic_client.models.retrieve("m/1"), list(anthropic_client.models.list(limit=10))
    assert (told.id, [model.id for model in page]) == ("m/1", ["fake"])
    assert [model.max_input_tokens for model in (told, *page)] == [16_000] * 2


CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "r"}
TEXT = {"type": "text", "text": "x"}
MARKED = {**TEXT, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("turns", "is_accepted"),
    [
        ([("user", [TEXT])], True),
        ([("user", [TEXT]), ("assistant", [CALL]), ("user", [RESULT, TEXT])], True),
        ([("user", [MARKED] * 4)], True),
        ([], False),
        ([("user", [MARKED] * 5)], False),
        ([("user", [{"type": "text", "text": " "}])], False),
        ([("assistant", [TEXT]), ("user", [TEXT])], False),
        ([("user", [TEXT]), ("assistant", [TEXT])], False),
        ([("user", [TEXT]), ("assistant", [CALL]), ("user", [TEXT])], False),
        ([("user", [TEXT]), ("assistant", [CALL]), ("user", [TEXT, RESULT])], False),
        ([("user", [RESULT])], False),
        (
            [("user", [TEXT]), ("assistant", [{**CALL, "id": "a b"}]), ("user", [{**RESULT, "tool_use_id": "a b"}])],
            False,
        ),
        ([("robot", [TEXT])], False),
    ],
)
def test_broken_messages_are_refused(server: FakeProviderServer, turns: list[Any], is_accepted: bool) -> None:
    """What the Messages API does not take."""
    messages = [{"role": role, "content": blocks} for role, blocks in turns]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    response = httpx.post(f"{server.base_url}/messages", json=body, headers={"anthropic-version": "x"})
    assert response.status_code == (200 if is_accepted else 400)


def test_a_version_is_required(server: FakeProviderServer) -> None:
    """As the Messages API does."""
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    assert httpx.post(f"{server.base_url}/messages", json=body).status_code == 400


def test_thinking_with_a_budget_wants_its_blocks_back(server: FakeProviderServer) -> None:
    """In the tool loop the message with the calls must begin with them."""
    loop = [("user", [TEXT]), ("assistant", [CALL]), ("user", [RESULT])]
    messages = [{"role": role, "content": blocks} for role, blocks in loop]
    body = {"model": "m", "max_tokens": 9_000, "messages": messages}
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    with httpx.Client(base_url=server.base_url, headers={"anthropic-version": "x"}) as client:
        assert client.post("messages", json=body).status_code == 200
        assert client.post("messages", json={**body, "thinking": thinking}).status_code == 400


ASKED = {"role": "user", "content": "u"}
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "r"}


@pytest.mark.parametrize(
    ("items", "is_accepted"),
    [
        ([ASKED], True),
        ([ASKED, FUNCTION_CALL, OUTPUT, ASKED], True),
        ([], False),
        ([OUTPUT], False),
        ([ASKED, FUNCTION_CALL], False),
        ([ASKED, FUNCTION_CALL, OUTPUT, OUTPUT], False),
        ([{"type": "noise"}], False),
        ([{"role": "robot", "content": "x"}], False),
    ],
)
def test_broken_items_are_refused(server: FakeProviderServer, items: list[Any], is_accepted: bool) -> None:
    """What the Responses API does not take."""
    response = httpx.post(f"{server.base_url}/responses", json={"model": "m", "input": items})
    assert response.status_code == (200 if is_accepted else 400)
