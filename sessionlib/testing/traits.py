"""How the fake provider server behaves, trait by trait."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from sessionlib.errors import InvalidInput


def _trait(default: Any, told: str, least: float = 0.0, most: float = math.inf) -> Any:
    return field(default=default, metadata={"told": told, "least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the server behaves. Raises InvalidInput for nonsense."""

    window_tokens: int = _trait(128_000, "refuse what is larger", 1)
    reported_window_tokens: int = _trait(0, "the window that the models endpoint reports; 0 reports none")
    reported_window_field: str = _trait("context_length", "its name where the endpoint is not Anthropic's")
    latency_seconds: float = _trait(0.0, "how long an answer takes to begin")
    summary_latency_seconds: float = _trait(0.0, "how long a consolidation takes to begin")
    first_token_seconds: float = _trait(0.0, "how long a stream that has begun takes to say something")
    tokens_per_second: float = _trait(0.0, "how fast an answer is made; 0 makes it at once")
    token_ratio: float = _trait(1.0, "how many tokens of its own stand for one of o200k_base", 0.1, 10.0)
    reasoning: str = _trait("", "what the model thinks before each answer")

    def __post_init__(self) -> None:
        for trait in fields(self):
            value = getattr(self, trait.name)
            if isinstance(trait.default, str):
                if not isinstance(value, str):
                    raise InvalidInput(trait.name, value, "must be text")
                continue
            least, most = trait.metadata["least"], trait.metadata["most"]
            kinds = int if isinstance(trait.default, int) else int | float
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not least <= value <= most
                or value == math.inf
            ):
                raise InvalidInput(trait.name, value, f"must be a number from {least:g} to {most:g}")
