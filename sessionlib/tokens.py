"""Counters: how many tokens something takes, and what a provider's own report teaches about that."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sessionlib.arguments import arguments_text
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InvalidInput
from sessionlib.image_tokens import UNKNOWN_RULE, ImageRule
from sessionlib.media import Media
from sessionlib.media_tokens import media_tokens

PER_TOOL_OVERHEAD_TOKENS = 8
"""Framing of one tool declaration (spec/tiers A2)."""

DENSEST_RATIO = 4.0
"""Tokens of the densest tokenizer that we know of for one of ours."""

ENVELOPE_TOKENS = 64
"""A request's own JSON around messages, tools and parameters: about 40 tokens with streaming and usage asked for."""


class Declared(Protocol):
    """A tool declaration, as far as it is counted."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...


class Counter(Protocol):
    """Counts tokens. Pure, deterministic, safe to share between threads."""

    name: str
    error_ratio: float
    """What a true count may be at most, as a multiple of this counter's: requests are cut with it (1.0 = exact)."""

    def text(self, text: str) -> int:
        """Tokens of *text*; 0 for "", at least 1 otherwise."""
        ...

    def entry(self, entry: Entry) -> int:
        """Tokens of an entry as one serialised message of a request, its framing and its media included."""
        ...

    def media(self, media: Sequence[Media]) -> int:
        """Tokens of images and files, as the counter's model sees them."""
        ...

    def fixed(self, instructions: str, tools: Sequence[Declared], parameters: Mapping[str, Any]) -> int:
        """Tokens of what every request carries beside its entries; *parameters* are passed through to the provider."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What a provider reported for one call, in tokens."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt: what the provider read from its cache."""
    written_tokens: int = 0
    """Of the prompt: what the provider wrote into its cache."""

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative")


def calibrated(ratio: float, counted_tokens: int, usage: Usage | None) -> float:
    """The session's calibration after one more report: the largest of reported ÷ counted so far.

    A report of zero is no report: a counter that says nothing must not look like an empty window.
    """
    if usage is None or usage.prompt_tokens == 0 or counted_tokens <= 0:
        return ratio
    return max(ratio, usage.prompt_tokens / counted_tokens)


class CharactersCounter:
    """The counter of spec/tiers A2, for its vectors: a token is four UTF-16 code units, an entry costs four more."""

    name = "characters"
    error_ratio = 1.0
    characters_per_token = 4
    entry_overhead_tokens = 4

    def __init__(self, images: ImageRule = UNKNOWN_RULE) -> None:
        self._images = images

    def text(self, text: str) -> int:
        units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
        return math.ceil(units / self.characters_per_token)

    def entry(self, entry: Entry) -> int:
        return self.text(entry.text) + self.entry_overhead_tokens + self.media(entry.media)

    def media(self, media: Sequence[Media]) -> int:
        return media_tokens(media, self._images, self.text)

    def fixed(self, instructions: str, tools: Sequence[Declared], parameters: Mapping[str, Any]) -> int:
        """Parameters are not counted: the spec knows none."""
        del parameters
        return self.text(instructions) + sum(map(self._tool, tools))

    def _tool(self, tool: Declared) -> int:
        schema = json.dumps(tool.parameters, ensure_ascii=False)
        return self.text(tool.name) + self.text(tool.description) + self.text(schema) + PER_TOOL_OVERHEAD_TOKENS


class SerializedCounter:
    """Counts what is sent: the JSON of a chat-completions request, escapes and tool-call envelopes included."""

    name: str
    error_ratio: float

    def __init__(self, images: ImageRule = UNKNOWN_RULE) -> None:
        self._images = images

    def text(self, text: str) -> int:
        raise NotImplementedError

    def entry(self, entry: Entry) -> int:
        return self.text(message_json(entry)) + (self.media(entry.media) if entry.media else 0)

    def media(self, media: Sequence[Media]) -> int:
        return media_tokens(media, self._images, self.text)

    def fixed(self, instructions: str, tools: Sequence[Declared], parameters: Mapping[str, Any]) -> int:
        declarations = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in tools
        ]
        parts = (_json(instructions), *map(_json, declarations), _json(dict(parameters)))
        return sum(map(self.text, parts)) + PER_TOOL_OVERHEAD_TOKENS * len(tools) + ENVELOPE_TOKENS


def message_json(entry: Entry) -> str:
    """An entry as one chat-completions message, with the comma that follows it.

    Spaced, which takes a few tokens more than the compact form that goes over the wire: those cover what an adapter
    may add (a name, a longer tool name) and tokens that would join across two messages.
    """
    match entry.kind:
        case EntryKind.TOOL_CALL:
            function = {"name": entry.tool_name or "tool", "arguments": arguments_text(entry.text)}
            call = {"id": entry.tool_call_id, "type": "function", "function": function}
            message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        case EntryKind.TOOL_RESULT:
            message = {"role": "tool", "tool_call_id": entry.tool_call_id, "content": entry.text}
        case EntryKind.ASSISTANT:
            message = {"role": "assistant", "content": entry.text}
        case EntryKind.OPAQUE:
            return entry.text + ", "  # sent as it is
        case _:
            message = {"role": "user", "content": entry.text}
    return _json(message) + ", "


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
