"""What the fake provider server's APIs share: how a response is given, what it cost, and what an API has to say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import CACHE_MARKERS, Prompt, Spent

MEDIA_TOKENS = 1_000
"""What an image or a file takes, whatever its size."""

DELTA_CHARACTERS = 4
"""Characters of a streamed piece: about one token."""

EVENT_STREAM = "text/event-stream"

_MEDIA_CHARACTERS = 256
"""A longer text under one of `_MEDIA_KEYS` is the bytes of an image or a file."""
_MEDIA_KEYS = frozenset({"data", "url", "image_url", "file_data"})
_NOT_READ = CACHE_MARKERS | {"stream", "stream_options", "store"}

Message = Mapping[str, Any]


class Cut(Exception):
    """The connection ends here, in the middle of a response."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer as it goes out: a body, or parts that are sent one by one as they come. Iterating *parts* raises Cut
    where the connection is to end."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None
    parts: Iterator[bytes] | None = None
    trickle_seconds: float | None = None
    """The pause after each byte, those of the head too."""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        return cls(status, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), headers=headers)

    @classmethod
    def error(cls, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        """An error as OpenAI's APIs give it."""
        return cls.json({"error": openai_error(status, message, code)}, status, headers)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    data: bytes
    tokens: int = 0
    """How much of the answer is in it, for the pace; 0 if nothing of it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of what the model reads; *is_marked* where a cache breakpoint stands at its end."""

    text: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that is as it should be."""

    body: Mapping[str, Any]
    messages: Sequence[Message]
    """The conversation as chat messages with texts, for whoever answers."""
    prompt: Prompt
    segments: Sequence[Segment]
    """All that the model reads, in its order, as it is counted and cached."""
    cache_key: str = ""
    """Requests with different ones share no cache."""
    conversation: Sequence[dict[str, Any]] = ()
    """What the API holds of it from now on, if it holds any."""


class Refused(Exception):
    """A request that a real API would refuse."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(status, message, code)
        self.status, self.message, self.code = status, message, code


class WireApi(Protocol):
    """One API of the server: what it makes of requests, and how it answers."""

    name: str
    is_marked: bool
    """Its cache works by breakpoints, not by itself."""

    def read(self, body: Mapping[str, Any]) -> Asked:
        """What is asked. Raises Refused, and KeyError and its like for nonsense."""
        ...

    def answer(self, asked: Asked, key: str, answer: Answer, spent: Spent) -> dict[str, Any]:
        """The whole answer."""
        ...

    def events(self, asked: Asked, answer: Mapping[str, Any]) -> Iterator[Event]:
        """The same as a stream."""
        ...

    def error_event(self, status: int, message: str) -> Event:
        """What ends a stream that fails."""
        ...

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response: ...

    def above(self, asked: Asked, window_tokens: int, prompt_tokens: int) -> Response:
        """The error for a request above the window."""
        ...


def openai_error(status: int, message: str, code: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"message": message, "type": kind, "code": code, "param": None}


def require_model(body: Mapping[str, Any]) -> None:
    """Raises Refused for a request without a model."""
    if not isinstance(body.get("model"), str):
        raise Refused(400, "you must provide a model parameter", "invalid_request")


def event(data: Any, tokens: int = 0, name: str = "") -> Event:
    """An event of *data* as JSON."""
    named = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return Event(f"{named}data: {text}\n\n".encode("utf-8", "replace"), tokens)


def deltas(text: str) -> Iterator[str]:
    """*text* in the pieces that a stream brings."""
    for start in range(0, len(text), DELTA_CHARACTERS):
        yield text[start : start + DELTA_CHARACTERS]


def read_text(value: Any) -> str:
    """*value* as the model reads it: without what is for the cache or the transport, media in their own size."""
    return json.dumps(_read(value), ensure_ascii=False, separators=(",", ":"))


def _read(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _read(inner, name) for name, inner in value.items() if name not in _NOT_READ}
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    is_media = key in _MEDIA_KEYS and isinstance(value, str) and len(value) > _MEDIA_CHARACTERS
    return " x" * MEDIA_TOKENS if is_media else value


def text_of(content: Any) -> str:
    """The text of a content: a string, or parts of which some have text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
