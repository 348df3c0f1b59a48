"""What is refused before any store is asked. Every store calls these first, so that all refuse alike."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from sessionlib.entries import require_encodable
from sessionlib.errors import InvalidInput
from sessionlib.ids import require_id
from sessionlib.stores.contract import (
    JOB_LANES,
    Adoption,
    Grant,
    Handle,
    HandoffRequest,
    JournalEntry,
    Lane,
    Limits,
    OpenRequest,
    RoundCommit,
    Settled,
    SubmitRequest,
    TurnInput,
)

MOST_PARTS = 4_096
"""Parts that postings may be cut into: an adoption writes all of them."""

MOST_MERGED = 64
"""Postings that one adoption may replace: it deletes all of their parts."""

NOTE_NAME_LENGTH = 200
"""The longest name of a note, in characters."""

_EVENT_ID = re.compile(r"[0-9]{1,18}(-[0-9]{1,18})?")
"""What the stores number events by: a count, or Redis' milliseconds and count. Longer ones fit no store's numbers."""

NOTE_LIMITS = {
    "note_bytes": "must leave the note within {} bytes",
    "hint_bytes": "must leave this note within {} bytes: every fresh window begins with it",
    "notes_limit": "must not make one more note: the session may have {}",
    "notes_bytes": "must leave the session's notes within {} bytes together",
}
"""What breaking a limit of `Limits` means to who writes a note."""


def check_open(request: OpenRequest) -> None:
    require_id("session_id", request.session_id)
    require_id("agent.name", request.agent.name)
    require_id("agent.digest", request.agent.digest)
    _check_sizes(len(request.history), request.sizes)
    check_count("line_tokens", request.line_tokens)
    if request.retention_seconds is not None:
        check_seconds("retention_seconds", request.retention_seconds)
    if request.journal.idle_seconds is not None:
        check_seconds("journal.idle_seconds", request.journal.idle_seconds)


def check_submit(request: SubmitRequest) -> None:
    require_id("session_id", request.session_id)
    require_id("turn_id", request.turn_id)
    _check_input(request.input)
    check_seconds("timeout_seconds", request.timeout_seconds)
    check_seconds("open_calls_seconds", request.open_calls_seconds)


def check_token(token: str) -> None:
    """A lane's token: random, never empty."""
    require_id("token", token)


def check_commit(commit: RoundCommit) -> None:
    check_token(commit.commit_token)
    if not commit.entries:
        raise InvalidInput("entries", commit.entries, "must hold at least what the model answered")
    _check_sizes(len(commit.entries), commit.sizes)
    check_count("line_tokens", commit.line_tokens)
    if not math.isfinite(commit.calibration) or commit.calibration <= 0:
        raise InvalidInput("calibration", commit.calibration, "must be a positive number")
    if commit.window is not None and commit.window.tokens <= 0:
        raise InvalidInput("window", commit.window.tokens, "must be a positive number of tokens")
    if not -1 <= commit.input_index < len(commit.entries):
        raise InvalidInput("input_index", commit.input_index, "must be the position of an entry, or -1")


def check_adoption(adoption: Adoption) -> None:
    check_token(adoption.layout_token)
    check_count("dropped_count", adoption.dropped_count)
    check_count("line_tokens", adoption.line_tokens)
    check_data("figures", adoption.figures)
    if bool(adoption.dropped_count) != bool(adoption.chunk):
        raise InvalidInput("chunk", len(adoption.chunk), "must be given exactly if entries leave")
    _check_postings(adoption)


def _check_postings(adoption: Adoption) -> None:
    """Postings end with the chunk; a store keeps them beside it."""
    postings, merged_count = adoption.postings, adoption.merged_count
    if not 0 <= merged_count <= (MOST_MERGED if postings else 0):
        raise InvalidInput("merged_count", merged_count, f"must be at most {MOST_MERGED}, and 0 without postings")
    if postings is None:
        return
    check_count("postings.level", postings.level)
    if len(postings.parts) > MOST_PARTS:
        raise InvalidInput("postings.parts", len(postings.parts), f"must be at most {MOST_PARTS}")
    last_seq = adoption.first_seq + adoption.dropped_count - 1
    if not adoption.dropped_count or postings.last_seq != last_seq:
        raise InvalidInput("postings.last_seq", postings.last_seq, "must be that of the chunk")
    if not 1 <= postings.first_seq <= adoption.first_seq:
        raise InvalidInput("postings.first_seq", postings.first_seq, "must be that of the chunk or before it")


