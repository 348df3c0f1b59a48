"""Tables: what was told, what it cost, and whether the aims were met. Simulated, extractive and controls apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.retention.arrangements import LOSSY, POLICIES
from bench.retention.play import BANDS, ROTATION_BANDS, Played
from bench.retention.run import Key
from bench.retention.shares import Share
from sessionlib.summaries.model import ModelSummarizer

PUBLISHED = {"flat": ("100", "50", "67", "0"), "tiers": ("50–100", "50–100", "50–100", "50–100")}
"""One run each of the tiered engine's authors, by rotations ago; 5 of 23 and 13 of 17 probes in all. Of tiers only the
range was published (spec/results)."""

LEAST_RECALL, LEAST_TIMES_TIERS = 0.78, 2.0
MOST_TOKENS = {"terse": 1.10, "keeps": 1.10, "wordy": 1.15}
"""Aims for log_merge: share of key facts in each variant, times `tiers` when terse, summarizer tokens ÷ flat."""

CHECK_RECALL, CHECK_TOKENS = (0.16, 0.26), (320, 400)
"""What a flat record must come to over 50 rotations, or the model is not the calibrated one: about 21 %, about 360
tokens (spec/retention)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tables."""

    data_set: str
    policy: str
    summarizer: str
    played: Played
    flat: Played | None
    """The flat record in the same place, to divide by."""

    @property
    def tokens_per_1000(self) -> float:
        """Summarizer tokens per 1,000 units."""
        return 1_000 * self.played.summarizer_tokens / self.played.units

    @property
    def tokens_ratio(self) -> float:
        """Summarizer tokens ÷ those of flat, on the same conversations."""
        return _ratio(self.played.summarizer_tokens, self.flat.summarizer_tokens if self.flat else 0)

    @property
    def prompted_ratio(self) -> float:
        """The same with the product's prompt around every call."""
        return _ratio(_prompted(self.played), _prompted(self.flat) if self.flat else 0)

    @property
    def units_per_rotation(self) -> float:
        return _ratio(self.played.units, self.played.rotations)

    @property
    def units_ratio(self) -> float:
        """Units per rotation ÷ those of flat."""
        return _ratio(self.flat.rotations, self.played.rotations) if self.flat else math.nan

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        played = self.played
        return {
            "data_set": self.data_set,
            "policy": self.policy,
            "summarizer": self.summarizer,
            "runs": played.runs,
            "final": {kind: plain_share(share) for kind, share in played.final.items()},
            "by_blocks": {kind: _plain_bands(BANDS, shares) for kind, shares in played.bands.items()},
            "by_rotations": {
                kind: _plain_bands(ROTATION_BANDS, shares) for kind, shares in played.rotation_bands.items()
            },
            "summarizer_tokens_per_1000_units": self.tokens_per_1000,
            "summarizer_tokens_over_flat": finite(self.tokens_ratio),
            "summarizer_tokens_with_prompts_over_flat": finite(self.prompted_ratio),
            "calls_per_1000_units": 1_000 * played.calls / played.units,
            "units_per_rotation": finite(self.units_per_rotation),
            "units_per_rotation_over_flat": finite(self.units_ratio),
            "prompt_tokens_per_unit": played.prompt_tokens / played.units,
            "most_prompt_tokens": played.most_prompt_tokens,
            "cached_share": _ratio(played.cached_tokens, played.prompt_tokens),
            "cached_share_across_rotations": finite(
                _ratio(played.after_rotation_cached_tokens, played.after_rotation_prompt_tokens)
            ),
            "record_tokens_at_the_end": played.final_record_tokens / played.runs,
            "methods": dict(played.methods),
            "budget_breaks": played.budget_breaks,
            "trims": played.trims,
            "fabricated": played.fabricated,
        }


def _prompted(played: Played) -> int:
    return played.summarizer_tokens + played.calls * ModelSummarizer.PROMPT_TOKENS


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.nan


