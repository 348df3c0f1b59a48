"""Answers that a provider's filter ended: what is empty says in words that it was refused, plain and streamed alike."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from sessionlib.providers.api import ApiProvider
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import ModelReply
from sessionlib.providers.responses import Responses
from sessionlib.providers.wire_values import REFUSED
from tests.sessionlib.asking import request_of

CALL = {"name": "look", "arguments": "{}"}


def completion(text: str, *, reason: str, refusal: str = "", has_call: bool = False) -> tuple[Any, list[Any]]:
    """A completion, and the chunks of it."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal or None}
    if has_call:
        message["tool_calls"] = [{"index": 0, "id": "c1", "type": "function", "function": CALL}]
    chunks = [{"index": 0, "delta": message, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
    plain = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    return plain, [{"choices": [chunk]} for chunk in chunks]


def response(text: str, *, reason: str, refusal: str = "", has_call: bool = False) -> tuple[Any, list[Any]]:
    """A response, and its events."""
    said = [{"type": "output_text", "text": text}] if text else []
    said += [{"type": "refusal", "refusal": refusal}] if refusal else []
    items: list[Any] = [{"type": "message", "role": "assistant", "content": said}] if said else []
    items += [{"type": "function_call", "call_id": "c1", **CALL}] if has_call else []
    plain = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": reason}, "output": items}
    deltas = [{"type": "response.output_text.delta", "delta": text}] if text else []
    deltas += [{"type": "response.refusal.delta", "delta": refusal}] if refusal and not text else []
    return plain, [*deltas, {"type": "response.incomplete", "response": plain}]


APIS: dict[str, tuple[type[ApiProvider], Any]] = {
    "chat_completions": (ChatCompletions, completion),
    "responses": (Responses, response),
}


def heard(name: str, **answer: Any) -> tuple[ModelReply, str]:
    """The plain answer, which the streamed one has to be, too, and what was shown of that."""
    kind, make = APIS[name]
    plain, events = make(**answer)
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)

    def handler(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content).get("stream"):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=stream)
        return httpx.Response(200, json=plain)

    provider = kind("http://m.test", build_client=lambda: httpx.Client(transport=httpx.MockTransport(handler)))
    pieces: list[str] = []
    reply = provider.complete(request_of())
    assert provider.complete(request_of(), pieces.append) == reply
    return reply, "".join(pieces)


@pytest.mark.parametrize("name", APIS)
def test_an_empty_answer_that_was_filtered_says_so(name: str) -> None:
    """Nobody takes it for an answer that says nothing."""
    reply, shown = heard(name, text="", reason="content_filter")
    assert reply.text == shown == REFUSED


@pytest.mark.parametrize("name", APIS)
@pytest.mark.parametrize("answer", [{"text": "It is"}, {"text": "", "refusal": "I will not."}])
def test_what_was_said_before_the_filter_is_the_answer(name: str, answer: dict[str, str]) -> None:
    """A text that was cut off, or a refusal in the model's own words."""
    reply, shown = heard(name, **answer, reason="content_filter")
    assert reply.text == shown == (answer["text"] or answer["refusal"])


@pytest.mark.parametrize("name", APIS)
def test_calls_need_no_words(name: str) -> None:
    """They go on as they are."""
    reply, _ = heard(name, text="", reason="content_filter", has_call=True)
    assert (reply.text, [call.call_id for call in reply.calls]) == ("", ["c1"])


@pytest.mark.parametrize(("name", "reason"), [("chat_completions", "stop"), ("responses", "max_output_tokens")])
def test_an_empty_answer_that_was_not_filtered_stays_empty(name: str, reason: str) -> None:
    """The model said nothing."""
    assert heard(name, text="", reason=reason)[0].text == ""
