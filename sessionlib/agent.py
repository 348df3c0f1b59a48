"""Agent: the named, immutable, versioned description of what a session is made of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, JsonValue, field_serializer, field_validator, model_validator

from sessionlib.counters import counter_named
from sessionlib.entries import require_encodable
from sessionlib.errors import CannotConverge
from sessionlib.ids import require_id
from sessionlib.ledger_record import ledger_tokens
from sessionlib.policies.figures import LARGEST_WINDOW_TOKENS
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import Clamp, WorkRoom
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.stores.contract import JournalRules
from sessionlib.tokens import DENSEST_RATIO, Counter
from sessionlib.tools.declaration import Tool
from sessionlib.tools.history import HISTORY_DECLARATIONS
from sessionlib.tools.notes import NOTES_DECLARATIONS
from sessionlib.window import Budgets, Room, narrowed
from sessionlib.window_facts import UNKNOWN_WINDOW_TOKENS, WindowFact, WindowSource, known_window
from sessionlib.workloads import ConsolidationWorkload, Frozen, OwnModel, SummaryWorkload, WorkloadKind

LEAST_ROOM_FRACTION = 0.125
"""However dense a provider reports its tokens to be, this share of the window is left for the conversation: who answers
requests has room for them, and a report that leaves none makes no sense."""

RATIO_HALVINGS = 20
"""Steps of the search for the largest ratio that converges: to a millionth of where it begins."""


class _RecordsShown(TypedDict):
    """How an agent's records are seeded."""

    show_span: bool
    ledger_tokens: int


