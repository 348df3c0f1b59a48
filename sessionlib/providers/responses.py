"""OpenAI's Responses API over HTTP, held: the provider keeps the conversation, and a call carries only what is new.

Each response is a provider session of its own, named by its id: the one before it stays as it was, so a call that is
made again after a crash goes on from what it began on. Instructions and tools are sent each time, since the API keeps
neither of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.errors import ProviderUnavailable
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, Shape, ToolDeclaration
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

OWN_FIELDS = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "previous_response_id",
        "conversation",
        "store",
        "background",
        "stream",
        "stream_options",
    }
)
"""Fields of a request that an agent's parameters cannot set: they decide what an answer means and who holds what."""

EFFORTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        effort: {"reasoning": {"effort": effort}}
        for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    }
)
"""Reasoning efforts and what states them (OpenAI API reference, responses, `reasoning.effort`)."""

_CALL_ID = re.compile(r".{1,64}", re.DOTALL)  # the longest `call_id` that the API takes
_DONE = frozenset({"completed", "incomplete"})


class Responses(ApiProvider):
    """A Provider behind `{base_url}/responses`. Safe for concurrent use; shows its key nowhere."""

    shape = Shape.HELD
    efforts = EFFORTS
    path = "responses"

    def body(self, request: ModelRequest) -> bytes:
        """What is sent for *request*, byte for byte. Raises ProviderRejected."""
        return serialised(request)

    def parsed(self, answer: Any, idempotency_key: str) -> ModelReply:
        """What was answered. Raises ProviderRejected and ProviderUnavailable."""
        return parsed_reply(answer, idempotency_key)

    def dispose(self, handle: str) -> None:
        """Delete a response; one that is not there is fine. Raises ProviderUnavailable and ProviderRejected.

        A session lets go of each response once another went on from it. The API does not say what that does to the
        later one: a server that loses it too answers that it is unknown, and is given the whole window again.
        """
        self._api.delete(f"responses/{quote(handle, safe='')}")


def serialised(request: ModelRequest) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON."""
    body: dict[str, Any] = {
        "model": request.model,
        **own_parameters(request.parameters, OWN_FIELDS),
        "store": True,
    }
    if request.tools:
        body["tools"] = [wire_tool(tool) for tool in request.tools]
    if request.instructions.strip():
        body["instructions"] = request.instructions
    if request.handle is not None:
        body["previous_response_id"] = request.handle
    held_count = request.held_count if request.handle is not None else 0
    body["input"] = wire_items(request.entries, held_count)
    return encoded(body)


def wire_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """A declaration as the API wants it; schemas are not rewritten to the subset that `strict` allows."""
    return {
        "type": "function",
        "name": to_wire(tool.name),
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def wire_items(entries: Sequence[Entry], held_count: int = 0) -> list[dict[str, Any]]:
    """Entries as items, one each, without the first *held_count*, which the provider has.

    A record is sent as the user's: transcript text has no place in the channel of highest trust. A result whose call is
    not among the entries before it goes as the user's text, since a result without its call is refused.
    """
    held_calls = {entry.tool_call_id for entry in entries[:held_count] if entry.kind is EntryKind.TOOL_CALL}
    sent_calls: set[str | None] = set()
    items: list[dict[str, Any]] = []
    for entry in entries[held_count:]:
        call_id = entry.tool_call_id or ""
        match entry.kind:
            case EntryKind.TOOL_CALL:
                sent_calls.add(call_id)
                items.append(_call(entry, id_to_wire(call_id, _CALL_ID)))
            case EntryKind.TOOL_RESULT if call_id in sent_calls:
                items.append(_result(entry, id_to_wire(call_id, _CALL_ID)))
            case EntryKind.TOOL_RESULT if call_id in held_calls:
                items.append(_result(entry, call_id))  # the provider gave this id itself
            case EntryKind.TOOL_RESULT:
                items.append({"role": "user", "content": tool_result_text(call_id, entry.text)})
            case _:
                role = "assistant" if entry.kind is EntryKind.ASSISTANT else "user"
                items.append({"role": role, "content": entry.text})
    return items


def _call(entry: Entry, call_id: str) -> dict[str, Any]:
    name, arguments = to_wire(entry.tool_name or ""), arguments_text(entry.text)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _result(entry: Entry, call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": entry.text}


def parsed_reply(answer: Any, idempotency_key: str) -> ModelReply:
    """A response.

    Its handle is kept if it is complete: whether one that was cut short can be continued, the API does not say. Raises
    ProviderRejected for JSON of another shape (whatever answers is no Responses API), and ProviderUnavailable for a
    response that came to nothing.
    """
    with shape_errors("response"):
        items, status = answer["output"], answer.get("status") or "completed"
        if status not in _DONE:
            raise ProviderUnavailable(f"the response ended as {encodable(str(status))[:32]}")
        called = (
            (item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call"
        )
        return ModelReply(
            text=encodable(_parsed_text(items)),
            calls=parsed_calls(called, idempotency_key),
            usage=_parsed_usage(answer.get("usage")),
            handle=encodable(answer["id"]) if status == "completed" else None,
        )


def _parsed_text(items: Sequence[Any]) -> str:
    """The text of all messages; that of a refusal, if there is nothing else."""
    parts = [content for item in items if item["type"] == "message" for content in item["content"]]
    text = "".join(content["text"] for content in parts if content["type"] == "output_text")
    return text or "".join(content["refusal"] for content in parts if content["type"] == "refusal")


def _parsed_usage(usage: Any) -> Usage | None:
    """What was reported, or None: a report that makes no sense is no report. What is held counts as prompt."""
    prompt_tokens = count(part(usage, "input_tokens"))
    if prompt_tokens is None:
        return None
    details = part(usage, "input_tokens_details")
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=count(part(usage, "output_tokens")) or 0,
        cached_tokens=count(part(details, "cached_tokens")) or 0,
        written_tokens=count(part(details, "cache_write_tokens")) or 0,
    )
