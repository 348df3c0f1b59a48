"""What the APIs have in common on the wire: an agent's parameters, JSON, tool calls, counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

from sessionlib.entries import Entry, encodable
from sessionlib.errors import ProviderRejected
from sessionlib.providers.contract import CallRequest, OpaqueItem
from sessionlib.providers.wire_names import from_wire

REFUSED = "(The provider refused to answer.)"
"""The text of a refusal that explains nothing."""

CONTENT_FILTER = "content_filter"
"""Why an answer ended that OpenAI's filters cut off (OpenAI API reference, `finish_reason`, `incomplete_details`)."""


def own_parameters(parameters: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    """An agent's parameters in a fixed order. Raises ProviderRejected for those that are not the agent's to set."""
    if taken := reserved & parameters.keys():
        raise ProviderRejected(f"parameters {sorted(taken)} cannot be set by an agent")
    return {key: parameters[key] for key in sorted(parameters)}


def encoded(body: Mapping[str, Any]) -> bytes:
    """A request's body, the same bytes for the same values. Raises ProviderRejected for what is not JSON."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        raise ProviderRejected("the request holds something that JSON cannot carry") from None


def cache_key(session_id: str) -> str:
    """What tells a provider which requests share a prefix: the same for one session, and nothing else of it.

    32 of the 64 characters that the API takes (OpenAI API reference, `prompt_cache_key`).
    """
    return hashlib.sha256(session_id.encode()).hexdigest()[:32]


def tool_result_text(call_id: str | None, text: str) -> str:
    """A result whose call is not in the request: as the user's text, since a result without its call is refused."""
    return f"Tool result [{call_id}]: {text}"


def parsed_calls(calls: Iterable[tuple[Any, Any, Any]], idempotency_key: str) -> tuple[CallRequest, ...]:
    """Tool calls from their ids, wire names and arguments.

    An id that is missing or given twice is made from the call's place, the same at every try. Raises TypeError for
    names that are no text.
    """
    place = hashlib.sha256(idempotency_key.encode()).hexdigest()[:12]
    parsed: dict[str, CallRequest] = {}
    for position, (call_id, name, arguments) in enumerate(calls):
        if not isinstance(name, str):
            raise TypeError(name)
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        if not isinstance(call_id, str) or not call_id.strip() or call_id in parsed:
            call_id = f"call_{place}_{position}"
        call_id = encodable(call_id)
        parsed[call_id] = CallRequest(call_id=call_id, name=from_wire(encodable(name)), arguments=encodable(arguments))
    return tuple(parsed.values())


def opaque_items(outputs: Iterable[tuple[str, Any]], text: str) -> tuple[OpaqueItem, ...]:
    """The opaque items of an answer, placed before what they belong to among its *text* and calls.

    *outputs* are the answer's parts in order: `("opaque", item)`, `("text", …)`, `("call", …)`.
    """
    items: list[OpaqueItem] = []
    is_text_before, call_count = False, 0
    for kind, value in outputs:
        if kind == "text":
            is_text_before = True
        elif kind == "call":
            call_count += 1
        else:
            text_count = 1 if text and (is_text_before or call_count) else 0
            items.append(OpaqueItem(data=json.dumps(value, ensure_ascii=False), index=text_count + call_count))
    return tuple(items)


def opaque_object(entry: Entry, kinds: AbstractSet[str]) -> dict[str, Any] | None:
    """An opaque entry as its provider gave it; None for what is none of its *kinds*: nobody there could read it."""
    try:
        value = json.loads(entry.text)
    except (ValueError, RecursionError):
        return None
    return value if part(value, "type") in kinds else None


def count(value: Any) -> int | None:
    """A number of tokens as it was reported; None if that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def part(value: Any, name: str) -> Any:
    """A field of what may be no object; None if it is not there."""
    return value.get(name) if isinstance(value, dict) else None


@contextmanager
def shape_errors(what: str) -> Generator[None]:
    """Turn the errors of reading JSON of another shape into ProviderRejected: whatever answers is not that API."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError) as exc:
        raise ProviderRejected(f"the answer is no {what} ({type(exc).__name__})") from None