def check_step(grant: Grant, handle: Handle | None) -> None:
    if handle is not None and grant.lane is not Lane.TURN:
        raise InvalidInput("handle", handle.handle, "must be absent: only a turn's steps bring one that is kept")


def check_wanted(wanted: Sequence[tuple[int, int]]) -> None:
    for last_seq, part in wanted:
        check_count("wanted", last_seq)
        check_count("wanted", part)


def check_event_id(field: str, event_id: object) -> None:
    """Raises InvalidInput for what cannot be an event's id, or "": before all events."""
    if not isinstance(event_id, str) or (event_id and not _EVENT_ID.fullmatch(event_id)):
        raise InvalidInput(field, event_id, "must be the id of an event")


def check_note(grant: Grant, name: str, text: str, key: str) -> None:
    if grant.lane is not Lane.TURN:
        raise InvalidInput("lane", grant.lane, "must be the turn lane: other work writes no notes")
    check_note_name(name)
    require_encodable("text", text)
    check_text("key", key)


def check_note_name(name: str) -> None:
    if not name.strip() or len(name) > NOTE_NAME_LENGTH or not name.isprintable():
        raise InvalidInput("name", name, f"must be 1 to {NOTE_NAME_LENGTH} printable characters")


def note_refusal(limit: str, limits: Limits, size: int) -> InvalidInput:
    """Why a note of that size in bytes is not written: by the name of a limit, one of `NOTE_LIMITS`."""
    return InvalidInput("text", f"{size} bytes", NOTE_LIMITS[limit].format(getattr(limits, limit)))


def check_handoff(request: HandoffRequest) -> None:
    require_id("session_id", request.session_id)
    require_id("job_id", request.job_id)
    check_text("request", request.request)
    check_seconds("timeout_seconds", request.timeout_seconds)


def check_settled(grant: Grant, settled: Settled) -> None:
    check_job_lane(grant.lane)
    require_id("settle_token", settled.settle_token)
    check_text("result", settled.result)
    check_count("last_seq", settled.last_seq)
    check_data("figures", settled.figures)


def check_published(agent_name: str, entry: JournalEntry) -> None:
    require_id("agent_name", agent_name)
    require_id("session_id", entry.session_id)
    require_id("digest_id", entry.digest_id)
    check_count("first_seq", entry.first_seq)
    check_count("last_seq", entry.last_seq)
    check_text("text", entry.text)
    check_seconds("at", entry.at)
    check_data("figures", entry.figures)


def check_job_lane(lane: Lane) -> None:
    if lane not in JOB_LANES:
        raise InvalidInput("lane", lane, f"must be one of {', '.join(JOB_LANES)}")


def check_text(field: str, text: str) -> None:
    """Raises InvalidInput for a text that says nothing or that UTF-8 cannot carry."""
    if not text.strip():
        raise InvalidInput(field, text, "must not be blank")
    require_encodable(field, text)


def check_data(field: str, data: dict[str, Any]) -> None:
    """Raises InvalidInput for what JSON in UTF-8 cannot carry: NaN, infinities, objects, lone surrogates."""
    if not all(isinstance(key, str) for key in data):
        raise InvalidInput(field, sorted(map(repr, data)), "must have text as keys")
    try:
        json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as exc:
        raise InvalidInput(field, str(exc), "must be JSON data") from None


def check_seconds(field: str, value: float) -> None:
    """Raises InvalidInput unless it is a finite number of seconds, not negative."""
    if not math.isfinite(value) or value < 0:
        raise InvalidInput(field, value, "must be a finite number of seconds, not negative")


def _check_input(value: TurnInput) -> None:
    if bool(value.message.strip()) == bool(value.results):
        rule = "must be a message that is not blank" if not value.results else "must be a message or results, not both"
        raise InvalidInput("message", value.message, rule)
    require_encodable("message", value.message)
    if value.media and value.results:
        raise InvalidInput("media", len(value.media), "must stand beside a message")
    call_ids = [call_id for call_id, _ in value.results]
    for call_id, text in value.results:
        if not call_id.strip() or call_ids.count(call_id) > 1:
            raise InvalidInput("results", call_id, "must name each call once")
        require_encodable("results", call_id)
        require_encodable("results", text)


def _check_sizes(count: int, sizes: Sequence[int]) -> None:
    if len(sizes) != count:
        raise InvalidInput("sizes", len(sizes), f"must be one for each of {count} entries")
    for size in sizes:
        check_count("sizes", size)


def check_count(field: str, value: int) -> None:
    if value < 0:
        raise InvalidInput(field, value, "must not be negative")
