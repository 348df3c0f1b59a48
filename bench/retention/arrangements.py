"""What is compared: policies by name, the window they share, summarizers by name, and the controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from bench.retention.lossy import VARIANTS, LossySummarizer, at_random, newest
from sessionlib.policies.contract import Consolidating, Policy, Rotated, RotationPlan
from sessionlib.policies.figures import AgeingFigures, Shares
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.summaries.contract import ConsolidationRequest, Summarizer
from sessionlib.summaries.extractive import ExtractiveSummarizer
from sessionlib.tokens import CharactersCounter
from sessionlib.transcript import round_starts
from sessionlib.window import Room

COUNTER = CharactersCounter()

KEPT_SHARE = 0.3
"""What all policies may keep of the window after a rotation: the spec's 4,800 tokens of 16,000."""

RESERVE_DIVISOR = 16
"""The window's part that is kept free for answers, as an agent's is at most."""


class Truncating(AgeingFigures):
    """A control: the newest whole entries stay, at least a round, and nothing stands for the rest."""

    kind: Literal["truncate"] = "truncate"
    tail_tokens: int

    def shares(self, effective_tokens: int, framing: int) -> Shares:
        del effective_tokens, framing
        return Shares(tail_tokens=self.tail_tokens, record_tokens=0)

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:  # noqa: ARG002 - every policy's
        """Nothing is ever asked."""
        return 1.0

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Drop what is older than the tail. A window must hold a message: the newest round always stays."""
        yield from ()
        live = plan.layout.live
        kept = live.split_at_budget(plan.budgets.tail_tokens).retained
        boundary = min(len(live) - len(kept), round_starts(live.entries)[-1])
        return Rotated(layout=replace(plan.layout, live=live.split_at(boundary)[1]))


def log_merge(kept_tokens: int) -> Policy:
    """Tail and records in the proportion of its own defaults, 1 : 2."""
    tail_tokens = kept_tokens // 3
    return LogMerge(tail_tokens=tail_tokens, record_tokens=kept_tokens - tail_tokens)


def tiers(kept_tokens: int) -> Policy:
    """The four tiers of spec/tiers A4."""
    return Tiers(tier_tokens=tuple(round(kept_tokens * part / 4_800) for part in (2_000, 1_200, 900, 700)))


def flat(kept_tokens: int) -> Policy:
    """`tiers` with one coarse tier: a running record, and a tail of the same size."""
    return Tiers(tier_tokens=(kept_tokens // 2, kept_tokens // 2))


def slots(kept_tokens: int) -> Policy:
    """Twelve slots of the size of a terse record, and a small tail."""
    tail_tokens = kept_tokens // 8
    return Slots(tail_tokens=tail_tokens, slot_tokens=(kept_tokens - tail_tokens) // 12)


def work_room(kept_tokens: int) -> Policy:
    """No summary: what left the window is told by the archive and the model's notes only (`bench.recall`)."""
    del kept_tokens
    return WorkRoom()


def none(kept_tokens: int) -> Policy:
    """A control: each rotation leaves the newest round alone."""
    del kept_tokens
    return Truncating(tail_tokens=1)


def truncate(kept_tokens: int) -> Policy:
    """A control: the whole budget is the tail's."""
    return Truncating(tail_tokens=kept_tokens)


MakePolicy = Callable[[int], Policy]
"""A policy from what it may keep after a rotation, in tokens."""

POLICIES: Mapping[str, MakePolicy] = {"flat": flat, "tiers": tiers, "slots": slots, "log_merge": log_merge}
"""Compared with each other. A policy is added in a line."""


class MakeSummarizer(Protocol):
    def __call__(self, seed: int) -> Summarizer: ...


def _variant(keeps: bool, wordy: bool) -> MakeSummarizer:
    return lambda seed: LossySummarizer(seed=seed, keeps=keeps, wordy=wordy)


LOSSY: Mapping[str, MakeSummarizer] = {name: _variant(*traits) for name, traits in VARIANTS.items()}


def extractive(seed: int) -> Summarizer:
    """The product's own summarizer without a model."""
    del seed
    return ExtractiveSummarizer(counter=COUNTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A policy in a window, and who summarizes."""

    policy_name: str
    summarizer_name: str
    policy: Policy
    make_summarizer: MakeSummarizer
    room: Room


def room_of(window_tokens: int) -> Room:
    """A window without instructions and tools."""
    return Room(window_tokens=window_tokens, fixed_tokens=0, output_reserve_tokens=window_tokens // RESERVE_DIVISOR)


def arrangements(window_tokens: int, summarizers: Mapping[str, MakeSummarizer]) -> list[Arrangement]:
    """Every policy with every one of *summarizers*, in one window and with one sum to keep."""
    kept_tokens, room = math.floor(window_tokens * KEPT_SHARE), room_of(window_tokens)
    return [
        Arrangement(
            policy_name=policy, summarizer_name=name, policy=make(kept_tokens), make_summarizer=summarizer, room=room
        )
        for name, summarizer in summarizers.items()
        for policy, make in POLICIES.items()
    ]


def checked_flat(room: Room) -> Arrangement:
    """What the lossy model was calibrated on: a flat record, hardly a tail, a rotation every 8,500 tokens."""
    policy = Tiers(tier_tokens=(500, 500), line_tokens=500 + 360 + 8_500)
    return Arrangement(
        policy_name="check", summarizer_name="terse", policy=policy, make_summarizer=LOSSY["terse"], room=room
    )


def controls(window_tokens: int) -> list[Arrangement]:
    """Without any summary, and log_merge with summaries that were not thought about, as long as the model's."""
    kept_tokens, room = math.floor(window_tokens * KEPT_SHARE), room_of(window_tokens)
    rows: list[tuple[str, MakePolicy, MakeSummarizer]] = [
        ("work_room", work_room, extractive),
        ("none", none, extractive),
        ("truncate", truncate, extractive),
        ("newest text", log_merge, lambda seed: LossySummarizer(seed=seed, choose=newest, even_odds=True)),
        ("random", log_merge, lambda seed: LossySummarizer(seed=seed, choose=at_random, even_odds=True)),
    ]
    return [
        Arrangement(
            policy_name=name, summarizer_name="control", policy=make(kept_tokens), make_summarizer=summarizer, room=room
        )
        for name, make, summarizer in rows
    ]
