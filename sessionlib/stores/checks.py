"""What is refused before any store is asked. Every store calls these first, so that all refuse alike."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from sessionlib.entries import require_encodable
from sessionlib.errors import InvalidInput
from sessionlib.ids import require_id
from sessionlib.stores.contract import (
    JOB_LANES,
    Adoption,
    Grant,
    HandoffRequest,
    JournalEntry,
    Lane,
    OpenRequest,
    RoundCommit,
    Settled,
    SubmitRequest,
    TurnInput,
)


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
    if not -1 <= commit.input_index < len(commit.entries):
        raise InvalidInput("input_index", commit.input_index, "must be the position of an entry, or -1")


def check_adoption(adoption: Adoption) -> None:
    check_token(adoption.layout_token)
    check_count("dropped_count", adoption.dropped_count)
    check_count("line_tokens", adoption.line_tokens)
    check_data("figures", adoption.figures)
    if bool(adoption.dropped_count) != bool(adoption.chunk):
        raise InvalidInput("chunk", len(adoption.chunk), "must be given exactly if entries leave")


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
