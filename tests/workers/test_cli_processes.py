"""`sessionctl` as processes: quick help, exit codes, and a deployment from `up` to Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import process_exists, wait_for
from workers.embedded import free_port

SESSIONCTL = str(Path(sys.executable).with_name("sessionctl"))
AGENTS = """
from sessionlib.agent import Agent
from sessionlib.providers.scripted import ScriptedProvider
AGENTS = [Agent(name="echo", window_tokens=8_000)]
PROVIDERS = {"default": ScriptedProvider}
"""
UP_SECONDS = 60.0
HEAVY = ("celery", "redis", "pydantic", "tiktoken", "httpx", "sqlite3", "rich.console")


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without settings of ours."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SESSIONLIB_")}
    return others | variables


def run(*arguments: str, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SESSIONCTL, *arguments],
        cwd=directory,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=UP_SECONDS,
        check=False,
    )


def test_help_teaches_and_is_quick(tmp_path: Path) -> None:
    """It names commands and exit codes, and whoever asks for it loads nothing heavy."""
    shown = run("--help", directory=tmp_path)
    assert shown.returncode == 0
    assert "sessionctl up" in shown.stdout
    assert "130 Ctrl-C" in shown.stdout
    script = (
        "import sys; from workers.cli.app import build_app; build_app(); print([m for m in %r if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script % (HEAVY,)], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_store_that_is_away_exits_3(tmp_path: Path) -> None:
    """Whose fault it is and what to do is on stderr, and with `--json` on stdout as well."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    result = run("health", "--json", "--store", url, directory=tmp_path)
    assert result.returncode == 3
    assert result.stderr.startswith("error (store): the store cannot be reached")
    assert json.loads(result.stdout)["error"]["code"] == "store_unavailable"


def test_bad_variable_is_bad_input(tmp_path: Path) -> None:
    """Also where an option takes its place; its value is not shown."""
    result = run("ls", "--store", "redis://127.0.0.1:1", directory=tmp_path, SESSIONLIB_STORE_URL="ftp://secret@host")
    assert result.returncode == 2
    assert "store_url" in result.stderr
    assert "secret" not in result.stderr


def test_shadowed_package_is_named_before_a_worker_starts(tmp_path: Path) -> None:
    """Celery would import the other one."""
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").touch()
    result = run("worker", "front", directory=tmp_path)
    assert result.returncode == 2
    assert str(tmp_path / "workers") in result.stderr


def test_output_survives_an_encoding_that_lacks_it(tmp_path: Path) -> None:
    """What a terminal cannot show is escaped, not an error."""
    result = run("show", "é\u202e", directory=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 2
    assert result.stderr.startswith("error (caller): session_id must be")


def test_ctrl_c_leaves_the_turn_where_it_is(tmp_path: Path, valkey_url: str, namespace: str) -> None:
    """It says how to end the turn, and exits with 130."""
    (tmp_path / "my_agents.py").write_text(AGENTS)
    options = ["--agents", "my_agents.py", "--store", valkey_url, "--namespace", namespace]
    errors = tmp_path / "stderr"
    with errors.open("wb") as stream:
        command = [SESSIONCTL, "send", "s", "hello", "--agent", "echo", "--turn-id", "t1", *options]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=stream)
    try:
        wait_for(lambda: "queued" in errors.read_text(), UP_SECONDS, "the turn is accepted")
        process.send_signal(signal.SIGINT)
        answer, _ = process.communicate(timeout=UP_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, answer) == (130, b"")
    assert "the turn goes on; `sessionctl cancel s t1` ends it" in errors.read_text()
    assert run("cancel", "s", *options, directory=tmp_path).stdout == "turn t1 is cancelled\n"


@pytest.mark.crash
def test_up_answers_restarts_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """One terminal starts all, another uses it; a killed worker is back; Ctrl-C ends everything, with 130."""
    (tmp_path / "my_agents.py").write_text(AGENTS)
    output = tmp_path / "up.jsonl"
    with output.open("wb") as stream:
        command = [SESSIONCTL, "up", "--agents", "my_agents.py", "--data", str(tmp_path / "d"), "--json"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=stream, stderr=subprocess.PIPE)

    def events(kind: str) -> list[dict[str, object]]:
        complete = output.read_text().rpartition("\n")[0]
        return [event for event in map(json.loads, complete.splitlines()) if event["event"] == kind]

    try:
        wait_for(lambda: events("ready"), UP_SECONDS, "both workers answer")
        url = str(events("started")[0]["url"])
        variables = {"SESSIONLIB_STORE_URL": url, "SESSIONLIB_PARTITIONS": "1", "SESSIONLIB_AGENTS": "my_agents.py"}
        answer = run("send", "s", "hello", "--agent", "echo", directory=tmp_path, **variables)
        assert (answer.returncode, answer.stdout) == (0, "Acknowledged: hello\n")
        health = run("health", "--deadline", "30", directory=tmp_path, **variables)
        assert health.returncode == 0, health.stdout
        assert health.stdout.count("finished a probe") == 2
        pids = {event["child"]: int(str(event["pid"])) for event in events("started")}
        os.kill(pids["background"], signal.SIGSTOP)  # it is there, and does nothing
        health = run("health", "--deadline", "10", directory=tmp_path, **variables)
        os.kill(pids["background"], signal.SIGCONT)
        assert health.returncode == 1
        assert "FAILED   background: no background worker answers" in health.stdout
        assert health.stdout.count("finished a probe") == 1
        os.kill(pids["front"], signal.SIGKILL)
        (restarted,) = wait_for(lambda: events("restarted"))
        assert (restarted["child"], restarted["exit_code"]) == ("front", -signal.SIGKILL)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=UP_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert events("stopped")
    started = [int(str(event["pid"])) for event in [*events("started"), *events("restarted")]]
    wait_for(lambda: not any(process_exists(pid) for pid in started), what="the end of all children")
