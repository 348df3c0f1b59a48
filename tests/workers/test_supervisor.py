"""The supervisor: what exits is started again, what is stopped stays away, nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sessionlib.errors import InvalidInput
from tests.waiting import process_exists, wait_for
from workers import children
from workers.embedded import EmbeddedServer
from workers.settings import Settings
from workers.supervisor import Child, Command, Supervisor, worker_command

FOREVER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
IGNORES_SIGTERM = [
    *(sys.executable, "-S", "-c"),
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)",
]
HAS_A_CHILD = [
    *(sys.executable, "-S", "-c"),
    "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.close(); "
    "import time; time.sleep(600)",
]


@pytest.fixture
def restarted() -> list[Child]:
    return []


@pytest.fixture
def supervisor(restarted: list[Child]) -> Iterator[Supervisor]:
    with Supervisor(on_restart=restarted.append) as running:
        yield running


def test_child_that_exits_is_started_again(supervisor: Supervisor, restarted: list[Child], tmp_path: Path) -> None:
    """Each exit is followed by a start, which is counted and reported."""
    output = tmp_path / "output"
    supervisor.start(Command(name="brief", arguments=[sys.executable, "-S", "-c", "print('x')"], output=output))
    wait_for(lambda: len(restarted) >= 2)
    assert [child.restart_count for child in restarted[:2]] == [1, 2]
    assert output.read_text().count("x") >= 2


def test_child_that_keeps_failing_is_started_less_often(supervisor: Supervisor, restarted: list[Child]) -> None:
    """The pause doubles while the child does not settle: 0.2, 0.4, 0.8 s."""
    supervisor.start(Command(name="failing", arguments=["/bin/sh", "-c", "exit 3"]))
    wait_for(lambda: len(restarted) >= 2)
    assert supervisor.child("failing").exit_code in (None, 3)
    assert supervisor.pause_seconds("failing") >= 0.4


def test_drill_kills_and_the_child_comes_back(supervisor: Supervisor, restarted: list[Child]) -> None:
    """`kill` is SIGKILL; the next process has another id and no back-off is held against it."""
    first = supervisor.start(Command(name="worker", arguments=FOREVER))
    for count in (1, 2, 3):
        assert supervisor.kill("worker") is not None
        wait_for(lambda: len(restarted) == count)  # noqa: B023 (waits here)
        assert supervisor.pause_seconds("worker") == 0.1
    child = supervisor.child("worker")
    assert (child.exit_code, child.pid != first.pid) == (-signal.SIGKILL, True)


def test_stop_ends_every_child(restarted: list[Child]) -> None:
    """After `stop` nothing runs and nothing is started again."""
    supervisor = Supervisor(on_restart=restarted.append)
    pids = [supervisor.start(Command(name=name, arguments=FOREVER)).pid for name in ("a", "b")]
    supervisor.stop()
    assert not any(process_exists(pid) for pid in pids if pid)
    assert [(child.pid, child.exit_code) for child in supervisor.children()] == [(None, -signal.SIGTERM)] * 2
    supervisor.stop()
    assert restarted == []


def test_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    """Grace is bounded."""
    output = tmp_path / "output"
    with Supervisor() as supervisor:
        supervisor.start(Command(name="deaf", arguments=IGNORES_SIGTERM, output=output, grace_seconds=0.2))
        wait_for(lambda: "ready" in output.read_text())
    assert supervisor.child("deaf").exit_code == -signal.SIGKILL


def test_grandchildren_end_with_their_parent(tmp_path: Path) -> None:
    """The whole group is ended, also what a child started and left."""
    output = tmp_path / "output"
    with Supervisor() as supervisor:
        supervisor.start(Command(name="parent", arguments=HAS_A_CHILD, output=output))
        grandchild = int(wait_for(lambda: output.read_text().strip()))
        assert process_exists(grandchild)
    wait_for(lambda: not process_exists(grandchild), seconds=5)


def test_name_is_used_once(supervisor: Supervisor) -> None:
    """Names tell children apart."""
    supervisor.start(Command(name="a", arguments=FOREVER))
    with pytest.raises(InvalidInput, match="another child"):
        supervisor.start(Command(name="a", arguments=FOREVER))


def test_unknown_name_is_refused(supervisor: Supervisor) -> None:
    """The error lists the names there are."""
    supervisor.start(Command(name="front", arguments=FOREVER))
    with pytest.raises(InvalidInput, match="front"):
        supervisor.kill("frond")


def test_embedded_server_is_kept_running(supervisor: Supervisor, restarted: list[Child], tmp_path: Path) -> None:
    """A server that was killed is back with its data, at the same place."""
    server = EmbeddedServer(tmp_path)
    supervisor.start(server)
    server.wait()
    with redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
        supervisor.kill("server")
        wait_for(lambda: restarted)
        server.wait()
        assert client.get("key") == b"value"


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """SIGKILL of the supervising process leaves no orphan."""
    script = (
        "import threading; from workers.supervisor import Command, Supervisor\n"
        "child = Supervisor().start(Command(name='a', arguments=['/bin/sleep', '600']))\n"
        "print(child.pid, flush=True); threading.Event().wait()\n"
    )
    output = tmp_path / "output"
    with output.open("wb") as stream:
        parent = children.start([sys.executable, "-c", script], output=stream)
    try:
        pid = int(wait_for(lambda: output.read_text().endswith("\n") and output.read_text()))
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: not process_exists(pid), seconds=5, what="the child's end")
    finally:
        children.kill(parent)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("front", "-A workers.app worker -Q turns -P threads -c 7 -n front@%h -l INFO"),
        ("background", "-A workers.app worker -Q rotations,summaries,upkeep -P prefork -c 3 -n background@%h -l INFO"),
    ],
)
def test_worker_command_is_plain_celery(role: str, expected: str) -> None:
    """What runs is what an operator could type."""
    command = worker_command(role, Settings(turns_concurrency=7, rotations_concurrency=3))  # type: ignore[arg-type]
    assert command[:3] == [sys.executable, "-m", "celery"]
    assert " ".join(command[3:]).startswith(expected)
