"""What the fake server's Messages API refuses, as the real one does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sessionlib.testing.thinking import is_sealed, signature
from sessionlib.testing.wire import Refused

MAX_BREAKPOINTS = 4
"""Cache breakpoints that a request may have (API guide, prompt caching)."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)

Block = dict[str, Any]


def check(body: Mapping[str, Any], turns: Sequence[tuple[str, list[Block]]]) -> None:
    """Raises Refused: first and last message, blank texts, names, results without calls and calls without, thinking."""
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        raise refused("max_tokens: Field required")
    if not turns or turns[0][0] != "user":
        raise refused("messages: first message must use the user role")
    if turns[-1][0] != "user":
        raise refused("the conversation must end with a user message")
    if json.dumps(body).count('"cache_control":') > MAX_BREAKPOINTS:
        raise refused(f"a maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided")
    for tool in body.get("tools", []):
        if not _NAME.fullmatch(tool["name"]):
            raise refused("tools: name must match ^[a-zA-Z0-9_-]{1,128}$")
    open_ids: set[str] = set()
    for position, (role, blocks) in enumerate(turns):
        _check_thinking(position, role, blocks)
        open_ids = _check_turn(position, role, blocks, open_ids)
    _check_loop(body, turns)


def refused(message: str) -> Refused:
    return Refused(400, message, "invalid_request")


def _check_turn(position: int, role: str, blocks: Sequence[Block], open_ids: set[str]) -> set[str]:
    """Ids of the calls that the next message has to answer."""
    if role not in {"user", "assistant"} or not blocks:
        raise refused(f"messages.{position}: must have a known role and content")
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        raise refused(f"messages.{position}: text content blocks must contain non-whitespace text")
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if set(results) != open_ids or len(results) != len(open_ids):
        raise refused(f"messages.{position}: each tool_use must have its tool_result in the next message, and no other")
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise refused(f"messages.{position}: tool_result blocks must come first")
    called = [block for block in blocks if block["type"] == "tool_use"]
    for block in called:
        is_plain = _CALL_ID.fullmatch(block["id"]) and _NAME.fullmatch(block["name"])
        if not isinstance(block["input"], dict) or not is_plain:
            raise refused(f"messages.{position}: tool_use must have a plain id and name, and an object as input")
    return {block["id"] for block in called}


def _check_thinking(position: int, role: str, blocks: Sequence[Block]) -> None:
    """Thinking is the assistant's, comes back as it was given, and is not marked for the cache."""
    for place, block in enumerate(blocks):
        where = f"messages.{position}.content.{place}"
        if block["type"] not in {"thinking", "redacted_thinking"}:
            continue
        if role != "assistant" or "cache_control" in block:
            raise refused(f"{where}: thinking blocks stand in assistant messages, without cache_control")
        if block["type"] == "thinking" and block["signature"] != signature(block["thinking"]):
            raise refused(f"{where}: Invalid `signature` in `thinking` block")
        if block["type"] == "redacted_thinking" and not is_sealed(block["data"]):
            raise refused(f"{where}: Invalid `data` in `redacted_thinking` block")


def _check_loop(body: Mapping[str, Any], turns: Sequence[tuple[str, list[Block]]]) -> None:
    """With a thinking budget, the message whose calls are answered must begin with its thinking."""
    is_loop = any(block["type"] == "tool_result" for block in turns[-1][1])
    is_budgeted = (body.get("thinking") or {}).get("type") == "enabled"
    if is_budgeted and is_loop and turns[-2][1][0]["type"] not in {"thinking", "redacted_thinking"}:
        raise refused("a final assistant message must start with a thinking block")
