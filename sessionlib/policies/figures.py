"""The figures that every policy shares: its line, where a rotated layout may land, and whether it can."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sessionlib.errors import CannotConverge
from sessionlib.layout import framing_tokens
from sessionlib.tokens import Counter
from sessionlib.window import TRIM_FRACTION, Budgets, Room, rotation_line

Fraction = Annotated[float, Field(gt=0, le=1)]

LARGEST_WINDOW_TOKENS = 2**31 - 1
"""No window is larger, and the search for the smallest one that converges ends here (spec/tiers A9)."""

Tokens = Annotated[int, Field(gt=0, le=LARGEST_WINDOW_TOKENS)]

RESULT_CAP_DIVISOR = 3
"""A tool result is sent whole up to a third of the work room (DESIGN 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a rotation leaves at most, in tokens."""

    tail_tokens: int
    record_tokens: int
    """All records as they are seeded, but for the ledger."""
    tier_tokens: tuple[int, ...] = ()
    ledger_tokens: int = 0

    @property
    def rotated_tokens(self) -> int:
        """The bound: what a layout holds at most when a rotation has just been adopted."""
        return self.tail_tokens + self.record_tokens + self.ledger_tokens


class AgeingFigures(BaseModel):
    """A policy's figures: fractions of the effective window, or absolute tokens. Refuses unknown fields and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    line_fraction: Fraction = 0.70
    """Share of the effective window from which a rotation is requested (DESIGN 6)."""
    line_tokens: Tokens | None = None
    """The line in tokens, in place of the fraction."""
    convergence_ratio: Fraction = 0.8
    """Share of the line that a rotated layout may take at most (DESIGN 6); it always lands below the line itself."""
    saturation_ratio: Fraction = 0.90
    """Share of its input from which an output is reported as hardly shorter (spec/tiers A7)."""

    def shares(self, effective_tokens: int, framing: int) -> Shares:
        """What a rotation leaves of an effective window, with *framing* tokens around each record."""
        raise NotImplementedError

    def budgets(self, room: Room, counter: Counter, *, show_span: bool, ledger_tokens: int = 0) -> Budgets:
        """The figures for a window. Raises CannotConverge if a rotated layout could rotate again at once."""
        framing = framing_tokens(counter, show_span=show_span)
        effective_tokens = max(0, room.effective_tokens)
        shares = replace(self.shares(effective_tokens, framing), ledger_tokens=ledger_tokens)
        line_tokens = self._line(room, effective_tokens)
        if shares.rotated_tokens > self._landing(line_tokens):
            raise self._refusal(room, shares, line_tokens, framing)
        return Budgets(
            window_tokens=room.window_tokens,
            fixed_tokens=room.fixed_tokens,
            line_tokens=line_tokens,
            limit_tokens=room.limit_tokens,
            trim_tokens=math.floor(room.limit_tokens * TRIM_FRACTION),
            tail_tokens=shares.tail_tokens,
            stretched_tail_tokens=self._landing(line_tokens) - shares.record_tokens - ledger_tokens,
            record_tokens=shares.record_tokens,
            result_cap_tokens=room.effective_tokens // RESULT_CAP_DIVISOR,
            tier_tokens=shares.tier_tokens,
            ledger_tokens=ledger_tokens,
        )

    def _line(self, room: Room, effective_tokens: int) -> int:
        """The line of an effective window. A line above the limit would trim every request before it rotates."""
        limit_tokens = Room(
            window_tokens=effective_tokens, fixed_tokens=0, output_reserve_tokens=room.output_reserve_tokens
        ).limit_tokens
        wanted_tokens = self.line_tokens or rotation_line(effective_tokens, self.line_fraction)
        return max(1, min(wanted_tokens, limit_tokens))

    def _landing(self, line_tokens: int) -> int:
        """The most that a rotated layout may hold: its share of the line, and strictly below it."""
        return min(math.floor(line_tokens * self.convergence_ratio), line_tokens - 1)

    def _refusal(self, room: Room, shares: Shares, line_tokens: int, framing: int) -> CannotConverge:
        def converges(effective_tokens: int) -> bool:
            landing_tokens = self._landing(self._line(room, effective_tokens))
            leaves_tokens = self.shares(effective_tokens, framing).rotated_tokens + shares.ledger_tokens
            return leaves_tokens <= landing_tokens

        smallest = first_true(converges, LARGEST_WINDOW_TOKENS)
        tiers = f" (tiers of {sum(shares.tier_tokens)}, and framing)" if shares.tier_tokens else ""
        ledger = f", with a ledger of {shares.ledger_tokens}," if shares.ledger_tokens else ""
        return CannotConverge(
            room.window_tokens,
            min(smallest + room.fixed_tokens, LARGEST_WINDOW_TOKENS),
            f"tail of {shares.tail_tokens} and records of {shares.record_tokens}{ledger} make "
            f"{shares.rotated_tokens}{tiers};"
            f" below a line of {line_tokens} a rotated layout may have {self._landing(line_tokens)}",
        )


def first_true(predicate: Callable[[int], bool], last: int) -> int:
    """The smallest number from 1 for which *predicate* holds, given that it then holds on; *last* if there is none."""
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if predicate(middle) else (middle + 1, high)
    return low
