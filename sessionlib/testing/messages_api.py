"""The fake server's Anthropic Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sessionlib.testing.answers import Answer
from sessionlib.testing.observations import Prompt
from sessionlib.testing.wire import Asked, Message, Refused, Response, Spent, require_model, text_of

MAX_BREAKPOINTS = 4
"""Cache breakpoints that a request may have (API guide, prompt caching)."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
Block = dict[str, Any]


class MessagesApi:
    """POST /v1/messages."""

    name = "messages"

    def read(self, body: Mapping[str, Any], text: str) -> Asked:
        """What is asked. A prompt is compared block by block, each with its role."""
        require_model(body)
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            raise _refused("max_tokens: Field required")
        turns = [(message["role"], _blocks(message["content"])) for message in body["messages"]]
        _check(body, turns)
        flat = [{**block, "role": role} for role, blocks in turns for block in blocks]
        head = {name: value for name, value in body.items() if name != "messages"}
        return Asked(
            messages=[{"role": "system", "content": text_of(body.get("system"))}, *_as_chat(turns)],
            prompt=Prompt.of({**head, "messages": flat}),
            text=text,
        )

    def answer(self, body: Mapping[str, Any], key: str, answer: Answer, spent: Spent) -> Response:
        is_cached = '"cache_control"' in json.dumps(body)
        read_tokens = spent.cached_tokens if is_cached else 0
        written_tokens = spent.prompt_tokens - read_tokens if is_cached else 0
        usage = {
            "input_tokens": spent.prompt_tokens - read_tokens - written_tokens,
            "cache_creation_input_tokens": written_tokens,
            "cache_read_input_tokens": read_tokens,
            "output_tokens": spent.completion_tokens,
        }
        stop_reason = "refusal" if answer.refusal else "tool_use" if answer.calls else "end_turn"
        message = {"id": f"msg_{quote(key)}", "type": "message", "role": "assistant", "model": body["model"]}
        return Response.json(
            {**message, "content": _content(answer), "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}
        )

    def error(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Response:
        del code  # these errors have a type only
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return Response.json({"type": "error", "error": {"type": kind, "message": message}}, status, headers)

    def above(self, window_tokens: int, prompt_tokens: int) -> Response:
        return self.error(400, f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum", "")


def _content(answer: Answer) -> list[Block]:
    """An answer's blocks. Arguments that are no object go out as the text that the model wrote."""
    blocks: list[Block] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": "c2lnbmVk"})
    if answer.text or answer.refusal:
        blocks.append({"type": "text", "text": answer.text or answer.refusal})
    for call in answer.calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": _parsed(arguments)})
    return blocks


def _parsed(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _as_chat(turns: Sequence[tuple[str, list[Block]]]) -> Iterator[Message]:
    """Each block's text as a message of its own: the newest one is what is answered."""
    for role, blocks in turns:
        for block in blocks:
            yield {"role": role, "content": text_of(block.get("content") or [block])}


def _check(body: Mapping[str, Any], turns: Sequence[tuple[str, list[Block]]]) -> None:
    """Refuse what the API does: first and last message, blank texts, names, results without calls, calls without."""
    if not turns or turns[0][0] != "user":
        raise _refused("messages: first message must use the user role")
    if turns[-1][0] != "user":
        raise _refused("the conversation must end with a user message")
    if json.dumps(body).count('"cache_control":') > MAX_BREAKPOINTS:
        raise _refused(f"a maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided")
    for tool in body.get("tools", []):
        if not _NAME.fullmatch(tool["name"]):
            raise _refused("tools: name must match ^[a-zA-Z0-9_-]{1,128}$")
    open_ids: set[str] = set()
    for position, (role, blocks) in enumerate(turns):
        open_ids = _check_turn(position, role, blocks, open_ids)
    _check_thinking(body, turns)


def _check_turn(position: int, role: str, blocks: Sequence[Block], open_ids: set[str]) -> set[str]:
    """Ids of the calls that the next message has to answer."""
    if role not in {"user", "assistant"} or not blocks:
        raise _refused(f"messages.{position}: must have a known role and content")
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        raise _refused(f"messages.{position}: text content blocks must contain non-whitespace text")
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if set(results) != open_ids or len(results) != len(open_ids):
        raise _refused(
            f"messages.{position}: each tool_use must have its tool_result in the next message, and no other"
        )
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise _refused(f"messages.{position}: tool_result blocks must come first")
    called = [block for block in blocks if block["type"] == "tool_use"]
    for block in called:
        if (
            not isinstance(block["input"], dict)
            or not _CALL_ID.fullmatch(block["id"])
            or not _NAME.fullmatch(block["name"])
        ):
            raise _refused(f"messages.{position}: tool_use must have a plain id and name, and an object as input")
    return {block["id"] for block in called}


def _check_thinking(body: Mapping[str, Any], turns: Sequence[tuple[str, list[Block]]]) -> None:
    """With a thinking budget, the message whose calls are answered must begin with its thinking."""
    is_loop = any(block["type"] == "tool_result" for block in turns[-1][1])
    if body.get("thinking", {}).get("type") == "enabled" and is_loop and turns[-2][1][0]["type"] != "thinking":
        raise _refused("a final assistant message must start with a thinking block")


def _refused(message: str) -> Refused:
    return Refused(400, message, "invalid_request")
