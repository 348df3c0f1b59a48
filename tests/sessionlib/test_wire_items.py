"""Opaque items, images and files as each API takes them, held against the types of the official clients."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlib.attachments import media_from_bytes, media_from_url
from sessionlib.entries import Entry
from sessionlib.errors import ProviderRejected
from sessionlib.media import Media
from sessionlib.providers import anthropic, chat_completions, responses
from sessionlib.providers.contract import ModelRequest, OpaqueItem
from sessionlib.providers.wire_values import cache_key
from tests.sessionlib.asking import answering, request_of
from tests.sessionlib.official import fault_in
from tests.sessionlib.pictures import pdf, png

IMAGE = media_from_bytes(png(), "shot.png")
IMAGE_URL = media_from_url("https://example.org/map.png")
PDF = media_from_bytes(pdf(), "report.pdf")
PDF_URL = media_from_url("https://example.org/report.pdf")
TEXT = media_from_bytes(b"a;b\n1;2", "table.csv")
TEXT_URL = media_from_url("https://example.org/notes.txt")
ARCHIVE = media_from_bytes(b"PK\x03\x04\x00", "all.zip")
EVERY = (IMAGE, IMAGE_URL, PDF, PDF_URL, TEXT, TEXT_URL, ARCHIVE)

ORIGIN = "default/m-1"
Body = Callable[[ModelRequest], bytes]
APIS: Mapping[str, Body] = {
    "chat_completions": chat_completions.serialised,
    "messages": anthropic.serialised,
    "responses": responses.serialised,
}
EACH = pytest.mark.parametrize("api", APIS)


def sent(api: str, *entries: Entry, **fields: Any) -> Any:
    """A request's messages or items, no fault in any of it."""
    body = json.loads(APIS[api](request_of(*entries, **fields)))
    assert fault_in(api, body) is None
    return body.get("messages", body.get("input"))


def data_url(media: Media) -> str:
    return f"data:{media.media_type};base64,{media.data}"


# --- media


@EACH
def test_every_kind_of_media_is_taken(api: str) -> None:
    """In messages, in results, and in results whose call is gone."""
    call = Entry.tool_call("c1", "{}", "f")
    sent(api, Entry.user("see", EVERY), call, Entry.tool_result("c1", "r", "f", EVERY))
    sent(api, Entry.user("see"), call, Entry.tool_result("c1", "", "f", EVERY), Entry.assistant("ok"), Entry.user("?"))
    sent(api, Entry.tool_result("gone", "r", "f", EVERY))


def test_chat_media() -> None:
    """Pictures by URL, PDFs by their bytes, text as text; the rest by name."""
    (message,) = sent("chat_completions", Entry.user("see", EVERY), instructions="")
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": data_url(IMAGE), "detail": "high"}},
        {"type": "image_url", "image_url": {"url": IMAGE_URL.url, "detail": "high"}},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": data_url(PDF)}},
        {"type": "text", "text": PDF_URL.label},
        {"type": "text", "text": f"{TEXT.label}\na;b\n1;2"},
        {"type": "text", "text": TEXT_URL.label},
        {"type": "text", "text": ARCHIVE.label},
    ]


def test_what_chat_results_show_follows_the_last_of_them() -> None:
    """Tool messages are text only, and no other message may stand between them."""
    calls = [Entry.tool_call(f"c{number}", "{}", "f") for number in (1, 2, 3)]
    results = [
        Entry.tool_result("c1", "one", "f", (IMAGE_URL,)),
        Entry.tool_result("c2", "two", "f"),
        Entry.tool_result("c3", "", "f", (IMAGE_URL,)),
    ]
    messages = sent("chat_completions", Entry.user("go"), *calls, *results, Entry.assistant("ok"), instructions="")
    shown = {"type": "image_url", "image_url": {"url": IMAGE_URL.url, "detail": "high"}}
    assert [message["role"] for message in messages] == [*("user", "assistant"), *["tool"] * 3, "user", "assistant"]
    assert messages[5]["content"] == [
        {"type": "text", "text": "Shown by tool result [c1]:"},
        shown,
        {"type": "text", "text": "Shown by tool result [c3]:"},
        shown,
    ]


