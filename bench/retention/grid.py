"""The grid: policies with their own fractions of a window, and which of them tells most for its price.

A window of 32,000 tokens, the made conversation of 100 blocks (850,000 tokens, about 50 rotations), the terse and the
wordy variant. Price per turn in base input tokens: a cached token 0.1, any other of a prompt 1.25, shown to the
summarizer 1, answered by it 5; the agent's own answers are the same everywhere and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.retention.arrangements import LOSSY, Arrangement, room_of
from bench.retention.made import made
from bench.retention.play import Played, Prepared, play
from bench.retention.report import plain_share
from bench.retention.run import mapping
from bench.retention.shares import Share
from sessionlib.errors import CannotConverge
from sessionlib.policies.contract import Policy
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.tokens import CharactersCounter

WINDOW_TOKENS, GRID_BLOCKS, GRID_SEEDS = 32_000, 100, 3
RECORD_FRACTIONS = (0.05, 0.10, 0.15, 0.20, 0.30)
TAIL_FRACTIONS = (0.05, 0.10, 0.20)
LINE_FRACTIONS = (0.60, 0.70, 0.80)
VARIANTS = ("terse", "wordy")

CACHED_PRICE, WRITTEN_PRICE, SHOWN_PRICE, ANSWERED_PRICE = 0.1, 1.25, 1.0, 5.0
"""In base input tokens (spec/retention)."""

SLOT_COUNT = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """A policy with its shares of the window; `record_fraction` is for all records."""

    policy: str
    record_fraction: float
    tail_fraction: float
    line_fraction: float

    def make(self) -> Policy:
        """The policy; whether it converges is found out by asking for its budgets."""
        line = self.line_fraction
        if self.policy == "log_merge":
            return LogMerge(tail_fraction=self.tail_fraction, record_fraction=self.record_fraction, line_fraction=line)
        if self.policy == "slots":
            return Slots(
                tail_fraction=self.tail_fraction, slot_fraction=self.record_fraction / SLOT_COUNT, line_fraction=line
            )
        coarse = (12, 9, 7) if self.policy == "tiers" else (1,)
        fractions = [self.record_fraction * part / sum(coarse) for part in coarse]
        return Tiers(tier_fractions=(max(self.tail_fraction, fractions[0]), *fractions), line_fraction=line)


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell, and what came of it."""

    cell: Cell
    variants: dict[str, Played]

    @property
    def recall(self) -> Share:
        """Over both variants."""
        return sum((played.final["planted"] for played in self.variants.values()), Share())

    @property
    def units_per_rotation(self) -> float:
        return fmean(played.units / played.rotations for played in self.variants.values())

    @property
    def summarizer_tokens(self) -> float:
        """Per 1,000 turns."""
        return fmean(1_000 * played.summarizer_tokens / played.units for played in self.variants.values())

    @property
    def prompt_tokens(self) -> float:
        """Per turn."""
        return fmean(played.prompt_tokens / played.units for played in self.variants.values())

    @property
    def price(self) -> float:
        """Per turn, in base input tokens."""
        return fmean(price_of(played) / played.units for played in self.variants.values())

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "policy": self.cell.policy,
            "record_fraction": self.cell.record_fraction,
            "tail_fraction": self.cell.tail_fraction,
            "line_fraction": self.cell.line_fraction,
            "recall": {
                "both": plain_share(self.recall),
                **{name: plain_share(played.final["planted"]) for name, played in self.variants.items()},
            },
            "summarizer_tokens_per_1000_turns": self.summarizer_tokens,
            "turns_per_rotation": self.units_per_rotation,
            "prompt_tokens_per_turn": self.prompt_tokens,
            "price_per_turn": self.price,
        }


