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
from sessionlib.providers.overflow_texts import Sizes, is_overflow, sizes_in
from sessionlib.providers.waits import wished_seconds
from sessionlib.providers.wire_values import part

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
_TOO_LARGE = frozenset({400, 413, 422})
_OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
    }
)
_NO_QUOTA_CODE = "insufficient_quota"
_FORGOTTEN_CODE = "previous_response_not_found"
_HANDLE_FIELD = "previous_response_id"
_KNOWN_WORDS = frozenset({*_STATUSES, *_OVERFLOW_CODES, _FORGOTTEN_CODE, _NO_QUOTA_CODE})
"""Codes and types that say nothing of a request, whatever it is about."""


def refusal(status: int, answer: Any, headers: Mapping[str, str], is_sent: Callable[[str], bool]) -> ProviderError:
    """The error that an error answer stands for: worth another try, not worth it, above the window, or forgotten.

    *is_sent* tells whether a text is part of the request or its key, or holds that key.
    """
    fields = _fields_of(answer)
    code, kind, message = (_text(fields.get(name)) for name in ("code", "type", "message"))
    named = [f"HTTP {status}", *dict.fromkeys(filter(None, (_word(code, is_sent), _word(kind, is_sent))))]
    kept = _shortened(message, is_sent)
    text = f"{', '.join(named)}: {kept}" if kept else ", ".join(named)
    if status in {400, 404} and (code == _FORGOTTEN_CODE or fields.get("param") == _HANDLE_FIELD):
        return HandleForgotten(text)  # unknown, expired, or never kept (where data is not retained)
    told = f"{message} {_text(part(fields.get('metadata'), 'raw'))}"  # OpenRouter: what the provider behind it said
    if not _OVERFLOW_CODES.isdisjoint({code, kind}) or (status in _TOO_LARGE and is_overflow(told)):
        return WindowOverflow(text, *_sizes(told, fields))
    if code == _NO_QUOTA_CODE:
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


def _fields_of(answer: Any) -> Mapping[str, Any]:
    """The fields of an error: under `error`, or, as Mistral and older vLLM have it, of the answer itself.

    Gemini puts it in a list.
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        return {}
    error = answer.get("error")
    if isinstance(error, dict):
        return error
    return {**answer, "message": error or answer.get("message") or answer.get("detail")}


def _sizes(told: str, fields: Mapping[str, Any]) -> Sizes:
    """The window and what was sent, in tokens, from the text or, as llama.cpp has them, from fields of their own."""
    limit_tokens, sent_tokens = sizes_in(told)
    if limit_tokens is not None:
        return limit_tokens, sent_tokens
    return sizes_in(f"{fields.get('n_prompt_tokens')} tokens > {fields.get('n_ctx')} maximum")


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _word(value: str, is_sent: Callable[[str], bool]) -> str:
    """A code or type as it may stand in an error text: one short word of plain characters, else "".

    One that is not known is withheld if it repeats what was sent.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", value, re.ASCII):
        return ""
    return value if value in _KNOWN_WORDS or not _is_echo(value, is_sent) else ""


def _shortened(message: str, is_sent: Callable[[str], bool]) -> str:
    """The beginning of *message* without what it quotes; "" if it repeats what was sent."""
    plain = re.sub(r"(?<!\w)(['\"`]).*?\1", "…", " ".join(message.split()))[:MESSAGE_CHARACTERS]
    return "" if _is_echo(plain, is_sent) else plain


def _is_echo(text: str, is_sent: Callable[[str], bool]) -> bool:
    """Whether any ECHO_CHARACTERS of *text* in a row, or all of a shorter one, were sent."""
    places = range(max(1, len(text) - ECHO_CHARACTERS + 1))
    return any(is_sent(text[at : at + ECHO_CHARACTERS]) for at in places)
