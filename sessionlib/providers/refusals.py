"""What a provider's error answer stands for.

No error text carries content: of a provider's answer only the status, its code and type and a shortened message are
kept, and the message only if it repeats nothing of what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sessionlib.errors import HandleForgotten, ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.waits import wished_seconds

MESSAGE_CHARACTERS = 200
"""What is kept of a provider's error message."""

ECHO_CHARACTERS = 12
"""An error message that repeats this many characters of the request is withheld."""

_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
        "timeout_error": 504,
        "overloaded_error": 529,
        "context_length_exceeded": 400,
        "previous_response_not_found": 404,
        "invalid_prompt": 400,
        "bio_policy": 400,
        "misalignment_policy_violation": 400,
        "data_residency_mismatch": 400,
    }
)
"""HTTP statuses of errors that an answer of status 200 names by word (both vendors' API references, errors)."""

_TRANSIENT = frozenset({408, 409, 425, 429})
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"})
_OVERFLOW_TEXT = re.compile(
    r"context.{0,20}(length|window|size|limit)|prompt is too long|input is too long|too many (input )?tokens"
    r"|maximum (input|prompt|number of tokens)|exceeds?.{0,40}tokens",
    re.IGNORECASE,
)
_OVERFLOW_LIMITS = (
    re.compile(r"> (\d[\d,_]{2,})"),  # "210000 tokens > 200000 maximum", "context limit: 190000 + 8192 > 200000"
    re.compile(
        r"(?:maximum|max|limit|window|size|up to)\D{0,60}?(\d[\d,_]{2,})", re.IGNORECASE
    ),  # "maximum context length is 8,192 tokens"
)
_NUMBER = re.compile(r"\d[\d,_]{2,}")
_LARGEST_RATIO = 100
"""A number that is larger than this many windows is not what was sent."""

_FORGOTTEN_CODE = "previous_response_not_found"
_HANDLE_FIELD = "previous_response_id"


def refusal(status: int, answer: Any, headers: Mapping[str, str], is_sent: Callable[[str], bool]) -> ProviderError:
    """The error that an error answer stands for: worth another try, not worth it, above the window, or forgotten.

    *is_sent* tells whether a text is part of the request.
    """
    error = answer.get("error") if isinstance(answer, dict) else None
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {"message": error}
    code, kind = (_word(fields.get(name)) for name in ("code", "type"))
    message = fields.get("message") if isinstance(fields.get("message"), str) else ""
    named = ", ".join([f"HTTP {status}", *dict.fromkeys(filter(None, (code, kind)))])
    text = f"{named}: {kept}" if (kept := _shortened(str(message), is_sent)) else named
    if status in {400, 404} and (code == _FORGOTTEN_CODE or fields.get("param") == _HANDLE_FIELD):
        return HandleForgotten(text)  # unknown, expired, or never kept (where data is not retained)
    if status in {400, 413, 422} and (code in _OVERFLOW_CODES or _OVERFLOW_TEXT.search(str(message))):
        return WindowOverflow(text, *_sizes_in(str(message)))
    if code == "insufficient_quota":
        return ProviderRejected(text)  # sent with 429, but no wait brings the money back
    if status in _TRANSIENT or status >= 500:
        return ProviderUnavailable(text, wished_seconds(status, headers))
    return ProviderRejected(text)


def error_status(error: Any) -> int:
    """The HTTP status that an error inside an answer stands for; 502 if it names none."""
    named = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    for value in named:
        if isinstance(value, int) and 400 <= value < 600:
            return value
        if isinstance(value, str) and value in _STATUSES:
            return _STATUSES[value]
    return 502


def _sizes_in(message: str) -> tuple[int | None, int | None]:
    """What an overflow message names, in tokens: the window, and what was sent, the largest number that is above it."""
    named = next(filter(None, (pattern.search(message) for pattern in _OVERFLOW_LIMITS)), None)
    if named is None:
        return None, None
    limit, *others = (int(re.sub(r"\D", "", number)) for number in (named[1], *_NUMBER.findall(message)))
    return limit, max((other for other in others if limit < other <= _LARGEST_RATIO * limit), default=None)


def _word(value: object) -> str:
    """A code or type as it may stand in an error text: one short word of plain characters, else ""."""
    text = str(value) if isinstance(value, str | int) else ""
    return text if re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", text, re.ASCII) else ""


def _shortened(message: str, is_sent: Callable[[str], bool]) -> str:
    """The beginning of *message* without what it quotes; "" if it repeats what was sent."""
    plain = re.sub(r"(?<!\w)(['\"`]).*?\1", "…", " ".join(message.split()))[:MESSAGE_CHARACTERS]
    windows = range(max(1, len(plain) - ECHO_CHARACTERS + 1))
    is_echo = len(plain) >= ECHO_CHARACTERS and any(is_sent(plain[at : at + ECHO_CHARACTERS]) for at in windows)
    return "" if is_echo else plain