def test_responses_media() -> None:
    """In messages and in outputs in one form."""
    call, result = Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "r", "f", EVERY)
    message, _, output = sent("responses", Entry.user("see", EVERY), call, result)
    parts = [
        {"type": "input_image", "detail": "high", "image_url": data_url(IMAGE)},
        {"type": "input_image", "detail": "high", "image_url": IMAGE_URL.url},
        {"type": "input_file", "filename": "report.pdf", "file_data": data_url(PDF)},
        {"type": "input_file", "file_url": PDF_URL.url},
        {"type": "input_text", "text": f"{TEXT.label}\na;b\n1;2"},
        {"type": "input_file", "file_url": TEXT_URL.url},
        {"type": "input_file", "filename": "all.zip", "file_data": data_url(ARCHIVE)},
    ]
    assert message["content"] == [{"type": "input_text", "text": "see"}, *parts]
    assert output["output"] == [{"type": "input_text", "text": "r"}, *parts]


def test_messages_media() -> None:
    """Before the text of a message, which models read better so; after that of a result, inside it."""
    call, result = Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "r", "f", EVERY)
    message, _, answer = sent("messages", Entry.user("see", EVERY), call, result)
    base64_of = [{"type": "base64", "media_type": each.media_type, "data": each.data} for each in (IMAGE, PDF)]
    blocks = [
        {"type": "image", "source": base64_of[0]},
        {"type": "image", "source": {"type": "url", "url": IMAGE_URL.url}},
        {"type": "document", "source": base64_of[1], "title": "report.pdf"},
        {"type": "document", "source": {"type": "url", "url": PDF_URL.url}, "title": "report.pdf"},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "a;b\n1;2"},
            "title": "table.csv",
        },
        {"type": "text", "text": TEXT_URL.label},
        {"type": "text", "text": ARCHIVE.label},
    ]
    assert without_marks(message["content"]) == [*blocks, {"type": "text", "text": "see"}]
    assert without_marks(answer["content"]) == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "r"}, *blocks]}
    ]


def without_marks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


# --- opaque items

THINKING = {"type": "thinking", "thinking": "They want a.py.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}
ITEMS: Mapping[str, Mapping[str, Any]] = {"messages": THINKING, "responses": REASONING}
THINKERS = pytest.mark.parametrize("api", ITEMS)


def opaque(item: Mapping[str, Any]) -> Entry:
    return Entry.opaque(json.dumps(item), ORIGIN)


def message(*blocks: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(blocks), **fields}


def test_thinking_is_read_in_its_place() -> None:
    """Before the text and the calls that it led to, redacted or not; without a signature it cannot be sent back."""
    said, used = {"type": "text", "text": "Looking."}, {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    unsigned = {"type": "thinking", "thinking": "And", "signature": ""}
    reply = anthropic.parsed_reply(message(THINKING, said, REDACTED, used, used | {"id": "2"}, unsigned), "k")
    assert reply.opaque == (
        OpaqueItem(data=json.dumps(THINKING), index=0),
        OpaqueItem(data=json.dumps(REDACTED), index=1),
    )
    assert [entry.kind for entry in reply.entries(ORIGIN)] == [
        *("opaque", "assistant"),
        *("opaque", "tool_call", "tool_call"),
    ]


def test_reasoning_is_read_in_its_place() -> None:
    """If it is encrypted: what only the provider holds is nothing to keep."""
    said = message({"type": "output_text", "text": "Looking.", "annotations": []})
    called = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    bare = {"type": "reasoning", "id": "rs_2", "summary": []}
    answer = {"id": "resp_1", "status": "completed", "output": [bare, REASONING, said, REASONING, called]}
    reply = responses.parsed_reply(answer, "k")
    assert reply.opaque == tuple(OpaqueItem(data=json.dumps(REASONING), index=index) for index in (0, 1))


def test_thinking_goes_back_as_it_came() -> None:
    """First in its message, in order, and without a cache mark."""
    called, result = Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "r", "f")
    _, said, _ = sent("messages", Entry.user("go"), opaque(THINKING), opaque(REDACTED), called, result)
    assert said["content"][:2] == [THINKING, REDACTED]
    assert [block["type"] for block in said["content"]] == ["thinking", "redacted_thinking", "tool_use"]


def test_reasoning_goes_back_as_it_came() -> None:
    """Before its call; a status of null, which the API gives and does not take, is left out."""
    called, result = Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "r", "f")
    items = sent("responses", Entry.user("go"), opaque({**REASONING, "status": None}), called, result)
    assert items[1] == REASONING
    assert [item.get("type") for item in items] == [None, "reasoning", "function_call", "function_call_output"]


