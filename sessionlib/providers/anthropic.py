"""The Anthropic Messages API over HTTP, stateless: history is sent again with each call.

Requests are serialised here, with the messages last and every key in a fixed place, so that a request repeats the one
before it block by block, up to what was appended. Cache breakpoints move on with it; they are no part of the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, ToolDeclaration
from sessionlib.providers.wire_names import id_to_wire, to_wire
from sessionlib.providers.wire_values import (
    arguments_text,
    count,
    encoded,
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

UNPARSED_ARGUMENTS = "INVALID_JSON"
"""The key under which arguments that are no JSON object are sent back (API guide, fine-grained tool streaming)."""

OPENING = "(The conversation goes on with what the assistant said.)"
"""Sent first where history begins with the assistant, since the first message must be the user's."""

BLANK = "(blank)"
"""Sent for a user's text without a visible character, which the API refuses."""

REFUSED = "(The provider refused to answer.)"
"""The text of a refusal that explains nothing."""

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,256}")
_CUT_SHORT = frozenset({"max_tokens", "model_context_window_exceeded"})


class Anthropic(ApiProvider):
    """A Provider behind `{base_url}/v1/messages`. Safe for concurrent use; shows its key nowhere."""

    efforts = EFFORTS
    path = "v1/messages"
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


def serialised(request: ModelRequest) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON."""
    parameters = own_parameters(request.parameters, OWN_FIELDS)
    thinking = parameters.get("thinking")
    budget_tokens = count(part(thinking, "budget_tokens")) or 0
    messages = wire_messages(request.entries)
    tools = [wire_tool(tool) for tool in request.tools]
    system = [{"type": "text", "text": request.instructions}] if request.instructions.strip() else []
    _set_breakpoints(tools, system, messages, _record_count(request.entries))
    if part(thinking, "type") == "enabled" and _answers_calls(messages):
        # The API wants the thinking that came before the calls back, and history has none of it (API guide, thinking).
        del parameters["thinking"]
    body: dict[str, Any] = {"model": request.model, "max_tokens": DEFAULT_MAX_TOKENS + budget_tokens, **parameters}
    if tools:
        body["tools"] = tools
    if system:
        body["system"] = system
    return encoded({**body, "messages": messages})


def wire_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """A declaration as the API wants it."""
    return {"name": to_wire(tool.name), "description": tool.description, "input_schema": dict(tool.parameters)}


def wire_messages(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as messages of alternating roles, such that appending whole rounds to *entries* only appends blocks.

    Neighbours of one role are one message. A record is sent as the user's: transcript text has no place in the channel
    of highest trust. An assistant's blank text is left out, since the API refuses it. A result whose call is not among
    the entries before it goes as the user's text, since a result without its call is refused.
    """
    messages: list[dict[str, Any]] = []
    called: set[str | None] = set()
    for entry in entries:
        if entry.kind is EntryKind.ASSISTANT and not entry.text.strip():
            continue
        role = "assistant" if entry.kind in {EntryKind.ASSISTANT, EntryKind.TOOL_CALL} else "user"
        if not messages and role == "assistant":
            messages.append({"role": "user", "content": [_text(OPENING)]})
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"].append(_block(entry, is_called=entry.tool_call_id in called))
        if entry.kind is EntryKind.TOOL_CALL:
            called.add(entry.tool_call_id)
    return messages


def _block(entry: Entry, *, is_called: bool) -> dict[str, Any]:
    """One entry. *is_called*: the call that a result is for is among the entries before it."""
    if entry.kind is EntryKind.TOOL_CALL:
        call_id = id_to_wire(entry.tool_call_id or "", _CALL_ID)
        name = to_wire(entry.tool_name or "")
        return {"type": "tool_use", "id": call_id, "name": name, "input": _input(entry.text)}
    if entry.kind is not EntryKind.TOOL_RESULT:
        return _text(entry.text if entry.text.strip() else BLANK)
    if not is_called:
        return _text(tool_result_text(entry.tool_call_id, entry.text))
    result = {"type": "tool_result", "tool_use_id": id_to_wire(entry.tool_call_id or "", _CALL_ID)}
    return {**result, "content": entry.text} if entry.text.strip() else result


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as the object that the API wants, whatever the model wrote."""
    try:
        value = json.loads(arguments_text(arguments))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {UNPARSED_ARGUMENTS: arguments}
    return value if isinstance(value, dict) else {UNPARSED_ARGUMENTS: arguments}


def _record_count(entries: Sequence[Entry]) -> int:
    """How many records the request begins with."""
    return sum(1 for _ in takewhile(lambda entry: entry.kind is EntryKind.RECORD, entries))


def _set_breakpoints(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], messages: list[dict[str, Any]], record_count: int
) -> None:
    """Mark where what is cached ends: tools and system, records, the request before this one, and this one.

    The end of the request before is the user's message before the last: the API looks back only twenty blocks from a
    breakpoint for what it has cached, and one round may have more.
    """
    ends = [(system or tools)[-1:]]
    if record_count:
        ends.append(messages[0]["content"][record_count - 1 : record_count])
    ends += [message["content"][-1:] for message in messages if message["role"] == "user"][-2:]
    for end in ends:
        for block in end:
            block["cache_control"] = dict(BREAKPOINT)


def _answers_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages) and any(block["type"] == "tool_result" for block in messages[-1]["content"])


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
            usage=_parsed_usage(answer.get("usage")),
        )


def _unfinished(arguments: Any) -> str:
    """Arguments that were cut short, as text that does not parse: no tool runs on half of them, the model is told."""
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
