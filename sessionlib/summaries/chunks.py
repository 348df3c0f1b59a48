"""Text in parts that fit a budget, cut at the end of a line where one is near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sessionlib.entries import as_continuation
from sessionlib.summaries.admission import most_tokens

CHARACTERS_PER_TOKEN = 16
"""A token rarely stands for more characters: a longer start is not counted in vain."""


class Measure(Protocol):
    """Says how many tokens a text takes, as every Counter does."""

    def text(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What a text takes of a summarizer's window: as it is counted, or as admission estimates it, if that is more."""

    counter: Measure

    def text(self, text: str) -> int:
        return max(self.counter.text(text), most_tokens(text))


def next_chunk(text: str, budget_tokens: int, counter: Measure) -> tuple[str, str]:
    """The start of *text* within *budget_tokens*, at least one character of it, and the rest.

    The start ends with a line if that leaves more than half of it. A rest that is cut from the middle of a line never
    begins like the label of an entry.
    """
    if len(text) <= budget_tokens * CHARACTERS_PER_TOKEN and counter.text(text) <= budget_tokens:
        return text, ""
    fitting = max(1, _longest_start(text[: budget_tokens * CHARACTERS_PER_TOKEN], budget_tokens, counter))
    line_end = text.rfind("\n", fitting // 2, fitting) + 1
    boundary = line_end or fitting
    begins_like_a_label = as_continuation(text[boundary:])[:1] != text[boundary : boundary + 1]
    if not line_end and fitting > 1 and begins_like_a_label:
        boundary -= 1
    return text[:boundary], text[boundary:]


def _longest_start(text: str, budget_tokens: int, counter: Measure) -> int:
    """How many characters of *text* from its start were counted to fit; 0 if not even the first does."""
    fitting, beyond = 0, len(text) + 1
    while fitting + 1 < beyond:
        middle = (fitting + beyond) // 2
        if counter.text(text[:middle]) <= budget_tokens:
            fitting = middle
        else:
            beyond = middle
    return fitting
