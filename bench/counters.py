"""How far counters are from the truth: true tokens (o200k_base) ÷ counted, for each kind of text.

`python -m bench.counters` prints the table, for the texts that the estimate was fitted on and for others. Above 1 a
counter undercounts.
"""

from __future__ import annotations

import math

from bench.samples import KINDS, fit_samples, fresh_samples
from sessionlib.counters import counter_named


def ratios(samples: dict[str, str]) -> dict[str, tuple[float, float]]:
    """True ÷ estimate and true ÷ (characters ÷ 4), by kind."""
    exact, estimate = counter_named("o200k_base"), counter_named("estimate")
    return {
        kind: (exact.text(text) / estimate.text(text), exact.text(text) / math.ceil(len(text) / 4))
        for kind, text in samples.items()
    }


def main() -> None:
    fitted, fresh = ratios(fit_samples()), ratios(fresh_samples())
    print(f"{'true tokens ÷':<12} {'estimate':>10} {'(fitted)':>10} {'chars/4':>10}")
    for kind in KINDS:
        print(f"{kind:<12} {fresh[kind][0]:>11.2f} {fitted[kind][0]:>10.2f} {fresh[kind][1]:>10.2f}")


if __name__ == "__main__":
    main()
