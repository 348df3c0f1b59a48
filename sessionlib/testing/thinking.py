"""Reasoning as the fake provider server hands it out: signed or sealed, so that it can be told when it comes back."""

from __future__ import annotations

import base64
import hashlib
import json

_SECRET = "fake provider"


def signature(thinking: str) -> str:
    """What goes with a thinking block of that text."""
    return base64.b64encode(hashlib.sha256(f"{_SECRET}/{thinking}".encode("utf-8", "replace")).digest()).decode()


def sealed(reasoning: str) -> str:
    """Reasoning that only this server reads."""
    return base64.b64encode(json.dumps([reasoning, signature(reasoning)]).encode()).decode()


def is_sealed(content: object) -> bool:
    """Whether `sealed` made *content*."""
    try:
        reasoning, signed = json.loads(base64.b64decode(str(content), validate=True))
        return bool(signed == signature(reasoning))
    except (ValueError, TypeError):
        return False
