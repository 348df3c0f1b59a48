"""The fake server's chat-completions API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from sessionlib.testing.answers import Answer, fault_in
from sessionlib.testing.observations import Prompt
from sessionlib.testing.wire import Asked, Refused, Response, Spent


class ChatApi:
    """POST /v1/chat/completions."""

    name = "chat_completions"

    def read(self, body: Mapping[str, Any], text: str) -> Asked:
        if fault := fault_in(body):
            raise Refused(400, fault, "invalid_request")
        return Asked(messages=body["messages"], prompt=Prompt.of(body), text=text)

    def answer(self, body: Mapping[str, Any], key: str, answer: Answer, spent: Spent) -> Response:
        choice = {"index": 0, "message": answer.message(), "finish_reason": "tool_calls" if answer.calls else "stop"}
        usage = {
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "total_tokens": spent.prompt_tokens + spent.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        }
        completion = {
            "id": f"fake-{quote(key)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
        }
        return Response.json({**completion, "choices": [choice], "usage": usage})

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response.error(status, message, code, headers)

    def above(self, window_tokens: int, prompt_tokens: int) -> Response:
        message = (
            f"This model's maximum context length is {window_tokens} tokens. Your request has {prompt_tokens} tokens."
        )
        return Response.error(400, message, "context_length_exceeded")
