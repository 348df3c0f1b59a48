"""How much of a conversation is still told by its window, at what price, under each policy.

`python -m bench.retention` plays conversations through the product's own rotation and policies: one that the bench
writes (2,500 turns, 425,000 tokens, a decision planted in each block of 50 turns) and, where the data lie, LoCoMo's
dialogues, tau-bench's airline and three coding sessions. Summaries are made by a deterministic model of how models
forget, in four variants, and by the extractive summarizer; no real model is asked. Controls stand beside.

Figures. R: share of facts told by records and live entries, with Wilson's 95 % interval; ages in blocks, a fiftieth of
the conversation, counted from 1. S: summarizer tokens, shown and answered, per 1,000 turns; "prompted": with the
product's prompt around each call. W: turns per rotation. C: prompt tokens per turn; cached: the share of them that the
request before begins with, of all requests and of those after a rotation. B: records or requests above their budget.
Tokens are characters ÷ 4. Coding sessions are counted in rounds.

`--grid` compares shares of the window instead. Exit code 0: all aims are met (`--quick` judges none); 1: one is not;
2: wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.figures import print_json
from bench.retention.datasets import DATA_SETS, data_directory
from bench.retention.grid import GRID_BLOCKS, GRID_SEEDS, print_grid, search
from bench.retention.grid import best as best_of
from bench.retention.made import BLOCKS
from bench.retention.report import aims_of, print_aims, print_tables, rows_of
from bench.retention.run import SEEDS, measure, tasks

QUICK_BLOCKS = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.retention", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="one seed, a short conversation, no aims: seconds")
    parser.add_argument("--grid", action="store_true", help="search for the best shares of the window")
    parser.add_argument("--seeds", type=_positive, metavar="N", help=f"{SEEDS} by default, {GRID_SEEDS} for the grid")
    parser.add_argument("--data", nargs="*", choices=["made", *DATA_SETS], metavar="NAME", help="only these data sets")
    parser.add_argument("--processes", type=_positive, default=2, metavar="N", help="2 by default")
    options = parser.parse_args(arguments)
    if options.grid:
        return _grid(options)
    names = options.data or (["made"] if options.quick else _available())
    blocks, seeds = (QUICK_BLOCKS, 1) if options.quick else (BLOCKS, SEEDS)
    found = measure(tasks(names, options.seeds or seeds, blocks=blocks), 1 if options.quick else options.processes)
    aims = aims_of(found) if "made" in names and not options.quick else []
    if options.json:
        print_json({"rows": [row.plain() for row in rows_of(found)], "aims": aims})
    else:
        print_tables(found)
        print_aims(aims)
    return 0 if all(aim.is_met for aim in aims) else 1


def _grid(options: argparse.Namespace) -> int:
    blocks, seeds = (QUICK_BLOCKS, 1) if options.quick else (GRID_BLOCKS, GRID_SEEDS)
    judged = search(options.seeds or seeds, 1 if options.quick else options.processes, blocks)
    if options.json:
        print_json({"cells": [each.plain() for each in judged], "best": best_of(judged).plain()})
    else:
        print_grid(judged)
    return 0


def _available() -> list[str]:
    """All data sets whose files are there; says which are not."""
    if data_directory().is_dir():
        return ["made", *DATA_SETS]
    print(f"no recordings in {data_directory()}: only the made conversation; set SESSIONLIB_DATA", file=sys.stderr)
    return ["made"]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
