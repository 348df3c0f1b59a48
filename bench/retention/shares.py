"""Shares of a sample, each with its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z_95 = 1.959964
"""How many standard deviations hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Share:
    """*found* of *count*."""

    found: int = 0
    count: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.found + other.found, self.count + other.count)

    @property
    def value(self) -> float:
        return self.found / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval; everything is possible for an empty sample."""
        if not self.count:
            return 0.0, 1.0
        squared = Z_95**2
        centre = (self.found + squared / 2) / (self.count + squared)
        spread = Z_95 * math.sqrt(self.found * (self.count - self.found) / self.count + squared / 4)
        half = spread / (self.count + squared)
        return max(0.0, centre - half), min(1.0, centre + half)

    def __str__(self) -> str:
        if not self.count:
            return "–"
        low, high = self.interval
        return f"{100 * self.value:.0f} ({100 * low:.0f}–{100 * high:.0f})"
