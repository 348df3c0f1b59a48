"""The Anthropic Messages API over HTTP, stateless: history is sent again with each call.

Requests are serialised here, with the messages last and every key in a fixed place, so that a request repeats the one
before it block by block, up to what was appended. Cache breakpoints move on with it; they are no part of the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from sessionlib.arguments import arguments_object
from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.providers import messages_stream
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, ToolDeclaration
from sessionlib.providers.wire_media import message_blocks
from sessionlib.providers.wire_names import id_to_wire, to_wire
from sessionlib.providers.wire_values import (
    REFUSED,
    count,
    encoded,
    opaque_items,
    opaque_object,
    own_parameters,
    parsed_calls,
    part,
    shape_errors,
    tool_result_text,
)
from sessionlib.tokens import Usage

API_VERSION = "2026-10-21"
"""The newest version of the API, which its reference recommends (API reference, versions)."""

DEFAULT_MAX_TOKENS = 8_192
"""The answer's limit where an agent sets no `max_tokens`, which the API requires: the least that the official client
lets a model answer without streaming (anthropic 2.14, `MODEL_NONSTREAMING_TOKENS`). A thinking budget is added."""

OWN_FIELDS = frozenset({"model", "messages", "tools", "system", "stream", "cache_control"})
"""Fields of a request that an agent's parameters cannot set: they decide what an answer means and what is cached."""

EFFORTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"none": {"thinking": {"type": "disabled"}}}
    | {
        effort: {"output_config": {"effort": effort}, "thinking": {"type": "adaptive"}}
        for effort in ("low", "medium", "high", "xhigh", "max")
    }
)
"""Reasoning efforts and what states them (API reference, `output_config.effort` and `thinking`). Models of 2026 refuse
the older `budget_tokens`; agents of models that want it set it as a parameter."""

BREAKPOINT = MappingProxyType({"type": "ephemeral"})
"""Marks the end of what the provider shall cache; a request may have four (API guide, prompt caching)."""

OPENING = "(The conversation goes on with what the assistant said.)"
"""Sent first where history begins with the assistant, since the first message must be the user's."""

BLANK = "(blank)"
"""Sent for a user's text without a visible character, which the API refuses."""

THINKING = frozenset({"thinking", "redacted_thinking"})
"""Blocks of reasoning: signed, to be sent back as they are (API guide, extended thinking)."""

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,256}")
_CUT_SHORT = frozenset({"max_tokens", "model_context_window_exceeded"})


class Anthropic(ApiProvider):
    """A Provider behind `{base_url}/v1/messages`. Safe for concurrent use; shows its key nowhere."""

    efforts = EFFORTS
    path = "v1/messages"
    streaming = messages_stream.ASKING
    models_path = "v1/models"
    headers = MappingProxyType({"Anthropic-Version": API_VERSION})

    @staticmethod
    def key_headers(key: str) -> Mapping[str, str]:
        """The key as this API takes it."""
        return {"X-Api-Key": key}

    def body(self, request: ModelRequest) -> bytes:
        """What is sent for *request*, byte for byte. Raises ProviderRejected."""
        return serialised(request)

    def parsed(self, answer: Any, idempotency_key: str) -> ModelReply:
        """What was answered. Raises ProviderRejected and ProviderUnavailable."""
        return parsed_reply(answer, idempotency_key)

    def assembled(self, events: Iterable[Any], on_delta: OnDelta) -> Any:
        """The plain answer that a stream comes to. Raises ProviderRejected and ProviderUnavailable."""
        return messages_stream.assembled(events, on_delta)


