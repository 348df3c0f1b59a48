"""What the tests of summaries share: valid answers, requests, a provider that streams, a generator over a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.contract import ConsolidationRequest, Settlement, SummaryRequest, Workload
from sessionlib.summaries.evidence import Evidence, Item, Provenance
from sessionlib.summaries.model import Draw, ModelGenerator, ModelSummarizer
from sessionlib.summaries.purposes import EMPTY_BULLET, HEADINGS, Purpose

MATERIAL = "USER: Use port 8080 for the pump of alpha-7, and keep retry_limit at 5.\nASSISTANT: Done, see src/pump.py. "
LONG_MATERIAL = MATERIAL * 20


def summary(purpose: Purpose, said: Mapping[str, str] | None = None) -> str:
    """A valid summary: bullets under the headings that *said* names, by default under the first."""
    said = {HEADINGS[purpose][0]: "- port 8080"} if said is None else said
    return "\n".join(f"## {heading}\n{said.get(heading, EMPTY_BULLET[purpose])}" for heading in HEADINGS[purpose])


def evidence_of(*texts: str, provenance: Provenance = Provenance.USER) -> Evidence:
    return Evidence(items=tuple(Item(provenance, text) for text in texts))


def request_for(purpose: Purpose, *texts: str, **fields: Any) -> SummaryRequest:
    """A request for *purpose*, with the task that a handoff needs."""
    task = {"focus": "Replace the pump."} if purpose is Purpose.HANDOFF else {}
    evidence = evidence_of(*(texts or (LONG_MATERIAL,)))
    return SummaryRequest(purpose=purpose, evidence=evidence, **{"name": "s-1", **task, **fields})


def drawing() -> Draw:
    """Markers in order: 16 hexadecimal digits, another one each time."""
    numbers = count(0xA0)
    return lambda: f"{next(numbers):016x}"


def never() -> bool:
    return False


def workload(**fields: Any) -> Workload:
    defaults: dict[str, Any] = {"provider": "other", "model": "small", "effort": "low", "parameters": {"effort": "low"}}
    return Workload(**{**defaults, "timeout_seconds": 30.0, **fields})


def generated(provider: Any, request: SummaryRequest, **fields: Any) -> Settlement:
    """What comes of *request*, asked of *provider* under `workload(**fields)`."""
    return ModelGenerator(provider, workload(**fields), drawing()).generate(request, never)


def answered(answer: ModelReply | str, purpose: Purpose = Purpose.CONTINUATION, **fields: Any) -> Settlement:
    """What comes of a request for *purpose* that is answered so."""
    return generated(ScriptedProvider([answer]), request_for(purpose, **fields))


def summarizer(provider: Any, **fields: Any) -> ModelSummarizer:
    return ModelSummarizer(provider, workload(**fields), drawing())


def consolidation(material: str = LONG_MATERIAL, previous_record: str = "", **fields: Any) -> ConsolidationRequest:
    defaults: dict[str, Any] = {"tier": 1, "first_seq": 3, "last_seq": 9, "budget_tokens": 4_321}
    return ConsolidationRequest(material=material, previous_record=previous_record, **{**defaults, **fields})


@dataclass
class Streaming:
    """A provider whose answer comes in pieces. Notes what of it was taken, and how its request ended."""

    deltas: Sequence[str]
    failure: Exception | None = None
    """Raised in the place of the answer's end."""
    on_abort: Callable[[Exception], Exception | None] = lambda exc: exc
    """What it makes of an exception that comes out of a delta; None: it goes on as if nothing were."""
    shape: Shape = Shape.STATELESS
    heard: list[str] = field(default_factory=list)
    abort_count: int = 0

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        for delta in self.deltas:
            self._say(delta, on_delta)
        if self.failure:
            raise self.failure
        return ModelReply(text="".join(self.deltas))

    def _say(self, delta: str, on_delta: OnDelta | None) -> None:
        self.heard.append(delta)
        if on_delta is None:
            return
        try:
            on_delta(delta)
        except Exception as exc:
            self.abort_count += 1
            if translated := self.on_abort(exc):
                raise translated from exc

    def dispose(self, handle: str, until: str = "") -> None: ...


def pieces(text: str, size: int) -> Sequence[str]:
    """*text* in pieces of *size* characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]
