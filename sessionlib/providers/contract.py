"""What the engine asks of a model provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sessionlib.entries import Entry
from sessionlib.tokens import Usage


class Shape(StrEnum):
    """Who holds the conversation between calls."""

    STATELESS = "stateless"
    """History is sent again with each call."""
    HELD = "held"
    """The provider holds it under a handle; a call carries only what is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """A tool as the model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call. `entries` is the whole window: records and markers (kind record), carried input, live entries."""

    model: str
    instructions: str
    tools: tuple[ToolDeclaration, ...]
    parameters: Mapping[str, Any]
    entries: tuple[Entry, ...]
    session_id: str
    turn_id: str
    step: str
    """The step's name; with session and turn id it is the call's idempotency key."""
    timeout_seconds: float
    handle: str | None = None
    """Held shape only: the provider session to continue; None seeds a new one."""
    held_count: int = 0
    """Held shape only: how many of `entries` the handle has already."""
    is_single: bool = False
    """Nothing will follow it: a provider that holds conversations need not hold this one."""
    counted_tokens: int = 0
    """What our counter says that the request takes, for calibration and for the operator's eyes."""

    @property
    def idempotency_key(self) -> str:
        return f"{self.session_id}/{self.turn_id}/{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A tool call that the model asks for. `arguments` as the model wrote them, valid JSON or not."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueItem:
    """An item of an answer that only its provider can read, such as signed or encrypted reasoning."""

    data: str
    """JSON, as the provider gave it."""
    index: int = 0
    """It stands before the reply's entry (text, then calls) at this position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What the model answered."""

    text: str
    calls: tuple[CallRequest, ...] = ()
    opaque: tuple[OpaqueItem, ...] = ()
    usage: Usage | None = None
    handle: str | None = None
    """Held shape only: the provider session that now holds the conversation, this reply included."""

    def __post_init__(self) -> None:
        # Providers are anybody's code: a list that they hand in and go on writing to must not change history.
        object.__setattr__(self, "calls", tuple(self.calls))
        object.__setattr__(self, "opaque", tuple(self.opaque))

    def entries(self, origin: str = "") -> tuple[Entry, ...]:
        """The reply as history: its text (absent only if it is empty beside calls), then its calls.

        With an *origin*, its opaque items stand among them.
        """
        text = (Entry.assistant(self.text),) if self.text or not self.calls else ()
        calls = (Entry.tool_call(call.call_id, call.arguments, call.name) for call in self.calls)
        visible = (*text, *calls)
        if not origin or not self.opaque:
            return visible
        made: list[Entry] = []
        for index in range(len(visible) + 1):
            here = (item for item in self.opaque if min(item.index, len(visible)) == index)
            made += [*(Entry.opaque(item.data, origin) for item in here), *visible[index : index + 1]]
        return tuple(made)


OnDelta = Callable[[str], None]
"""Receives pieces of the answer's text as they come; may be called never."""


class Provider(Protocol):
    """A model behind an API. Safe for concurrent use; built once a process; holds no conversation itself."""

    shape: Shape

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Answer *request*. Raises ProviderUnavailable, ProviderRejected, WindowOverflow or HandleForgotten."""
        ...

    def dispose(self, handle: str, until: str = "") -> None:
        """Forget a held provider session and those that it continues, back to but without *until* ("": all of them).

        An unknown handle is fine. Raises ProviderUnavailable to be tried again.
        """
        ...


@dataclass(frozen=True, slots=True)
class Providers:
    """Providers by the name that agents use."""

    by_name: Mapping[str, Provider] = field(default_factory=dict)
