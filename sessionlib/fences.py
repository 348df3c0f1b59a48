"""Fences: text of others inside a message, between two lines with a marker that it does not hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sessionlib.summaries.evidence import draw_marker


def fenced(title: str, text: str) -> str:
    """*text* between two lines with a marker that does not occur in it.

    Derived from the text, which cannot hold its own hash: equal texts are fenced alike, so that what is built again
    after a crash is what was built before.
    """
    draws = _draws(text)
    marker = draw_marker(lambda: next(draws), (text,))
    return f"--- {title} {marker} ---\n{text}\n--- end of {title} {marker} ---"


def _draws(text: str) -> Iterator[str]:
    digest = hashlib.sha256(text.encode()).digest()
    while True:
        yield digest.hex()[:16]
        digest = hashlib.sha256(digest).digest()
