"""How much a history tool may return: never more than is sent whole, so that no reading needs another reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sessionlib.entries import Entry
from sessionlib.projection import Projection, exceeds


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """The room that the result of one call has."""

    projection: Projection
    call_id: str

    def tokens(self, text: str) -> int:
        """What a text takes by the agent's counter."""
        return self.projection.counter.text(text)

    def fits(self, text: str, limit_tokens: int | None = None) -> bool:
        """Whether *text* is within the limit, if there is one, and sent whole."""
        if limit_tokens is not None and self.tokens(text) > limit_tokens:
            return False
        return not exceeds(Entry.tool_result(self.call_id, text), self.projection.cap_tokens, self.projection.counter)

    def most(self, count: int, text_of: Callable[[int], str], limit_tokens: int) -> int:
        """The largest number up to *count* whose text fits; texts grow with their number. 0 if none does."""
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(text_of(middle), limit_tokens):
                low = middle
            else:
                high = middle - 1
        return low
