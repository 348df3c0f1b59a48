"""What is asked of whoever summarizes, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sessionlib.errors import InvalidInput
from sessionlib.layout import Level
from sessionlib.summaries.evidence import Evidence
from sessionlib.summaries.purposes import Purpose

GUIDANCE_LIMIT_CHARACTERS = 4_000
"""The longest guidance of a caller (spec/summaries C5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who makes a kind of summary, resolved to the end: frozen on the job that uses it (spec/summaries C8)."""

    summarizer: str = "model"
    """`model`, or `extractive`: then all but `window_tokens` is empty."""
    provider: str = ""
    model: str = ""
    effort: str = ""
    """Reasoning effort, in the provider's own word; "" leaves the provider's default."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Passed through to the provider, what states the effort included."""
    window_tokens: int = 128_000
    timeout_seconds: float = 120.0
    """Deadline of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """Frozen evidence and a purpose: all that a summary is made from. Raises InvalidInput.

    Only a continuation takes a `previous` record, as authority; only a handoff takes a `focus`, the task of whoever
    receives it. `guidance` narrows relevance and changes nothing else.
    """

    purpose: Purpose
    evidence: Evidence
    previous: str = ""
    focus: str = ""
    guidance: str = ""
    terse: bool = False
    """A second attempt at a consolidation: the first was not enough shorter than its source."""
    level: Level | None = None
    """How much a consolidation may leave out, where the policy says so."""
    name: str
    """Names the call: the same for the same summary, so that a provider recognises one that is sent again."""

    def __post_init__(self) -> None:
        if not isinstance(self.purpose, Purpose):
            raise InvalidInput("purpose", self.purpose, f"must be one of {', '.join(Purpose)}")
        if self.evidence.is_blank:
            raise InvalidInput("evidence", "", "must not be blank")
        if self.previous and self.purpose is not Purpose.CONTINUATION:
            raise InvalidInput("previous", self.previous[:40], f"must be absent for a {self.purpose}")
        if bool(self.focus.strip()) != (self.purpose is Purpose.HANDOFF):
            rule = "must state the task of a handoff" if not self.focus else f"must be absent for a {self.purpose}"
            raise InvalidInput("focus", self.focus[:40], rule)
        if len(self.guidance) > GUIDANCE_LIMIT_CHARACTERS:
            rule = f"must have at most {GUIDANCE_LIMIT_CHARACTERS:,} characters"
            raise InvalidInput("guidance", len(self.guidance), rule)


class Fault(StrEnum):
    """Why there is no summary (spec/summaries C7)."""

    SIZE = "size"
    """The request does not fit the summarizer's window: it was never sent, or the provider says so."""
    VALIDATION = "validation"
    """The answer is not what the purpose asks for."""
    PROVIDER = "provider"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The one outcome of a summary: its text, or the class of what went wrong with the reason; never both."""

    text: str = ""
    fault: Fault | None = None
    reason: str = ""
    """What went wrong, without content."""
    is_transient: bool = False
    """Worth another try later: the provider could not be reached, or asked to wait."""
    retry_after_seconds: float | None = None
    provider: str = ""
    model: str = ""
    effort: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    """Tokens as the provider reports them; 0 where it says nothing and where no model was asked."""
    redaction_count: int = 0
    """Secrets that were found in the answer and replaced."""
    unsupported_values: tuple[str, ...] = ()
    """Identifiers and numbers of the text that occur nowhere in its source."""


class Generator(Protocol):
    """Makes summaries. Stateless, out of session, safe for concurrent use."""

    def admits(self, request: SummaryRequest) -> bool:
        """Whether *request* has room in the summarizer's window; asks nobody."""
        ...

    def generate(self, request: SummaryRequest, cancelled: Callable[[], bool]) -> Settlement:
        """Settle exactly once: what goes wrong with provider, size or answer is in the settlement, never raised."""
        ...


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
    level: Level | None = None
    """How much may be left out, where the policy says so; the material is then pieces of one span, peers."""

    def __post_init__(self) -> None:
        if self.level is not None and not isinstance(self.level, Level):
            raise InvalidInput("level", self.level, "must be one of Level")
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
    fault: str = ""
    """Why there is no text, without content: `validation: …` or `size: …`. Not worth asking the same again."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    redaction_count: int = 0
    """Secrets that were found in the answer and replaced."""
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
