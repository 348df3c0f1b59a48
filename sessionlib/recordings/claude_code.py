"""Claude Code: its session files, and the same reduced to events.

A line of a session file is an object with a `type`. `user` and `assistant` hold a `message` of the Messages API; an
assistant message is written as several lines, one a content block, that share `message.id` and repeat its usage.
A compaction leaves a `system` line of subtype `compact_boundary` and a user line marked `isCompactSummary`. The format
is not documented by its maker: what is not known here is counted by its type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessionlib.recordings.assembly import Assembly
from sessionlib.recordings.content import Fields, anthropic_usage, assistant_content, fields, kind, user_content
from sessionlib.recordings.values import Recording, Skip


def read_claude_code(source: str, placed: Iterable[tuple[str, Any]]) -> Recording:
    """A session file's lines with their places."""
    assembly = Assembly(source, "claude_code")
    seen: set[str] = set()
    for place, line in placed:
        assembly.place = place
        line = fields(assembly, line, "line")
        uuid = str(line.get("uuid") or place)
        reason = Skip.REPEATED_LINE if uuid in seen else _skipped_line(assembly, line)
        seen.add(uuid)
        if reason:
            assembly.skip(reason)
        else:
            message = fields(assembly, line.get("message"), "message")
            message_id = message.get("id") or line.get("requestId") or place
            _add(assembly, line["type"], str(message_id), message.get("content"), message.get("usage"))
    return assembly.finish()


def read_events(source: str, placed: Iterable[tuple[str, Any]]) -> Recording:
    """Events with their places: messages and compact boundaries."""
    assembly = Assembly(source, "claude_code_events")
    for place, event in placed:
        assembly.place = place
        event = fields(assembly, event, "event")
        if event.get("compact_summary") or event.get("kind") == "compact_boundary":
            assembly.skip(Skip.COMPACTION)
        elif event.get("kind") != "message":
            assembly.skip(f"line of type {kind(assembly, event.get('kind'))}")
        elif event.get("meta"):
            assembly.skip(Skip.META)
        else:
            message_id = str(event.get("request") or place)
            _add(assembly, event.get("role"), message_id, event.get("blocks"), event.get("usage"))
    return assembly.finish()


def _skipped_line(assembly: Assembly, line: Fields) -> str | None:
    """Why a line is not part of the conversation; None if it is."""
    line_type = kind(assembly, line.get("type"))
    if line.get("isSidechain"):
        return Skip.SIDECHAIN
    if line.get("isCompactSummary") or line.get("subtype") == "compact_boundary":
        return Skip.COMPACTION
    if line_type == "system":
        return Skip.NOTICE
    if line_type not in ("user", "assistant"):
        return f"line of type {line_type}"
    if line.get("isMeta"):
        return Skip.META
    return Skip.API_ERROR if line.get("isApiErrorMessage") else None


def _add(assembly: Assembly, role: object, message_id: str, content: object, usage: object) -> None:
    if role == "user":
        user_content(assembly, content)
    elif role == "assistant":
        assistant_content(assembly, message_id, content)
        reported = anthropic_usage(usage)
        if reported is not None:
            assembly.usage(message_id, reported)
    else:
        assembly.skip(f"message of role {kind(assembly, role)}")
