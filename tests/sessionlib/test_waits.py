"""How long a provider wishes to be left alone: what its headers say, and how much of it is believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from sessionlib.providers.waits import LONGEST_WISH_SECONDS, wished_seconds


def seconds(**headers: str) -> float | None:
    return wished_seconds(429, httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()}))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("-3", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("999999", LONGEST_WISH_SECONDS),
        ("Thu, 01 Jan 2199 00:00:00 GMT", LONGEST_WISH_SECONDS),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, expected: float | None) -> None:
    """Nonsense is no wish, the past is now, and nobody waits for ever."""
    assert seconds(retry_after=header) == expected


def test_a_date_is_read_from_now_on() -> None:
    """Within a minute of a moment that is two minutes away."""
    moment = format_datetime(datetime.now(UTC) + timedelta(minutes=2), usegmt=True)
    wished = seconds(retry_after=moment)
    assert wished is not None
    assert 60 < wished <= 120


def test_milliseconds_are_more_exact() -> None:
    """Where both are given, the finer one counts; nonsense in it leaves the other."""
    assert seconds(retry_after="1", retry_after_ms="250") == 0.25
    assert seconds(retry_after="1", retry_after_ms="x") == 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [("20ms", 0.02), ("1s", 1.0), ("6m0s", 360.0), ("1m30.5s", 90.5), ("12", 12.0), ("never", None), ("1h0m0s", 600.0)],
)
def test_openai_resets_are_durations(value: str, expected: float | None) -> None:
    """As its API reference writes them (rate limits, headers); other servers write seconds."""
    assert seconds(x_ratelimit_reset_tokens=value, x_ratelimit_remaining_tokens="0") == expected


def test_resets_may_be_moments() -> None:
    """Since the epoch, in seconds or milliseconds; or as Anthropic writes them."""
    moment = datetime.now(UTC) + timedelta(minutes=2)
    forms = {
        "x_ratelimit_reset_requests": str(moment.timestamp()),
        "x_ratelimit_reset_tokens": str(round(moment.timestamp() * 1_000)),
        "anthropic_ratelimit_input_tokens_reset": moment.isoformat().replace("+00:00", "Z"),
    }
    for name, value in forms.items():
        wished = seconds(**{name: value})
        assert wished is not None, name
        assert 60 < wished < 121, name


def test_the_limit_that_was_hit_counts() -> None:
    """Others may be over later; where no header says which one it was, the first that is over may help."""
    resets = {"x_ratelimit_reset_requests": "50s", "x_ratelimit_reset_tokens": "3s"}
    assert seconds(**resets, x_ratelimit_remaining_requests="9", x_ratelimit_remaining_tokens="0") == 3.0
    assert seconds(**resets, x_ratelimit_remaining_requests="0", x_ratelimit_remaining_tokens="0") == 50.0
    assert seconds(**resets) == 3.0
    assert seconds(**resets, retry_after="8") == 8.0


@pytest.mark.parametrize(("status", "expected"), [(429, 7.0), (503, 7.0), (529, 7.0), (500, None), (400, None)])
def test_a_wish_goes_with_some_statuses_only(status: int, expected: float | None) -> None:
    """Every answer names its limits; only a full or overloaded server asks to wait."""
    headers = httpx.Headers({"Retry-After": "7", "X-RateLimit-Reset-Tokens": "9s"})
    assert wished_seconds(status, headers) == expected
