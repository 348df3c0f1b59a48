"""Any OpenAI-compatible chat-completions API over HTTP, stateless: history is sent again with each call.

Requests are serialised here, with the messages last and every key in a fixed place, so that a request repeats the
bytes of the one before it up to what was appended: provider caches work on prefixes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.errors import ProviderRejected, ProviderUnavailable
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, OnDelta, Shape, ToolDeclaration
from sessionlib.providers.http import ProcessClient, plain_client, post, refusal, require_base_url
from sessionlib.providers.wire_names import from_wire, to_wire
from sessionlib.tokens import Usage

OWN_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options", "n"})
"""Fields of a request that an agent's parameters cannot set: they decide what an answer means."""


class ChatCompletions:
    """A Provider behind `{base_url}/chat/completions`. Safe for concurrent use; shows its key nowhere."""

    shape = Shape.STATELESS

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | None = None,
        *,
        build_client: Callable[[], httpx.Client] = plain_client,
    ) -> None:
        self._url = f"{require_base_url(base_url)}/chat/completions"
        self._api_key = api_key
        self._client = ProcessClient(build_client)

    def __repr__(self) -> str:
        return f"ChatCompletions({self._url!r})"

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Answer *request* with one plain response. Raises ProviderUnavailable, ProviderRejected or WindowOverflow."""
        sent = self._sent(request)

        def is_sent(text: str) -> bool:
            return any(text in part for part in sent)

        answer = post(
            self._client.get(),
            self._url,
            body=serialised(request),
            headers=self._headers(request),
            timeout_seconds=request.timeout_seconds,
            is_sent=is_sent,
        )
        if isinstance(answer, dict) and answer.get("error"):  # some routers answer 200 with an error inside
            raise refusal(_error_status(answer["error"]), answer, {}, is_sent)
        reply = parsed_reply(answer, request.idempotency_key)
        if on_delta and reply.text:
            on_delta(reply.text)
        return reply

    def dispose(self, handle: str) -> None:
        """Nothing is held, so nothing is let go."""

    def close(self) -> None:
        """Close this process's connections; a later call opens new ones."""
        self._client.close()

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": quote(request.idempotency_key, safe="/:@._-"),
            "X-Session-Id": quote(request.session_id, safe="/:@._-"),
        }
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        return headers

    def _sent(self, request: ModelRequest) -> tuple[str, ...]:
        key = () if self._api_key is None else (self._api_key.get_secret_value(),)
        return (*key, request.instructions, *(entry.text for entry in request.entries))


def serialised(request: ModelRequest) -> bytes:
    """The request's body. Raises ProviderRejected for parameters that are not the agent's to set, or not JSON."""
    if reserved := OWN_FIELDS & request.parameters.keys():
        raise ProviderRejected(f"parameters {sorted(reserved)} cannot be set by an agent")
    body: dict[str, Any] = {
        "model": request.model,
        **{key: request.parameters[key] for key in sorted(request.parameters)},
    }
    if request.tools:
        body["tools"] = [wire_tool(tool) for tool in request.tools]
    body["messages"] = wire_messages(request.instructions, request.entries)
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        raise ProviderRejected("the request holds something that JSON cannot carry") from None


def wire_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """A declaration as the API wants it."""
    function = {"name": to_wire(tool.name), "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def wire_messages(instructions: str, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as messages, such that appending whole rounds to *entries* only appends messages.

    Instructions are the one system message. A record is sent as the user's: transcript text has no place in the
    channel of highest trust. An assistant's text and the calls that follow it are one message. A result whose call is
    not among the entries before it goes as the user's text, since a tool message without its call is refused.
    """
    messages: list[dict[str, Any]] = []
    if instructions.strip():
        messages.append({"role": "system", "content": instructions})
    called: set[str | None] = set()
    for entry in entries:
        match entry.kind:
            case EntryKind.USER | EntryKind.RECORD:
                messages.append({"role": "user", "content": entry.text})
            case EntryKind.ASSISTANT:
                messages.append({"role": "assistant", "content": entry.text})
            case EntryKind.TOOL_CALL:
                called.add(entry.tool_call_id)
                _add_call(messages, entry)
            case EntryKind.TOOL_RESULT if entry.tool_call_id in called:
                messages.append({"role": "tool", "tool_call_id": entry.tool_call_id, "content": entry.text})
            case EntryKind.TOOL_RESULT:
                messages.append({"role": "user", "content": f"Tool result [{entry.tool_call_id}]: {entry.text}"})
    return messages


def _add_call(messages: list[dict[str, Any]], entry: Entry) -> None:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    function = {"name": to_wire(entry.tool_name or ""), "arguments": entry.text if entry.text.strip() else "{}"}
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
    try:
        message = choices[0]["message"]  # type: ignore[index]
        calls = _parsed_calls(message.get("tool_calls") or [], idempotency_key)
        return ModelReply(
            text=_parsed_text(message.get("content")), calls=calls, usage=_parsed_usage(answer.get("usage"))
        )
    except (KeyError, IndexError, TypeError, AttributeError) as exc:
        raise ProviderRejected(f"the answer is no chat completion ({type(exc).__name__})") from None


def _parsed_text(content: Any) -> str:
    """Content is a string, nothing beside calls, or a list of parts of which those of text count."""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str | None):
        raise TypeError(content)
    return encodable(content or "")


def _parsed_calls(calls: Any, idempotency_key: str) -> tuple[CallRequest, ...]:
    """Tool calls; an id that is missing or given twice is made from the call's place, the same at every try."""
    place = hashlib.sha256(idempotency_key.encode()).hexdigest()[:12]
    parsed: dict[str, CallRequest] = {}
    for position, call in enumerate(calls):
        function = call["function"]
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id.strip() or call_id in parsed:
            call_id = f"call_{place}_{position}"
        call_id = encodable(call_id)
        name = from_wire(encodable(function["name"]))
        parsed[call_id] = CallRequest(call_id=call_id, name=name, arguments=encodable(arguments))
    return tuple(parsed.values())


def _parsed_usage(usage: Any) -> Usage | None:
    """What was reported, or None: a report that makes no sense is no report."""
    if not isinstance(usage, dict) or (prompt_tokens := _count(usage.get("prompt_tokens"))) is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    completion_tokens = _count(usage.get("completion_tokens")) or 0
    return Usage(prompt_tokens, completion_tokens, _count(cached) or 0)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _error_status(error: Any) -> int:
    """The HTTP status that an error inside an answer names; 502 if it names none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502
