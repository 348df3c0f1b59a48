"""What was saved before a kill is used after it: replies beside a tool that died, parts of a rotation."""

from __future__ import annotations

import json
from collections import Counter as Occurrences
from typing import Any

import pytest

from sessionlib.entries import Entry
from sessionlib.stores.contract import Lane
from tests.crash.checks import Kills, require_answered_once, require_history
from tests.crash.cluster import TRIES, Cluster
from tests.waiting import wait_for

pytestmark = pytest.mark.crash


def test_reply_is_not_asked_for_again_when_its_tool_dies(cluster: Cluster, kills: Kills) -> None:
    """The tool runs again under the same call id; the model call that asked for it was saved and is not repeated."""
    session_id, gate = "gated", cluster.directory / "gate"
    arguments = json.dumps({"name": gate.name})
    call = {"call_id": "call-gate", "name": "wait_at_gate", "arguments": arguments}
    answers = {f"{session_id}/t/model:0": {"calls": [call]}, f"{session_id}/t/model:1": {"text": "Done."}}
    cluster.provider.record(session_id, answers)
    gate.touch()
    turn = cluster.sessions.open(session_id, "toolman").submit("Pass the gate.", turn_id="t")
    wait_for(lambda: runs(cluster, "call-gate"), what="the tool to run")
    calls_before = cluster.provider.calls(session_id)
    kills.add(cluster.kill(cluster.worker_of(session_id), [session_id]))
    wait_for(lambda: len(set(runs(cluster, "call-gate"))) > 1, what="another process to run the tool again")
    assert cluster.provider.calls(session_id) == calls_before, str(kills)
    gate.unlink()

    assert turn.answer(30.0).text == "Done."
    assert list(kills.kills[0].in_flight) == ["gated/t/tool:0 after 0 saved"]
    require_answered_once(cluster.store, session_id, ["t"], kills)
    expected = [
        Entry.user("Pass the gate."),
        Entry.tool_call("call-gate", arguments, "wait_at_gate"),
        Entry.tool_result("call-gate", "gate gate passed", "wait_at_gate"),
        Entry.assistant("Done."),
    ]
    require_history(cluster.store, session_id, expected, kills)


def test_saved_consolidations_are_not_asked_for_again(cluster: Cluster, kills: Kills) -> None:
    """A rotation of many chunks goes on from the last saved one: at most the one in flight is paid twice."""
    assert any(goes_on_after_a_kill(cluster, f"in-chunks-{number}", kills) for number in range(TRIES)), str(kills)


def goes_on_after_a_kill(cluster: Cluster, session_id: str, kills: Kills) -> bool:
    """Whether it was killed on its way, and run again once: not while a lease lapsed that nobody was killed for."""
    session = cluster.sessions.open(session_id, "chunked")
    for number in range(9):
        session.send(f"message {number} " + f"fact {number} is worth keeping. " * 60, timeout_seconds=30.0)
    cluster.provider.change(summary_latency_seconds=0.3)
    before = cluster.provider.report()["consolidation_count"]
    session.rotate()
    wait_for(lambda: cluster.saved_count(session_id, Lane.ROTATION) >= 3 or session.view().epoch, what="saved chunks")
    kill = kills.add(cluster.kill(cluster.worker_of(session_id, "rotation_id"), [session_id]))
    wait_for(lambda: session.view().epoch == 1, what="the rotation to be adopted")
    if not kill.in_flight:
        return False
    adopted = wait_for(lambda: shown(cluster, "task-adopted", session_id), what="the adoption to be shown")
    if len({event["uuid"] for event in (*shown(cluster, "task-consolidation", session_id), *adopted)}) != 2:
        return False

    asked = cluster.provider.report()["consolidations"][before:]
    again = {key: count for key, count in Occurrences(call["key"] for call in asked).items() if count > 1}
    assert len(asked) >= 4, "the rotation was to take several calls"
    assert sum(again.values()) - len(again) <= 1, f"asked again: {again}\n{kills}"
    return True


def shown(cluster: Cluster, kind: str, session_id: str) -> list[dict[str, Any]]:
    """Events of that kind that tasks have shown for a session."""
    of_kind = [event for event in cluster.watcher.captured() if event["type"] == kind]
    return [event for event in of_kind if f"session_id={session_id} " in f"{event['kwargs']} "]


def runs(cluster: Cluster, call_id: str) -> list[str]:
    """Process ids of the workers that ran a call, in order."""
    path = cluster.directory / "runs"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[1] for line in lines if line.split()[0] == call_id]
