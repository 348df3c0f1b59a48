"""Both kinds of worker as real processes, started by plain Celery from a directory that is not the project's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from tests.waiting import wait_for
from workers.app import BACKGROUND_NICENESS, ROTATIONS, TURNS, UPKEEP, make_app
from workers.embedded import EmbeddedServer
from workers.settings import Settings
from workers.supervisor import Command, Supervisor, worker_command

MARKER = "marker-of-what-a-user-said"
PROBES = f"""
from workers.app import app
from workers.tracing import send_phase

@app.task(name="upkeep.phased", bind=True)
def phased(self, session_id):
    send_phase(self, "consolidating", session_id=session_id, tokens=1200, reason="{MARKER} and more")

@app.task(name="upkeep.failing")
def failing(session_id):
    raise ValueError("{MARKER}")
"""


@dataclass(frozen=True)
class Fleet:
    """A front and a background worker on a server of their own."""

    server: EmbeddedServer
    supervisor: Supervisor
    app: Celery
    directory: Path

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    (directory / "probes.py").write_text(PROBES)
    with EmbeddedServer(directory / "data") as server, Supervisor() as supervisor:
        settings = Settings(turns_concurrency=8, rotations_concurrency=1).for_embedded(server.url)
        fleet = Fleet(server, supervisor, make_app(settings), directory)
        environment = settings.environment() | {"PYTHONPATH": str(directory)}
        for name in ("front", "background"):
            command = [*worker_command(name, settings), "-I", "probes"]
            output = directory / f"{name}.log"
            supervisor.start(Command(name=name, arguments=command, environment=environment, output=output))
        wait_for(lambda: "ready." in fleet.log("front") and "ready." in fleet.log("background"), what="the workers")
        yield fleet


def events_of(fleet: Fleet, name: str, **sent: Any) -> list[dict[str, Any]]:
    """Send a task; every event of it, until it ended."""
    events: list[dict[str, Any]] = []
    receiver = fleet.app.events.Receiver(fleet.app.connection_for_read(), handlers={"*": events.append})
    with receiver.consumer_context() as (connection, _, _):
        drained(connection)  # kombu subscribes when it first reads
        task_id = fleet.app.send_task(name, **sent).id
        wait_for(lambda: drained(connection) and is_ended(events, task_id), seconds=15, what=f"the end of {name}")
    return [event for event in events if event.get("uuid") == task_id]


def drained(connection: Any) -> bool:
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.2)
    return True


def is_ended(events: list[dict[str, Any]], task_id: str) -> bool:
    ends = ("task-succeeded", "task-failed")
    return any(event.get("uuid") == task_id and event["type"] in ends for event in events)


@pytest.mark.parametrize(("queue", "worker"), [(TURNS, "front"), (ROTATIONS, "background"), (UPKEEP, "background")])
def test_worker_takes_messages_of_its_queues(fleet: Fleet, queue: str, worker: str) -> None:
    """A ping by queue is run by the worker of that queue."""
    events = events_of(fleet, "upkeep.ping", queue=queue)
    assert [event["hostname"].partition("@")[0] for event in events if event["type"] == "task-succeeded"] == [worker]


def test_flower_sees_a_task_sent_received_started_and_ended(fleet: Fleet) -> None:
    """The events that Flower draws its pages from."""
    kinds = [event["type"] for event in events_of(fleet, "upkeep.ping")]
    assert sorted(kinds) == ["task-received", "task-sent", "task-started", "task-succeeded"]


def test_phase_is_an_event_with_figures_and_no_content(fleet: Fleet) -> None:
    """A phase arrives as a custom state, its kwargs replaced by ids and figures."""
    events = events_of(fleet, "upkeep.phased", kwargs={"session_id": "customer-42"})
    phase = next(event for event in events if event["type"] == "task-consolidating")
    assert phase["kwargs"].startswith("session_id=customer-42 tokens=1200 reason=(")
    assert MARKER not in json.dumps(events) + fleet.log("background")


def test_failure_shows_a_code_and_no_content(fleet: Fleet) -> None:
    """Neither Flower's exception and traceback nor the worker's log quote the error's text."""
    events = events_of(fleet, "upkeep.failing", kwargs={"session_id": "customer-42"})
    failed = next(event for event in events if event["type"] == "task-failed")
    assert failed["exception"].startswith("TaskFailed('ValueError', 'probes.py:")
    assert MARKER not in json.dumps(events) + fleet.log("background")


