"""What the fake provider server's APIs share: how a response is given, what it cost, and what an API has to say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import Prompt

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return cls(status, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), headers=headers)

    @classmethod
    def error(cls, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        """An error as OpenAI's APIs give it."""
        error = {"message": message, "type": "invalid_request_error" if status < 500 else "server_error", "code": code}
        return cls.json({"error": {**error, "param": None}}, status, headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a call cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that is as it should be."""

    messages: Sequence[Message]
    """The conversation as chat messages with texts, for whoever answers."""
    prompt: Prompt
    text: str
    """All that the model reads, as it is counted."""


class Refused(Exception):
    """A request that a real API would refuse."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(status, message, code)
        self.status, self.message, self.code = status, message, code


class WireApi(Protocol):
    """One API of the server: what it makes of requests, and how it answers."""

    name: str

    def read(self, body: Mapping[str, Any], text: str) -> Asked:
        """What is asked. *text* is the body as it came. Raises Refused, and KeyError and its like for nonsense."""
        ...

    def answer(self, body: Mapping[str, Any], key: str, answer: Answer, spent: Spent) -> Response: ...

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response: ...

    def above(self, window_tokens: int, prompt_tokens: int) -> Response:
        """The error for a request above the window."""
        ...


def require_model(body: Mapping[str, Any]) -> None:
    """Raises Refused for a request without a model, and for one that wants a stream."""
    if not isinstance(body.get("model"), str):
        raise Refused(400, "you must provide a model parameter", "invalid_request")
    if body.get("stream"):
        raise Refused(400, "this server does not stream", "invalid_request")


def text_of(content: Any) -> str:
    """The text of a content: a string, or parts of which some have text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
