"""What operators see has ids, phases and figures, and not a word of what was said."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessionlib.errors import TurnFailed
from tests.crash.checks import history
from tests.crash.cluster import Cluster
from tests.waiting import wait_for
from workers import children
from workers.client import ClientSession
from workers.dispatch import PING
from workers.embedded import free_port

pytestmark = pytest.mark.crash

MARKER = f"marker{uuid.uuid4().hex}"
"""As sent by a user; it would pass for an id, if content were shown where ids are."""
FLOWER_START_SECONDS = 60.0
PAGES = ("/", "/workers", "/tasks", "/broker", "/metrics", "/api/workers?refresh=true", "/api/queues/length")


@pytest.fixture
def flower(cluster: Cluster, tmp_path: Path) -> Iterator[httpx.Client]:
    """A real Flower on the cluster's broker."""
    port = free_port()
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "flower", "--address=127.0.0.1", f"--port={port}"]
    environment = cluster.environment() | {"FLOWER_UNAUTHENTICATED_API": "true"}
    with (tmp_path / "flower.log").open("wb") as log:
        process = children.start(command, environment=environment, output=log)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:

        def sees_tasks() -> bool:
            """Whether it listens: it answers before its subscription to the events begins."""
            cluster.sessions.connection.dispatch.send(PING)
            try:
                return bool(client.get("/api/tasks").raise_for_status().json())
            except httpx.TransportError:
                return False

        try:
            wait_for(sees_tasks, FLOWER_START_SECONDS, "Flower")
            yield client
        finally:
            children.end(process, 5.0)
    assert MARKER not in (tmp_path / "flower.log").read_text()


def say_it_everywhere(cluster: Cluster) -> None:
    """The marker in messages, arguments, results, failures of tools and of providers, a crash, and a summary."""
    session = cluster.sessions.open("reticent", "toolman")
    gate = json.dumps({"name": f"{MARKER}-no-gate"})
    calls = [
        {"call_id": "c-raises", "name": "break_down", "arguments": json.dumps({"note": MARKER})},
        {"call_id": "c-misfits", "name": "break_down", "arguments": json.dumps({MARKER: MARKER})},
        {"call_id": "c-returns", "name": "wait_at_gate", "arguments": gate},
        {"call_id": "c-no-json", "name": "wait_at_gate", "arguments": MARKER},
    ]
    answers = {"reticent/t0/model:0": {"calls": calls}, "reticent/t0/model:1": {"text": f"I saw {MARKER}."}}
    answers |= {f"reticent/t{n}/model:0": {"text": f"Again {MARKER}: " + "a fact. " * 200} for n in range(1, 5)}
    cluster.provider.record("reticent", answers)
    for number in range(5):
        session.send(f"Remember {MARKER}.", turn_id=f"t{number}", timeout_seconds=30.0)
    session.rotate()
    wait_for(lambda: session.view().epoch == 1, what="the rotation")
    assert MARKER in session.layout().records[0].text, "the summary was to tell it"
    results = [entry.text for entry in history(cluster.store, "reticent") if entry.tool_call_id == "c-raises"]
    assert f"RuntimeError: cannot work with {MARKER}" in results
    fail_with_it(cluster, cluster.sessions.open("reticent-failures", "quoted"))


def fail_with_it(cluster: Cluster, session: ClientSession) -> None:
    """Providers that quote it: refused, overloaded, half a page, and an exception nobody foresaw."""
    with pytest.raises(TurnFailed):
        session.send(f"refused {MARKER}", turn_id="t-refused", timeout_seconds=30.0)
    for kind in ("overloaded", "garbage", "explode"):
        turn = session.submit(f"{kind} {MARKER}", turn_id=f"t-{kind}")
        wait_for(lambda turn_id=turn.turn_id: is_given_back(cluster, turn_id), what=f"{kind} to be tried")  # type: ignore[misc]
        turn.cancel()


def is_given_back(cluster: Cluster, turn_id: str) -> bool:
    """Whether a worker has tried the turn, and settled that it shall be tried again."""
    shown = [str(event.get("kwargs")) for event in cluster.watcher.captured() if event["type"] == "task-settled"]
    return any(f"turn_id={turn_id} status=retried" in text for text in shown)


def test_marker_appears_nowhere_that_operators_look(cluster: Cluster, flower: httpx.Client) -> None:
    """Not in Flower's pages and API, not in task events, not in logs; ids, phases and figures do."""
    say_it_everywhere(cluster)
    tasks = wait_for(lambda: settled_tasks(flower), what="Flower to show the last turns and the rotation")
    wait_for(lambda: is_adoption_heard(cluster), what="the adoption to be shown")
    infos = [flower.get(f"/api/task/info/{task_id}").text for task_id in tasks]
    pages = {path: flower.get(path).text for path in PAGES}
    shown = {**pages, "/api/tasks": json.dumps(tasks), "/api/task/info": "\n".join(infos)}
    for path, text in shown.items():
        assert MARKER not in text, f"Flower's {path} has it: {around(text)}"
    events = cluster.watcher.captured()
    assert MARKER not in json.dumps(events), around(json.dumps(events))
    logs = cluster.logs()
    assert MARKER not in logs, around(logs)

    phases = {event["type"] for event in events}
    assert {"task-model", "task-tool", "task-round", "task-consolidation", "task-adopted", "task-settled"} <= phases
    kwargs = [str(event.get("kwargs")) for event in events if event["type"] == "task-adopted"]
    assert any("epoch=1" in text and "tokens_before=" in text for text in kwargs)


def settled_tasks(flower: httpx.Client) -> dict[str, Any]:
    """All tasks that Flower knows, by the ids that their phases show, once it knows of the last turns and the rotation.

    Workers send their events in batches, each its own: they come in any order.
    """
    tasks: dict[str, Any] = flower.get("/api/tasks", params={"limit": 10_000}).raise_for_status().json()
    shown = json.dumps(tasks)
    awaited = ("turn_id=t-explode", "session_id=reticent turn_id=t4", "session_id=reticent rotation_id=r")
    return tasks if all(ids in shown for ids in awaited) else {}


def is_adoption_heard(cluster: Cluster) -> bool:
    """Whether the events have come that the rotation's worker sent."""
    return any("session_id=reticent " in str(event.get("kwargs")) for event in adoptions(cluster))


def adoptions(cluster: Cluster) -> list[dict[str, Any]]:
    return [event for event in cluster.watcher.captured() if event["type"] == "task-adopted"]


def around(text: str) -> str:
    """Where the marker is, for the failure's message."""
    at = text.find(MARKER)
    return text[max(0, at - 300) : at + 100]
