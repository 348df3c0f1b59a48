"""What the agent finds again of what left its window, and how long that takes.

`python -m bench.recall` measures `history.search` with 600 tokens of results (o200k tokens, headings included):

- planted decisions: in the demo session and in each real transcript, one in 4,000 tokens about, in several phrasings,
  at random places of what users and agents say. Asked for by its subject, in several phrasings without any word of
  the value; found if the result has the value. Shares with Wilson's 95 % interval;
- the evidence of LoCoMo's questions (categories 1 to 4, those with audited answers left out): the mean share of a
  question's evidence that is shown, and the share of questions with all of it;
- beside both: plain BM25 over whole entries (bm25s, lower-cased words, no heading), and the newest text that fits;
- time per search, in milliseconds, on SQLite and on an embedded server, with 1,000, 10,000 and 100,000 archived entries
  of demo sessions. Each search begins cold: index, postings and passages are read from the store. Questions, single
  words and runs of eight words take turns. And what a rotation takes to make its postings, merges included.

Real transcripts are looked for beside the checkout, or where SESSIONLIB_DATA says. Exit code 0: at least 98 % of the
planted decisions of each data set are found; 1: fewer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.figures import print_json
from bench.recall_questions import (
    Evidence,
    by_newest,
    by_plain_bm25,
    by_tool,
    dialogues,
    evidence_recall,
    planted_sets,
    planted_share,
    shown_by_plain_bm25,
    shown_by_tool,
)
from bench.recall_times import Timed, stores, timed
from bench.retention.shares import Share

SIZES = (1_000, 10_000, 100_000)
SEARCHES = 300
SEEDS = 5

AIM_SHARE = 0.98
AIM_MILLISECONDS = 50.0

WAYS = {"history.search": by_tool, "plain BM25": by_plain_bm25, "newest text": by_newest}


def measure(seeds: int, sizes: Sequence[int], searches: int) -> dict[str, Any]:
    """All figures."""
    shares = {
        name: {way: planted_share(sets, made) for way, made in WAYS.items()}
        for name, sets in planted_sets(seeds).items()
    }
    found = dialogues()
    evidence = {
        "history.search": evidence_recall(found, shown_by_tool),
        "plain BM25": evidence_recall(found, shown_by_plain_bm25),
    }
    with stores() as opened:
        times = [row for name, store in opened.items() for row in timed(name, store, sizes, searches)]
    return {
        "planted": shares,
        "evidence": evidence if found else {},
        "times": times,
        "aims": {
            "planted": all(each["history.search"].value >= AIM_SHARE for each in shares.values()),
            "milliseconds": all(row.milliseconds.p99 <= AIM_MILLISECONDS for row in times),
        },
    }


def as_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures as JSON types and frozen values: shares with their intervals."""
    return {
        **found,
        "planted": {
            name: {way: _figures(share) for way, share in ways.items()} for name, ways in found["planted"].items()
        },
        "evidence": {
            way: {"questions": each.questions, "recall": each.recall, "whole": _figures(each.whole)}
            for way, each in found["evidence"].items()
        },
    }


def _figures(share: Share) -> dict[str, float]:
    low, high = share.interval
    return {"found": share.found, "count": share.count, "share": share.value, "low": low, "high": high}


def print_report(found: Mapping[str, Any]) -> None:
    """The figures as tables."""
    print("planted decisions found by one search, % (95 % interval)")
    print(f"{'':<26}{'decisions':>10}" + "".join(f"{way:>18}" for way in WAYS))
    for name, ways in found["planted"].items():
        print(f"{name:<26}{ways['history.search'].count:>10}" + "".join(f"{ways[way]!s:>18}" for way in WAYS))
    if found["evidence"]:
        print("\nevidence of LoCoMo's questions, %")
        print(f"{'':<26}{'questions':>10}{'recall':>10}{'all of it':>18}")
        for way, each in found["evidence"].items():
            print(_evidence_line(way, each))
    else:
        print("\nno locomo5.json: the evidence of its questions is not measured")
    print("\nmilliseconds per search, cold; and per rotation, to make its postings")
    print(f"{'':<12}{'entries':>9}{'MB':>8}{'p50':>8}{'p99':>8}{'p50, made':>12}{'p99, made':>12}")
    for row in found["times"]:
        print(_time_line(row))
    print(
        f"aims: {AIM_SHARE:.0%} found {'yes' if found['aims']['planted'] else 'no'}, "
        f"p99 at most {AIM_MILLISECONDS:g} ms {'yes' if found['aims']['milliseconds'] else 'no'}"
    )


def _evidence_line(way: str, each: Evidence) -> str:
    return f"{way:<26}{each.questions:>10}{100 * each.recall:>10.1f}{each.whole!s:>18}"


def _time_line(row: Timed) -> str:
    return (
        f"{row.store:<12}{row.entries:>9,}{row.text_megabytes:>8.1f}{row.milliseconds.p50:>8.1f}{row.milliseconds.p99:>8.1f}"
        f"{row.keeping_milliseconds.p50:>12.1f}{row.keeping_milliseconds.p99:>12.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="one seed, up to 10,000 entries, few searches: a minute")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"of the planted decisions, {SEEDS} by default")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="archived entries, ascending")
    parser.add_argument("--searches", type=int, metavar="N", help=f"timed at each size, {SEARCHES} by default")
    chosen = parser.parse_args(arguments)
    found = measure(
        chosen.seeds or (1 if chosen.quick else SEEDS),
        chosen.sizes or (SIZES[:2] if chosen.quick else SIZES),
        chosen.searches or (SEARCHES // 5 if chosen.quick else SEARCHES),
    )
    if chosen.json:
        print_json(as_json(found))
    else:
        print_report(found)
    return 0 if found["aims"]["planted"] else 1


if __name__ == "__main__":
    sys.exit(main())
