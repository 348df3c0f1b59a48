"""`sessionctl demo`, whole and as its user starts it."""

from __future__ import annotations

import json
import subprocess
import sys

FIELDS = {
    *("turns", "rounds", "rotations", "waited", "max_fill", "lost", "doubled", "out_of_order", "prefix_breaks"),
    *("added_p50_ms", "added_p99_ms", "summarizer_tokens"),
    *("planted", "in_layout", "in_archive", "planted_after_truncation"),
}


def test_the_demo_keeps_every_promise() -> None:
    """Both workers are killed on the way; nothing is lost, and the window tells more than a truncation would."""
    command = [sys.executable, "-c", "from workers.cli import main; main()", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.keys() >= FIELDS
    assert report["rotations"] >= 8
    assert report["max_fill"] <= 1
    assert {report[name] for name in ("waited", "lost", "doubled", "out_of_order", "paid_again")} == {0}
    assert report["prefix_breaks"]["other"] == 0
    assert report["in_archive"] == report["planted"]
    assert report["in_layout"] > report["planted_after_truncation"]
    assert [kill["worker"] for kill in report["kills"]] == ["front", "background"]
    assert all(kill["in_flight"] and kill["recovered_seconds"] for kill in report["kills"])