class Journal(Frozen):
    """When a stretch of a session is finished and a digest of it is made, and by whom. Off by default."""

    digest: SummaryWorkload = Field(default_factory=SummaryWorkload)
    on_close: bool = False
    on_rotation: bool = False
    idle_seconds: Annotated[float, Field(gt=0)] | None = None
    """How long nobody has spoken since a turn ended."""

    @property
    def rules(self) -> JournalRules:
        """As a store keeps them."""
        return JournalRules(on_close=self.on_close, on_rotation=self.on_rotation, idle_seconds=self.idle_seconds)


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
    window_tokens: Annotated[int, Field(gt=0, le=LARGEST_WINDOW_TOKENS)] = UNKNOWN_WINDOW_TOKENS
    """The provider's window, in its own tokens. Not given: what is known of the model (`sessionlib.window_facts`)."""
    output_reserve_tokens: Annotated[int, Field(ge=0)] = 2_000
    """Kept free for the answer; shrunk to a sixteenth of a small window."""
    counter: Literal["auto", "o200k_base", "cl100k_base", "estimate", "characters"] = "auto"
    policy: Annotated[LogMerge | Tiers | Slots | WorkRoom, Field(discriminator="kind")] = Field(
        default_factory=LogMerge
    )
    consolidation: ConsolidationWorkload = Field(default_factory=ConsolidationWorkload)
    handoff: SummaryWorkload = Field(default_factory=SummaryWorkload)
    journal: Journal = Field(default_factory=Journal)
    history_tool: bool = True
    """Declare the private `history` tool, with which the agent reads what left its window."""
    notes_tool: bool | None = None
    """Declare the private `notes` tools, with which the agent keeps notes that outlive its window; None: with the
    policy `work_room`."""
    ledger: bool | None = None
    """Keep a ledger of what was done as the last record of the window, made without a model; None: with the policy
    `work_room`, and where an earlier version left one."""
    call_timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Deadline of one model call."""
    turn_timeout_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """Deadline of a turn, from its first start."""
    open_calls_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """How long calls of unknown tools wait for their results."""

    @model_validator(mode="before")
    @classmethod
    def _knows_its_window(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or "window_tokens" in fields or not isinstance(fields.get("model"), str):
            return fields
        return {**fields, "window_tokens": known_window(fields["model"]).tokens}

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
            if names.count(name) > 1 or name.startswith(("history.", "notes.")):
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
            | ({"instructions": True} if t.instructions else {})
            for t in tools
        ]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """An agent with other fields, checked like any: pydantic's own copy would keep the digest of this one."""
        del deep  # all fields are frozen
        return type(self)(**{field: getattr(self, field) for field in type(self).model_fields} | dict(update or {}))

    def workload(self, kind: WorkloadKind) -> SummaryWorkload:
        """Who makes a kind of this agent's summaries."""
        match kind:
            case WorkloadKind.CONSOLIDATION:
                return self.consolidation
            case WorkloadKind.HANDOFF:
                return self.handoff
            case WorkloadKind.DIGEST:
                return self.journal.digest

    @property
    def origin(self) -> str:
        """Who can read the opaque items of its replies (`Entry.origin`)."""
        return f"{self.provider}/{self.model}"

    @property
    def own_model(self) -> OwnModel:
        """What its workloads take where they leave something open."""
        return OwnModel(provider=self.provider, model=self.model, window_tokens=self.window_tokens)

    @property
    def own_counter(self) -> Counter:
        """Counts as its `counter` says, and images as its model does."""
        return counter_named(self.counter, self.model)

    @property
    def window(self) -> WindowFact:
        """Its window, and whether that is declared or what is known of the model anyway."""
        known = known_window(self.model)
        return known if known.tokens == self.window_tokens else WindowFact(self.window_tokens, WindowSource.DECLARED)

    def description(self) -> str:
        """The agent as JSON, its tools by their declarations; what is sent of it in the order in which it is sent, so
        that an agent rebuilt from this sends the same bytes."""
        return self._as_json(sort_keys=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the description with its keys sorted: the version, whatever order it was written in."""
        return hashlib.sha256(self._as_json(sort_keys=True).encode()).hexdigest()

    def _as_json(self, *, sort_keys: bool) -> str:
        fields = self.model_dump(mode="json")
        return json.dumps(fields, sort_keys=sort_keys, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def instruction_tools(self) -> frozenset[str]:
        """Names of the tools whose results are instructions."""
        return frozenset(tool.declaration.name for tool in self.tools if tool.instructions)

    @property
    def has_notes(self) -> bool:
        """Whether the model has the private notes tools."""
        return self.policy.kind == "work_room" if self.notes_tool is None else self.notes_tool

    @property
    def has_ledger(self) -> bool:
        """Whether its sessions keep a ledger."""
        return self.policy.kind == "work_room" if self.ledger is None else self.ledger

    @property
    def carries_ledger(self) -> bool:
        """Whether a ledger that an earlier version left goes on: it does unless that is ruled out."""
        return self.ledger is not False

    @cached_property
    def told_policy(self) -> LogMerge | Tiers | Slots | WorkRoom:
        """Its policy, whose default texts name only the tools that it has. Made once: every round asks."""
        if not isinstance(self.policy, WorkRoom):
            return self.policy
        return self.policy.told(has_notes=self.has_notes, has_history=self.history_tool)

    @cached_property
    def full_instructions(self) -> str:
        """The instructions as the model gets them: what it must know of its windows stands at their end, the same in
        every request."""
        policy = self.told_policy
        if not isinstance(policy, WorkRoom):
            return self.instructions
        managed = policy.guidance_message
        return f"{self.instructions}\n\n{managed}" if self.instructions else managed

    @cached_property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """All tools as the model sees them: the agent's own in their order, then the private ones."""
        history = HISTORY_DECLARATIONS if self.history_tool else ()
        notes = NOTES_DECLARATIONS if self.has_notes else ()
        return (*(tool.declaration for tool in self.tools), *history, *notes)

    def fixed_tokens(self, counter: Counter) -> int:
        """Tokens of what every request carries: instructions, tool declarations, parameters."""
        if counter not in self.fixed_tokens_by_counter:
            parameters = {"model": self.model, **self.parameters}
            self.fixed_tokens_by_counter[counter] = counter.fixed(self.full_instructions, self.declarations, parameters)
        return self.fixed_tokens_by_counter[counter]

    @cached_property
    def fixed_tokens_by_counter(self) -> dict[Counter, int]:
        """What was counted already: nothing of it ever changes, and every round asks."""
        return {}

    def budgets(self, counter: Counter, calibration: float = 1.0) -> Budgets:
        """The window's figures in the counter's tokens, at a session's calibration (at least the counter's error).

        Raises CannotConverge, with the arithmetic.
        """
        room = self._room(counter, calibration)
        if room.limit_tokens <= 0:
            raise CannotConverge(
                self.window_tokens,
                room.fixed_tokens + 1,
                f"instructions and tools alone take {room.fixed_tokens} tokens",
            )
        return self.told_policy.budgets(room, counter, **self._records_shown(counter))

    def clamp(self, counter: Counter) -> Clamp | None:
        """What became of a work room that was asked for too small, to be told at start-up; None if none was."""
        policy = self.told_policy
        if not isinstance(policy, WorkRoom):
            return None
        return policy.clamp(self._room(counter), counter, **self._records_shown(counter))

    def _room(self, counter: Counter, calibration: float = 1.0) -> Room:
        ratio = max(calibration, counter.error_ratio)
        window_tokens = math.floor(self.window_tokens / ratio)
        return Room(
            window_tokens=window_tokens,
            fixed_tokens=self.fixed_tokens(counter),
            output_reserve_tokens=min(self.output_reserve_tokens, window_tokens // 16),
        )

    def _records_shown(self, counter: Counter) -> _RecordsShown:
        quota_tokens = ledger_tokens(counter, show_span=self.history_tool) if self.has_ledger else 0
        return {"show_span": self.history_tool, "ledger_tokens": quota_tokens}

    def session_budgets(self, counter: Counter, calibration: float, window: WindowFact | None = None) -> Budgets:
        """`budgets` at what a session has learned: whatever that is, a session of an agent that converges goes on.

        *window*: what is known of it beside the agent's own word, if it is smaller.

        Past the largest calibration that converges, what a rotation leaves is as there, and the limit of what is sent
        as the calibration says.
        """
        window_tokens = min(self.window_tokens, window.tokens) if window else self.window_tokens
        believable = self._believable(window_tokens, self.fixed_tokens(counter))
        ratio = max(min(calibration, believable), counter.error_ratio) * self.window_tokens / window_tokens
        try:
            return self.budgets(counter, ratio)
        except CannotConverge:
            largest = self._largest_ratio(counter, ratio)
            return narrowed(self.budgets(counter, largest), ratio / largest)

    @staticmethod
    def _believable(window_tokens: int, fixed_tokens: int) -> float:
        """The largest calibration that makes sense: what leaves room by our count, or what a tokenizer may come to, as
        far as that leaves some."""
        by_room = window_tokens / (fixed_tokens + window_tokens * LEAST_ROOM_FRACTION)
        by_what_is_left = (1 - LEAST_ROOM_FRACTION) * window_tokens / max(1, fixed_tokens)
        return max(by_room, min(DENSEST_RATIO, by_what_is_left))

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
