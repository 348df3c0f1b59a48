"""A stream of OpenAI's Responses API: its last event has the whole response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sessionlib.providers import streams
from sessionlib.providers.contract import OnDelta
from sessionlib.providers.wire_values import part

ASKING: Mapping[str, Any] = {"stream": True}
"""Fields that ask for a stream."""

_FINAL = frozenset({"response.completed", "response.failed", "response.incomplete", "response.cancelled"})


def assembled(events: Iterable[Any], on_delta: OnDelta) -> Any:
    """The response that *events* come to. Raises ProviderUnavailable and ProviderRejected."""
    return streams.assembled(_Response(), events, on_delta)


class _Response:
    """A response. Some servers leave its items out of the last event; they have been sent one by one before it."""

    def __init__(self) -> None:
        self.is_over = self.is_whole = False
        self._has_text = False
        self._items: dict[int, Any] = {}
        self._response: dict[str, Any] = {}

    def add(self, event: Any) -> str:
        match part(event, "type"):
            case "response.output_text.delta":
                self._has_text = True
                return str(event["delta"])
            case "response.refusal.delta" if not self._has_text:
                return str(event["delta"])
            case "response.output_item.done":
                self._items[event["output_index"]] = event["item"]
            case kind if kind in _FINAL:
                self._response = event["response"]
                self.is_over = self.is_whole = True
        return ""

    def answer(self) -> Any:
        items = self._response.get("output") or [self._items[index] for index in sorted(self._items)]
        return {**self._response, "output": items}
