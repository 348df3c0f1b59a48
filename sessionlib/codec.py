"""Values as JSON that names its type and format version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.providers.contract import ModelReply
from sessionlib.steps import Captured, EffectResult, ToolOutput
from sessionlib.summaries.contract import Consolidated, Settlement, Workload

FORMAT_VERSION = 1
"""Raised when a stored value changes in a way that this code could not read."""

STEP_KINDS: tuple[type[EffectResult], ...] = (
    ModelReply,
    ToolOutput,
    Consolidated,
    Workload,
    Captured,
    Settlement,
)
"""What a step's result may be."""

Value = TypeVar("Value")


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    key: Any = kind  # classes are hashable, which their type does not say
    return _built_adapter(key)


@cache
def _built_adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(value: object) -> str:
    """A frozen dataclass as JSON that names its type and format version. Raises InvalidInput for lone surrogates."""
    kind = type(value)
    try:
        body = _adapter(kind).dump_json(value, exclude=_left_out(value)).decode()
    except (PydanticSerializationError, UnicodeEncodeError) as exc:
        raise InvalidInput(kind.__name__, str(exc), "must be encodable as JSON in UTF-8") from None
    return f'{{"v":{FORMAT_VERSION},"type":"{kind.__name__}","value":{body}}}'


_RARE = ("origin", "media")
"""Fields that hardly any entry has: the others are stored without them, in the bytes that they had before these."""


def _left_out(value: object) -> set[str] | None:
    return {name for name in _RARE if not getattr(value, name)} if isinstance(value, Entry) else None


def decode(kind: type[Value], text: str | bytes) -> Value:
    """What `encode` made of a *kind*. Raises StoreCorrupt for anything else, never quoting the content."""
    opening = f'{{"v":{FORMAT_VERSION},"type":"{kind.__name__}","value":'
    raw = text.decode(errors="replace") if isinstance(text, bytes) else text
    if not raw.startswith(opening) or not raw.endswith("}"):
        raise StoreCorrupt(f"stored {kind.__name__} cannot be read: {_complaint(raw)}")
    try:
        value: Value = _adapter(kind).validate_json(raw[len(opening) : -1], extra="forbid")
    except ValidationError as exc:
        places = ", ".join(".".join(map(str, error["loc"])) or error["type"] for error in exc.errors()[:3])
        raise StoreCorrupt(f"stored {kind.__name__} is damaged at {places}") from None
    return value


def decode_step(text: str | bytes) -> EffectResult:
    """A step's result, of whichever of its types. Raises StoreCorrupt."""
    raw = text.decode(errors="replace") if isinstance(text, bytes) else text
    for kind in STEP_KINDS:
        if f'"type":"{kind.__name__}","value":' in raw[:64]:
            return decode(kind, raw)
    raise StoreCorrupt(f"stored step cannot be read: {_complaint(raw)}")


def _complaint(raw: str) -> str:
    """What is wrong with a text that does not open as expected."""
    try:
        outer = json.loads(raw)
    except ValueError:
        return f"it is not JSON ({len(raw)} characters)"
    version = outer.get("v") if isinstance(outer, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        return f"it has format {version}, newer than {FORMAT_VERSION}; upgrade this program"
    return "it is not ours"


def plain(value: object) -> Any:
    """A frozen dataclass as JSON types (dicts, lists, strings, numbers), for events and figures."""
    return _adapter(type(value)).dump_python(value, mode="json")


def restore(kind: type[Value], data: Any) -> Value:
    """What `plain` made of a *kind*. Raises StoreCorrupt."""
    try:
        value: Value = _adapter(kind).validate_python(data, extra="forbid")
    except ValidationError as exc:
        raise StoreCorrupt(f"{kind.__name__} in an event is damaged ({exc.error_count()} faults)") from None
    return value


def encode_entries(entries: Iterable[Entry]) -> str:
    """A run of entries, one line for each, as each is stored singly."""
    return "\n".join(encode(entry) for entry in entries)


def decode_entries(text: str) -> tuple[Entry, ...]:
    """What `encode_entries` made. Raises StoreCorrupt."""
    return tuple(decode(Entry, line) for line in text.split("\n")) if text else ()


def entries_digest(entries: Iterable[Entry]) -> str:
    """SHA-256 of a run of entries: a history is recognised by it."""
    return hashlib.sha256(encode_entries(entries).encode()).hexdigest()
