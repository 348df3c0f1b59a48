"""Admission: what a request takes, what its window offers, and whether it may be sent (spec/summaries C5).

A request that is refused here costs nothing and is never sent. Nothing is added to one that is sent: output is limited
where the parameters say so, and by the provider elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sessionlib.errors import InvalidInput

RESERVE_TOKENS = 20_000
"""Kept free for the answer, if the window is large enough (C5)."""

LIMIT_NAMES = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "maxTokens",
    "num_predict",
)
"""Under these names providers take a limit of the answer, in tokens (C5)."""

LIMIT_PLACES = ("generationConfig", "inferenceConfig", "options")
"""Tables inside the parameters in which a limit may stand as well (C5)."""


def estimated_tokens(*texts: str) -> int:
    """What *texts* take together, estimated without a tokenizer: four ASCII characters a token, else a token a byte."""
    characters = sum(map(len, texts))
    size_bytes = sum(map(_size_bytes, texts))
    ascii_characters = max(0, 2 * characters - size_bytes)  # never more than there are
    return (ascii_characters + 5) // 4 + size_bytes - ascii_characters


def most_tokens(text: str) -> int:
    """What *text* adds to the estimate of a request at most, whatever else that holds."""
    # The estimate is at most 7/4 of the bytes less 6/4 of the characters, and a token; that is a sum over the texts.
    return math.ceil((7 * _size_bytes(text) - 6 * len(text)) / 4)


def usable_tokens(window_tokens: int, output_tokens: int = 0) -> int:
    """What a request may take: the window less the answer's reserve, which is never more than half of the window."""
    reserve_tokens = min(max(RESERVE_TOKENS, output_tokens), window_tokens // 2)
    return max(1, window_tokens - reserve_tokens)


def output_limit_tokens(parameters: Mapping[str, Any]) -> int:
    """The largest limit of the answer that *parameters* state; 0 if they state none.

    Raises InvalidInput for a limit that is null, or no positive number: providers read those in different ways.
    """
    limits = [0]
    for name, value in _stated_limits(parameters):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
            raise InvalidInput(name, value, "must be a positive number of tokens, or absent")
        limits.append(math.ceil(value))
    return max(limits)


def _stated_limits(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    tables = [("", parameters), *((f"{place}.", parameters.get(place)) for place in LIMIT_PLACES)]
    for prefix, table in tables:
        if isinstance(table, Mapping):
            yield from ((f"{prefix}{name}", table[name]) for name in LIMIT_NAMES if name in table)


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
