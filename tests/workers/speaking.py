"""A session `s` that `sessionctl` talks to from a process of its own, and whose answers this process says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sessionlib.agent import Agent
from sessionlib.providers.scripted import ScriptedProvider, words
from sessionlib.running import unobserved
from tests.waiting import wait_for
from tests.workers.local import LocalWorkers, local_workers
from tests.workers.test_cli_processes import AGENTS
from workers import front

PATIENCE_SECONDS = 60.0


class Mouth:
    """Says words one by one, each when it is let; fails once in the middle if it is told to."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)
        self.failures: list[Exception] = []

    def say(self, count: int = 1) -> None:
        """Let *count* more words be said."""
        self._allowed.release(count)

    def hush(self) -> None:
        """Take back what was allowed and not said."""
        while self._allowed.acquire(blocking=False):
            pass

    def pieces(self, text: str) -> Iterator[str]:
        for piece in words(text):
            assert self._allowed.acquire(timeout=PATIENCE_SECONDS)
            yield piece
            if self.failures:
                raise self.failures.pop()


@contextmanager
def speaking(url: str, namespace: str, provider: ScriptedProvider, mouth: Mouth) -> Iterator[LocalWorkers]:
    """Workers in this process, which look for the turns of session `s` by themselves. *provider* speaks by *mouth*."""
    agent, ended = Agent(name="echo", window_tokens=8_000), threading.Event()
    with local_workers(url, namespace, agent, provider) as workers:

        def run() -> None:
            while not ended.wait(0.02):
                front.run(workers.parts, "s", unobserved)

        running = threading.Thread(target=run)
        running.start()
        try:
            yield workers
        finally:
            ended.set()
            mouth.say(1_000)
            running.join()


def options(directory: Path, url: str, namespace: str) -> Sequence[str]:
    """What makes a command in *directory* reach such workers."""
    (directory / "my_agents.py").write_text(AGENTS)
    return ["--agents", "my_agents.py", "--store", url, "--namespace", namespace]


def awaited(path: Path, text: str) -> None:
    """Return when *text* is in a file."""
    wait_for(lambda: text in path.read_text(), PATIENCE_SECONDS, f"{text!r} in {path.name}")
