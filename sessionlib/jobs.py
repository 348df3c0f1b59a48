"""A handoff or a digest as a generator: freezes what it is made from, then asks for it once.

Evidence is saved as a step before anybody is asked, and the answer before it is recorded: whoever takes over from a
killed worker has the same evidence, asks nothing that was answered, and asks under the same name what was not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sessionlib.entries import Entry, EntryKind
from sessionlib.layout import Record
from sessionlib.steps import Capture, Captured, Steps, SummaryCall
from sessionlib.summaries.contract import Settlement, SummaryRequest
from sessionlib.summaries.evidence import Evidence, project
from sessionlib.summaries.purposes import Purpose

RESULT_CAPS_CHARACTERS = (8_000, 4_000, 2_000, 800, 80)
"""Caps of tool results, the usual one first (spec/summaries C4), tried one after the other until the evidence fits."""

Fits = Callable[[Evidence], bool]
"""Whether a summarizer's window has room for evidence, prompt and answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A handoff or digest to make, of the entries `first_seq … last_seq`."""

    purpose: Purpose
    name: str
    """Names its one call to the provider."""
    first_seq: int
    last_seq: int
    focus: str = ""
    guidance: str = ""

    def request(self, evidence: Evidence) -> SummaryRequest:
        """What is asked for, from this evidence. Raises InvalidInput if there is none."""
        return SummaryRequest(
            purpose=self.purpose, evidence=evidence, focus=self.focus, guidance=self.guidance, name=self.name
        )


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a job was made from, and what came of it."""

    captured: Captured
    settlement: Settlement


def summarize(job: Job) -> Steps[JobOutcome]:
    """Capture, then ask; yields a `Capture` and a `SummaryCall`. Lets out what an effect raises.

    Raises InvalidInput if nothing of the span is evidence.
    """
    captured: Captured = yield Capture(job.first_seq, job.last_seq)
    settlement: Settlement = yield SummaryCall(job.request(captured.evidence), captured.workload)
    return JobOutcome(captured, settlement)


def handoff_evidence(
    records: Sequence[Record], entries: Sequence[Entry], instruction_tools: frozenset[str], fits: Fits
) -> Evidence:
    """A session as it stands: records, then live entries, under the largest cap that fits, or else the smallest."""
    evidence = Evidence(items=())
    for cap in RESULT_CAPS_CHARACTERS:
        evidence = project(entries, records=records, instruction_tools=instruction_tools, result_cap=cap)
        if fits(evidence):
            break
    return evidence


def digest_evidence(entries: Sequence[Entry], instruction_tools: frozenset[str], fits: Fits) -> tuple[Evidence, int]:
    """As many finished turns from the first of *entries* on as fit, and how many entries these are.

    Of a turn that is too large by itself, even under the smallest caps, as many rounds as fit; at least one.
    """

    def most(ends: Sequence[int]) -> int:
        """The last of *ends* up to which everything fits under the usual cap, found by halving; at least the first."""
        low, high = 1, len(ends)
        while low < high:
            middle = (low + high + 1) // 2
            is_fitting = fits(project(entries[: ends[middle - 1]], instruction_tools=instruction_tools))
            low, high = (middle, high) if is_fitting else (low, middle - 1)
        return ends[low - 1]

    turn_ends = [*_turn_starts(entries)[1:], len(entries)]
    count = most(turn_ends)
    evidence = handoff_evidence((), entries[:count], instruction_tools, fits)
    if count == turn_ends[0] and not fits(evidence):
        count = most(_round_ends(entries[:count]))
        evidence = handoff_evidence((), entries[:count], instruction_tools, fits)
    return evidence, count


def _round_ends(turn: Sequence[Entry]) -> list[int]:
    """Positions after each round of a turn: where the next one's model speaks, or calls, after results."""
    starts = [
        position
        for position in range(1, len(turn))
        if turn[position - 1].kind is EntryKind.TOOL_RESULT and turn[position].kind is not EntryKind.TOOL_RESULT
    ]
    return [*starts, len(turn)]


def _turn_starts(entries: Sequence[Entry]) -> list[int]:
    """Positions of the first entry and of each user message that follows something else."""
    return [
        position
        for position, entry in enumerate(entries)
        if position == 0 or (entry.kind is EntryKind.USER and entries[position - 1].kind is not EntryKind.USER)
    ]
