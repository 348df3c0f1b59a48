"""Effects, and the one driver that performs them, saves each result, and feeds saved ones back after a crash."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sessionlib.media import Media
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest, Settlement, SummaryRequest, Workload
from sessionlib.summaries.evidence import Evidence


def model_step(round: int) -> str:
    """Name of a round's model call; attempts at it share the name, since only one is answered."""
    return f"model:{round}"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Ask the provider. Answered with a ModelReply."""

    round: int
    request: ModelRequest

    @property
    def name(self) -> str:
        return model_step(self.round)


@dataclass(frozen=True, slots=True)
class ToolRun:
    """Run a tool. Answered with a ToolOutput."""

    round: int
    call: CallRequest

    @property
    def name(self) -> str:
        return f"tool:{self.round}:{self.call.call_id}"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's result as text; `is_error` if it is the text of a failure that goes back to the model."""

    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Ask the summarizer. Answered with a Consolidated. *attempt* counts from 0, chunks and retries alike."""

    request: ConsolidationRequest
    attempt: int

    @property
    def name(self) -> str:
        return f"consolidation:{self.request.first_seq}-{self.request.last_seq}:{self.attempt}"


WORKLOAD_STEP = "workload"
"""Name of a rotation's first step, if a model consolidates: who that is, a Workload, frozen for all its calls."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Freeze what a handoff or digest is made from. Answered with a Captured."""

    first_seq: int
    last_seq: int

    @property
    def name(self) -> str:
        return f"capture:{self.first_seq}-{self.last_seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Evidence of the entries `first_seq … last_seq`, and who is to summarize it: neither changes any more."""

    evidence: Evidence
    workload: Workload
    first_seq: int
    last_seq: int
    """At most what was asked for: a digest takes as many finished turns as fit the summarizer."""


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """Ask for a handoff or digest. Answered with a Settlement."""

    request: SummaryRequest
    workload: Workload

    @property
    def name(self) -> str:
        return f"summary:{self.request.purpose}"


Effect = ModelCall | ToolRun | Consolidation | Capture | SummaryCall
EffectResult = ModelReply | ToolOutput | Consolidated | Workload | Captured | Settlement
Outcome = TypeVar("Outcome")
Steps = Generator[Effect, Any, Outcome]
"""A flow of decisions: yields effects, is sent their results, returns an outcome."""


class SaveStep(Protocol):
    """Makes one result durable, before the next effect or together with what the flow came to.

    Raises LeaseLost if the work is no longer this worker's.
    """

    def __call__(self, name: str, result: EffectResult) -> None: ...


def drive(
    steps: Steps[Outcome],
    perform: Callable[[Effect], EffectResult],
    saved: Mapping[str, EffectResult],
    save: SaveStep,
) -> Outcome:
    """Run *steps* to their end: an effect whose result is in *saved* is not performed again.

    An error of *perform* is raised inside the generator at its yield, which may handle it; whatever the generator
    lets out ends the drive.
    """
    try:
        effect = next(steps)
        while True:
            result = saved.get(effect.name)
            if result is None:
                try:
                    result = perform(effect)
                except Exception as exc:  # noqa: BLE001 - the flow decides what an effect's failure means
                    effect = steps.throw(exc)
                    continue
                save(effect.name, result)
            effect = steps.send(result)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
