"""Who makes an agent's summaries, as it is configured: by a named choice, or by provider, model and effort."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from sessionlib.errors import InvalidInput
from sessionlib.providers.contract import Provider
from sessionlib.summaries.contract import Workload
from sessionlib.window_facts import UNKNOWN_WINDOW_TOKENS, known_window


class Frozen(BaseModel):
    """Refuses unknown fields, NaN and infinities; cannot be changed once made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


class WorkloadKind(StrEnum):
    """The kinds of summary that an agent names somebody for."""

    CONSOLIDATION = "consolidation"
    HANDOFF = "handoff"
    DIGEST = "digest"


class Choice(Frozen):
    """A named choice of a model: `fast`, `balanced`, `strong`, or whatever a catalog calls them."""

    provider: str = "default"
    model: str = ""
    effort: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    window_tokens: Annotated[int, Field(gt=0)] = UNKNOWN_WINDOW_TOKENS


class SummaryWorkload(Frozen):
    """Who makes a kind of summary. What it leaves open is as for the agent's answers."""

    summarizer: Literal["extractive", "model"] = "model"
    """`extractive`: sentences of the source, without a model."""
    choice: str = ""
    """A choice of the catalog; then provider and model are its own."""
    provider: str = ""
    model: str = ""
    effort: str = ""
    """Reasoning effort, one that the provider takes; "" leaves the provider's default."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    window_tokens: Annotated[int, Field(gt=0)] | None = None
    """How much one request may hold. None: as the choice says; the agent's own window, if the model is its own."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 120.0

    @model_validator(mode="after")
    def _names_one_model(self) -> Self:
        if self.choice and (self.provider or self.model):
            raise ValueError(f"must name the choice {self.choice!r}, or provider and model, and not both")
        return self


class ConsolidationWorkload(SummaryWorkload):
    """Who makes the records: the extractive summarizer, or a provider's model."""

    summarizer: Literal["extractive", "model"] = "extractive"
    window_tokens: Annotated[int, Field(gt=0)] | None = 32_000
    """How much one consolidation may show the summarizer, in tokens of the agent's counter."""


class OwnModel(Frozen):
    """What an agent answers with: what its workloads leave open is taken from here."""

    provider: str
    model: str
    window_tokens: int


def resolved(workload: SummaryWorkload, own: OwnModel, choices: Mapping[str, Choice]) -> Workload:
    """A workload with nothing left open, but for what states its effort. Raises InvalidInput for an unknown choice."""
    chosen = choices.get(workload.choice) if workload.choice else None
    if workload.choice and chosen is None:
        known = ", ".join(sorted(choices)) or "(none)"
        raise InvalidInput("choice", workload.choice, f"must be one of the catalog's: {known}")
    provider = chosen.provider if chosen else workload.provider or own.provider
    model = chosen.model if chosen else workload.model or own.model
    is_own = (provider, model) == (own.provider, own.model)
    default_tokens = own.window_tokens if is_own else chosen.window_tokens if chosen else known_window(model).tokens
    window_tokens = workload.window_tokens or default_tokens
    if workload.summarizer == "extractive":
        return Workload(summarizer="extractive", window_tokens=window_tokens)
    return Workload(
        provider=provider,
        model=model,
        effort=workload.effort or (chosen.effort if chosen else ""),
        parameters={**(chosen.parameters if chosen else {}), **workload.parameters},
        window_tokens=window_tokens,
        timeout_seconds=workload.timeout_seconds,
    )


def efforts_of(provider: Provider) -> Mapping[str, Mapping[str, Any]]:
    """The efforts that a provider takes, each with the parameters that state it; none where it says nothing."""
    efforts: Mapping[str, Mapping[str, Any]] = getattr(provider, "efforts", MappingProxyType({}))
    return efforts
