"""OpenAI chat messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessionlib.recordings.assembly import Assembly
from sessionlib.recordings.content import (
    Fields,
    add_call,
    assistant_content,
    fields,
    items,
    kind,
    plain,
    string,
    user_content,
)
from sessionlib.recordings.values import Recording, Skip


def read_chat(source: str, placed: Iterable[tuple[str, Any]], instructions: object = None) -> Recording:
    """Messages with their places. *instructions* stand beside them in Anthropic's shape."""
    assembly = Assembly(source, "openai_chat")
    if instructions is not None:
        assembly.place = "system"
        assembly.system(plain(assembly, instructions))
    for place, message in placed:
        assembly.place = place
        add_message(assembly, place, fields(assembly, message, "message"))
    return assembly.finish()


def add_message(assembly: Assembly, message_id: str, message: Fields) -> None:
    """One message; an assistant message is a round of its own."""
    role, content = message.get("role"), message.get("content")
    if role in ("system", "developer"):
        assembly.system(plain(assembly, content))
    elif role == "user":
        user_content(assembly, content)
    elif role == "assistant":
        _add_assistant(assembly, message_id, message)
    elif role == "tool":
        call_id = string(assembly, message.get("tool_call_id"), "tool_call_id")
        assembly.result(call_id, plain(assembly, content))
    elif role == "function":
        assembly.result(string(assembly, message.get("name"), "name"), plain(assembly, content))
    else:
        assembly.skip(f"message of role {kind(assembly, role)}")


def _add_assistant(assembly: Assembly, message_id: str, message: Fields) -> None:
    if message.get("reasoning_content") or message.get("reasoning"):
        assembly.skip(Skip.THINKING)
    assistant_content(assembly, message_id, message.get("content"))
    assistant_content(assembly, message_id, message.get("refusal"))
    legacy = message.get("function_call")
    if legacy:
        # The API's first shape of a call: one at a time, without an id, answered under the function's name.
        tool_name = fields(assembly, legacy, "function_call").get("name")
        add_call(assembly, message_id, tool_name, tool_name, legacy.get("arguments"))
    for call in items(assembly, message.get("tool_calls") or [], "tool_calls"):
        # tau-bench keeps name and arguments beside the id, the API keeps them under `function`.
        function = fields(assembly, fields(assembly, call, "tool call").get("function", call), "function")
        add_call(assembly, message_id, call.get("id"), function.get("name"), function.get("arguments"))
