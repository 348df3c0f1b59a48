"""Bytes → JSON: one document, or an object a line. Whatever is wrong is refused with its place."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

from sessionlib.errors import InvalidInput

FORMATS = (
    'understood are OpenAI chat messages (a JSON list, {"messages": […]}, or JSONL), Claude Code sessions (JSONL, or '
    '{"events": […]}), tau-bench episodes ({"sessions": […]}) and LoCoMo dialogues ({"conversations": […]})'
)
"""What can be read, for error texts."""

_EXCERPT_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Lines:
    """The values of a JSONL file with their line numbers, 1 first; blank lines are passed over."""

    numbered: tuple[tuple[int, Any], ...]


class _NotAllowed(ValueError):
    """A number that JSON does not have."""


def decode(data: bytes, source: str) -> Any:
    """The JSON document that *data* is, or its Lines. Raises InvalidInput."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        rule = f"must be UTF-8 text, and is not at byte {exc.start}; {FORMATS}"
        raise InvalidInput(source, data[exc.start : exc.start + 16], rule) from None
    if text.lstrip()[:1] not in ("[", "{"):
        raise InvalidInput(source, text[:_EXCERPT_CHARACTERS], f"must hold a recorded session; {FORMATS}")
    try:
        return _parsed(text)
    except json.JSONDecodeError as exc:
        if exc.msg != "Extra data":
            _refuse(source, exc.lineno, text, exc)
    except (ValueError, RecursionError) as exc:
        _refuse(source, 1, text, exc)
    return Lines(tuple(_line(source, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()))


def _line(source: str, number: int, line: str) -> tuple[int, Any]:
    try:
        return number, _parsed(line)
    except (ValueError, RecursionError) as exc:
        _refuse(source, number, line, exc)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_constant, parse_float=_finite)


def _constant(name: str) -> NoReturn:
    raise _NotAllowed(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotAllowed(f"{digits} is beyond what a number can be")
    return number


def _refuse(source: str, line_number: int, text: str, error: Exception) -> NoReturn:
    """Name what the parser found, and what that may mean."""
    reason, excerpt = str(error), text[:_EXCERPT_CHARACTERS]
    if isinstance(error, json.JSONDecodeError):
        reason = f"{error.msg} at column {error.colno}; is the file cut off?"
        excerpt = text[max(0, error.pos - _EXCERPT_CHARACTERS) : error.pos + 1]
    elif isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    raise InvalidInput(f"{source}, line {line_number}:", excerpt, f"must be JSON ({reason}); {FORMATS}") from None
