"""What the fake server's Responses API refuses, as the real one does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sessionlib.testing.thinking import is_sealed
from sessionlib.testing.wire import Refused

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_NAME = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)

Item = dict[str, Any]


def check(items: Sequence[Item], tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises Refused: nothing at all, unknown items, results without calls, calls without results, reasoning."""
    if not items:
        raise refused("one of input or previous_response_id must be provided")
    for tool in tools:
        if tool["type"] == "function" and not _NAME.fullmatch(tool["name"]):
            raise refused("tools: name must match ^[a-zA-Z0-9_-]+$")
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
                raise refused(f"No tool call found for function call output with call_id {item['call_id']}.")
            case _:
                raise refused(f"input[{position}] is no known item")
    if calls - answered:
        raise refused(f"No tool output found for function call {min(calls - answered)}.")


def check_reasoning(sent: Sequence[Item]) -> None:
    """Reasoning that is sent again is followed by what it led to, and sealed as it was given. Raises Refused."""
    for item, following in zip(sent, [*sent[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        content = item.get("encrypted_content")
        if content is not None and not is_sealed(content):
            raise Refused(400, "The encrypted content could not be verified.", "invalid_encrypted_content")
        led_to = following.get("type", "message")
        if led_to not in {"reasoning", "function_call"} and following.get("role") != "assistant":
            raise refused(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            )


def refused(message: str) -> Refused:
    return Refused(400, message, "invalid_request")
