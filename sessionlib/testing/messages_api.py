"""The fake server's Anthropic Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sessionlib.testing.answers import Answer
from sessionlib.testing.messages_checks import Block, check
from sessionlib.testing.observations import Prompt, Spent
from sessionlib.testing.thinking import sealed, signature
from sessionlib.testing.wire import (
    Asked,
    Event,
    Message,
    Response,
    Segment,
    deltas,
    event,
    read_text,
    require_model,
    text_of,
)

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_DELTAS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}
"""By a block's type: its field that comes in pieces, and what the pieces are called."""


class MessagesApi:
    """POST /v1/messages."""

    name = "messages"
    is_marked = True

    def read(self, body: Mapping[str, Any]) -> Asked:
        """What is asked. A prompt is compared block by block, each with its role."""
        require_model(body)
        turns = [(message["role"], _blocks(message["content"])) for message in body["messages"]]
        check(body, turns)
        flat = [{**block, "role": role} for role, blocks in turns for block in blocks]
        head = {name: value for name, value in body.items() if name != "messages"}
        return Asked(
            body=body,
            messages=[{"role": "system", "content": text_of(body.get("system"))}, *_as_chat(turns)],
            prompt=Prompt.of({**head, "messages": flat}),
            segments=list(_segments(body, flat)),
        )

    def answer(self, asked: Asked, key: str, answer: Answer, spent: Spent) -> dict[str, Any]:
        usage = {
            "input_tokens": spent.prompt_tokens - spent.cached_tokens - spent.written_tokens,
            "cache_creation_input_tokens": spent.written_tokens,
            "cache_read_input_tokens": spent.cached_tokens,
            "output_tokens": spent.completion_tokens,
        }
        stop_reason = "refusal" if answer.refusal else "tool_use" if answer.calls else "end_turn"
        message = {"id": f"msg_{quote(key)}", "type": "message", "role": "assistant", "model": asked.body["model"]}
        ending = {"stop_reason": stop_reason, "stop_sequence": None, "usage": usage}
        return {**message, "content": _content(answer), **ending}

    def events(self, asked: Asked, answer: Mapping[str, Any]) -> Iterator[Event]:
        """A message begins empty; its blocks follow, each in pieces; how it ended, and what it cost, comes last."""
        del asked
        begun: Block = {"content": [], "stop_reason": None, "usage": {**answer["usage"], "output_tokens": 1}}
        yield _event("message_start", message={**answer, **begun})
        yield _event("ping")
        for index, block in enumerate(answer["content"]):
            yield from _block_events(index, block)
        ending = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=ending, usage={"output_tokens": answer["usage"]["output_tokens"]})
        yield _event("message_stop")

    def error_event(self, status: int, message: str) -> Event:
        return _event("error", error=_error(status, message))

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        del code  # these errors have a type only
        return Response.json({"type": "error", "error": _error(status, message)}, status, headers)

    def above(self, asked: Asked, window_tokens: int, prompt_tokens: int) -> Response:
        del asked  # refused before anything is streamed
        return self.error(400, f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum", "")


def _error(status: int, message: str) -> dict[str, str]:
    return {
        "type": _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"),
        "message": message,
    }


def _event(kind: str, tokens: int = 0, **fields: Any) -> Event:
    return event({"type": kind, **fields}, tokens, kind)


def _block_events(index: int, block: Block) -> Iterator[Event]:
    def delta(kind: str, tokens: int = 1, **fields: Any) -> Event:
        return _event("content_block_delta", tokens, index=index, delta={"type": kind, **fields})

    field, kind = _DELTAS.get(block["type"], ("", ""))
    begun = {**block, **({field: ""} if field else {})}
    if block["type"] == "tool_use":
        begun["input"] = {}
    if block["type"] == "thinking":
        begun["signature"] = ""
    yield _event("content_block_start", index=index, content_block=begun)
    for piece in deltas(block.get(field, "")):
        yield delta(kind, 1, **{field: piece})
    if block["type"] == "thinking":
        yield delta("signature_delta", 0, signature=block["signature"])
    if block["type"] == "tool_use":
        for piece in deltas(_written(block["input"])):
            yield delta("input_json_delta", partial_json=piece)
    yield _event("content_block_stop", index=index)


def _written(arguments: Any) -> str:
    """A call's input as the model wrote it."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _content(answer: Answer) -> list[Block]:
    """An answer's blocks. Arguments that are no object go out as the text that the model wrote."""
    blocks: list[Block] = []
    if answer.is_redacted:
        blocks.append({"type": "redacted_thinking", "data": sealed(answer.reasoning)})
    elif answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": signature(answer.reasoning)})
    if answer.text or answer.refusal:
        blocks.append({"type": "text", "text": answer.text or answer.refusal})
    for call in answer.calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": _parsed(arguments)})
    return blocks


def _parsed(arguments: str) -> Any:
    try:
        value = json.loads(arguments if arguments.strip() else "{}")
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _segments(body: Mapping[str, Any], flat: Sequence[Block]) -> Iterator[Segment]:
    """The prompt in its order: what the request sets, tools, system, then the blocks of the messages."""
    names = body.keys() - {"messages", "tools", "system", "cache_control"}
    yield Segment(text=read_text({name: body[name] for name in sorted(names)}))
    parts = [*body.get("tools", []), *_blocks(body.get("system") or []), *flat]
    for place, part in enumerate(parts, start=1):
        is_last = place == len(parts) and bool(body.get("cache_control"))
        yield Segment(text=read_text(part), is_marked=bool(part.get("cache_control")) or is_last or _has_mark(part))


def _has_mark(part: Block) -> bool:
    """A breakpoint inside a tool's result."""
    content = part.get("content")
    return isinstance(content, list) and any(inner.get("cache_control") for inner in content)


def _as_chat(turns: Sequence[tuple[str, list[Block]]]) -> Iterator[Message]:
    """Each block's text as a message of its own: the newest one is what is answered."""
    for role, blocks in turns:
        for block in blocks:
            yield {"role": role, "content": text_of(block.get("content") or [block])}
