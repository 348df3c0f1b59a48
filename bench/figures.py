"""Figures of measurements: percentiles, and how far a median may be off."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A sample: its median with the 95 % interval of it, and its 99th percentile, all in the sample's own unit."""

    count: int
    p50: float
    p50_low: float
    p50_high: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        low, high = median_interval(values)
        return cls(count=len(values), p50=median(values), p50_low=low, p50_high=high, p99=percentile(values, 0.99))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of *values* that *share* of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """The interval in which the true median lies with *confidence*, by order statistics: how many of n values lie below
    it is binomial with n/2 ± √n/2. For few values it is their whole range."""
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    ordered, half_width = sorted(values), deviations * math.sqrt(len(values)) / 2
    first = max(0, math.floor(len(values) / 2 - half_width))
    last = min(len(values) - 1, math.ceil(len(values) / 2 + half_width))
    return ordered[first], ordered[last]


def plain(value: Any) -> Any:
    """Frozen dataclasses, mappings and sequences of them as JSON types."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(plain(value), indent=2))