def serialised(request: ModelRequest) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON."""
    parameters = own_parameters(request.parameters, OWN_FIELDS)
    thinking = parameters.get("thinking")
    budget_tokens = count(part(thinking, "budget_tokens")) or 0
    messages = wire_messages(request.entries, with_thinking=part(thinking, "type") != "disabled")
    if part(thinking, "type") == "enabled" and _answers_calls_without_thinking(messages):
        # The API wants the thinking that came before the calls back (API guide, thinking), and a model before this one
        # had it, or a boundary took it.
        del parameters["thinking"]
        messages = wire_messages(request.entries, with_thinking=False)
    tools = [wire_tool(tool) for tool in request.tools]
    system = [{"type": "text", "text": request.instructions}] if request.instructions.strip() else []
    _set_breakpoints(tools, system, messages, _record_count(request.entries))
    body: dict[str, Any] = {"model": request.model, "max_tokens": DEFAULT_MAX_TOKENS + budget_tokens, **parameters}
    if tools:
        body["tools"] = tools
    if system:
        body["system"] = system
    return encoded({**body, "messages": messages})


def wire_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """A declaration as the API wants it."""
    return {"name": to_wire(tool.name), "description": tool.description, "input_schema": dict(tool.parameters)}


def wire_messages(entries: Sequence[Entry], *, with_thinking: bool = True) -> list[dict[str, Any]]:
    """Entries as messages of alternating roles, such that appending whole rounds to *entries* only appends blocks.

    Neighbours of one role are one message. A record is sent as the user's: transcript text has no place in the channel
    of highest trust. An assistant's blank text is left out, since the API refuses it. A result whose call is not among
    the entries before it goes as the user's text, since a result without its call is refused. Thinking stands before
    the output that it led to; where that is nothing it is left out, since no message may end with it.
    """
    messages: list[dict[str, Any]] = []
    called: set[str | None] = set()
    thinking: list[dict[str, Any]] = []
    for entry in entries:
        if entry.kind is EntryKind.OPAQUE:
            block = opaque_object(entry, THINKING) if with_thinking else None
            thinking += [block] if block else []
            continue
        if entry.kind is EntryKind.ASSISTANT and not entry.text.strip():
            continue
        role = "assistant" if entry.kind in {EntryKind.ASSISTANT, EntryKind.TOOL_CALL} else "user"
        if not messages and role == "assistant":
            messages.append({"role": "user", "content": [_text(OPENING)]})
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"] += thinking if role == "assistant" else []
        messages[-1]["content"] += _blocks(entry, is_called=entry.tool_call_id in called)
        thinking = []
        if entry.kind is EntryKind.TOOL_CALL:
            called.add(entry.tool_call_id)
    return messages


def _blocks(entry: Entry, *, is_called: bool) -> list[dict[str, Any]]:
    """One entry. *is_called*: the call that a result is for is among the entries before it."""
    call_id = id_to_wire(entry.tool_call_id or "", _CALL_ID)
    match entry.kind:
        case EntryKind.TOOL_CALL:
            call = {"id": call_id, "name": to_wire(entry.tool_name or ""), "input": arguments_object(entry.text)}
            return [{"type": "tool_use", **call}]
        case EntryKind.TOOL_RESULT if is_called:
            shown = message_blocks(entry.media)
            content = [_text(entry.text), *shown] if shown and entry.text.strip() else shown or entry.text
            result = {"type": "tool_result", "tool_use_id": call_id}
            return [{**result, "content": content} if shown or entry.text.strip() else result]
        case EntryKind.TOOL_RESULT:
            text = tool_result_text(entry.tool_call_id, entry.text)
        case _:
            text = entry.text if entry.text.strip() else BLANK
    return [*message_blocks(entry.media), _text(text)]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _record_count(entries: Sequence[Entry]) -> int:
    """How many records the request begins with."""
    return sum(1 for _ in takewhile(lambda entry: entry.kind is EntryKind.RECORD, entries))


def _set_breakpoints(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], messages: list[dict[str, Any]], record_count: int
) -> None:
    """Mark where what is cached ends: tools and system, records, the request before this one, and this one.

    The end of the request before is the user's message before the last: the API looks back only twenty blocks from a
    breakpoint for what it has cached, and one round may have more. Messages that cannot be marked are passed over.
    """
    ends = [(system or tools)[-1:]]
    if record_count:
        ends.append(messages[0]["content"][record_count - 1 : record_count])
    marked = (_markable(message["content"])[-1:] for message in messages if message["role"] == "user")
    ends += [blocks for blocks in marked if blocks][-2:]
    for end in ends:
        for block in end:
            block["cache_control"] = dict(BREAKPOINT)


def _markable(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks that may be marked: the API refuses marks on empty ones."""
    return [block for block in blocks if block["type"] != "tool_result" or "content" in block]


def _answers_calls_without_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    if not messages or all(block["type"] != "tool_result" for block in messages[-1]["content"]):
        return False
    return messages[-2]["content"][0]["type"] not in THINKING


def parsed_reply(answer: Any, idempotency_key: str) -> ModelReply:
    """A message. Raises ProviderRejected for JSON of another shape: whatever answers is no Messages API."""
    with shape_errors("message"):
        blocks, stop_reason = answer["content"], answer.get("stop_reason")
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        called = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        if stop_reason in _CUT_SHORT and blocks and blocks[-1]["type"] == "tool_use":
            called[-1] = (*called[-1][:2], _unfinished(called[-1][2]))
        if stop_reason == "refusal" and not text.strip() and not called:
            text = part(answer.get("stop_details"), "explanation") or REFUSED
        return ModelReply(
            text=encodable(text),
            calls=parsed_calls(called, idempotency_key),
            opaque=opaque_items(_outputs(blocks), text),
            usage=_parsed_usage(answer.get("usage")),
        )


def _outputs(blocks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """An answer's blocks by what they become. Thinking that was cut short has no signature, and cannot be sent back."""
    for block in blocks:
        if block["type"] in THINKING and (block.get("signature") or block.get("data")):
            yield "opaque", block
        elif block["type"] == "text" and block["text"]:
            yield "text", block
        elif block["type"] == "tool_use":
            yield "call", block


def _unfinished(arguments: Any) -> str:
    """Arguments that were cut short, as text that does not parse: no tool runs on half of them, the model is told."""
    if isinstance(arguments, str):  # a stream's pieces, which are not whole
        return arguments
    return json.dumps(arguments, ensure_ascii=False).removesuffix("}")


def _parsed_usage(usage: Any) -> Usage | None:
    """What was reported, or None: a report that makes no sense is no report. What is cached is counted apart there."""
    uncached_tokens = count(part(usage, "input_tokens"))
    if uncached_tokens is None:
        return None
    read_tokens = count(part(usage, "cache_read_input_tokens")) or 0
    written_tokens = count(part(usage, "cache_creation_input_tokens")) or 0
    return Usage(
        prompt_tokens=uncached_tokens + written_tokens + read_tokens,
        completion_tokens=count(part(usage, "output_tokens")) or 0,
        cached_tokens=read_tokens,
        written_tokens=written_tokens,
    )
