"""What a turn costs beside its model call, and whether that grows with the history.

`python -m bench.overhead` measures, with a model that answers at once, sessions of 100, 1,000 and 10,000 entries of
total history in the same window, most of it archived:

- engine + store: a turn from its submission to its commit, in this process, on the embedded server and on SQLite; warm
  (the worker remembers the session) and cold (it reads the whole window from the store);
- the whole path: client, Celery message, front worker, hint, client; beside a Celery task that does nothing, sent to
  the same worker and awaited in the same way.

Lengths take turns, call by call, so that whatever else the machine does hits them alike. Each pass begins with sessions
just rotated, so that all windows fill alike. The interval of a time is the 95 % one of its median. A row's ratio is of
its calls to those of the shortest history right beside them: a median for each pass, then the median of the passes,
with an interval such that all rows together lie in theirs with 95 %. A row is flat if its interval reaches down to 1.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.agents import ROTATING, message
from bench.figures import Spread, median_interval, print_json
from bench.histories import build, rotate, submit
from bench.stage import Stage, staged
from bench.tasks import bare_round_trip
from sessionlib.agent import Agent
from sessionlib.leases import Leases
from sessionlib.running import Engine, run_turn, unobserved
from sessionlib.stores.contract import SessionStore, Snapshot
from sessionlib.stores.sqlite import SqliteStore
from workers.store import RedisStore

SIZES = (100, 1_000, 10_000)
PASSES, TURNS = 16, 16
"""Turns of a pass stay below the rotation line of a session just rotated."""
GROWTH_FRACTION = 0.25
"""A session is replaced when it has grown by this share of its size."""
AIM_RATIO = 3.0
"""Whole path ÷ bare round trip: at most this."""
ANSWER_SECONDS = 60.0

CONFIDENCE = 0.95

WHOLE_ROW, NOOP_ROW = "whole path", "bare Celery no-op"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured at one length of history, in milliseconds."""

    layer: str
    entries: int
    milliseconds: Spread
    ratio: float = 1.0
    """To the shortest history: median over the passes."""
    ratio_low: float = 1.0
    ratio_high: float = 1.0

    @property
    def is_flat(self) -> bool:
        return self.ratio_low <= 1.0


