"""A stream of chat completions, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sessionlib.providers import streams
from sessionlib.providers.contract import OnDelta
from sessionlib.providers.http import DONE

ASKING: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""Fields that ask for a stream, and for what was used at its end."""


def assembled(events: Iterable[Any], on_delta: OnDelta) -> Any:
    """The completion that *events* come to. Raises ProviderUnavailable and ProviderRejected."""
    return streams.assembled(_Completion(), events, on_delta)


class _Completion:
    """A completion's first choice. It is whole with its finish reason: some servers leave out the event that ends."""

    def __init__(self) -> None:
        self.is_over = self.is_whole = False
        self._has_choice = False
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._finish_reason: str | None = None
        self._rest: dict[str, Any] = {}

    def add(self, event: Any) -> str:
        if event == DONE:
            self.is_over = self.is_whole = True
            return ""
        self._rest.update({name: value for name, value in event.items() if name != "choices" and value is not None})
        return "".join([self._add(choice) for choice in event.get("choices") or [] if not choice.get("index")])

    def answer(self) -> Any:
        message = {**self._message, **({"tool_calls": self._calls} if self._calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {**self._rest, "object": "chat.completion", "choices": [choice] if self._has_choice else []}

    def _add(self, choice: Any) -> str:
        self._has_choice = True
        if choice.get("finish_reason"):
            self._finish_reason, self.is_whole = choice["finish_reason"], True
        delta = choice.get("delta") or {}
        for name, piece in delta.items():
            if name == "tool_calls":
                for call in piece or []:
                    self._add_call(call)
            elif name != "role" and piece is not None:
                self._message[name] = _joined(self._message.get(name), piece)
        content = delta.get("content")
        refusal = "" if self._message["content"] else delta.get("refusal")
        return str(content if isinstance(content, str) and content else refusal or "")

    def _add_call(self, piece: Any) -> None:
        call = self._call_of(piece)
        function, given = call["function"], piece.get("function") or {}
        call["id"] = call["id"] or piece.get("id")
        function["name"] = function["name"] or given.get("name")
        arguments = given.get("arguments")
        if arguments is not None:
            function["arguments"] = _joined(function["arguments"] or None, arguments)

    def _call_of(self, piece: Any) -> dict[str, Any]:
        """The call that *piece* goes on with, or a new one: servers may give no index, or all calls the same."""
        index, call_id = piece.get("index"), piece.get("id")
        known = [call for call in self._calls if index is None or call["index"] == index]
        if known and not (call_id and known[-1]["id"] and call_id != known[-1]["id"]):
            return known[-1]
        made = {"index": index, "id": None, "type": "function", "function": {"name": None, "arguments": ""}}
        self._calls.append(made)
        return made


def _joined(before: Any, piece: Any) -> Any:
    """Texts and lists go on where they were; of anything else the newest counts."""
    if before is None or type(before) is not type(piece) or not isinstance(piece, str | list):
        return piece
    return before + piece
