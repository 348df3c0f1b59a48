"""Tool names and call ids on the wire: APIs allow letters, digits, `_` and `-` only, and `history.read_item` has a dot.

What is not allowed is written as `-` code point in hexadecimal `-`: `history-2e-read_item`. In such a name, and in one
that looks like it, hyphens are written so too; that makes the mapping reversible without a table. Call ids need no way
back.
"""

from __future__ import annotations

import hashlib
import re

UNNAMED = "tool"
"""Stands for a call whose name history does not know."""

_ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r"-([0-9a-f]{2,6})-")


def to_wire(name: str) -> str:
    """*name* in the wire's alphabet."""
    if _ALLOWED.fullmatch(name) and not _ESCAPED.search(name):
        return name
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):02x}-", name) or UNNAMED


def from_wire(name: str) -> str:
    """The name that `to_wire` was given."""
    return _ESCAPED.sub(_character, name)


def _character(match: re.Match[str]) -> str:
    code_point = int(match[1], 16)
    return chr(code_point) if code_point <= 0x10FFFF and not 0xD800 <= code_point <= 0xDFFF else match[0]


def id_to_wire(call_id: str, allowed: re.Pattern[str]) -> str:
    """*call_id* itself if it is *allowed*, as those are that the API gave; a digest of it otherwise."""
    if allowed.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"
