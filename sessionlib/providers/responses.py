"""OpenAI's Responses API over HTTP, held: the provider keeps the conversation, and a call carries only what is new.

Each response is a provider session of its own, named by its id: the one before it stays as it was, so a call that is
made again after a crash goes on from what it began on. Instructions and tools are sent each time, since the API keeps
neither of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from sessionlib.arguments import arguments_text
from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.errors import ProviderUnavailable
from sessionlib.media import Media
from sessionlib.providers import responses_stream
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape, ToolDeclaration
from sessionlib.providers.wire_media import responses_parts
from sessionlib.providers.wire_names import id_to_wire, to_wire
from sessionlib.providers.wire_values import (
    CONTENT_FILTER,
    REFUSED,
    cache_key,
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

REASONING = frozenset({"reasoning"})
"""Items that go back as they are."""

ENCRYPTED = "reasoning.encrypted_content"
"""What asks for reasoning in a form that can be sent back (OpenAI API reference, responses, `include`)."""

_CALL_ID = re.compile(r".{1,64}", re.DOTALL)  # the longest `call_id` that the API takes
_DONE = frozenset({"completed", "incomplete"})
_UNDONE = frozenset({"failed", "cancelled", "in_progress", "queued"})


class Responses(ApiProvider):
    """A Provider behind `{base_url}/responses`. Safe for concurrent use; shows its key nowhere."""

    shape = Shape.HELD
    efforts = EFFORTS
    path = "responses"
    streaming = responses_stream.ASKING

    def __init__(
        self, base_url: str, api_key: SecretStr | None = None, *, prompt_cache_key: bool = True, **options: Any
    ) -> None:
        """*prompt_cache_key*: tell the provider which requests belong together; off for servers that refuse it.

        *options* as for ApiProvider.
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
        return responses_stream.assembled(events, on_delta)

    def dispose(self, handle: str, until: str = "") -> None:
        """Delete a response and those that it continues, back to but without *until*; what is not there is fine.

        Raises ProviderUnavailable and ProviderRejected. The oldest is deleted first: what is left after a failure can
        still be found from *handle*.
        """
        for link in reversed(self._chain(handle, until)):
            self._api.delete(_path_of(link))

    def _chain(self, handle: str, until: str) -> list[str]:
        """*handle* and what it continues, newest first, as far back as the provider knows and *until* allows."""
        chain = {handle: None}
        while isinstance(earlier := part(self._api.get(_path_of(handle)), "previous_response_id"), str):
            if earlier in chain or earlier == until:
                break
            chain[handle := earlier] = None
        return list(chain)


def _path_of(handle: str) -> str:
    return f"responses/{quote(handle, safe='')}"


def serialised(request: ModelRequest, *, with_cache_key: bool = True) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON.

    Reasoning is asked for in a form that can be sent back wherever the agent states how to reason, also while the
    provider holds it: it may forget. Newer models give it unasked, and those that do not reason refuse to be asked.
    """
    body: dict[str, Any] = {
        "model": request.model,
        **own_parameters(request.parameters, OWN_FIELDS),
        "store": not request.is_single,
    }
    if "reasoning" in body:
        body["include"] = list(dict.fromkeys([*body.get("include", ()), ENCRYPTED]))
    if with_cache_key:
        body.setdefault("prompt_cache_key", cache_key(request.session_id))
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
    """Entries as items, without the first *held_count*, which the provider has.

    A record is sent as the user's: transcript text has no place in the channel of highest trust. A result whose call is
    not among the entries before it goes as the user's text, since a result without its call is refused. Reasoning
    stands before the output that it led to; where that is nothing it is left out, since it is refused alone.
    """
    held_calls = {entry.tool_call_id for entry in entries[:held_count] if entry.kind is EntryKind.TOOL_CALL}
    sent_calls: set[str | None] = set()
    items: list[dict[str, Any]] = []
    reasoning: list[dict[str, Any]] = []
    for entry in entries[held_count:]:
        call_id = entry.tool_call_id or ""
        if entry.kind is EntryKind.OPAQUE:
            item = opaque_object(entry, REASONING)
            reasoning += [{key: value for key, value in item.items() if value is not None}] if item else []
            continue
        if entry.kind is EntryKind.TOOL_CALL or (entry.kind is EntryKind.ASSISTANT and entry.text.strip()):
            items += reasoning
        reasoning = []
        match entry.kind:
            case EntryKind.TOOL_CALL:
                sent_calls.add(call_id)
                items.append(_call(entry, id_to_wire(call_id, _CALL_ID)))
            case EntryKind.TOOL_RESULT if call_id in sent_calls:
                items.append(_result(entry, id_to_wire(call_id, _CALL_ID)))
            case EntryKind.TOOL_RESULT if call_id in held_calls:
                items.append(_result(entry, call_id))  # the provider gave this id itself
            case EntryKind.TOOL_RESULT:
                text = tool_result_text(call_id, entry.text)
                items.append({"role": "user", "content": _content(text, entry.media)})
            case _:
                role = "assistant" if entry.kind is EntryKind.ASSISTANT else "user"
                items.append({"role": role, "content": _content(entry.text, entry.media)})
    return items


def _content(text: str, media: Sequence[Media]) -> Any:
    """A content or output: a text, or parts if something is shown beside it."""
    return [{"type": "input_text", "text": text}, *responses_parts(media)] if media else text


def _call(entry: Entry, call_id: str) -> dict[str, Any]:
    name, arguments = to_wire(entry.tool_name or ""), arguments_text(entry.text)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _result(entry: Entry, call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": _content(entry.text, entry.media)}


def parsed_reply(answer: Any, idempotency_key: str) -> ModelReply:
    """A response.

    Its handle is kept if it is complete: whether one that was cut short can be continued, the API does not say. Raises
    ProviderRejected for JSON of another shape (whatever answers is no Responses API), and ProviderUnavailable for a
    response that came to nothing.
    """
    with shape_errors("response"):
        items, status = answer["output"], answer.get("status") or "completed"
        if status not in _DONE:
            raise ProviderUnavailable(f"the response ended as {status if status in _UNDONE else 'nothing known'}")
        called = (
            (item["call_id"], item["name"], item["arguments"]) for item in items if item["type"] == "function_call"
        )
        calls = parsed_calls(called, idempotency_key)
        text = encodable(_parsed_text(items))
        if part(answer.get("incomplete_details"), "reason") == CONTENT_FILTER and not text.strip() and not calls:
            text = REFUSED
        return ModelReply(
            text=text,
            calls=calls,
            opaque=opaque_items(_outputs(items), text),
            usage=_parsed_usage(answer.get("usage")),
            handle=encodable(answer["id"]) if status == "completed" and answer.get("store") is not False else None,
        )


def _outputs(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """An answer's items by what they become. Reasoning that is not encrypted is the provider's alone: it holds it."""
    for item in items:
        if item["type"] in REASONING and item.get("encrypted_content"):
            yield "opaque", item
        elif item["type"] == "message":
            yield "text", item
        elif item["type"] == "function_call":
            yield "call", item


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
