"""Streamed answers: events as they come, made the JSON of the plain answer, so that one reader is enough for both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

from sessionlib.errors import ProviderUnavailable
from sessionlib.providers.contract import OnDelta
from sessionlib.providers.wire_values import encoded, shape_errors

_EVENT_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""The fields and the comment of an event stream (HTML standard, server-sent events). No JSON begins so."""


class Assembly(Protocol):
    """An answer in the making."""

    is_over: bool
    """The final event came: nothing more is waited for."""
    is_whole: bool
    """Nothing of the answer is missing."""

    def add(self, event: Any) -> str:
        """Take in an event; the text that it adds to the answer. Raises KeyError and its like for another shape."""
        ...

    def answer(self) -> Any:
        """The plain answer's JSON."""
        ...


def assembled(assembly: Assembly, events: Iterable[Any], on_delta: OnDelta) -> Any:
    """The plain answer that *events* come to; each piece of its text is passed on at once.

    An event that tells of an error is an answer by itself: `{"error": …}`. Raises ProviderUnavailable if the events end
    too early: nothing of them is used; and ProviderRejected for events of another API.
    """
    for event in events:
        if error := _error_in(event):
            return {"error": error}
        with shape_errors("stream of events"):
            text = assembly.add(event)
        if text:
            on_delta(text)
        if assembly.is_over:
            break
    if not assembly.is_whole:
        raise ProviderUnavailable("the answer was cut off")
    with shape_errors("stream of events"):
        return assembly.answer()


def told_apart(body: Iterator[bytes]) -> tuple[bool, Iterator[bytes]]:
    """Whether *body* is a stream of events, by how it begins, and all of it; no more is read than it takes to tell."""
    head = b""
    for chunk in body:
        head += chunk
        begun = head.lstrip()
        if begun.startswith(_EVENT_BEGINNINGS):
            return True, chain((head,), body)
        if begun and not any(beginning.startswith(begun) for beginning in _EVENT_BEGINNINGS):
            break
    return False, chain((head,), body)


def _error_in(event: Any) -> Any:
    """The error that an event tells of: beside its type, or spread over the event itself, as OpenAI's responses do."""
    if not isinstance(event, dict):
        return None
    return event.get("error") or (event if event.get("type") == "error" else None)


def with_fields(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """A serialised request with some fields before its own, all else byte for byte as it was."""
    return encoded(fields).removesuffix(b"}") + b"," + body.removeprefix(b"{")


def parsed_input(pieces: str) -> Any:
    """The input of a tool that came as pieces of JSON; as text, if it does not parse."""
    if not pieces.strip():
        return {}
    try:
        return json.loads(pieces)
    except (ValueError, RecursionError):
        return pieces
