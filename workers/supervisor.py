"""Keeps child processes running: starts them again when they exit, and leaves none behind."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from sessionlib.errors import InvalidInput, StoreError
from workers import children
from workers.settings import Settings

log = logging.getLogger(__name__)

Role = Literal["front", "background"]

FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 5.0
SETTLED_SECONDS = 5.0
"""A child that lived this long starts again after the first pause; one that did not waits twice as long as before."""
LOOK_SECONDS = 0.05
"""How soon an exit is noticed."""


def worker_command(role: Role, settings: Settings, name: str = "") -> list[str]:
    """The plain Celery command line of a worker. *name* tells workers of one host apart; the role by default.

    Gossip and mingle are off: nothing here uses them, and mingle delays each start by a second.
    """
    pool = {
        "front": ["-Q", "turns", "-P", "threads", "-c", str(settings.turns_concurrency)],
        "background": ["-Q", "rotations,summaries,upkeep", "-P", "prefork", "-c", str(settings.rotations_concurrency)],
    }[role]
    celery = [sys.executable, "-m", "celery", "-A", "workers.app", "worker"]
    return [
        *celery,
        *pool,
        "-n",
        f"{name or role}@%h",
        "-l",
        settings.log_level,
        "--without-gossip",
        "--without-mingle",
    ]


class Launchable(Protocol):
    """What a supervisor keeps running: a Command, or an EmbeddedServer."""

    @property
    def name(self) -> str: ...

    @property
    def grace_seconds(self) -> float:
        """Time to finish after SIGTERM, before SIGKILL."""
        ...

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and return at once. Raises OSError or StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line to keep running.

    Without *environment* and *output* it has this process's environment and writes where this process does.
    """

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None
    output: Path | None = None
    grace_seconds: float = 20.0

    def launch(self) -> subprocess.Popen[bytes]:
        if self.output is None:
            return children.start(self.arguments, environment=self.environment)
        with self.output.open("ab") as output:
            return children.start(self.arguments, environment=self.environment, output=output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child as it is now."""

    name: str
    pid: int | None
    """None between an exit and the next start."""
    restart_count: int
    exit_code: int | None
    """Of the last exit; negative: the signal that ended it."""


class _Kept:
    """One command and its process. Only used under the supervisor's lock."""

    def __init__(self, command: Launchable) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.state = Child(name=command.name, pid=None, restart_count=0, exit_code=None)
        self.pause_seconds = FIRST_PAUSE_SECONDS
        self.is_drill = False
        self.started_at = self.due_at = 0.0

    def start(self, now: float) -> None:
        self.process = self.command.launch()
        self.started_at = now
        self.state = replace(self.state, pid=self.process.pid)

    def note_exit(self, now: float) -> None:
        """Plan the next start of a child that has exited."""
        assert self.process is not None
        children.kill(self.process)  # what it left in its group
        settled = self.is_drill or now - self.started_at >= SETTLED_SECONDS
        self.is_drill = False
        self.pause_seconds = FIRST_PAUSE_SECONDS if settled else min(self.pause_seconds * 2, LAST_PAUSE_SECONDS)
        self.due_at = now + self.pause_seconds
        self.note_end(self.process.returncode)

    def note_end(self, exit_code: int) -> None:
        self.state = replace(self.state, pid=None, exit_code=exit_code)
        self.process = None

    def start_again(self, now: float) -> None:
        """Start the child whose pause is over; one that cannot be started waits for its next turn."""
        try:
            self.start(now)
            self.state = replace(self.state, restart_count=self.state.restart_count + 1)
        except (OSError, StoreError) as exc:
            self.pause_seconds = min(self.pause_seconds * 2, LAST_PAUSE_SECONDS)
            self.due_at = now + self.pause_seconds
            log.warning("child not started", extra={"child": self.command.name, "error": type(exc).__name__})


class Supervisor:
    """Keeps what it is given running until it is stopped. Safe for use from several threads."""

    def __init__(self, on_restart: Callable[[Child], None] | None = None) -> None:
        """*on_restart* is called, on the supervisor's thread, after each start but the first of a child."""
        self._on_restart = on_restart
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self, command: Launchable) -> Child:
        """Start a child and keep it running. Raises InvalidInput for a name in use, OSError, StoreUnavailable."""
        with self._lock:
            if command.name in self._kept:
                raise InvalidInput("name", command.name, "is the name of another child")
            if self._stopping.is_set():
                raise InvalidInput("name", command.name, "cannot start: the supervisor was stopped")
            kept = _Kept(command)
            kept.start(time.monotonic())
            self._kept[command.name] = kept
            if self._watcher.ident is None:
                self._watcher.start()
            return kept.state

    def children(self) -> list[Child]:
        """Every child as it is now, in the order of their start."""
        with self._lock:
            return [kept.state for kept in self._kept.values()]

    def child(self, name: str) -> Child:
        """One child as it is now. Raises InvalidInput for an unknown name."""
        with self._lock:
            return self._named(name).state

    def pause_seconds(self, name: str) -> float:
        """How long a child waits, or waited last, between an exit and its next start."""
        with self._lock:
            return self._named(name).pause_seconds

    def kill(self, name: str) -> int | None:
        """SIGKILL to a child's whole group, as a drill; it is started again. Its pid; None if it was not running."""
        with self._lock:
            kept = self._named(name)
            if kept.process is None:
                return None
            kept.is_drill = True
            children.kill(kept.process)
            return kept.process.pid

    def stop(self) -> None:
        """SIGTERM to all children at once, their grace times to finish, then SIGKILL. Harmless twice."""
        self._stopping.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        with self._lock:
            running = [(kept, kept.process) for kept in self._kept.values() if kept.process is not None]
            now = time.monotonic()
            for _, process in running:
                children.terminate(process)
            for kept, process in running:
                children.await_end(process, now + kept.command.grace_seconds - time.monotonic())
                kept.note_end(process.returncode)

    def _named(self, name: str) -> _Kept:
        if name not in self._kept:
            raise InvalidInput("name", name, f"is none of {', '.join(self._kept) or 'no children'}")
        return self._kept[name]

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with self._lock:
                restarted = self._look(time.monotonic())
            for child in restarted:
                log.warning("child restarted", extra={"child": child.name, "restart_count": child.restart_count})
                if self._on_restart is not None:
                    self._on_restart(child)

    def _look(self, now: float) -> list[Child]:
        """Note who has exited, start again whose pause is over; the children that were started again."""
        restarted: list[Child] = []
        for kept in self._kept.values():
            if kept.process is not None and children.has_exited(kept.process):
                kept.note_exit(now)
            elif kept.process is None and now >= kept.due_at:
                kept.start_again(now)
                if kept.process is not None:
                    restarted.append(kept.state)
        return restarted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
