"""One turn of hundreds of tool rounds, many windows long, whose workers are killed on the way."""

from __future__ import annotations

import json
import time

import pytest

from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.tokens import Counter
from tests.crash import agents
from tests.crash.checks import Kills, lapses, require_answered_once, require_history, require_not_paid_again
from tests.crash.cluster import Cluster
from tests.crash.conftest import Report
from tests.waiting import wait_for

pytestmark = pytest.mark.crash

ROUNDS = 400
KILLS = 5
ROUNDS_BETWEEN = ROUNDS // (KILLS + 2)
"""From one kill to the next; after the last there are so many left that the turn does not end before it is held."""
WHOLE_TOKENS = 600_000
LEAST_ROTATIONS = 10
LATENCY_SECONDS = 0.02
"""A model that answers at once would leave the background workers, at their lower priority, no time on two cores."""
SESSION, TURN, MESSAGE, ANSWER = "long", "t-long", "Read the whole report.", "All parts are read."


def recorded_answers() -> dict[str, object]:
    """A call a round, and the answer at the end."""
    answers: dict[str, object] = {
        f"{SESSION}/{TURN}/model:{round}": {
            "calls": [{"call_id": f"c{round}", "name": "read_part", "arguments": json.dumps({"number": round})}]
        }
        for round in range(ROUNDS)
    }
    return answers | {f"{SESSION}/{TURN}/model:{ROUNDS}": {"text": ANSWER}}


def expected_history() -> list[Entry]:
    entries = [Entry.user(MESSAGE)]
    for round in range(ROUNDS):
        arguments = json.dumps({"number": round})
        entries.append(Entry.tool_call(f"c{round}", arguments, "read_part"))
        entries.append(Entry.tool_result(f"c{round}", agents.part(round), "read_part"))
    return [*entries, Entry.assistant(ANSWER)]


def whole_tokens(counter: Counter) -> int:
    return sum(counter.entry(entry) for entry in expected_history())


def test_long_turn_survives_kills_and_rotates_inside(cluster: Cluster, kills: Kills, figure: Report) -> None:
    """Front and background are killed five times; the turn is answered once, no saved call is paid again."""
    assert whole_tokens(counter_named("o200k_base")) >= WHOLE_TOKENS
    session = cluster.sessions.open(SESSION, "reader")
    cluster.provider.record(SESSION, recorded_answers())
    cluster.provider.change(latency_seconds=LATENCY_SECONDS)
    begun = time.monotonic()
    turn = session.submit(MESSAGE, turn_id=TURN)
    for number in range(1, KILLS + 1):
        wait_for(lambda number=number: rounds_done(cluster) >= number * ROUNDS_BETWEEN, 120.0, "rounds")  # type: ignore[misc]
        cluster.provider.hold()
        cluster.wait_ready(*cluster.fronts, *cluster.backgrounds)
        cluster.wait_held_at_model([SESSION])
        kills.add(cluster.kill(cluster.worker_of(SESSION, "rotation_id"), [SESSION]))
        kills.add(cluster.kill(cluster.worker_of(SESSION), [SESSION]))
        cluster.provider.release()
    reply = turn.answer(120.0)
    took_seconds = time.monotonic() - begun

    assert reply.text == ANSWER
    require_answered_once(cluster.store, SESSION, [TURN], kills)
    require_history(cluster.store, SESSION, expected_history(), kills)
    require_not_paid_again(cluster.store, cluster.provider.asked_again(SESSION), kills)
    report = cluster.provider.report()["sessions"][SESSION]
    assert report["calls"] <= ROUNDS + 1 + KILLS + lapses(cluster.store, SESSION, TURN, kills)
    assert report["refused"] == 0
    assert report["largest_request_tokens"] <= 32_000
    adopted = [event for event in session.watch(timeout_seconds=0.1) if event.kind == "rotated"]
    assert len(adopted) >= LEAST_ROTATIONS, str(kills)
    figure(f"{ROUNDS} rounds in {took_seconds:.1f} s, {len(adopted)} rotations, {len(kills.kills)} kills")


def rounds_done(cluster: Cluster) -> int:
    turn = cluster.store.turn(SESSION, TURN)
    return turn.round_count if turn else 0
