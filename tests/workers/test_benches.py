"""The benches: their arithmetic, and that they run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.figures import Spread, median_interval, percentile
from bench.load import Timed, poisson
from bench.waits import Notes, Span, answered_meanwhile, pauses_across, waited

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 120.0


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ([5.0], (5.0, 5.0)),
        ([3.0, 1.0, 2.0], (1.0, 3.0)),
        (list(range(100)), (40, 60)),
    ],
)
def test_interval_of_a_median(values: list[float], interval: tuple[float, float]) -> None:
    """Few values say little: their range; of a hundred, it is the middle fifth."""
    assert median_interval(values) == interval


def test_percentile_is_one_of_the_values() -> None:
    """The smallest value that the share does not exceed."""
    assert [percentile([4.0, 1.0, 3.0, 2.0], share) for share in (0.01, 0.5, 0.51, 1.0)] == [1.0, 2.0, 3.0, 4.0]


def test_spread_of_a_sample() -> None:
    """Median, its interval and the 99th percentile."""
    spread = Spread.of([float(n) for n in range(1, 101)])
    assert (spread.count, spread.p50, spread.p99) == (100, 50.5, 99.0)
    assert spread.p50_low < spread.p50 < spread.p50_high


def test_arrivals_are_those_of_their_seed() -> None:
    """All modes are sent the same turns at the same times, at about the rate that was asked for."""
    arrivals = poisson(50.0, 20.0, 8, "a")
    assert arrivals == poisson(50.0, 20.0, 8, "a") != poisson(50.0, 20.0, 8, "b")
    assert 850 < len(arrivals) < 1_150
    assert {arrival.session for arrival in arrivals} == set(range(8))


TURN = Timed(session_id="a", turn_id="t", intended=10.0, begun=10.0, answered=12.0)


def noted(*, inside: Span | None = None, elsewhere: Span | None = None, asked: float = 11.5) -> Notes:
    """What providers noted around TURN, whose model was asked at *asked*."""
    made = [span for span in (inside, elsewhere) if span]
    return Notes({"t": Span("a", asked, 11.9)}, made if inside else [], made if elsewhere else [])


@pytest.mark.parametrize(
    ("inside", "count"),
    [(Span("a", 10.2, 11.4), 1), (Span("", 10.2, 11.4), 1), (Span("b", 10.2, 11.4), 0), (Span("a", 8.0, 9.0), 0)],
)
def test_consolidation_inside_a_turn_is_a_wait(inside: Span, count: int) -> None:
    """Of its own session, between its start and its model call, in the process that ran it."""
    assert waited([TURN], noted(inside=inside)) == count


@pytest.mark.parametrize(
    ("elsewhere", "counts"),
    [
        (Span("a", 9.5, 11.0), (1, 0)),
        (Span("b", 9.5, 11.0), (0, 1)),
        (Span("a", 1.0, 11.0), (0, 0)),
        (Span("a", 9.5, 11.8), (0, 0)),
        (Span("a", 10.5, 11.0), (0, 0)),
    ],
)
def test_pause_across_the_end_of_a_consolidation(elsewhere: Span, counts: tuple[int, float]) -> None:
    """It began during the consolidation, outlasted it, and took a good part of it; others' count for chance."""
    assert pauses_across([TURN], noted(elsewhere=elsewhere), session_count=2) == counts


def test_turn_answered_during_a_consolidation() -> None:
    """Sent after its beginning and answered before its end."""
    assert answered_meanwhile([TURN], noted(elsewhere=Span("a", 9.0, 13.0))) == 1
    assert answered_meanwhile([TURN], noted(elsewhere=Span("a", 9.0, 11.0))) == 0


def run(module: str, *arguments: str) -> dict[str, Any]:
    """What a bench prints as JSON."""
    command = [sys.executable, "-m", module, "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_overhead_measures_every_layer() -> None:
    """A row for each layer and size, and the whole path beside a bare round trip."""
    found = run("bench.overhead", "--sizes", "20", "60", "--passes", "1")
    layers = {"engine + server, warm", "engine + server, cold", "engine + SQLite, warm", "engine + SQLite, cold"}
    assert {(row["layer"], row["entries"]) for row in found["rows"]} == {
        (layer, size) for layer in (*layers, "whole path") for size in (20, 60)
    }
    assert found["whole_path_ratio"]["median"] > 0
    assert found["noop_milliseconds"]["count"] > 0


def test_stream_measures_both_ends() -> None:
    """The first piece beside a direct connection, and streams in flight, none of whose pieces may be lost."""
    found = run("bench.stream", "--quick")
    words, flight = found["first_words"], found["flight"]
    assert words["streamed"]["count"] == words["direct"]["count"] == words["streams"] == 4
    assert flight["first"]["count"] == flight["streams"] == 8
    assert flight["events"] > flight["streams"]


def test_never_wait_finds_the_turns_that_do_wait() -> None:
    """Rotations happen where they are on; only the inline control shows waits."""
    found = run(
        *("bench.never_wait", "--sessions", "4", "--rounds", "1", "--block-seconds", "1.5"),
        *("--capacity-seconds", "0.5", "--model-seconds", "0", "--loads", "0.8"),
    )
    modes = found["loads"][0]["modes"]
    assert modes["off"]["rotations"] == modes["off"]["waited"] == modes["background"]["waited"] == 0
    assert modes["background"]["rotations"] > 0
    assert modes["inline"]["waited"] > 0
