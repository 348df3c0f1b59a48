"""What a policy is asked, and what it decides."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sessionlib.errors import InvalidInput
from sessionlib.layout import Carried, Layout, Method
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.tokens import Counter
from sessionlib.window import Budgets, Room


class SaturationReason(StrEnum):
    """Why a consolidation is reported (spec/tiers A7). Reported, never acted on."""

    NO_REDUNDANCY = "no_redundancy"
    """The output is hardly shorter than the input."""
    TIER_OVER_BUDGET = "tier_over_budget"
    """Material had to be cut to the budget."""
    MATERIAL_DROPPED = "material_dropped"
    """A record left the window with nothing in its place: the policy's tiers are full."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """A consolidation that stopped shortening. Figures in tokens."""

    reason: SaturationReason
    tier: int
    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if not isinstance(self.reason, SaturationReason):
            raise InvalidInput("reason", self.reason, "must be one of SaturationReason")
        if self.tier < 1:
            raise InvalidInput("tier", self.tier, "must be at least 1")
        for name in ("input_tokens", "output_tokens"):
            if getattr(self, name) < 0:
                raise InvalidInput(name, getattr(self, name), "must not be negative")


class Origin(StrEnum):
    """Whose figure said that the line is passed: an estimate may not veto a measured alarm (spec/tiers A8)."""

    ESTIMATED = "estimated"
    REPORTED = "reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a fresh window is told of the one before it, where a policy begins fresh windows."""

    previous_window: int = 1
    """Windows are counted from 1."""
    hint: str = ""
    """The thread hint that the model left; "" if it left none."""
    trail: str = ""
    """The user's last message, unless it is carried along; "" if there is none."""
    carried: Carried | None = None
    """The running turn's input, as the store will carry it along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationPlan:
    """What a policy decides from. `layout.live` ends at the rotation's boundary and at no open call."""

    layout: Layout
    budgets: Budgets
    counter: Counter
    show_span: bool
    """Whether a seeded record names its entries (the agent has the history tool)."""
    origin: Origin = Origin.ESTIMATED
    opening: Opening = Opening()
    carries_ledger: bool = False
    """Whether a ledger that is there stays, although the budgets have no share for one."""

    def __post_init__(self) -> None:
        if not isinstance(self.origin, Origin):
            raise InvalidInput("origin", self.origin, "must be one of Origin")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a policy's request, after chunking, acceptance and escalation. Blank answers arrive as ""."""

    text: str
    method: Method = Method.NORMAL
    rewrite_count: int = 1
    """How many calls the oldest of the material went through: one for each chunk, as each folds in the last."""
    first_tokens: int | None = None
    """Tokens that the summarizer said at first, before any escalation; None: `text` is what it said."""
    unsupported_values: tuple[str, ...] = ()
    """Identifiers and numbers of the text that occur nowhere in what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """A policy's decision: the new layout; its live entries are a suffix of the plan's."""

    layout: Layout
    saturations: tuple[Saturation, ...] = ()
    consolidation_count: int = 0
    """Requests that the policy made."""

    def __post_init__(self) -> None:
        for saturation in self.saturations:
            if not isinstance(saturation, Saturation):
                raise InvalidInput("saturations", saturation, "must hold saturations only")
        if self.consolidation_count < 0:
            raise InvalidInput("consolidation_count", self.consolidation_count, "must not be negative")


Consolidating = Generator[ConsolidationRequest, Accepted, Rotated]


class Policy(Protocol):
    """Decides how history ages. A frozen configuration value; `rotate` is pure."""

    @property
    def kind(self) -> str: ...

    def budgets(self, room: Room, counter: Counter, *, show_span: bool, ledger_tokens: int = 0) -> Budgets:
        """The figures of this policy for a window, with *ledger_tokens* kept free for the ledger.

        Raises CannotConverge if a rotated layout would rotate again.
        """
        ...

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:
        """What an answer may be at most, as a share of its source: above it the escalation begins."""
        ...

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Decide a rotation: yield what must be consolidated, get it back as text, return the new layout."""
        ...