def finite(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def plain_share(share: Share) -> dict[str, Any]:
    low, high = share.interval
    return {"found": share.found, "count": share.count, "share": finite(share.value), "low": low, "high": high}


def _plain_bands(bands: Sequence[tuple[int, int]], shares: Sequence[Share]) -> dict[str, Any]:
    return {f"{least}-{most}": plain_share(share) for (least, most), share in zip(bands, shares, strict=True)}


def rows_of(found: Mapping[Key, Played]) -> list[Row]:
    return [
        Row(data_set, policy, summarizer, played, found.get((data_set, "flat", summarizer)))
        for (data_set, policy, summarizer), played in found.items()
    ]


@dataclass(frozen=True, slots=True)
class Aim:
    """Something that must come out, and what came out."""

    text: str
    measured: str
    is_met: bool


def check_aim(found: Mapping[Key, Played]) -> Aim:
    """Whether the lossy model is the calibrated one."""
    check = found["made", "check", "terse"]
    recall, record_tokens = check.final["planted"], check.final_record_tokens / check.runs
    is_met = CHECK_RECALL[0] <= recall.value <= CHECK_RECALL[1] and CHECK_TOKENS[0] <= record_tokens <= CHECK_TOKENS[1]
    measured = f"{recall} %, {record_tokens:.0f} tokens, {check.rotations / check.runs:.0f} rotations"
    return Aim("check: a flat record over 50 rotations, about 21 % and 360 tokens", measured, is_met)


def aims_of(found: Mapping[Key, Played]) -> list[Aim]:
    """The aims for log_merge on the made conversation, and what must hold everywhere."""
    rows = {(row.policy, row.summarizer): row for row in rows_of(found) if row.data_set == "made"}
    recalls = {name: rows["log_merge", name].played.final["planted"] for name in LOSSY}
    tiers = rows["tiers", "terse"].played.final["planted"].value
    times = _ratio(recalls["terse"].value, tiers)
    aims = [check_aim(found)]
    aims += [
        Aim(f"log_merge, {name}: at least {100 * LEAST_RECALL:.0f} %", str(share), share.value >= LEAST_RECALL)
        for name, share in recalls.items()
    ]
    aims.append(Aim("log_merge ÷ tiers, terse: at least 2", f"{times:.1f}", times >= LEAST_TIMES_TIERS))
    for name, most in MOST_TOKENS.items():
        ratio = rows["log_merge", name].tokens_ratio
        aims.append(Aim(f"summarizer tokens ÷ flat, {name}: at most {most:.2f}", f"{ratio:.2f}", ratio <= most))
    breaks = sum(played.budget_breaks for played in found.values())
    made_up = sum(played.fabricated for (_, _, summarizer), played in found.items() if summarizer == "extractive")
    return [
        *aims,
        Aim("budget breaks: 0", str(breaks), breaks == 0),
        Aim("fabricated values, extractive: 0", str(made_up), made_up == 0),
    ]


def print_tables(found: Mapping[Key, Played]) -> None:
    """Everything, data set by data set."""
    rows = [row for row in rows_of(found) if row.policy != "check"]
    for data_set in dict.fromkeys(row.data_set for row in rows):
        here = [row for row in rows if row.data_set == data_set]
        for title, names in (
            ("simulated: the lossy model", tuple(LOSSY)),
            (
                "extractive: without a model (compares no policies: a kept line is kept word for word)",
                ("extractive",),
            ),
            ("controls", ("control",)),
        ):
            chosen = [row for row in here if row.summarizer in names]
            if chosen:
                _print_table(f"{data_set}, {title}", chosen)
    print("real models: none were asked; this machine has none")
    _print_by_rotations([row for row in rows if row.data_set == "made" and row.policy in POLICIES])


def _print_table(title: str, rows: Sequence[Row]) -> None:
    print(f"\n== {title}; {rows[0].played.runs} runs of {rows[0].played.units // rows[0].played.runs:,} units")
    kinds = dict.fromkeys(kind for row in rows for kind in row.played.final)
    for kind in kinds:
        heads = [f"{least}–{most}" if least < most else f"{least}+" for least, most in BANDS]
        print(f"\n{kind} facts told, % (95 % interval), by age in blocks, each fact once in a band; and all at the end")
        print(f"{'':<26}" + "".join(f"{head:>14}" for head in (*heads, "end")))
        for row in rows:
            shares = [*row.played.bands.get(kind, [Share()] * len(BANDS)), row.played.final[kind]]
            print(f"{row.policy:<12}{row.summarizer:<14}" + "".join(f"{share!s:>14}" for share in shares))
    print(
        f"\n{'':<26}{'S/1,000':>10}{'÷ flat':>8}{'prompted':>10}{'calls':>7}{'W':>7}{'÷ flat':>8}{'C':>8}{'most':>8}"
        f"{'cached':>8}{'rotated':>9}{'record':>8}{'B':>4}{'trims':>7}{'made up':>9}"
    )
    for row in rows:
        print(_cost_line(row))


def _cost_line(row: Row) -> str:
    figures = row.plain()
    return (
        f"{row.policy:<12}{row.summarizer:<14}{row.tokens_per_1000:>10,.0f}{row.tokens_ratio:>8.2f}"
        f"{row.prompted_ratio:>10.2f}{figures['calls_per_1000_units']:>7.0f}{row.units_per_rotation:>7.1f}"
        f"{row.units_ratio:>8.2f}{figures['prompt_tokens_per_unit']:>8,.0f}{row.played.most_prompt_tokens:>8,}"
        f"{figures['cached_share']:>8.2f}{figures['cached_share_across_rotations'] or 0:>9.2f}"
        f"{figures['record_tokens_at_the_end']:>8,.0f}{row.played.budget_breaks:>4}{row.played.trims:>7}"
        f"{row.played.fabricated:>9}"
    )


def _print_by_rotations(rows: Iterable[Row]) -> None:
    print("\n== by rotations ago, planted facts of the made conversation at its end, % (95 % interval)")
    heads = ("0–4", "5–9", "10–14", "15 and more")
    print(f"{'':<26}" + "".join(f"{head:>14}" for head in heads))
    for name, published in PUBLISHED.items():
        print(f"{name:<12}{'published':<14}" + "".join(f"{share:>14}" for share in published))
    for row in rows:
        shares = row.played.rotation_bands["planted"]
        print(f"{row.policy:<12}{row.summarizer:<14}" + "".join(f"{share!s:>14}" for share in shares))


def print_aims(aims: Iterable[Aim]) -> None:
    print("\n== aims")
    for aim in aims:
        print(f"{aim.text:<68}{aim.measured:<38}{'yes' if aim.is_met else 'NO'}")
