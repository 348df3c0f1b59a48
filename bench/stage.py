"""What benches run on: a server, and worker processes, all of their own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from celery import Celery

from bench.agents import write_agents
from workers import probes
from workers.app import make_app
from workers.client import Sessions
from workers.embedded import EmbeddedServer
from workers.settings import Settings
from workers.supervisor import Command, Role, Supervisor, worker_command

START_SECONDS = 60.0
SWEEP_SECONDS = 60.0
"""Nothing is killed here: no sweep shall take part in what is measured."""

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, while the `with` block of `staged` lasts."""

    directory: Path
    settings: Settings
    sessions: Sessions
    sender: Celery
    """Sends the benches' own tasks."""
    supervisor: Supervisor


@contextmanager
def staged(
    roles: Sequence[Role],
    *,
    answer_seconds: float = 0.0,
    summary_seconds: float = 0.0,
    is_traced: bool = False,
    rotations_concurrency: int = 1,
) -> Iterator[Stage]:
    """Start a server and workers of *roles* in a temporary directory, and stop them, however the block ends.

    Raises StoreUnavailable, or TimeoutError for workers that do not start.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sessionlib-")))
        agents = write_agents(
            directory, answer_seconds=answer_seconds, summary_seconds=summary_seconds, is_traced=is_traced
        )
        server = stack.enter_context(EmbeddedServer(directory))
        settings = Settings.read(
            agents=str(agents), sweep_seconds=SWEEP_SECONDS, rotations_concurrency=rotations_concurrency
        ).for_embedded(server.url)
        sessions = stack.enter_context(Sessions.connect(settings=settings))
        supervisor = stack.enter_context(Supervisor())
        for role in roles:
            supervisor.start(_worker(role, settings, directory))
        made = Stage(directory, settings, sessions, make_app(settings), supervisor)
        _await_workers(made, roles)
        yield made


def _worker(role: Role, settings: Settings, directory: Path) -> Command:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Command(
        name=role,
        arguments=[*worker_command(role, settings), "-I", "bench.tasks"],
        environment={**settings.environment(), "PYTHONPATH": path},
        output=directory / f"{role}.log",
        grace_seconds=2.0,
    )


def _await_workers(stage: Stage, roles: Sequence[Role]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not all(probes.listening(stage.sender, roles).values()):
        if time.monotonic() >= deadline:
            logs = "\n".join(path.read_text()[-2_000:] for path in stage.directory.glob("*.log"))
            raise TimeoutError(f"workers did not start within {START_SECONDS:g} s:\n{logs}")
