"""The fake server's Responses API: it holds conversations, each response a link that stays as it was."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import Prompt
from sessionlib.testing.wire import Asked, Message, Refused, Response, Spent, require_model, text_of

RESPONSES = 20_000
"""Responses that are held, the newest ones."""

_ROLES = frozenset({"system", "developer", "user", "assistant"})
Item = dict[str, Any]


class ResponsesApi:
    """POST /v1/responses, DELETE /v1/responses/ID. Safe for concurrent use."""

    name = "responses"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[Item, ...]] = OrderedDict()

    @property
    def handles(self) -> tuple[str, ...]:
        """Ids of the responses that are held now, oldest first."""
        with self._lock:
            return tuple(self._held)

    def forget(self, handles: Iterable[str] | None = None) -> None:
        """Lose some responses, or all of them."""
        with self._lock:
            for handle in list(self._held) if handles is None else handles:
                self._held.pop(handle, None)

    def delete(self, handle: str) -> Response:
        """Answer DELETE: what went on from *handle* has what it held."""
        with self._lock:
            is_known = self._held.pop(handle, None) is not None
        if not is_known:
            return self.error(404, f"Response with id '{handle}' not found.", "not_found")
        return Response.json({"id": handle, "object": "response", "deleted": True})

    def read(self, body: Mapping[str, Any], text: str) -> Asked:
        """What is asked: all that is held, and what is new."""
        del text  # what the body says of an earlier response is not what the model reads
        require_model(body)
        items = self._conversation(body)
        _check(items, body.get("tools", []))
        head = {name: value for name, value in body.items() if name not in {"input", "previous_response_id", "store"}}
        return Asked(
            messages=[{"role": "system", "content": body.get("instructions") or ""}, *_as_chat(items)],
            prompt=Prompt.of({**head, "messages": items}),
            text=json.dumps({**head, "input": items}, ensure_ascii=False, separators=(",", ":")),
        )

    def answer(self, body: Mapping[str, Any], key: str, answer: Answer, spent: Spent) -> Response:
        handle = f"resp_{hashlib.sha256(key.encode()).hexdigest()[:16]}{secrets.token_hex(8)}"
        output = _output(answer)
        if body.get("store", True):
            with self._lock:
                self._held[handle] = (*self._earlier(body), *_items(body["input"]), *output)
                if len(self._held) > RESPONSES:
                    self._held.popitem(last=False)
        usage = {
            "input_tokens": spent.prompt_tokens,
            "input_tokens_details": {"cached_tokens": spent.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": spent.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": spent.prompt_tokens + spent.completion_tokens,
        }
        response = {
            "id": handle,
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "model": body["model"],
            "previous_response_id": body.get("previous_response_id"),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": body.get("tools", []),
        }
        return Response.json({**response, "output": output, "usage": usage})

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response.error(status, message, code, headers)

    def above(self, window_tokens: int, prompt_tokens: int) -> Response:
        message = (
            f"Your input of {prompt_tokens} tokens exceeds the context window of this model of {window_tokens} tokens."
        )
        return Response.error(400, message, "context_length_exceeded")

    def _conversation(self, body: Mapping[str, Any]) -> list[Item]:
        with self._lock:
            return [*self._earlier(body), *_items(body["input"])]

    def _earlier(self, body: Mapping[str, Any]) -> tuple[Item, ...]:
        """What the named response holds; the lock is held. Raises Refused."""
        handle = body.get("previous_response_id")
        if handle is None:
            return ()
        if handle not in self._held:
            raise Refused(404, f"Previous response with id '{handle}' not found.", "previous_response_not_found")
        return self._held[handle]


def _items(given: Any) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _output(answer: Answer) -> list[Item]:
    """An answer's items."""
    items: list[Item] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{secrets.token_hex(8)}", "summary": summary})
    parts: list[Item] = []
    if answer.text or not (answer.calls or answer.refusal or answer.reasoning):
        parts.append({"type": "output_text", "text": answer.text, "annotations": []})
    if answer.refusal:
        parts.append({"type": "refusal", "refusal": answer.refusal})
    if parts:
        message = {"type": "message", "id": f"msg_{secrets.token_hex(8)}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": parts})
    for call in answer.calls:
        named = {"type": "function_call", "id": f"fc_{secrets.token_hex(8)}", "call_id": call["id"]}
        items.append({**named, **call["function"], "status": "completed"})
    return items


def _as_chat(items: Sequence[Item]) -> Iterator[Message]:
    for item in items:
        content = item.get("content", item.get("output", item.get("arguments", "")))
        yield {"role": item.get("role", "tool"), "content": text_of(content)}


def _check(items: Sequence[Item], tools: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what the API does: nothing at all, unknown items, results without calls, calls without results."""
    if not items:
        raise _refused("one of input or previous_response_id must be provided")
    for tool in tools:
        if tool["type"] == "function" and not tool["name"].replace("-", "_").isidentifier():
            raise _refused("tools: name must match ^[a-zA-Z0-9_-]+$")
    calls: set[str] = set()
    answered: set[str] = set()
    for position, item in enumerate(items):
        match item.get("type", "message"):
            case "message" if item.get("role") in _ROLES and isinstance(item.get("content"), str | list):
                pass
            case "reasoning":
                pass
            case "function_call":
                calls.add(item["call_id"])
            case "function_call_output" if item["call_id"] in calls - answered:
                answered.add(item["call_id"])
            case "function_call_output":
                raise _refused(f"No tool call found for function call output with call_id {item['call_id']}.")
            case _:
                raise _refused(f"input[{position}] is no known item")
    if calls - answered:
        raise _refused(f"No tool output found for function call {min(calls - answered)}.")


def _refused(message: str) -> Refused:
    return Refused(400, message, "invalid_request")
