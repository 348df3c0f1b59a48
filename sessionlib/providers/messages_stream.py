"""A stream of the Anthropic Messages API, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sessionlib.providers import streams
from sessionlib.providers.contract import OnDelta
from sessionlib.providers.wire_values import part

ASKING: Mapping[str, Any] = {"stream": True}
"""Fields that ask for a stream."""


def assembled(events: Iterable[Any], on_delta: OnDelta) -> Any:
    """The message that *events* come to. Raises ProviderUnavailable and ProviderRejected."""
    return streams.assembled(_Message(), events, on_delta)


class _Message:
    """A message. Events and deltas of kinds that are not known are left out, as the API asks (guide, streaming)."""

    def __init__(self) -> None:
        self.is_over = self.is_whole = False
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def add(self, event: Any) -> str:
        match part(event, "type"):
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                return self._extend(event["index"], event["delta"])
            case "message_delta":
                self._end(event)
            case "message_stop":
                self.is_over = self.is_whole = True
        return ""

    def answer(self) -> Any:
        for index, pieces in self._inputs.items():
            self._blocks[index]["input"] = streams.parsed_input(pieces)
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _extend(self, index: int, delta: Any) -> str:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                return str(delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        return ""

    def _end(self, event: Any) -> None:
        """How it ended, and what was used by then: what the start did not know, or has grown."""
        self._message.update(event["delta"])
        newest = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
        self._message["usage"] = {**(self._message.get("usage") or {}), **newest}
