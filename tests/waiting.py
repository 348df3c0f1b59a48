"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 30.0, what: str = "") -> T:
    """The first truthy answer of *condition*. Raises AssertionError after *seconds*, naming *what* was awaited."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or condition}")
        time.sleep(0.01)
    return answer


def process_exists(pid: int) -> bool:
    """Whether a process runs: zombies that nobody has reaped yet do not count."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