@THINKERS
def test_reasoning_that_led_to_nothing_is_left_out(api: str) -> None:
    """No message may end with it, and no item may lack what follows it."""
    items = sent(api, Entry.user("a"), opaque(ITEMS[api]), Entry.assistant(""), Entry.user("b"))
    assert "c2VhbGVk" not in json.dumps(items)
    assert "thinking" not in json.dumps(items)


@EACH
@pytest.mark.parametrize("text", ["not JSON", "[1]", '{"type": "unknown"}', json.dumps({**REDACTED, "type": 7})])
def test_items_that_nobody_there_can_read_are_left_out(api: str, text: str) -> None:
    """Such as those of another API that had this provider's name."""
    entries = (Entry.user("a"), Entry.opaque(text, ORIGIN), Entry.assistant("b"), Entry.user("c"))
    assert sent(api, *entries) == sent(api, *(entry for entry in entries if entry.kind != "opaque"))


@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "enabled", "budget_tokens": 1_024}])
def test_thinking_is_left_out_where_none_is_done(thinking: Mapping[str, Any]) -> None:
    """A model that does not think takes none back; and where the message whose calls are answered has lost the
    thinking that it began with, this request is answered without any."""
    entries = (Entry.user("a"), Entry.assistant("b"), opaque(THINKING), Entry.tool_call("c1", "{}", "f"))
    body = json.loads(
        anthropic.serialised(request_of(*entries, Entry.tool_result("c1", "r"), parameters={"thinking": thinking}))
    )
    assert "They want a.py." not in json.dumps(body)
    assert body.get("thinking") in (None, {"type": "disabled"})


def test_a_budget_stays_where_thinking_comes_back() -> None:
    """The tool loop goes on thinking."""
    entries = (Entry.user("a"), opaque(THINKING), Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "r"))
    budget = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    body = json.loads(anthropic.serialised(request_of(*entries, parameters=budget)))
    assert body["thinking"] == budget["thinking"]
    assert body["messages"][1]["content"][0] == THINKING


def test_encrypted_reasoning_is_asked_for_where_the_agent_reasons() -> None:
    """Beside what the agent includes by itself; models that do not reason refuse to be asked."""

    def included(**parameters: Any) -> Any:
        return json.loads(responses.serialised(request_of(parameters=parameters))).get("include")

    assert included() is None
    assert included(reasoning={"effort": "low"}) == [responses.ENCRYPTED]
    assert included(reasoning={}, include=["x", responses.ENCRYPTED]) == ["x", responses.ENCRYPTED]


# --- caching


def test_breakpoints_stand_on_nothing_empty() -> None:
    """At the end of tools and system, of records, and of the last two messages of the user's that have something."""
    call, empty = Entry.tool_call("c1", "{}", "f"), Entry.tool_result("c1", "", "f")
    entries = (Entry.record("r"), Entry.record("s"), Entry.user("a"), opaque(THINKING), call, empty)
    body = json.loads(anthropic.serialised(request_of(*entries)))
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    first, said, answer = body["messages"]
    assert ["cache_control" in block for block in first["content"]] == [False, True, True]
    assert "cache_control" not in json.dumps([said, answer])
    assert json.dumps(body).count("cache_control") == 3


