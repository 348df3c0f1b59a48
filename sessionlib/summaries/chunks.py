"""Text in parts that fit a budget, cut at the end of a line where one is near."""

from __future__ import annotations

from sessionlib.tokens import Counter

CHARACTERS_PER_TOKEN = 16
"""A token rarely stands for more characters: a longer start is not counted in vain."""


def next_chunk(text: str, budget_tokens: int, counter: Counter) -> tuple[str, str]:
    """The start of *text* within *budget_tokens*, at least one character of it, and the rest.

    The start ends with a line if that leaves more than half of it.
    """
    if len(text) <= budget_tokens * CHARACTERS_PER_TOKEN and counter.text(text) <= budget_tokens:
        return text, ""
    fitting = max(1, _longest_start(text[: budget_tokens * CHARACTERS_PER_TOKEN], budget_tokens, counter))
    line_end = text.rfind("\n", fitting // 2, fitting) + 1
    boundary = line_end or fitting
    return text[:boundary], text[boundary:]


def _longest_start(text: str, budget_tokens: int, counter: Counter) -> int:
    """How many characters of *text* from its start were counted to fit; 0 if not even the first does."""
    fitting, beyond = 0, len(text) + 1
    while fitting + 1 < beyond:
        middle = (fitting + beyond) // 2
        if counter.text(text[:middle]) <= budget_tokens:
            fitting = middle
        else:
            beyond = middle
    return fitting
