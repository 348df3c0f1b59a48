"""What all formats share: fields of the right type, and content that is a string or a list of parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sessionlib.recordings.assembly import Assembly
from sessionlib.recordings.values import Skip
from sessionlib.tokens import Usage

Fields = Mapping[str, Any]

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Part type → the field that has its text."""
_IMAGE_PARTS = frozenset({"image", "image_url", "input_image"})
_THINKING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_KIND_CHARACTERS = 40
"""An unknown kind comes from the file and becomes a key of `skipped`: cut."""


def fields(assembly: Assembly, value: object, what: str) -> Fields:
    """*value* if it is an object."""
    if not isinstance(value, dict):
        assembly.refuse(value, f"must have an object as {what}")
    return value


def items(assembly: Assembly, value: object, what: str) -> list[Any]:
    """*value* if it is a list."""
    if not isinstance(value, list):
        assembly.refuse(value, f"must have a list as {what}")
    return value


def string(assembly: Assembly, value: object, what: str) -> str:
    """*value* if it is a string."""
    if not isinstance(value, str):
        assembly.refuse(value, f"must have a string as {what}")
    return value


def name(assembly: Assembly, value: object, what: str) -> str:
    """*value* if it is a string that is not blank."""
    if not string(assembly, value, what).strip():
        assembly.refuse(value, f"must have a {what} that is not blank")
    return str(value)


def kind(assembly: Assembly, value: object) -> str:
    """What a type or role is called where it is counted."""
    return assembly.checked(string(assembly, value, "type or role"))[:_KIND_CHARACTERS]


def image(caption: object = None) -> str:
    """What stands where an image was."""
    return f"[image: {caption}]" if isinstance(caption, str) and caption else "[image]"


def parts(assembly: Assembly, content: object) -> Iterator[str | Fields]:
    """Content as texts and, where it has them, `tool_use` and `tool_result` blocks; the rest is counted."""
    if content is None:
        return
    if isinstance(content, str):
        yield content
        return
    for part in items(assembly, content, "content"):
        if isinstance(part, str):
            yield part
            continue
        part_kind = kind(assembly, fields(assembly, part, "part").get("type"))
        if part_kind in _TEXT_PARTS:
            yield string(assembly, part.get(_TEXT_PARTS[part_kind]), part_kind)
        elif part_kind in _IMAGE_PARTS:
            assembly.skip(Skip.IMAGE)
            yield image()
        elif part_kind in _THINKING_PARTS:
            assembly.skip(Skip.THINKING)
        elif part_kind in ("tool_use", "tool_result"):
            yield part
        else:
            assembly.skip(f"part of type {part_kind}")


def plain(assembly: Assembly, content: object) -> str:
    """Content that has text only, its parts joined by newlines."""
    texts = []
    for part in parts(assembly, content):
        if isinstance(part, str):
            texts.append(part)
        else:
            assembly.refuse(part, "must have no tool blocks here")
    return "\n".join(texts)


def user_content(assembly: Assembly, content: object) -> None:
    """What a user message holds: its texts are one input, its tool results answer calls."""
    texts = []
    for part in parts(assembly, content):
        if isinstance(part, str):
            texts.append(part)
        elif part["type"] == "tool_result":
            call_id = string(assembly, part.get("tool_use_id"), "tool_use_id")
            assembly.result(call_id, plain(assembly, part.get("content")))
        else:
            assembly.refuse(part, "must have no tool_use in a user message")
    if texts:
        assembly.user("\n".join(texts))


def assistant_content(assembly: Assembly, message_id: str, content: object) -> None:
    """What an assistant message holds: texts and calls."""
    for part in parts(assembly, content):
        if isinstance(part, str):
            assembly.assistant(message_id, part)
        elif part["type"] == "tool_use":
            add_call(assembly, message_id, part.get("id"), part.get("name"), part.get("input"))
        else:
            assembly.refuse(part, "must have no tool_result in an assistant message")


def add_call(assembly: Assembly, message_id: str, call_id: object, tool_name: object, arguments: object) -> None:
    """A call, its arguments as they were written, or as JSON if the recording has them parsed; "{}" if it has none."""
    parsed = {} if arguments is None else arguments
    written = parsed if isinstance(parsed, str) else json.dumps(parsed, ensure_ascii=False)
    assembly.call(message_id, name(assembly, call_id, "call id"), name(assembly, tool_name, "tool name"), written)


def anthropic_usage(value: object) -> Usage | None:
    """A usage block of the Messages API in tokens; None where it says nothing readable."""
    if not isinstance(value, dict):
        return None
    uncached, written, read, output = (
        value.get(field) or 0
        for field in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    if not all(type(count) is int and count >= 0 for count in (uncached, written, read, output)):
        return None
    return Usage(prompt_tokens=uncached + written + read, completion_tokens=output, cached_tokens=read)
