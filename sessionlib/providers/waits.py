"""How long a provider wishes to be left alone: Retry-After, and the headers that say when a rate limit is over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WISH_SECONDS = 600.0
"""A longer wish is cut to this: limits are counted by the minute, and a date of next year is somebody's mistake."""

_WISHING = frozenset({429, 503, 529})
"""Statuses that a wish goes with: too many requests, no service for now, overloaded."""

_PLAIN = re.compile(r"\d+(\.\d+)?")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|h|m|s|d))+")  # as Go writes them: "6m0s", "1m30.951s", "20ms"
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s|d)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_EPOCH_SECONDS = 1e9
"""A number above this is a moment, no duration; above a hundred times as much, in milliseconds."""


def wished_seconds(status: int, headers: Mapping[str, str]) -> float | None:
    """The wait that an answer asks for, in seconds from now, at most LONGEST_WISH_SECONDS; None if it asks for none."""
    if status not in _WISHING:
        return None
    wish = retry_after_seconds(headers)
    if wish is None:
        wish = _reset_seconds(headers)
    return None if wish is None else min(wish, LONGEST_WISH_SECONDS)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What Retry-After says, a number or a date; its like in milliseconds, which OpenAI sends too, is more exact."""
    milliseconds = _read(_plain, headers.get("retry-after-ms"))
    return _read(_date, headers.get("retry-after")) if milliseconds is None else milliseconds / 1_000


def _reset_seconds(headers: Mapping[str, str]) -> float | None:
    """When the limit that was hit is over. If no header says which one was: when the first of them is."""
    resets = [(seconds, left) for seconds, left in _resets(headers) if seconds is not None]
    hit = [seconds for seconds, left in resets if _read(_plain, left) == 0]
    return max(hit) if hit else min((seconds for seconds, _ in resets), default=None)


def _resets(headers: Mapping[str, str]) -> Iterator[tuple[float | None, str | None]]:
    """Limits: seconds until each is over, and how much of it is left."""
    for header, value in headers.items():
        name = header.lower()
        if name.startswith("x-ratelimit-reset-"):
            yield _read(_duration, value), headers.get(name.replace("-reset-", "-remaining-"))
        elif name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            yield _read(_timestamp, value), headers.get(name.removesuffix("reset") + "remaining")


def _read(reading: Callable[[str], float | None], value: str | None) -> float | None:
    """*value* in seconds, none of them negative; None for nonsense."""
    seconds = None
    if value is not None:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = reading(value.strip())
    return None if seconds is None else max(0.0, seconds)


def _plain(value: str) -> float | None:
    return float(value) if _PLAIN.fullmatch(value) else None


def _date(value: str) -> float | None:
    return float(value) if _PLAIN.fullmatch(value) else _until(parsedate_to_datetime(value))


def _timestamp(value: str) -> float:
    return _until(datetime.fromisoformat(value))


def _duration(value: str) -> float | None:
    if _DURATION.fullmatch(value):
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PIECE.findall(value))
    seconds = _plain(value)
    if seconds is None or seconds < _EPOCH_SECONDS:
        return seconds
    moment = seconds if seconds < 100 * _EPOCH_SECONDS else seconds / 1_000
    return moment - datetime.now(UTC).timestamp()


def _until(moment: datetime) -> float:
    return (moment - datetime.now(UTC if moment.tzinfo else None)).total_seconds()