def test_background_processes_yield_to_others(fleet: Fleet) -> None:
    """The children of the prefork pool run at lower priority."""
    stats = fleet.app.control.inspect(timeout=10, limit=2).stats() or {}
    pids = next(node["pool"]["processes"] for name, node in stats.items() if name.startswith("background"))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, pid) - own for pid in pids] == [BACKGROUND_NICENESS] * len(pids)


@pytest.mark.crash
def test_workers_come_back_when_the_server_does(fleet: Fleet) -> None:
    """A killed server costs no worker: the same processes run later tasks."""
    before = {child.name: child.pid for child in fleet.supervisor.children()}
    fleet.server.kill()
    fleet.server.restart()
    for queue in (TURNS, UPKEEP):
        assert "task-succeeded" in [event["type"] for event in events_of(fleet, "upkeep.ping", queue=queue)]
    assert {child.name: child.pid for child in fleet.supervisor.children()} == before


@pytest.mark.crash
def test_killed_worker_is_replaced(fleet: Fleet) -> None:
    """What the supervisor starts again takes messages again."""
    fleet.supervisor.kill("front")
    assert "task-succeeded" in [event["type"] for event in events_of(fleet, "upkeep.ping", queue=TURNS)]
    assert fleet.supervisor.child("front").restart_count == 1


def test_worker_waits_for_its_broker(tmp_path: Path) -> None:
    """A worker may be started before its server: it tries again until it is there."""
    log = tmp_path / "log"
    server = EmbeddedServer(tmp_path / "data")
    settings = Settings(turns_concurrency=1).for_embedded(server.url)
    with Supervisor() as supervisor:
        command = worker_command("front", settings)
        supervisor.start(Command(name="front", arguments=command, environment=settings.environment(), output=log))
        wait_for(lambda: "Cannot connect" in log.read_text(), what="the first try")
        with server:
            wait_for(lambda: "ready." in log.read_text(), what="the worker")
            assert supervisor.child("front").restart_count == 0
            supervisor.stop()


def test_import_opens_no_connection() -> None:
    """`workers.app` can be imported anywhere: the network is only used when something is sent."""
    script = (
        "import socket\n"
        "def refuse(*_): raise SystemExit('a connection was opened')\n"
        "socket.socket.connect = refuse\n"
        "import workers.app, workers.tasks\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_sending_fails_at_once_without_a_broker() -> None:
    """A caller is not held up by a broker that is away; the reaper sends again."""
    with pytest.raises(OperationalError):
        make_app(Settings(store_url="unix:///nowhere/server.sock")).send_task("upkeep.ping", retry=False)


@pytest.mark.parametrize(
    ("task", "queue"),
    [
        ("turns.run", TURNS),
        ("rotations.run", ROTATIONS),
        ("upkeep.dispose", UPKEEP),
        ("upkeep.purge", UPKEEP),
        ("upkeep.sweep", UPKEEP),
    ],
)
def test_tasks_are_routed_by_name(task: str, queue: str) -> None:
    """Each kind of work has its queue."""
    app = make_app(Settings())
    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_rabbitmq_gets_no_options_of_redis() -> None:
    """The broker may be another kind of server."""
    options = make_app(Settings(broker_url="amqp://rabbit//")).conf.broker_transport_options
    assert "global_keyprefix" not in options
