"""Requests as the official clients' own types have them, unknown keys refused."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Never, NotRequired, Required, Union, get_args, get_origin

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict, get_type_hints, is_typeddict

UNIONS = {Union, type(int | str)}
UNION: Any = Union
DICT: Any = dict
LIST: Any = list


class Strict:
    """Makes types of what the clients take as they are in JSON: sequences as lists, no objects of the clients' own, no
    unknown keys. Those of the clients hold iterators, which pydantic checks late and without the rule for keys."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, hint: Any) -> Any:
        origin, args = get_origin(hint), get_args(hint)
        if is_typeddict(hint):
            return self._typed_dict(hint)
        if inspect.isclass(hint) and origin is None and issubclass(hint, BaseModel):
            return Never  # what a client was answered, which it lets callers hand in again
        if origin in {Required, NotRequired, Annotated}:
            return self.of(args[0])
        if origin in UNIONS:
            kept = tuple(kind for kind in map(self.of, args) if kind is not Never)
            return UNION[kept] if kept else Never
        if origin is dict or getattr(origin, "__name__", "") == "Mapping":
            return DICT[args[0], self.of(args[1])]
        if getattr(origin, "__name__", "") in {"list", "Iterable", "Sequence", "SequenceNotStr"}:
            return LIST[self.of(args[0])]
        return hint

    def _typed_dict(self, hint: Any) -> Any:
        if id(hint) in self._made:
            return self._made[id(hint)]
        self._made[id(hint)] = dict[str, Any]  # inside itself a type is not checked again
        hints = get_type_hints(hint, include_extras=True)
        fields = {name: self._field(field, name in hint.__required_keys__) for name, field in hints.items()}
        config: Any = {"extra": "forbid", **getattr(hint, "__pydantic_config__", {})}
        made = with_config(config)(TypedDict(hint.__name__, fields))  # type: ignore[operator]
        self._made[id(hint)] = made
        return made

    def _field(self, field: Any, is_in_total: bool) -> Any:
        """*is_in_total*: the class that the field comes from requires what it does not say to be optional."""
        is_required = get_origin(field) is Required or (is_in_total and get_origin(field) is not NotRequired)
        return (Required if is_required else NotRequired)[self.of(field)]


KINDS: Mapping[str, tuple[Any, Any]] = {
    "chat_completions": (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming),
    "messages": (MessageCreateParamsNonStreaming, MessageCreateParamsStreaming),
    "responses": (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming),
}
"""By API: requests for a plain answer, and for a stream."""


@cache
def adapter(api: str, *, is_streamed: bool) -> TypeAdapter[Any]:
    """Checks requests of *api*. Building one takes a second or two."""
    return TypeAdapter(Strict().of(KINDS[api][is_streamed]))


def fault_in(api: str, body: Any) -> str | None:
    """What the official client's types say against a request of *api*; None if nothing."""
    is_streamed = isinstance(body, dict) and bool(body.get("stream"))
    try:
        adapter(api, is_streamed=is_streamed).validate_python(body)
    except ValidationError as exc:
        return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:5])
    return None
