"""Purpose: what a summary is for, and the headings that it must have for that (spec/summaries C2)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Purpose(StrEnum):
    """What a summary is for."""

    CONTINUATION = "continuation"
    """The agent itself goes on from it: the consolidations of a rotation. It alone takes a previous record."""
    HANDOFF = "handoff"
    """Another agent takes over a task that is stated apart."""
    DIGEST = "digest"
    """An entry of the journal."""


_ACCOUNT = (
    "Scope",
    "Constraints & Preferences",
    "Work & Evidence",
    "Key Decisions",
    "Open Questions & Risks",
    "Critical Context",
    "Relevant Files",
    "Skills Invoked",
)

HEADINGS: Mapping[Purpose, tuple[str, ...]] = MappingProxyType(
    {
        Purpose.CONTINUATION: (*_ACCOUNT, "Next Steps"),
        Purpose.HANDOFF: _ACCOUNT,
        Purpose.DIGEST: ("Done", "Learned", "Surprised", "Unfinished"),
    }
)
"""The `## ` headings of each purpose, all of them, in this order."""

EMPTY_BULLET: Mapping[Purpose, str] = MappingProxyType(
    {Purpose.CONTINUATION: "- (none)", Purpose.HANDOFF: "- (none)", Purpose.DIGEST: "- none"}
)
"""What stands under a heading that has nothing."""

DIGEST_LIMIT_BYTES = 16_384
"""The most that a digest may take, in bytes of UTF-8 (C5); exactly as many are accepted."""
