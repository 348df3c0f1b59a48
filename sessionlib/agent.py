"""Agent: the named, immutable, versioned description of what a session is made of."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_serializer, field_validator

from sessionlib.entries import require_encodable
from sessionlib.errors import CannotConverge
from sessionlib.ids import require_id
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.tokens import Counter
from sessionlib.tools.declaration import Tool
from sessionlib.tools.history import HISTORY_DECLARATIONS
from sessionlib.window import Budgets, Room, narrowed

LEAST_ROOM_FRACTION = 0.125
"""However dense a provider reports its tokens to be, this share of the window is left for the conversation: who answers
requests has room for them, and a report that leaves none makes no sense."""

RATIO_HALVINGS = 20
"""Steps of the search for the largest ratio that converges: to a millionth of where it begins."""


class Frozen(BaseModel):
    """Refuses unknown fields, NaN and infinities; cannot be changed once made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


class ConsolidationWorkload(Frozen):
    """Who makes the records: the extractive summarizer (no model), or a provider's model."""

    summarizer: Literal["extractive", "model"] = "extractive"
    provider: str = ""
    model: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    window_tokens: Annotated[int, Field(gt=0)] = 32_000
    """How much one consolidation may show the summarizer, in tokens of the agent's counter."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0


class Agent(Frozen):
    """What a session is made of. A session refers to it by name and digest; another digest is another version.

    Raises pydantic.ValidationError (a ValueError) for bad fields and CannotConverge from `budgets`.
    """

    name: str
    provider: str = "default"
    """A name in the catalog's providers."""
    model: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Passed through to the provider as they are."""
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    window_tokens: Annotated[int, Field(gt=0)] = 128_000
    """The provider's window, in its own tokens."""
    output_reserve_tokens: Annotated[int, Field(ge=0)] = 2_000
    """Kept free for the answer; shrunk to a sixteenth of a small window."""
    counter: Literal["auto", "o200k_base", "cl100k_base", "estimate", "characters"] = "auto"
    policy: Annotated[LogMerge | Tiers, Field(discriminator="kind")] = Field(default_factory=LogMerge)
    consolidation: ConsolidationWorkload = Field(default_factory=ConsolidationWorkload)
    history_tool: bool = True
    """Declare the private `history` tool, with which the agent reads what left its window."""
    call_timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Deadline of one model call."""
    turn_timeout_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """Deadline of a turn, from its first start."""
    open_calls_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """How long calls of unknown tools wait for their results."""

    @field_validator("name")
    @classmethod
    def _name_is_an_id(cls, value: str) -> str:
        return require_id("name", value)

    @field_validator("instructions", "model", "provider")
    @classmethod
    def _is_encodable(cls, value: str) -> str:
        require_encodable("text", value)
        return value

    @field_validator("tools", mode="before")
    @classmethod
    def _declare_functions(cls, value: Any) -> Any:
        return tuple(tool if isinstance(tool, Tool) else Tool.from_function(tool) for tool in value)

    @field_validator("tools")
    @classmethod
    def _names_are_unique(cls, value: tuple[Tool, ...]) -> tuple[Tool, ...]:
        names = [tool.declaration.name for tool in value]
        for name in names:
            if names.count(name) > 1 or name.startswith("history."):
                raise ValueError(f"tool name {name!r} is used twice or reserved")
        return value

    @field_serializer("tools")
    def _declarations(self, tools: tuple[Tool, ...]) -> list[dict[str, Any]]:
        return [
            {
                "name": t.declaration.name,
                "description": t.declaration.description,
                "parameters": t.declaration.parameters,
            }
            for t in tools
        ]

    def description(self) -> str:
        """The agent as canonical JSON, its tools by their declarations."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the description: the version."""
        return hashlib.sha256(self.description().encode()).hexdigest()

    @cached_property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """All tools as the model sees them: the agent's own in their order, then the private ones."""
        private = HISTORY_DECLARATIONS if self.history_tool else ()
        return (*(tool.declaration for tool in self.tools), *private)

    def fixed_tokens(self, counter: Counter) -> int:
        """Tokens of what every request carries: instructions, tool declarations, parameters."""
        if counter not in self.fixed_tokens_by_counter:
            parameters = {"model": self.model, **self.parameters}
            self.fixed_tokens_by_counter[counter] = counter.fixed(self.instructions, self.declarations, parameters)
        return self.fixed_tokens_by_counter[counter]

    @cached_property
    def fixed_tokens_by_counter(self) -> dict[Counter, int]:
        """What was counted already: nothing of it ever changes, and every round asks."""
        return {}

    def budgets(self, counter: Counter, calibration: float = 1.0) -> Budgets:
        """The window's figures in the counter's tokens, at a session's calibration (at least the counter's error).

        Raises CannotConverge, with the arithmetic.
        """
        ratio = max(calibration, counter.error_ratio)
        window_tokens = math.floor(self.window_tokens / ratio)
        fixed_tokens = self.fixed_tokens(counter)
        reserve_tokens = min(self.output_reserve_tokens, window_tokens // 16)
        room = Room(window_tokens=window_tokens, fixed_tokens=fixed_tokens, output_reserve_tokens=reserve_tokens)
        if room.limit_tokens <= 0:
            raise CannotConverge(
                self.window_tokens, fixed_tokens + 1, f"instructions and tools alone take {fixed_tokens} tokens"
            )
        return self.policy.budgets(room, counter, show_span=self.history_tool)

    def session_budgets(self, counter: Counter, calibration: float) -> Budgets:
        """`budgets` at what a session has learned: whatever that is, a session of an agent that converges goes on.

        Past the largest calibration that converges, what a rotation leaves is as there, and the limit of what is sent
        as the calibration says.
        """
        believable = self.window_tokens / (self.fixed_tokens(counter) + self.window_tokens * LEAST_ROOM_FRACTION)
        ratio = max(min(calibration, believable), counter.error_ratio)
        try:
            return self.budgets(counter, ratio)
        except CannotConverge:
            largest = self._largest_ratio(counter, ratio)
            return narrowed(self.budgets(counter, largest), ratio / largest)

    def _largest_ratio(self, counter: Counter, too_large: float) -> float:
        """The largest calibration below *too_large* that converges, about; the counter's own error if none does."""
        converging = counter.error_ratio
        for _ in range(RATIO_HALVINGS):
            middle = (converging + too_large) / 2
            try:
                self.budgets(counter, middle)
            except CannotConverge:
                too_large = middle
            else:
                converging = middle
        return converging
