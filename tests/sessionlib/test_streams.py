"""Streamed answers: they come to what the plain answer says, whatever way their bytes come in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.errors import HandleForgotten, ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.providers.responses import Responses
from sessionlib.providers.streams import told_apart
from sessionlib.providers.wire_values import REFUSED
from sessionlib.testing.answers import Answer
from sessionlib.testing.chat_api import ChatApi
from sessionlib.testing.messages_api import MessagesApi
from sessionlib.testing.observations import Spent
from sessionlib.testing.responses_api import ResponsesApi
from sessionlib.testing.wire import WireApi
from sessionlib.tokens import Usage
from tests.sessionlib.asking import request_of

APIS: Mapping[str, tuple[type[ApiProvider], WireApi]] = {
    "chat_completions": (ChatCompletions, ChatApi()),
    "anthropic": (Anthropic, MessagesApi()),
    "responses": (Responses, ResponsesApi()),
}
EACH = pytest.mark.parametrize("name", APIS)

CHAT = (
    ": keep-alive",
    'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Grö"},"finish_reason":null}]}',
    ": PROCESSING",
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"ße"},"finish_reason":null}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function",'
    '"function":{"name":"look","arguments":""}}]},"finish_reason":null}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\""}}]}}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c2","type":"function",'
    '"function":{"name":"add","arguments":"{}"}}]}}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}',
    'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
    'data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,'
    '"prompt_tokens_details":{"cached_tokens":4}}}',
    "data: [DONE]",
)
MESSAGES = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
    '"content":[],"stop_reason":null,"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":1}}}',
    'event: ping\ndata: {"type":"ping"}',
    'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    '"content_block":{"type":"text","text":""}}',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    '"delta":{"type":"text_delta","text":"Grö"}}',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    '"delta":{"type":"text_delta","text":"ße"}}',
    'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}',
    'event: content_block_start\ndata: {"type":"content_block_start","index":1,'
    '"content_block":{"type":"tool_use","id":"c1","name":"look","input":{}}}',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
    '"delta":{"type":"input_json_delta","partial_json":""}}',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
    '"delta":{"type":"input_json_delta","partial_json":"{\\"a\\""}}',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,'
    '"delta":{"type":"input_json_delta","partial_json":": 1}"}}',
    'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}',
    'event: content_block_start\ndata: {"type":"content_block_start","index":2,'
    '"content_block":{"type":"tool_use","id":"c2","name":"add","input":{}}}',
    'event: content_block_stop\ndata: {"type":"content_block_stop","index":2}',
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},'
    '"usage":{"output_tokens":3}}',
    'event: novelty\ndata: {"type":"novelty"}',
    'event: message_stop\ndata: {"type":"message_stop"}',
)
RESPONSE = (
    '{"id":"r","status":"%s","error":null,"output":[{"type":"message","role":"assistant","content":'
    '[{"type":"output_text","text":"Größe"}]},{"type":"function_call","call_id":"c1","name":"look",'
    '"arguments":"{\\"a\\":1}"},{"type":"function_call","call_id":"c2","name":"add","arguments":"{}"}],'
    '"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}}'
)
RESPONSES = (
    'event: response.created\ndata: {"type":"response.created","response":{"id":"r","status":"in_progress"}}',
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"Grö"}',
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"ße"}',
    "event: response.function_call_arguments.delta\n"
    'data: {"type":"response.function_call_arguments.delta","delta":"{\\"a\\":1}"}',
    f'event: response.completed\ndata: {{"type":"response.completed","response":{RESPONSE % "completed"}}}',
)
STREAMS: Mapping[str, Sequence[str]] = {"chat_completions": CHAT, "anthropic": MESSAGES, "responses": RESPONSES}
"""Streams as the vendors' references show them, with what else may come: comments, pings, events nobody knows."""

TELLING = {"chat_completions": 2, "anthropic": 1, "responses": 0}
"""How many events at the end of a stream tell only that it ended, and what it cost."""


class Bytes(httpx.SyncByteStream):
    """A body that comes in pieces of so many bytes."""

    def __init__(self, body: bytes, size: int) -> None:
        self._body, self._size = body, size

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), self._size):
            yield self._body[start : start + self._size]


