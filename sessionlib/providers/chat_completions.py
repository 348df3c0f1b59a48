"""Any OpenAI-compatible chat-completions API over HTTP, stateless: history is sent again with each call.

Requests are serialised here, with the messages last and every key in a fixed place, so that a request repeats the
bytes of the one before it up to what was appended: provider caches work on prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from sessionlib.arguments import arguments_text
from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.errors import ProviderUnavailable
from sessionlib.media import Media
from sessionlib.providers import chat_stream
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, ToolDeclaration
from sessionlib.providers.wire_media import chat_parts
from sessionlib.providers.wire_names import to_wire
from sessionlib.providers.wire_values import (
    CONTENT_FILTER,
    REFUSED,
    cache_key,
    count,
    encoded,
    own_parameters,
    parsed_calls,
    part,
    shape_errors,
    tool_result_text,
)
from sessionlib.tokens import Usage

OWN_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options", "n"})
"""Fields of a request that an agent's parameters cannot set: they decide what an answer means."""

SHOWN = "Shown by tool result [{}]:"
"""Stands before the images and files of a tool result."""

EFFORTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {effort: {"reasoning_effort": effort} for effort in ("none", "minimal", "low", "medium", "high", "xhigh")}
)
"""Reasoning efforts and what states them (OpenAI API reference, chat completions, `reasoning_effort`)."""


class ChatCompletions(ApiProvider):
    """A Provider behind `{base_url}/chat/completions`. Safe for concurrent use; shows its key nowhere."""

    efforts = EFFORTS
    path = "chat/completions"
    streaming = chat_stream.ASKING

    def __init__(
        self, base_url: str, api_key: SecretStr | None = None, *, prompt_cache_key: bool = False, **options: Any
    ) -> None:
        """*prompt_cache_key*: tell the provider which requests belong together, as OpenAI's own API takes it.

        Other servers refuse fields that they do not know, so it is off by default. *options* as for ApiProvider.
        """
        super().__init__(base_url, api_key, **options)
        self._has_cache_key = prompt_cache_key

    def body(self, request: ModelRequest) -> bytes:
        """What is sent for *request*, byte for byte. Raises ProviderRejected."""
        return serialised(request, with_cache_key=self._has_cache_key)

    def parsed(self, answer: Any, idempotency_key: str) -> ModelReply:
        """What was answered. Raises ProviderRejected and ProviderUnavailable."""
        return parsed_reply(answer, idempotency_key)

    def assembled(self, events: Iterable[Any], on_delta: OnDelta) -> Any:
        """The plain answer that a stream comes to. Raises ProviderRejected and ProviderUnavailable."""
        return chat_stream.assembled(events, on_delta)


def serialised(request: ModelRequest, *, with_cache_key: bool = False) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON."""
    body: dict[str, Any] = {"model": request.model, **own_parameters(request.parameters, OWN_FIELDS)}
    if with_cache_key:
        body.setdefault("prompt_cache_key", cache_key(request.session_id))
    if request.tools:
        body["tools"] = [wire_tool(tool) for tool in request.tools]
    body["messages"] = wire_messages(request.instructions, request.entries)
    return encoded(body)


def wire_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """A declaration as the API wants it."""
    function = {"name": to_wire(tool.name), "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def wire_messages(instructions: str, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as messages, such that appending whole rounds to *entries* only appends messages.

    Instructions are the one system message. A record is sent as the user's: transcript text has no place in the
    channel of highest trust. An assistant's text and the calls that follow it are one message. A result whose call is
    not among the entries before it goes as the user's text, since a tool message without its call is refused. Tool
    messages are text only: what results show follows the last of them in a message of the user's. The API has no
    opaque items.
    """
    messages: list[dict[str, Any]] = []
    if instructions.strip():
        messages.append({"role": "system", "content": instructions})
    called: set[str | None] = set()
    shown: list[dict[str, Any]] = []
    for entry in entries:
        if entry.kind is not EntryKind.TOOL_RESULT:
            _show(messages, shown)
        match entry.kind:
            case EntryKind.USER | EntryKind.RECORD:
                messages.append({"role": "user", "content": _content(entry.text, entry.media)})
            case EntryKind.ASSISTANT:
                messages.append({"role": "assistant", "content": entry.text})
            case EntryKind.TOOL_CALL:
                called.add(entry.tool_call_id)
                _add_call(messages, entry)
            case EntryKind.TOOL_RESULT if entry.tool_call_id in called:
                messages.append({"role": "tool", "tool_call_id": entry.tool_call_id, "content": entry.text})
                if entry.media:
                    shown += _content(SHOWN.format(entry.tool_call_id), entry.media)
            case EntryKind.TOOL_RESULT:
                text = tool_result_text(entry.tool_call_id, entry.text)
                messages.append({"role": "user", "content": _content(text, entry.media)})
    _show(messages, shown)
    return messages


def _content(text: str, media: Sequence[Media]) -> Any:
    """A user's content: a text, or parts if something is shown beside it."""
    return [{"type": "text", "text": text}, *chat_parts(media)] if media else text


def _show(messages: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    """Send what results have shown, now that all of their messages are there."""
    if shown:
        messages.append({"role": "user", "content": list(shown)})
        shown.clear()


def _add_call(messages: list[dict[str, Any]], entry: Entry) -> None:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    function = {"name": to_wire(entry.tool_name or ""), "arguments": arguments_text(entry.text)}
    call = {"id": entry.tool_call_id, "type": "function", "function": function}
    messages[-1].setdefault("tool_calls", []).append(call)


def parsed_reply(answer: Any, idempotency_key: str) -> ModelReply:
    """An answer's first choice.

    Raises ProviderRejected for JSON of another shape (whatever answers is no chat-completions API), and
    ProviderUnavailable for an empty list of choices, which routers give when a model behind them failed.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if choices == []:
        raise ProviderUnavailable("the answer has no choices")
    with shape_errors("chat completion"):
        message = choices[0]["message"]  # type: ignore[index]
        called = (
            (call.get("id"), call["function"]["name"], call["function"].get("arguments")) for call in _calls(message)
        )
        calls = parsed_calls(called, idempotency_key)
        text = _parsed_text(message.get("content")) or _parsed_text(message.get("refusal"))
        if choices[0].get("finish_reason") == CONTENT_FILTER and not text.strip() and not calls:  # type: ignore[index]
            text = REFUSED
        return ModelReply(
            text=text,
            calls=calls,
            usage=_parsed_usage(answer.get("usage")),
        )


def _calls(message: Any) -> Any:
    return message.get("tool_calls") or []


def _parsed_text(content: Any) -> str:
    """Content is a string, nothing beside calls, or a list of parts of which those of text count."""
    if isinstance(content, list):
        content = "".join(item["text"] for item in content if item.get("type") == "text")
    if not isinstance(content, str | None):
        raise TypeError(content)
    return encodable(content or "")


def _parsed_usage(usage: Any) -> Usage | None:
    """What was reported, or None: a report that makes no sense is no report."""
    prompt_tokens = count(part(usage, "prompt_tokens"))
    if prompt_tokens is None:
        return None
    details = part(usage, "prompt_tokens_details")
    cached = part(details, "cached_tokens") if isinstance(details, dict) else part(usage, "prompt_cache_hit_tokens")
    written = part(details, "cache_write_tokens") or part(usage, "cache_creation_input_tokens")
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=count(part(usage, "completion_tokens")) or 0,
        cached_tokens=count(cached) or 0,
        written_tokens=count(written) or 0,
    )
