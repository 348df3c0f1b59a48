"""What a rotation asks of a summarizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sessionlib.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationRequest:
    """Material to consolidate into a record, with the record it continues, if any (spec/tiers A6).

    `budget_tokens` is information only: no summarizer may turn it into a length instruction.
    """

    tier: int
    first_seq: int
    last_seq: int
    material: str
    previous_record: str = ""
    budget_tokens: int
    terse: bool = False
    """The second attempt: the first answer was not enough shorter than its source."""

    def __post_init__(self) -> None:
        if self.tier < 1:
            raise InvalidInput("tier", self.tier, "must be at least 1")
        if self.budget_tokens < 1:
            raise InvalidInput("budget_tokens", self.budget_tokens, "must be at least 1")
        if not self.material.strip():
            raise InvalidInput("material", self.material, "must not be blank")

    @property
    def is_degradation(self) -> bool:
        """True if there is no previous record to merge with."""
        return not self.previous_record.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """A summarizer's answer and what it cost, in the summarizer's own tokens (0 where it uses no model)."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""


class Summarizer(Protocol):
    """Consolidates text. Stateless, out of session, safe for concurrent use; "" = nothing to say, None is an error."""

    @property
    def window_tokens(self) -> int:
        """How much one request may hold, in tokens of the agent's counter."""
        ...

    def consolidate(self, request: ConsolidationRequest, cancelled: Callable[[], bool]) -> Consolidated:
        """Raises ProviderError; may stop early when *cancelled* says so, which the engine does not rely on."""
        ...
