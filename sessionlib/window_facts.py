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
    TABLE = "table"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class WindowFact:
    """A window, in the provider's tokens, and where the figure is from."""

    tokens: int
    source: WindowSource


def known_window(model: str) -> WindowFact:
    """What is known of a model's window from its name alone."""
    tokens = known_of(KNOWN_WINDOWS, model)
    if tokens is None:
        return WindowFact(UNKNOWN_WINDOW_TOKENS, WindowSource.DEFAULT)
    return WindowFact(tokens, WindowSource.TABLE)


def reported_window(answer: Any) -> int | None:
    """The window in a models endpoint's answer about one model; None if it says nothing that makes sense."""
    for name in _REPORTED:
        value = answer.get(name) if isinstance(answer, Mapping) else None
        if isinstance(value, int) and LEAST_SANE_TOKENS <= value <= LARGEST_SANE_TOKENS:
            return int(value)
    return None


def smaller(own: WindowFact, reported_tokens: int | None) -> WindowFact:
    """The smaller of what the agent says and what the provider reports wins."""
    if reported_tokens is None or reported_tokens >= own.tokens:
        return own
    return WindowFact(reported_tokens, WindowSource.REPORTED)
