"""A tool call's arguments as they are sent: an object of JSON, whatever the model wrote and history keeps."""

from __future__ import annotations

import json
from typing import Any

UNPARSED_ARGUMENTS = "INVALID_JSON"
"""The key under which arguments that are no JSON object are sent back (Anthropic API guide, fine-grained tool
streaming). Servers of the other APIs read the arguments of earlier calls too, and some refuse what they cannot read."""


def arguments_object(text: str) -> dict[str, Any]:
    """Arguments as an object; some models write nothing where there are none."""
    return _parsed(text) if text.strip() else {}


def arguments_text(text: str) -> str:
    """Arguments as the text of an object: letter by letter what the model wrote, if that is one."""
    value = arguments_object(text)
    is_written = bool(text.strip()) and UNPARSED_ARGUMENTS not in value
    return text if is_written else json.dumps(value, ensure_ascii=False)


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {UNPARSED_ARGUMENTS: text}
    return value if isinstance(value, dict) else {UNPARSED_ARGUMENTS: text}
