"""The fake server's chat-completions API."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import Prompt, Spent
from sessionlib.testing.wire import (
    Asked,
    Event,
    Refused,
    Response,
    Segment,
    deltas,
    event,
    openai_error,
    read_text,
)

DONE = "[DONE]"

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_TEXTS = ("reasoning_content", "content", "refusal")


class ChatApi:
    """POST /v1/chat/completions."""

    name = "chat_completions"
    is_marked = False

    def read(self, body: Mapping[str, Any]) -> Asked:
        if fault := fault_in(body):
            raise Refused(400, fault, "invalid_request")
        head = {name: value for name, value in body.items() if name != "messages"}
        return Asked(
            body=body,
            messages=body["messages"],
            prompt=Prompt.of(body),
            segments=[Segment(text=read_text({**head, "messages": body["messages"]}))],
            cache_key=str(body.get("prompt_cache_key") or ""),
        )

    def answer(self, asked: Asked, key: str, answer: Answer, spent: Spent) -> dict[str, Any]:
        choice = {"index": 0, "message": answer.message(), "finish_reason": "tool_calls" if answer.calls else "stop"}
        usage = {
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "total_tokens": spent.prompt_tokens + spent.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        }
        completion = {
            "id": f"fake-{quote(key)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked.body["model"],
        }
        return {**completion, "choices": [choice], "usage": usage}

    def events(self, asked: Asked, answer: Mapping[str, Any]) -> Iterator[Event]:
        """Texts and arguments in pieces, usage last if it was asked for. A comment comes first, as from a router."""
        has_usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
        head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
        silent = {"usage": None} if has_usage else {}

        def chunk(delta: Mapping[str, Any], tokens: int = 0, finish_reason: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            return event({**head, "choices": [choice], **silent}, tokens)

        choice = answer["choices"][0]
        yield Event(b": keep-alive\n\n")
        yield chunk({"role": "assistant", "content": "" if choice["message"]["content"] is not None else None})
        for delta in _deltas(choice["message"]):
            yield chunk(delta, 1)
        yield chunk({}, 0, choice["finish_reason"])
        if has_usage:
            yield event({**head, "choices": [], "usage": answer["usage"]})
        yield event(DONE)

    def error_event(self, status: int, message: str) -> Event:
        return event({"error": openai_error(status, message, "scripted")})

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response.error(status, message, code, headers)

    def above(self, asked: Asked, window_tokens: int, prompt_tokens: int) -> Response:
        del asked  # refused before anything is streamed
        message = (
            f"This model's maximum context length is {window_tokens} tokens. However, your messages resulted in"
            f" {prompt_tokens} tokens. Please reduce the length of the messages."
        )
        return Response.error(400, message, "context_length_exceeded")


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _TEXTS:
        for piece in deltas(message.get(name) or ""):
            yield {name: piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        begun = {"index": index, "id": call["id"], "type": "function"}
        yield {"tool_calls": [{**begun, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in deltas(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def fault_in(body: Any) -> str | None:
    """Why a real API would refuse this request; None if it would not.

    Checked are the faults that break sessions in practice: results without their calls, calls without their results,
    tool names outside the alphabet, unknown roles, no messages at all.
    """
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return "you must provide a model parameter"
    if body.get("stream_options") is not None and not body.get("stream"):
        return "the 'stream_options' parameter is only allowed when 'stream' is enabled"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages must be a list with at least one element"
    for tool in body.get("tools", []):
        if tool["type"] == "function" and not _TOOL_NAME.fullmatch(tool["function"]["name"]):
            return "tool names must match ^[a-zA-Z0-9_-]{1,64}$"
    return _fault_in_messages(messages)


def _fault_in_messages(messages: Sequence[Any]) -> str | None:
    unanswered: set[str] = set()
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return f"messages[{position}] has no known role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in unanswered:
                return f"messages[{position}] with role tool must follow a message with its tool_call"
            unanswered.remove(message["tool_call_id"])
            continue
        if unanswered:
            return f"messages[{position}]: a message with tool_calls must be followed by a result for each"
        unanswered = {call["id"] for call in message.get("tool_calls") or []}
        has_content = isinstance(message.get("content"), str | list) or message.get("refusal")
        if not unanswered and not has_content:
            return f"messages[{position}] has no content"
    return "the last tool_calls have no results" if unanswered else None