def test_a_cache_key_tells_sessions_apart_and_nothing_else() -> None:
    """Short enough for the API, and no id in it; where the provider's agent sets one, that is sent."""
    assert len(cache_key("x" * 128)) == 32
    assert cache_key("team/talk") != cache_key("team/talk2")
    for provider, is_sent in [
        (responses.Responses("http://m.test"), True),
        (responses.Responses("http://m.test", prompt_cache_key=False), False),
        (chat_completions.ChatCompletions("http://m.test"), False),
        (chat_completions.ChatCompletions("http://m.test", prompt_cache_key=True), True),
    ]:
        body = json.loads(provider.body(request_of()))
        assert body.get("prompt_cache_key") == (cache_key("team/single") if is_sent else None)
    own = request_of(parameters={"prompt_cache_key": "mine"})
    assert json.loads(responses.serialised(own))["prompt_cache_key"] == "mine"


@pytest.mark.parametrize(
    ("usage", "cached", "written"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}, 4, 3),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, 4, 0),
        ({"prompt_tokens": 9, "cache_creation_input_tokens": 3}, 0, 3),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, 0, 0),
    ],
)
def test_what_a_chat_api_cached_is_read(usage: dict[str, Any], cached: int, written: int) -> None:
    """As OpenAI names it, and as others do."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "a"}}], "usage": usage}
    reported = chat_completions.parsed_reply(answer, "k").usage
    assert reported is not None
    assert (reported.cached_tokens, reported.written_tokens) == (cached, written)


# --- whatever history holds


def exchange(number: int, is_shown: bool, is_thought: bool, arguments: str) -> list[Entry]:
    thoughts = [opaque(THINKING), opaque(REASONING)] if is_thought else []
    shown = (IMAGE_URL, TEXT) if is_shown else ()
    call_id = f"c{number}"
    return [
        *(Entry.user(f"q{number}", shown), *thoughts),
        Entry.tool_call(call_id, arguments, "f"),
        *(Entry.tool_result(call_id, "r", "f", shown), *thoughts, Entry.assistant(f"a{number}")),
    ]


EXCHANGES = st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["{}", '{"a":', "[1]", ""])), max_size=5)


@EACH
@settings(max_examples=30, deadline=None)
@given(made=EXCHANGES)
def test_any_history_is_taken(api: str, made: list[tuple[bool, bool, str]]) -> None:
    """By the official client's types, arguments as JSON, and byte for byte the same when it is sent again."""
    entries = [entry for number, parts in enumerate(made) for entry in exchange(number, *parts)]
    request = request_of(*entries, Entry.user("?"))
    body = APIS[api](request)
    assert fault_in(api, json.loads(body)) is None
    assert APIS[api](request) == body
    for call in called(api, json.loads(body)):
        assert isinstance(json.loads(call) if isinstance(call, str) else call, dict)


def called(api: str, body: Mapping[str, Any]) -> list[Any]:
    """Arguments of all calls."""
    if api == "responses":
        return [item["arguments"] for item in body["input"] if item.get("type") == "function_call"]
    if api == "messages":
        blocks = [block for message in body["messages"] for block in message["content"]]
        return [block["input"] for block in blocks if block["type"] == "tool_use"]
    return [call["function"]["arguments"] for given in body["messages"] for call in given.get("tool_calls", [])]


def test_bytes_go_and_come_as_they_are() -> None:
    """The base64 of a request is that of the file."""
    (message,) = sent("chat_completions", Entry.user("see", (PDF,)), instructions="")
    sent_data = message["content"][1]["file"]["file_data"].partition(",")[2]
    assert base64.b64decode(sent_data) == pdf()


@pytest.mark.parametrize("secret", [IMAGE_URL.url, "shot.png", IMAGE.data])
def test_an_error_quotes_nothing_of_what_was_attached(secret: str) -> None:
    """Providers name what they could not fetch; URLs may be signed, and errors are logged."""
    error = {"error": {"message": f"cannot read '{secret}' there", "type": "invalid_request_error", "code": None}}
    provider, _ = answering(chat_completions.ChatCompletions, status=400, json=error)
    with pytest.raises(ProviderRejected) as caught:
        provider.complete(request_of(Entry.user("see", EVERY)))
    assert secret not in str(caught.value)
