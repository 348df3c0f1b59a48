"""Which format a file has, and the reader for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sessionlib.errors import InvalidInput
from sessionlib.recordings.chat import read_chat
from sessionlib.recordings.claude_code import read_claude_code, read_events
from sessionlib.recordings.datasets import read_locomo, read_tau_bench
from sessionlib.recordings.decoding import FORMATS, Lines, decode
from sessionlib.recordings.values import Recording


def read_recording(data: bytes, source: str, conversation: str = "") -> Recording:
    """Read a recorded session; *source* names it in errors.

    *conversation* chooses one of several in a file, by its id or the end of it; "" is the first. Raises InvalidInput.
    """
    document = decode(data, source)
    if isinstance(document, dict) and ("role" in document or "type" in document):
        document = Lines(((1, document),))
    if isinstance(document, dict) and isinstance(document.get("conversations"), list):
        return read_locomo(source, document, conversation)
    if isinstance(document, dict) and isinstance(document.get("sessions"), list):
        return read_tau_bench(source, document, conversation)
    if conversation:
        raise InvalidInput("conversation", conversation, f"must be absent: {source} holds a single conversation")
    return _read_single(source, document)


def _read_single(source: str, document: Any) -> Recording:
    if isinstance(document, Lines):
        lines = [(f"line {number}", value) for number, value in document.numbered]
        if _has(lines[0][1], "role"):
            return read_chat(source, lines)
        if _has(lines[0][1], "type"):
            return read_claude_code(source, lines)
    elif isinstance(document, list) and document and _has(document[0], "role"):
        return read_chat(source, _numbered("message", document))
    elif isinstance(document, dict) and isinstance(document.get("messages"), list):
        return read_chat(source, _numbered("message", document["messages"]), document.get("system"))
    elif isinstance(document, dict) and isinstance(document.get("events"), list):
        return read_events(source, _numbered("event", document["events"]))
    raise InvalidInput(source, _outline(document), f"must hold a recorded session; {FORMATS}")


def _has(value: Any, field: str) -> bool:
    return isinstance(value, dict) and field in value


def _numbered(what: str, values: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{what} {number}", value) for number, value in enumerate(values, 1))


def _outline(document: Any) -> object:
    """What a foreign document looks like: its keys, or those of its first line."""
    if isinstance(document, Lines):
        document = document.numbered[0][1]
    return sorted(document) if isinstance(document, dict) else document
