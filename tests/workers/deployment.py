"""Workers as real processes on servers that a test chose, and a caller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash import agents
from tests.crash.provider import ProviderProcess
from tests.waiting import wait_for
from workers.client import Sessions
from workers.settings import Settings
from workers.supervisor import Command, Role, Supervisor, worker_command

ROLES: tuple[Role, ...] = ("front", "background")
START_SECONDS = 60.0
QUICK: Mapping[str, Any] = {
    "lease_seconds": 2.0,
    "sweep_seconds": 0.3,
    "grace_seconds": 2.0,
    "turns_concurrency": 8,
    "rotations_concurrency": 1,
}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Deployment:
    """One front worker, one background worker, their provider, and a client."""

    supervisor: Supervisor
    provider: ProviderProcess
    sessions: Sessions

    def pids(self) -> list[int | None]:
        return [self.supervisor.child(role).pid for role in ROLES]


@contextmanager
def deployed(directory: Path, **given: Any) -> Iterator[Deployment]:
    """Processes with the settings *given*, ready for work."""
    settings = Settings.read(agents=agents.__file__, **QUICK, **given)
    with ExitStack() as stack:
        provider = stack.enter_context(ProviderProcess(directory))
        environment = settings.environment() | {
            "PYTHONPATH": str(ROOT),
            agents.PROVIDER_VARIABLE: provider.base_url,
            agents.DIRECTORY_VARIABLE: str(directory),
        }
        supervisor = stack.enter_context(Supervisor())
        logs = [directory / f"{role}.log" for role in ROLES]
        for role, log in zip(ROLES, logs, strict=True):
            command = worker_command(role, settings)
            supervisor.start(Command(name=role, arguments=command, environment=environment, output=log))
        for log in logs:
            wait_for(lambda log=log: " ready." in log.read_text(), START_SECONDS, log.stem)  # type: ignore[misc]
        sessions = stack.enter_context(Sessions.connect(settings=settings))
        yield Deployment(supervisor, provider, sessions)
