"""What a request that was above the window teaches, and how it is cut to be sent again, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sessionlib.errors import WindowOverflow
from sessionlib.tokens import DENSEST_RATIO
from sessionlib.window import Budgets, narrowed
from sessionlib.window_facts import LEAST_SANE_TOKENS

UNREPORTED_OVERFLOW_RATIO = 1.25
"""How much smaller than what was refused the window is taken to be when the provider does not say what it may hold: one
step past the limit's own reserve of a tenth."""

CUTS = (DENSEST_RATIO, 3.0, 2.0)
"""Such a request is cut to a quarter of what was refused, or to the least of these that leaves room for the input. The
cut is for one request; it is not remembered."""

LARGEST_PROOF = CUTS[0]
"""A refusal proves that the window holds less than was sent, but of a small request it is rather another refusal in
such words: the window is not taken to be less than a quarter of what it was."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a request is cut with."""

    budgets: Budgets
    """At the calibration and the window."""
    calibration: float
    """The provider's tokens for one of ours."""
    window_tokens: int
    """What the provider holds, in its own tokens."""
    cut: Budgets | None = None
    """Smaller limits, for this request alone."""
    refused_tokens: int = 0
    """What was refused without a figure, by our counter."""

    @property
    def limits(self) -> Budgets:
        return self.cut or self.budgets

    def window_after(self, density: float) -> int:
        """The window as it is known when the provider's tokens are *density* times as many as ours: more was refused,
        unless that was above the window anyway."""
        sent_tokens = self.refused_tokens * density
        if not 0 < sent_tokens < self.window_tokens:
            return self.window_tokens
        smallest_tokens = max(LEAST_SANE_TOKENS, self.window_tokens / LARGEST_PROOF)
        return min(self.window_tokens, round(max(smallest_tokens, sent_tokens / UNREPORTED_OVERFLOW_RATIO)))


def remeasured(
    before: Measure,
    overflow: WindowOverflow,
    refused_tokens: int,
    budgets_at: Callable[[float, int], Budgets],
    has_room: Callable[[Budgets], bool],
) -> Measure:
    """The measure after a request of *refused_tokens*, by our counter, was refused.

    *budgets_at* gives the budgets at a calibration and a window; *has_room* tells whether the input fits in some. A
    provider that tells the window or what was sent is believed, as far as that makes either smaller than was thought;
    else the request is cut. Raises *overflow* if the input leaves nothing to cut.
    """
    window_tokens = min(before.window_tokens, overflow.limit_tokens or before.window_tokens)
    calibration = max(before.calibration, (overflow.sent_tokens or 0) / max(1, refused_tokens))
    if (calibration, window_tokens) != (before.calibration, before.window_tokens):
        return Measure(budgets_at(calibration, window_tokens), calibration, window_tokens)
    proven = max(1.0, window_tokens / max(1.0, refused_tokens * calibration))
    cuts = (narrowed(before.budgets, proven * parts) for parts in (*CUTS, UNREPORTED_OVERFLOW_RATIO))
    cut = next(filter(has_room, cuts), None)
    if cut is None:
        raise overflow
    return Measure(before.budgets, calibration, window_tokens, cut, refused_tokens)
