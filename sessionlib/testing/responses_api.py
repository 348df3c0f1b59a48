"""The fake server's Responses API: it holds conversations, each response a link that stays as it was."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import Prompt, Spent
from sessionlib.testing.responses_checks import Item, check, check_reasoning
from sessionlib.testing.responses_events import Numbered, events_of
from sessionlib.testing.thinking import sealed
from sessionlib.testing.wire import (
    EVENT_STREAM,
    Asked,
    Event,
    Message,
    Refused,
    Response,
    Segment,
    openai_error,
    read_text,
    require_model,
    text_of,
)

RESPONSES = 20_000
"""Responses that are held, the newest ones."""

ENCRYPTED = "reasoning.encrypted_content"
"""What a request includes to be given its reasoning sealed."""

_ELSEWHERE = frozenset({"input", "previous_response_id"})


@dataclass(frozen=True, slots=True)
class _Held:
    """A response, and all that it and those before it came to."""

    response: Mapping[str, Any]
    items: tuple[Item, ...]


class ResponsesApi:
    """POST /v1/responses, GET and DELETE /v1/responses/ID. Safe for concurrent use."""

    name = "responses"
    is_marked = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()

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

    def get(self, handle: str) -> Response:
        with self._lock:
            held = self._held.get(handle)
        return Response.json(held.response) if held else self._unknown(handle)

    def delete(self, handle: str) -> Response:
        """Answer DELETE: what went on from *handle* has what it held."""
        with self._lock:
            is_known = self._held.pop(handle, None) is not None
        return (
            Response.json({"id": handle, "object": "response", "deleted": True}) if is_known else self._unknown(handle)
        )

    def read(self, body: Mapping[str, Any]) -> Asked:
        """What is asked: all that is held, and what is new."""
        require_model(body)
        sent = _items(body.get("input") or [])
        check_reasoning(sent)
        with self._lock:
            items = [*self._earlier(body), *sent]
        check(items, body.get("tools", []))
        head = {name: value for name, value in body.items() if name not in _ELSEWHERE}
        return Asked(
            body=body,
            messages=[{"role": "system", "content": body.get("instructions") or ""}, *_as_chat(items)],
            prompt=Prompt.of({**head, "messages": items}),
            segments=[Segment(text=read_text({**head, "input": items}))],
            cache_key=str(body.get("prompt_cache_key") or ""),
            conversation=items,
        )

    def answer(self, asked: Asked, key: str, answer: Answer, spent: Spent) -> dict[str, Any]:
        body = asked.body
        handle = f"resp_{hashlib.sha256(key.encode()).hexdigest()[:16]}{secrets.token_hex(8)}"
        usage = {
            "input_tokens": spent.prompt_tokens,
            "input_tokens_details": {"cached_tokens": spent.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": spent.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
            "total_tokens": spent.prompt_tokens + spent.completion_tokens,
        }
        output = _output(answer, is_sealed=ENCRYPTED in (body.get("include") or []))
        response = {**_shell(body, handle, "completed"), "output": output, "usage": usage}
        if body.get("store", True):
            self._hold(response, (*asked.conversation, *output))
        return response

    def events(self, asked: Asked, answer: Mapping[str, Any]) -> Iterator[Event]:
        del asked
        return events_of(answer)

    def error_event(self, status: int, message: str) -> Event:
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        return Numbered()("error", code=code, message=message, param=None)

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response.error(status, message, code, headers)

    def above(self, asked: Asked, window_tokens: int, prompt_tokens: int) -> Response:
        """The real API tells no figure. A stream has begun by the time that the prompt is found too long."""
        del window_tokens, prompt_tokens
        body = asked.body
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        code = "context_length_exceeded"
        if not body.get("stream"):
            return Response.error(400, message, code)
        error = openai_error(400, message, code)
        failed = {**_shell(body, f"resp_{secrets.token_hex(16)}", "failed"), "error": error, "output": []}
        return Response(200, content_type=EVENT_STREAM, parts=(made.data for made in events_of(failed)))

    def _unknown(self, handle: str) -> Response:
        return self.error(404, f"Response with id '{handle}' not found.", "not_found")

    def _hold(self, response: Mapping[str, Any], items: tuple[Item, ...]) -> None:
        with self._lock:
            self._held[response["id"]] = _Held(response, items)
            if len(self._held) > RESPONSES:
                self._held.popitem(last=False)

    def _earlier(self, body: Mapping[str, Any]) -> tuple[Item, ...]:
        """What the named response holds; the lock is held. Raises Refused."""
        handle = body.get("previous_response_id")
        if handle is None:
            return ()
        if handle not in self._held:
            raise Refused(404, f"Previous response with id '{handle}' not found.", "previous_response_not_found")
        return self._held[handle].items


def _shell(body: Mapping[str, Any], handle: str, status: str) -> dict[str, Any]:
    """A response without what it came to."""
    return {
        "id": handle,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": body["model"],
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store", True),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
    }


def _items(given: Any) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _output(answer: Answer, *, is_sealed: bool) -> list[Item]:
    """An answer's items."""
    items: list[Item] = []
    if answer.reasoning:
        summary = [] if answer.is_redacted else [{"type": "summary_text", "text": answer.reasoning}]
        encrypted = {"encrypted_content": sealed(answer.reasoning)} if is_sealed else {}
        items.append({"type": "reasoning", "id": f"rs_{secrets.token_hex(8)}", "summary": summary, **encrypted})
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