def streaming(
    name: str,
    body: bytes,
    size: int = 1_000_000,
    seen: list[Any] | None = None,
    content_type: str = "text/event-stream",
) -> ApiProvider:
    """A provider whose answers are all the same stream."""
    named = {"content-type": content_type} if content_type else {}

    def handler(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(json.loads(request.content))
        return httpx.Response(200, headers=named, stream=Bytes(body, size))

    return APIS[name][0]("http://model.test", build_client=lambda: httpx.Client(transport=httpx.MockTransport(handler)))


def plain(name: str, answer: Any) -> ApiProvider:
    """A provider whose answers are all the same, and no stream."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
    return APIS[name][0]("http://model.test", build_client=lambda: httpx.Client(transport=transport))


def body_of(events: Sequence[str], ending: str = "\n\n") -> bytes:
    return "".join(f"{event}{ending}" for event in events).encode()


def heard(provider: ApiProvider, request: Any = None) -> tuple[ModelReply, list[str]]:
    pieces: list[str] = []
    return provider.complete(request or request_of(), pieces.append), pieces


@EACH
def test_a_stream_comes_to_a_reply(name: str) -> None:
    """Text, parallel calls with arguments in pieces, and usage; the text is passed on as it comes."""
    reply, pieces = heard(streaming(name, body_of(STREAMS[name])))
    assert pieces == ["Grö", "ße"]
    assert reply.text == "Größe"
    assert [(call.call_id, call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("c1", "look", {"a": 1}),
        ("c2", "add", {}),
    ]
    assert reply.usage == Usage(9, 3, 4)


@EACH
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("ending", ["\n\n", "\r\n\r\n"])
def test_bytes_may_come_in_any_pieces(name: str, size: int, ending: str) -> None:
    """Lines, events and characters are cut anywhere."""
    body = body_of(STREAMS[name], ending)
    assert heard(streaming(name, body, size))[0] == heard(streaming(name, body_of(STREAMS[name])))[0]


@EACH
@pytest.mark.parametrize("content_type", ["text/plain", "application/json", ""])
@pytest.mark.parametrize("size", [1, 3, 1_000_000])
@pytest.mark.parametrize("beginning", [b"", b"\n\n", b"retry: 10\n\n", b"id: 1\n"])
def test_a_stream_is_known_by_its_first_bytes(name: str, content_type: str, size: int, beginning: bytes) -> None:
    """Compatible servers do not always name the type."""
    body = beginning + body_of(STREAMS[name])
    expected = heard(streaming(name, body_of(STREAMS[name])))
    assert heard(streaming(name, body, size, content_type=content_type)) == expected


def test_no_more_is_read_than_tells_a_stream() -> None:
    """Its first piece is passed on before the second is waited for."""
    read: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for chunk in (b" \nda", b'ta: {"a"', b": 1}\n\n"):
            read.append(chunk)
            yield chunk

    is_stream, body = told_apart(chunks())
    assert (is_stream, len(read)) == (True, 2)
    assert b"".join(body) == b' \ndata: {"a": 1}\n\n'


@pytest.mark.parametrize("body", [b"", b"\n \n", b' {"data": 1}', b'"data:"', b"<html>:", b"dat", b"document:", b"[]"])
@pytest.mark.parametrize("size", [1, 100])
def test_what_is_no_stream_is_read_whole(body: bytes, size: int) -> None:
    """Nothing of it is lost by looking."""
    is_stream, whole = told_apart(iter(Bytes(body, size)))
    assert (is_stream, b"".join(whole)) == (False, body)


@EACH
def test_a_stream_is_asked_for(name: str) -> None:
    """With usage where that is not a matter of course; the rest of the request is as ever."""
    seen: list[Any] = []
    provider = streaming(name, body_of(STREAMS[name]), seen=seen)
    heard(provider)
    expected = {"stream": True} | ({"stream_options": {"include_usage": True}} if name == "chat_completions" else {})
    assert {key: seen[0].pop(key) for key in expected} == expected
    assert seen[0] == json.loads(provider.body(request_of()))


@EACH
def test_a_stream_without_its_end_is_no_answer(name: str) -> None:
    """Wherever it is cut off, nothing of it is used; up to the event that says how it ended."""
    events = STREAMS[name]
    for count in range(len(events) - TELLING[name] - 1):
        with pytest.raises(ProviderUnavailable, match="the answer was cut off"):
            heard(streaming(name, body_of(events[:count])))


def test_a_completion_is_whole_with_its_finish_reason() -> None:
    """Some servers end without the event that says so."""
    assert heard(streaming("chat_completions", body_of(CHAT[:-2])))[0].text == "Größe"


@EACH
def test_nothing_is_waited_for_after_the_end(name: str) -> None:
    """A server that goes on with anything else is not listened to."""
    body = body_of(STREAMS[name]) + b"data: {nonsense\n\n"
    assert heard(streaming(name, body))[0].text == "Größe"


def message_event(kind: str, said: str) -> str:
    return f'event: error\ndata: {{"type":"error","error":{{"type":"{kind}","message":"{said}"}}}}'


@pytest.mark.parametrize(
    ("name", "event", "error"),
    [
        ("anthropic", message_event("overloaded_error", "Overloaded"), ProviderUnavailable),
        ("anthropic", message_event("api_error", "Internal"), ProviderUnavailable),
        ("anthropic", message_event("invalid_request_error", "no"), ProviderRejected),
        ("chat_completions", 'data: {"error":{"message":"slow down","code":429}}', ProviderUnavailable),
        ("chat_completions", 'data: {"error":{"message":"x","code":"context_length_exceeded"}}', WindowOverflow),
        ("chat_completions", "data: {nonsense", ProviderUnavailable),
        ("chat_completions", 'data: {"choices": 7}', ProviderRejected),
        ("chat_completions", "data: [1]", ProviderRejected),
        ("responses", 'data: {"type":"error","code":"server_error","message":"x","param":null}', ProviderUnavailable),
        (
            "responses",
            'data: {"type":"error","code":"previous_response_not_found","message":"x","param":"previous_response_id"}',
            HandleForgotten,
        ),
        (
            "responses",
            'data: {"type":"response.failed","response":{"status":"failed","error":'
            '{"code":"context_length_exceeded","message":"exceeds the context window"}}}',
            WindowOverflow,
        ),
        (
            "responses",
            'data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"}}}',
            ProviderUnavailable,
        ),
        ("responses", 'data: {"type":"response.failed","response":{"status":"failed"}}', ProviderUnavailable),
        ("responses", 'data: {"type":"response.completed"}', ProviderRejected),
    ],
)
def test_an_error_inside_a_stream_is_translated(name: str, event: str, error: type[ProviderError]) -> None:
    """As the same error is that comes before the stream."""
    with pytest.raises(error) as caught:
        heard(streaming(name, body_of([*STREAMS[name][:2], event])))
    assert type(caught.value) is error


def test_error_events_carry_no_content() -> None:
    """Whatever a provider repeats of a request stays out of the error."""
    with pytest.raises(ProviderRejected) as caught:
        heard(
            streaming("anthropic", body_of([message_event("invalid_request_error", "Bad: PRIVATE-MARKER-4711")])),
            request_of(Entry.user("PRIVATE-MARKER-4711 in a message")),
        )
    assert "PRIVATE" not in str(caught.value)


def test_a_response_that_ends_too_early_can_be_read() -> None:
    """Cut short by its limit: an answer, but nothing to go on from."""
    event = f'data: {{"type":"response.incomplete","response":{RESPONSE % "incomplete"}}}'
    reply, _ = heard(streaming("responses", body_of([*RESPONSES[:3], event])))
    assert (reply.text, reply.handle) == ("Größe", None)


def test_items_that_the_last_event_leaves_out_are_those_sent_before() -> None:
    """Some servers send them one by one only."""
    item = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}'
    events = [
        f'data: {{"type":"response.output_item.done","output_index":0,"item":{item}}}',
        'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}',
    ]
    assert heard(streaming("responses", body_of(events)))[0].text == "Hi"


def chunk(*calls: dict[str, Any]) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': list(calls)}}]})}"


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_calls_of_servers_that_do_not_count_stay_apart(index: dict[str, int]) -> None:
    """Without an index, or with the same for all, a new id is a new call; some repeat id and name with each piece."""
    events = [
        chunk({**index, "id": "a", "function": {"name": "f", "arguments": "{"}}),
        chunk({**index, "id": "a", "function": {"name": "f", "arguments": "}"}}),
        chunk({**index, "id": "b", "function": {"name": "g", "arguments": '{"x"'}}),
        chunk({**index, "function": {"arguments": ":1}"}}),
        "data: [DONE]",
    ]
    assert heard(streaming("chat_completions", body_of(events)))[0].calls == (
        CallRequest(call_id="a", name="f", arguments="{}"),
        CallRequest(call_id="b", name="g", arguments='{"x":1}'),
    )


def test_characters_that_json_cut_in_two_are_passed_on_whole() -> None:
    """An emoji whose halves come in two pieces."""
    halves = [
        f'data: {{"choices":[{{"index":0,"delta":{{"content":"{half}"}}}}]}}' for half in (r"a\ud83d", r"\ude00b")
    ]
    reply, pieces = heard(streaming("chat_completions", body_of([*halves, "data: [DONE]"])))
    assert (pieces, reply.text) == (["a", "😀b"], "a😀b")


def test_input_that_is_cut_short_does_not_parse() -> None:
    """What the model had written by then goes into history as it is."""
    ending = 'data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":3}}'
    events = [*MESSAGES[:9], ending, MESSAGES[-1]]
    (call,) = heard(streaming("anthropic", body_of(events)))[0].calls
    assert call.arguments == '{"a"'


@EACH
def test_an_answer_that_is_no_stream_is_passed_on_whole(name: str) -> None:
    """From a server that does not stream."""
    reply, pieces = heard(plain(name, whole(name, Answer("All at once."))))
    assert pieces == [reply.text] == ["All at once."]


def whole(name: str, answer: Answer) -> dict[str, Any]:
    """The plain answer of the fake server's API."""
    api = APIS[name][1]
    return api.answer(asked(name), "k", answer, Spent(prompt_tokens=90, completion_tokens=7, cached_tokens=3))


def asked(name: str) -> Any:
    body = json.loads(APIS[name][0]("http://model.test").body(request_of()))
    return APIS[name][1].read({**body, "stream": True, "include": ["reasoning.encrypted_content"]})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
calls = st.builds(
    lambda number, arguments: {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    },
    st.integers(0, 9),
    st.one_of(texts, st.dictionaries(texts, st.integers(), max_size=2).map(json.dumps)),
)
answers = st.builds(
    Answer,
    text=texts,
    calls=st.lists(calls, max_size=3, unique_by=lambda one: str(one["id"])).map(tuple),
    refusal=texts,
    reasoning=texts,
    is_redacted=st.booleans(),
)


@EACH
@given(answer=answers, size=st.integers(1, 40))
def test_a_stream_says_what_the_plain_answer_says(name: str, answer: Answer, size: int) -> None:
    """Whatever the answer: the same reply, and the pieces are its text, unless a refusal said nothing that can be seen:
    then the reply says so in words of our own, which a stream shows anew (`CallStream.finish`)."""
    given_whole = whole(name, answer)
    events = b"".join(event.data for event in APIS[name][1].events(asked(name), given_whole))
    reply, pieces = heard(streaming(name, events, size))
    expected = plain(name, given_whole).complete(request_of())
    if name == "chat_completions":
        assert reply.usage is None  # it was not asked for
        expected = replace(expected, usage=None)
    assert reply == expected
    said = "".join(pieces)
    assert said == reply.text or (reply.text == REFUSED and not said.strip())


def test_a_refusal_that_says_nothing_visible_is_told_in_words() -> None:
    """What was shown of it is blank."""
    answer = whole("anthropic", Answer("", refusal=" "))
    events = b"".join(event.data for event in APIS["anthropic"][1].events(asked("anthropic"), answer))
    reply, pieces = heard(streaming("anthropic", events))
    assert (pieces, reply.text) == ([" "], REFUSED)
