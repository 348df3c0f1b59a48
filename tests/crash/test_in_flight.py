"""A thousand turns in flight at once, awaited in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.in_flight import measure
from tests.crash.conftest import Report

pytestmark = pytest.mark.crash

TURNS = 1_000
LATENCY_SECONDS = 10.0
MOST_CALLER_CONNECTIONS = 8


def test_a_thousand_turns_in_flight_are_answered(tmp_path: Path, figure: Report) -> None:
    """Two front workers hold them all; who awaits them needs a handful of connections."""
    run = measure(tmp_path, turns=TURNS, latency_seconds=LATENCY_SECONDS, fronts=2, threads=512)
    figure(str(run))
    assert run.answered == TURNS
    assert run.caller_connections <= MOST_CALLER_CONNECTIONS
