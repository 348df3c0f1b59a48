"""What a request that was above the window teaches, and how it is cut to be sent again, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sessionlib.errors import WindowOverflow
from sessionlib.window import Budgets, narrowed

UNREPORTED_OVERFLOW_RATIO = 1.25
"""How much denser than was proven the provider's tokens are taken to be from now on when it refuses a request without
saying what it may hold: one step past the limit's own reserve of a tenth."""

CUTS = (4.0, 3.0, 2.0)
"""Such a request is cut to a quarter of what was refused, or to the least of these that leaves room for the input: what
our tokens are to the densest tokenizer that we know of. The cut is for one request; it is not remembered."""

LARGEST_PROOF = CUTS[0]
"""A refusal proves that the window holds less than was sent, but of a small request it is rather another refusal in
such words: what is remembered of it is no more than the densest tokenizer."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a request is cut with."""

    budgets: Budgets
    """At the calibration."""
    calibration: float
    cut: Budgets | None = None
    """Smaller limits, for this request alone."""

    @property
    def limits(self) -> Budgets:
        return self.cut or self.budgets

    def narrowed(self, ratio: float) -> Measure:
        """Where the provider counts *ratio* times as many tokens as was thought."""
        return Measure(narrowed(self.budgets, ratio), self.calibration * ratio)


def remeasured(
    before: Measure,
    overflow: WindowOverflow,
    refused_tokens: int,
    window_tokens: int,
    has_room: Callable[[Budgets], bool],
) -> Measure:
    """The measure after a request of *refused_tokens*, by our counter, was refused; *window_tokens* are the provider's.

    *has_room* tells whether the input fits. A provider that tells the window or what was sent is believed; else only
    what the refusal proves is. Raises *overflow* if the input leaves nothing to cut.
    """
    sent_tokens = max(1.0, refused_tokens * before.calibration)
    limit_tokens, reported_tokens = overflow.limit_tokens or window_tokens, overflow.sent_tokens or 0
    ratio = max(1.0, window_tokens / limit_tokens) * max(1.0, reported_tokens / sent_tokens)
    if ratio > 1:
        return before.narrowed(ratio)
    proven = max(1.0, window_tokens / sent_tokens)
    measure = before.narrowed(min(proven, LARGEST_PROOF) * UNREPORTED_OVERFLOW_RATIO)
    cuts = (narrowed(before.budgets, proven * parts) for parts in (*CUTS, UNREPORTED_OVERFLOW_RATIO))
    cut = next(filter(has_room, cuts), None)
    if cut is None:
        raise overflow
    return replace(measure, cut=cut)
