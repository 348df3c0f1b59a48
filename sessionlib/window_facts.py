"""How large a model's window is, and who says so: the agent, the provider, or a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sessionlib.model_names import known_of

UNKNOWN_WINDOW_TOKENS = 128_000
"""The window of a model that nobody says anything of (spec/summaries C5)."""

LEAST_SANE_TOKENS, LARGEST_SANE_TOKENS = 1_024, 100_000_000
"""A report outside of this is none: no model on offer has a window that small, none has one that large."""

TABLE_DATE = "2026-11"
"""When the table was last read against the vendors' model pages."""

KNOWN_WINDOWS: Mapping[str, int] = MappingProxyType(
    {
        "claude-": 200_000,
        "deepseek-": 64_000,
        "gemini-": 1_048_576,
        "gpt-4.1": 1_047_576,
        "gpt-4o": 128_000,
        "gpt-5": 272_000,
        "gpt-5-chat": 128_000,
        "o1": 200_000,
        "o3": 200_000,
        "o4-mini": 200_000,
    }
)
"""Tokens that a request may hold, by the beginning of a model's name; the longest that fits counts. Of families whose
members differ the smallest: who has a larger one says so in `Agent.window_tokens`."""

_REPORTED = ("max_input_tokens", "context_length", "max_model_len", "context_window", "max_context_length")
"""Where models endpoints say it: Anthropic, OpenRouter and Together, vLLM, Groq, LM Studio."""


class WindowSource(StrEnum):
    DECLARED = "declared"
    """`Agent.window_tokens`."""
    REPORTED = "reported"
    """The provider's models endpoint."""
    REFUSED = "refused"
    """The provider, when it refused a request of the session as too long."""
    TABLE = "table"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class WindowFact:
    """A window, in the provider's tokens, and where the figure is from."""

    tokens: int
    source: WindowSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWindow:
    """What a refusal taught a session of a model's window."""

    tokens: int
    """Of the provider's own."""
    origin: str
    """Whose window it is: `Agent.origin`."""


def known_window(model: str) -> WindowFact:
    """What is known of a model's window from its name alone."""
    tokens = known_of(KNOWN_WINDOWS, model)
    if tokens is None:
        return WindowFact(UNKNOWN_WINDOW_TOKENS, WindowSource.DEFAULT)
    return WindowFact(tokens, WindowSource.TABLE)


def reported_window(answer: Any) -> int | None:
    """The window in a models endpoint's answer about one model, the smallest where it names several; None if it says
    nothing that makes sense."""
    named = [_tokens(answer.get(name)) for name in _REPORTED] if isinstance(answer, Mapping) else []
    return min((size for size in named if LEAST_SANE_TOKENS <= size <= LARGEST_SANE_TOKENS), default=None)


def _tokens(value: Any) -> int:
    """A number of tokens as JSON may hold it: whole, as a float or as digits; 0 for anything else."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) <= len(str(LARGEST_SANE_TOKENS)) else 0
    return int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else 0


def smaller(own: WindowFact, reported_tokens: int | None) -> WindowFact:
    """The smaller of what the agent says and what the provider reports wins."""
    if reported_tokens is None or reported_tokens >= own.tokens:
        return own
    return WindowFact(reported_tokens, WindowSource.REPORTED)


def learned(known: WindowFact, window: LearnedWindow | None, origin: str) -> WindowFact:
    """The smaller of what is known and what a session learned of the window of *origin*."""
    if window is None or window.origin != origin or window.tokens >= known.tokens:
        return known
    return WindowFact(window.tokens, WindowSource.REFUSED)
