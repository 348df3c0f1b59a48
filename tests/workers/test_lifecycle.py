"""What a worker process does beside its tasks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from workers.lifecycle import UNUSABLE


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("SESSIONLIB_AGENTS", "/nonexistent/agents.toml", "agents.toml"),
        ("SESSIONLIB_AGENTS", "no_such_module_of_agents", "no_such_module_of_agents"),
    ],
)
def test_worker_that_cannot_work_ends_at_once(
    valkey_url: str, namespace: str, name: str, value: str, told: str
) -> None:
    """Started plainly by celery with a bad setting, it says which and ends; it takes no hints that others could use."""
    environment = {
        **os.environ,
        "SESSIONLIB_STORE_URL": valkey_url,
        "SESSIONLIB_NAMESPACE": namespace,
        "SESSIONLIB_PARTITIONS": "1",
        name: value,
    }
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "-Q", "turns", "-P", "threads", "-c", "1"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == UNUSABLE, ended.stderr
    assert told in ended.stderr
