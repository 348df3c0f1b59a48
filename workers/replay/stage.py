"""The stage of a replay: a server, a fake provider, a front and a background worker, all of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sessionlib.errors import InvalidInput
from sessionlib.recordings import Recording
from workers import probes
from workers.app import make_app
from workers.client import Sessions
from workers.embedded import EmbeddedServer
from workers.replay.agents import Scene, require_playable, write_agents
from workers.replay.provider import FakeProviderProcess
from workers.settings import Settings
from workers.supervisor import Command, Role, Supervisor, worker_command

LEASE_SECONDS = 3.0
SWEEP_SECONDS = 0.5
"""A killed worker's turn runs again within lease + sweep, or when its successor has started: here that takes longer."""
GRACE_SECONDS = 2.0
"""Nothing that a replay leaves unfinished is worth waiting for."""
TURNS_CONCURRENCY = 4
"""One session has one turn at a time; the others are for probes and for messages that find nothing to do."""
ROLES: tuple[Role, ...] = ("front", "background")


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, while the `with` block of `staged` lasts."""

    directory: Path
    settings: Settings
    provider: FakeProviderProcess
    supervisor: Supervisor
    sessions: Sessions

    def await_workers(self, seconds: float) -> bool:
        """Wait until both workers take messages; False if they do not within *seconds*."""
        app, deadline = make_app(self.settings), time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if all(probes.listening(app, ROLES).values()):
                    return True
            except probes.BROKER_ERRORS:
                time.sleep(SWEEP_SECONDS)
        return False


@contextmanager
def staged(recording: Recording, scene: Scene, keep: Path | None = None) -> Iterator[Stage]:
    """Start everything in a temporary directory (or in *keep*, which stays); stop it all, however the block ends.

    Raises what `require_playable` raises, InvalidInput if *keep* is not empty, StoreUnavailable, ProviderUnavailable.
    """
    require_playable(recording, scene)
    with ExitStack() as stack:
        directory = _new_directory(keep) if keep else Path(stack.enter_context(_temporary_directory()))
        provider = stack.enter_context(_provider(directory, scene))
        agents = write_agents(directory, recording, scene, provider.url)
        server = stack.enter_context(EmbeddedServer(directory))
        settings = _settings(agents, server.url)
        sessions = Sessions.connect(settings=settings)
        stack.callback(sessions.connection.hints.close)
        supervisor = stack.enter_context(Supervisor())
        for role in ROLES:
            supervisor.start(_worker(role, settings, directory))
        yield Stage(directory, settings, provider, supervisor, sessions)


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sessionlib-")


def _new_directory(path: Path) -> Path:
    """Make *path*. Raises InvalidInput: with a server's older data, the session would be there already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as exc:
        raise InvalidInput("directory", str(path), f"must be one that can be made ({type(exc).__name__})") from None
    if not is_empty:
        raise InvalidInput("directory", str(path), "must be new, or empty")
    return path.absolute()


def _provider(directory: Path, scene: Scene) -> FakeProviderProcess:
    return FakeProviderProcess(
        directory,
        window_tokens=scene.window_tokens,
        latency_seconds=scene.latency_seconds,
        summary_latency_seconds=scene.summary_latency_seconds,
    )


def _settings(agents: Path, store_url: str) -> Settings:
    return Settings.read(
        agents=str(agents),
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=SWEEP_SECONDS,
        grace_seconds=GRACE_SECONDS,
        turns_concurrency=TURNS_CONCURRENCY,
        rotations_concurrency=1,
    ).for_embedded(store_url)


def _worker(role: Role, settings: Settings, directory: Path) -> Command:
    return Command(
        name=role,
        arguments=worker_command(role, settings),
        environment=_without_proxy(settings.environment()),
        output=directory / f"{role}.log",
        grace_seconds=GRACE_SECONDS + SWEEP_SECONDS,
    )


def _without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The provider is on this machine: no proxy leads there."""
    return {**environment, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
