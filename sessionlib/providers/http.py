"""HTTP for providers: one client a process, one deadline a call, and foreign errors translated where they enter.

No error text carries content: of a provider's answer only the status, its code and type and a shortened message are
kept, and the message only if it repeats nothing of what was sent.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from sessionlib.errors import (
    HandleForgotten,
    InvalidInput,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    WindowOverflow,
)

CONNECT_SECONDS = 10.0
"""How long a connection may take to stand, whatever the call's own deadline."""

KEPT_CONNECTIONS = 64
"""Idle connections kept open; there is no limit to those in use (a front worker holds 256 calls and more)."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""No answer of a model is longer: what is, is not one."""

MESSAGE_CHARACTERS = 200
"""What is kept of a provider's error message."""

ECHO_CHARACTERS = 12
"""An error message that repeats this many characters of the request is withheld."""

_TRANSIENT = frozenset({408, 409, 425, 429})
_GONE = frozenset({404, 410})
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
_FORGOTTEN_CODE = "previous_response_not_found"
_HANDLE_FIELD = "previous_response_id"


class ProcessClient:
    """One client a process, built at its first use, and again in a forked child: connections do not survive a fork."""

    def __init__(self, build: Callable[[], httpx.Client]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._built: dict[int, httpx.Client] = {}

    def get(self) -> httpx.Client:
        process_id = os.getpid()
        with self._lock:
            if process_id not in self._built:
                client = self._build()
                weakref.finalize(self, _close, client, process_id)
                self._built[process_id] = client
            return self._built[process_id]

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        with self._lock:
            if client := self._built.pop(os.getpid(), None):
                client.close()


def _close(client: httpx.Client, process_id: int) -> None:
    if process_id == os.getpid():  # a child must not say goodbye on its parent's connections
        client.close()


def plain_client() -> httpx.Client:
    """A client without redirects (a redirected request would take its key elsewhere) and without a connection limit."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
    return httpx.Client(limits=limits, follow_redirects=False)


def require_base_url(value: str) -> str:
    """*value* without trailing slashes, if requests can be sent there. Raises InvalidInput."""
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL:
        raise InvalidInput("base_url", value, "must be a URL") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo:
        raise InvalidInput("base_url", url.host or value, "must be an http or https URL without user and password")
    return value.rstrip("/")


def post(
    client: httpx.Client,
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_seconds: float,
    is_sent: Callable[[str], bool],
) -> Any:
    """Send JSON, receive JSON, within *timeout_seconds*. *is_sent* tells whether a text is part of the request.

    httpx limits each single read, so an answer that stops halfway may take as long again before it is given up.

    Raises ProviderUnavailable, ProviderRejected, WindowOverflow and HandleForgotten. An answer that is not JSON is
    Unavailable: a proxy spoke, or the connection was cut, and the next try may go better.
    """
    deadline = time.monotonic() + timeout_seconds
    timeout = httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds))
    with (
        provider_errors(timeout_seconds),
        client.stream("POST", url, content=body, headers=dict(headers), timeout=timeout) as response,
    ):
        answer = _parsed(_received(response, deadline, timeout_seconds))
    if response.is_success and answer is None:
        raise ProviderUnavailable(f"HTTP {response.status_code}, but the answer is not JSON")
    if not response.is_success:
        raise refusal(response.status_code, answer, response.headers, is_sent)
    return answer


def delete(
    client: httpx.Client,
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    is_sent: Callable[[str], bool],
) -> None:
    """Delete what is at *url*; it is fine if nothing is there. Raises ProviderUnavailable and ProviderRejected."""
    timeout = httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds))
    with provider_errors(timeout_seconds):
        response = client.delete(url, headers=dict(headers), timeout=timeout)
    if not response.is_success and response.status_code not in _GONE:
        raise refusal(response.status_code, _parsed(response.content), response.headers, is_sent)


@contextmanager
def provider_errors(timeout_seconds: float) -> Generator[None]:
    """Turn httpx errors into ours. They are named by their kind: their texts may hold addresses and headers."""
    try:
        yield
    except httpx.TimeoutException as exc:
        raise ProviderUnavailable(f"no answer within {timeout_seconds:g} s ({type(exc).__name__})") from exc
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as exc:
        raise ProviderRejected(f"the request cannot be sent ({type(exc).__name__})") from exc
    except (httpx.RequestError, httpx.StreamError) as exc:
        raise ProviderUnavailable(f"the connection failed ({type(exc).__name__})") from exc


def refusal(status: int, answer: Any, headers: Mapping[str, str], is_sent: Callable[[str], bool]) -> ProviderError:
    """The error that an error answer stands for: worth another try, not worth it, above the window, or forgotten."""
    error = answer.get("error") if isinstance(answer, dict) else None
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {"message": error}
    code, kind = (_word(fields.get(name)) for name in ("code", "type"))
    message = fields.get("message") if isinstance(fields.get("message"), str) else ""
    named = ", ".join([f"HTTP {status}", *dict.fromkeys(filter(None, (code, kind)))])
    text = f"{named}: {kept}" if (kept := _shortened(str(message), is_sent)) else named
    if status in {400, 404} and (code == _FORGOTTEN_CODE or fields.get("param") == _HANDLE_FIELD):
        return HandleForgotten(text)  # unknown, expired, or never kept (where data is not retained)
    if status in {400, 413, 422} and (code in _OVERFLOW_CODES or _OVERFLOW_TEXT.search(str(message))):
        return WindowOverflow(text, _limit_in(str(message)))
    if code == "insufficient_quota":
        return ProviderRejected(text)  # sent with 429, but no wait brings the money back
    if status in _TRANSIENT or status >= 500:
        return ProviderUnavailable(text, retry_after_seconds(headers.get("retry-after")))
    return ProviderRejected(text)


def _limit_in(message: str) -> int | None:
    """The window that an overflow message names, in tokens."""
    limit = next(filter(None, (pattern.search(message) for pattern in _OVERFLOW_LIMITS)), None)
    return int(re.sub(r"\D", "", limit[1])) if limit else None


def retry_after_seconds(value: str | None) -> float | None:
    """A Retry-After header, in seconds from now: it holds a number, or a date."""
    if value is None:
        return None
    try:
        seconds = float(value) if re.fullmatch(r"\d+(\.\d+)?", value.strip()) else _seconds_until(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, seconds)


def _seconds_until(date: str) -> float:
    moment = parsedate_to_datetime(date)
    return (moment - datetime.now(UTC if moment.tzinfo else None)).total_seconds()


def _received(response: httpx.Response, deadline: float, timeout_seconds: float) -> bytes:
    """The body, as long as it comes before the deadline: httpx itself limits only each single read."""
    chunks: list[bytes] = []
    size_bytes = 0
    for chunk in response.iter_bytes():
        chunks.append(chunk)
        size_bytes += len(chunk)
        if size_bytes > MAX_BODY_BYTES:
            raise ProviderRejected(f"HTTP {response.status_code} with more than {MAX_BODY_BYTES} bytes")
        if time.monotonic() > deadline:
            raise ProviderUnavailable(f"no whole answer within {timeout_seconds:g} s")
    return b"".join(chunks)


def _parsed(body: bytes) -> Any:
    """The answer's JSON; None if it is not JSON (an answer of `null` is as useless)."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


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