@dataclass
class Samples:
    """Seconds by layer and size, pass by pass."""

    by_pass: dict[tuple[str, int], list[list[float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, number: int, layer: str, size: int, seconds: float) -> None:
        """One measured in pass *number*, from 0."""
        passes = self.by_pass[layer, size]
        if len(passes) == number:
            passes.append([])
        passes[number].append(seconds)

    def rows(self) -> Iterator[Row]:
        """A row for each layer and size."""
        sizes = sorted({size for _, size in self.by_pass})
        compared_count = sum(1 for layer, size in self.by_pass if layer != NOOP_ROW and size != sizes[0])
        confidence = 1 - (1 - CONFIDENCE) / max(1, compared_count)
        for (layer, size), passes in self.by_pass.items():
            ratios = [_paired_ratio(*pair) for pair in zip(passes, self.by_pass[layer, sizes[0]], strict=True)]
            low, high = median_interval(ratios, confidence)
            spread = Spread.of([seconds * 1_000 for one in passes for seconds in one])
            yield Row(layer, size, spread, median(ratios), low, high)


def _paired_ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """How much longer *these* took than *those*, which were measured right beside them, one by one."""
    return median(this / that for this, that in zip(these, those, strict=True))


class Grown:
    """The sessions of one store, one for each size, just rotated when a pass asks for them."""

    def __init__(self, engine: Engine, agent: Agent) -> None:
        self.engine, self.agent = engine, agent
        self._sessions: dict[int, str] = {}

    def session(self, size: int) -> str:
        """A session with *size* entries or slightly more."""
        session_id = self._sessions.get(size)
        if session_id and self.engine.store.view(session_id).next_seq - 1 <= size * (1 + GROWTH_FRACTION):
            rotate(self.engine, session_id)
            return session_id
        self._sessions[size] = build(self.engine, self.agent, size)
        return self._sessions[size]


def engine_pass(grown: Grown, sizes: Sequence[int], turns: int) -> Iterator[tuple[bool, int, float]]:
    """Turns in this process, by lengths in turn: whether one was cold, the length, its seconds."""
    sessions = {size: grown.session(size) for size in sizes}
    known: dict[int, Snapshot | None] = {}
    for number in range(2 * turns + 2):
        is_cold = number % 2 == 0
        for size in _rotated(sizes, number):
            begun = time.perf_counter()
            known[size] = _turn(grown, sessions[size], number, None if is_cold else known[size])
            if number > 1:
                yield is_cold, size, time.perf_counter() - begun


def _rotated(sizes: Sequence[int], number: int) -> Sequence[int]:
    """The same, each in the first place in its turn."""
    first = number % len(sizes)
    return [*sizes[first:], *sizes[:first]]


def _turn(grown: Grown, session_id: str, number: int, known: Snapshot | None) -> Snapshot | None:
    submit(grown.engine, grown.agent, session_id, message(session_id, number))
    ran = run_turn(grown.engine, session_id, known)
    if ran.status != "answered":
        raise RuntimeError(f"a turn of the bench ended as {ran.status}")
    return ran.snapshot


def path_pass(stage: Stage, grown: Grown, sizes: Sequence[int], turns: int) -> Iterator[tuple[str, int, float]]:
    """Turns through client, Celery and front worker, by lengths in turn, and bare round trips between them: which of
    the two, the length, its seconds."""
    sessions = {size: stage.sessions.get(grown.session(size)) for size in sizes}
    for session in sessions.values():  # the worker gets to know them
        session.send(message(session.session_id, 0), timeout_seconds=ANSWER_SECONDS)
    for number in range(turns):
        for size in _rotated(sizes, number):
            session, text = sessions[size], message(sessions[size].session_id, number + 1)
            begun = time.perf_counter()
            session.send(text, timeout_seconds=ANSWER_SECONDS)
            answered = time.perf_counter()
            bare_round_trip(stage.sender, stage.sessions.connection)
            yield WHOLE_ROW, size, answered - begun
            yield NOOP_ROW, size, time.perf_counter() - answered


def measure(sizes: Sequence[int], passes: int, turns: int) -> Samples:
    """All layers at all sizes, by turns."""
    samples = Samples()
    with staged(["front"]) as stage, _stores(stage) as stores:
        for number in range(passes):
            order = _rotated(sizes, number)
            for name, grown in stores.items():
                for is_cold, size, seconds in engine_pass(grown, order, turns // 2):
                    samples.add(number, f"engine + {name}, {'cold' if is_cold else 'warm'}", size, seconds)
            for layer, size, seconds in path_pass(stage, stores["server"], order, turns):
                samples.add(number, layer, size, seconds)
    return samples


@contextmanager
def _stores(stage: Stage) -> Iterator[Mapping[str, Grown]]:
    """The stage's server and a SQLite file, each with sessions of its own."""
    catalog = stage.sessions.connection.catalog
    with ExitStack() as stack:
        sqlite = stack.enter_context(SqliteStore(Path(stage.directory) / "sessions.sqlite"))
        server = RedisStore.connect(stage.settings)
        stack.callback(server.close_connections)
        stores: dict[str, SessionStore] = {"server": server, "SQLite": sqlite}
        yield {
            name: Grown(Engine(store, catalog, Leases(store).hold, unobserved), catalog.agent(ROTATING))
            for name, store in stores.items()
        }


def report(samples: Samples) -> dict[str, Any]:
    """The figures as JSON types and frozen values."""
    rows = sorted(samples.rows(), key=lambda row: (row.layer == NOOP_ROW, row.layer, row.entries))
    pairs = zip(
        (seconds for passes in _layer(samples, WHOLE_ROW) for seconds in passes),
        (seconds for passes in _layer(samples, NOOP_ROW) for seconds in passes),
        strict=True,
    )
    ratios = [whole / bare for whole, bare in pairs]
    low, high = median_interval(ratios)
    return {
        "rows": [row for row in rows if row.layer != NOOP_ROW],
        "noop_milliseconds": Spread.of([s * 1_000 for passes in _layer(samples, NOOP_ROW) for s in passes]),
        "whole_path_ratio": {"median": median(ratios), "low": low, "high": high, "aim": AIM_RATIO},
        "flat": all(row.is_flat for row in rows if row.layer != NOOP_ROW),
    }


def _layer(samples: Samples, layer: str) -> list[list[float]]:
    return [seconds for (name, _), passes in samples.by_pass.items() if name == layer for seconds in passes]


def print_report(found: Mapping[str, Any]) -> None:
    """The figures as a table."""
    print("added per turn, milliseconds (model answers at once)")
    print(f"{'':<24}{'entries':>8}{'p50':>8}{'95 % interval':>18}{'p99':>8}{'ratio':>8}{'95 % interval':>16}  flat")
    for row in found["rows"]:
        print(_line(row))
    noop, ratio = found["noop_milliseconds"], found["whole_path_ratio"]
    print(f"{NOOP_ROW:<32}{noop.p50:>8.2f}{_interval(noop.p50_low, noop.p50_high):>18}{noop.p99:>8.2f}")
    print(
        f"whole path ÷ bare no-op: {ratio['median']:.2f} ({_interval(ratio['low'], ratio['high'])}), "
        f"aim at most {ratio['aim']:g}: {'yes' if ratio['median'] <= ratio['aim'] else 'no'}"
    )
    print(f"flat: {'yes' if found['flat'] else 'no'}")


def _line(row: Row) -> str:
    spread = row.milliseconds
    return (
        f"{row.layer:<24}{row.entries:>8,}{spread.p50:>8.2f}{_interval(spread.p50_low, spread.p50_high):>18}"
        f"{spread.p99:>8.2f}{row.ratio:>8.2f}{_interval(row.ratio_low, row.ratio_high):>16}  "
        f"{'yes' if row.is_flat else 'no'}"
    )


def _interval(low: float, high: float) -> str:
    return f"{low:.2f} … {high:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="few passes, up to 1,000 entries: seconds")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="entries of history, ascending")
    parser.add_argument("--passes", type=int, metavar="N", help=f"{PASSES} by default")
    chosen = parser.parse_args(arguments)
    sizes = chosen.sizes or (SIZES[:2] if chosen.quick else SIZES)
    found = report(measure(sizes, chosen.passes or (4 if chosen.quick else PASSES), TURNS))
    if chosen.json:
        print_json(found)
    else:
        print_report(found)


if __name__ == "__main__":
    main()