def price_of(played: Played) -> float:
    """What prompts and summaries cost, in base input tokens."""
    fresh_tokens = played.prompt_tokens - played.cached_tokens
    shown_tokens = played.summarizer_tokens - played.answered_tokens
    return (
        CACHED_PRICE * played.cached_tokens
        + WRITTEN_PRICE * fresh_tokens
        + SHOWN_PRICE * shown_tokens
        + ANSWERED_PRICE * played.answered_tokens
    )


def cells() -> list[Cell]:
    """log_merge over the whole grid; the others over their records, in the middle of the rest."""
    whole = [
        Cell("log_merge", record, tail, line)
        for record in RECORD_FRACTIONS
        for tail in TAIL_FRACTIONS
        for line in LINE_FRACTIONS
    ]
    others = [
        Cell(policy, record, 0.20 if policy == "slots" else 0.10, 0.70)
        for policy in ("flat", "tiers", "slots")
        for record in RECORD_FRACTIONS
    ]
    return [cell for cell in (*whole, *others) if converges(cell)]


def converges(cell: Cell) -> bool:
    """Whether the product takes the cell at all."""
    try:
        cell.make().budgets(room_of(WINDOW_TOKENS), CharactersCounter(), show_span=True)
    except CannotConverge:
        return False
    return True


@dataclass(frozen=True, slots=True)
class GridTask:
    seed: int
    cells: tuple[Cell, ...]
    blocks: int


def perform(task: GridTask) -> list[dict[str, Played]]:
    """One conversation through all cells."""
    prepared = Prepared.of(made(task.seed, blocks=task.blocks), task.seed)
    return [{name: _played(prepared, cell, name, task.seed) for name in VARIANTS} for cell in task.cells]


def _played(prepared: Prepared, cell: Cell, variant: str, seed: int) -> Played:
    arrangement = Arrangement(
        policy_name=cell.policy,
        summarizer_name=variant,
        policy=cell.make(),
        make_summarizer=LOSSY[variant],
        room=room_of(WINDOW_TOKENS),
    )
    return play(prepared, arrangement, seed)


def search(seeds: int, processes: int, blocks: int = GRID_BLOCKS) -> list[Judged]:
    """Every cell, judged over the seeds."""
    chosen = tuple(cells())
    with mapping(processes) as run:
        results = list(run(perform, [GridTask(seed, chosen, blocks) for seed in range(seeds)]))
    first, *others = results
    for other in others:
        for sums, more in zip(first, other, strict=True):
            for name in VARIANTS:
                sums[name].add(more[name])
    return [Judged(cell, variants) for cell, variants in zip(chosen, first, strict=True)]


def best(judged: Sequence[Judged]) -> Judged:
    """The cheapest of those that nobody is surely better than: whose interval reaches the highest share."""
    highest = max(each.recall.value for each in judged)
    return min((each for each in judged if each.recall.interval[1] >= highest), key=lambda each: each.price)


def print_grid(judged: Sequence[Judged]) -> None:
    print(
        f"{'policy':<11}{'records':>8}{'tail':>6}{'line':>6}{'told, % (95 %)':>16}{'terse':>13}{'wordy':>13}"
        f"{'S/1,000':>9}{'W':>7}{'C':>8}{'price':>8}"
    )
    for each in sorted(judged, key=lambda each: (-each.recall.value, each.price)):
        cell, told = each.cell, [str(each.variants[name].final["planted"]) for name in VARIANTS]
        print(
            f"{cell.policy:<11}{cell.record_fraction:>8.2f}{cell.tail_fraction:>6.2f}{cell.line_fraction:>6.2f}"
            f"{each.recall!s:>16}{told[0]:>13}{told[1]:>13}{each.summarizer_tokens:>9,.0f}"
            f"{each.units_per_rotation:>7.1f}{each.prompt_tokens:>8,.0f}{each.price:>8,.0f}"
        )
    cell = best(judged).cell
    print(
        f"best: {cell.policy}, records {cell.record_fraction}, tail {cell.tail_fraction}, line {cell.line_fraction}"
        " (the cheapest whose interval reaches the highest share)"
    )
