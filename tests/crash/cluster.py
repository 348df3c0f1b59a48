"""Everything that a deployment has, as real processes that a test may kill."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

from sessionlib.stores.contract import Event, Lane, SessionView
from sessionlib.testing.fake_provider import Kind
from tests.crash import agents
from tests.crash.provider import ProviderProcess
from tests.crash.watching import Watcher
from tests.waiting import wait_for
from workers.app import make_app
from workers.client import Sessions
from workers.embedded import EmbeddedServer
from workers.settings import Settings
from workers.store import RedisStore
from workers.supervisor import Command, Role, Supervisor, worker_command

LEASE_SECONDS = 1.0
SWEEP_SECONDS = 0.2
GRACE_SECONDS = 2.0
SETTINGS: Mapping[str, Any] = {
    "lease_seconds": LEASE_SECONDS,
    "sweep_seconds": SWEEP_SECONDS,
    "grace_seconds": GRACE_SECONDS,
    "turns_concurrency": 16,
    "rotations_concurrency": 2,
}
"""Everything quicker than by default, so that a test need not wait."""
START_SECONDS = 60.0
"""A worker is ready about two seconds after its start; a loaded machine takes longer."""
IDLE_SECONDS = 60.0
"""How long the work may take that a test leaves behind."""
TRIES = 3
"""A machine that stands still for longer than a lease costs the lease, as it must. What is to show that a lease is kept
is then shown again: a lease that is never kept fails every time."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL, and what its process had begun and not saved."""

    name: str
    at: float
    """Seconds since the epoch."""
    in_flight: Mapping[str, float]
    """SESSION/TURN/STEP, as the provider has them, and when the newest phase of each was shown: seconds since the
    epoch, 0 if nobody heard it."""

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.in_flight) or 'nothing in flight'}"


class Cluster:
    """Server, provider, front and background workers with short leases. A context manager."""

    def __init__(
        self,
        directory: Path,
        *,
        fronts: int = 3,
        backgrounds: int = 2,
        over_tcp: bool = False,
        fsync: Literal["everysec", "always"] = "everysec",
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.fronts = [f"front-{number}" for number in range(1, fronts + 1)]
        self.backgrounds = [f"background-{number}" for number in range(1, backgrounds + 1)]
        self.server = EmbeddedServer(directory / "data", over_tcp=over_tcp, fsync=fsync)
        self.provider = ProviderProcess(directory)
        self.supervisor = Supervisor()
        self._given = {**SETTINGS, **settings}
        self._stack = ExitStack()
        self._log_starts: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.server)
            stack.enter_context(self.provider)
            settings = Settings.read(agents=agents.__file__, **self._given)
            self.settings = settings.for_embedded(self.server.url)
            self.sessions = Sessions.connect(settings=self.settings)
            stack.callback(self.sessions.connection.close)
            self.watcher = Watcher(make_app(self.settings))
            stack.callback(self.watcher.close)
            wait_for(self.watcher.is_listening.is_set, START_SECONDS, "the event receiver")
            stack.enter_context(self.supervisor)
            for name in (*self.fronts, *self.backgrounds):
                self.supervisor.start(self.command(name))
            self.wait_ready(*self.fronts, *self.backgrounds)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def store(self) -> RedisStore:
        return cast(RedisStore, self.sessions.connection.store)

    def command(self, name: str) -> Command:
        """A worker of the role that *name* begins with."""
        role = cast(Role, name.partition("-")[0])
        arguments = worker_command(role, self.settings, name)
        return Command(name=name, arguments=arguments, environment=self.environment(), output=self.log_path(name))

    def environment(self) -> dict[str, str]:
        """For a process that belongs to the cluster."""
        return self.settings.environment() | {
            "PYTHONPATH": str(ROOT),
            agents.PROVIDER_VARIABLE: self.provider.base_url,
            agents.DIRECTORY_VARIABLE: str(self.directory),
        }

    def log_path(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def logs(self) -> str:
        """What all workers have logged."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("*-*.log")))

    def wait_ready(self, *names: str) -> None:
        """Wait until the workers take messages, each since its last start."""
        for name in names:
            wait_for(lambda name=name: self._is_ready(name), START_SECONDS, f"{name} to be ready")  # type: ignore[misc]

    def wait_idle(self) -> None:
        """Wait until no session has work that waits or runs: what a test left goes on, and would be another's."""
        wait_for(lambda: not self.unfinished(), IDLE_SECONDS, "the work that is left to end")

    def unfinished(self) -> dict[str, float]:
        """Everything that waits or runs, "kind|session|id", and when it is next looked at: seconds since the epoch."""
        partitions = range(self.store.partition_count)
        keys = [self.store.keys.shared("due", partition) for partition in partitions]
        members = [member for key in keys for member in self.store.client.zrange(key, 0, -1, withscores=True)]
        return {member.decode(): at for member, at in members}

    def log_since(self, name: str) -> str:
        """What a worker logged since it was last killed or terminated here."""
        path = self.log_path(name)
        return path.read_text()[self._log_starts.get(name, 0) :] if path.exists() else ""

    def _is_ready(self, name: str) -> bool:
        return " ready." in self.log_since(name)

    def pid(self, name: str) -> int | None:
        return self.supervisor.child(name).pid

    def kill(self, name: str, session_ids: Iterable[str] = ()) -> Kill:
        """SIGKILL a worker, noting what it had in flight of these sessions. The supervisor starts it again."""
        in_flight = dict(self.in_flight(session_ids, name))
        self._log_starts[name] = len(self.log_path(name).read_text())
        killed_at = time.time()
        self.supervisor.kill(name)
        return Kill(name=name, at=killed_at, in_flight=in_flight)

    def terminate(self, name: str) -> None:
        """SIGTERM to a worker, as a deploy sends it. The supervisor starts another."""
        pid = self.pid(name)
        assert pid is not None, f"{name} does not run"
        self._log_starts[name] = len(self.log_path(name).read_text())
        os.kill(pid, signal.SIGTERM)

    def kill_server(self, session_ids: Iterable[str] = ()) -> Kill:
        """SIGKILL the server and start it again on the same data."""
        in_flight = dict(self.in_flight(session_ids))
        killed_at = time.time()
        self.server.kill()
        self.server.restart()
        return Kill(name="server", at=killed_at, in_flight=in_flight)

    def in_flight(self, session_ids: Iterable[str], worker: str = "") -> Iterator[tuple[str, float]]:
        """Steps that were begun and not saved, of one worker or of all, as in `Kill`."""
        for session_id in session_ids:
            view = self.store.view(session_id)
            for kind, is_running in (("turn_id", view.running), ("rotation_id", view.rotation_state == "running")):
                phase = self.watcher.phase(session_id, kind)
                if is_running and (not worker or (phase is not None and phase.worker == worker)):
                    yield f"{session_id}/{self._open_work(view, kind)}", phase.at if phase else 0.0

    def _open_work(self, view: SessionView, kind: str) -> str:
        if view.running and kind == "turn_id":
            return f"{view.running}/{self._open_step(view.session_id, view.running)}"
        return f"{view.rotation_id}/consolidation after {self.saved_count(view.session_id, Lane.ROTATION)} saved"

    def _open_step(self, session_id: str, turn_id: str) -> str:
        turn = self.store.turn(session_id, turn_id)
        saved = self._saved_steps(session_id, Lane.TURN)
        round = turn.round_count if turn else 0
        return f"tool:{round} after {len(saved) - 1} saved" if saved else f"model:{round}"

    def saved_count(self, session_id: str, lane: Lane) -> int:
        """How many steps of a lane's present work are saved."""
        return len(self._saved_steps(session_id, lane))

    def _saved_steps(self, session_id: str, lane: Lane) -> list[str]:
        key = next(key for key in self.store.keys.of_session(session_id) if f"steps:{lane}:" in key)
        return [json.loads(raw.partition(b"\n")[0]) for raw in self.store.client.lrange(key, 0, -1)]

    def wait_held_at_model(self, session_ids: Collection[str], seconds: float = 30.0) -> None:
        """Wait until each session's turn stands at a model call, as its worker reports, and the provider holds it."""
        for session_id in session_ids:
            wait_for(self._stands_at_model(session_id), seconds, f"{session_id} to ask its model")
        wait_for(lambda: self.provider.held(Kind.ANSWERS) >= len(session_ids), seconds, "calls to be held")

    def _stands_at_model(self, session_id: str) -> Callable[[], bool]:
        def stands() -> bool:
            phase = self.watcher.phase(session_id)
            if phase is None or phase.name != "model":
                return False
            running = self.store.view(session_id).running
            turn = self.store.turn(session_id, running) if running else None
            return turn is not None and phase.ids["turn_id"] == running and phase.ids["round"] == str(turn.round_count)

        return stands

    def worker_of(self, session_id: str, kind: str = "turn_id") -> str:
        """Who runs the session's turn, or its rotation (kind `rotation_id`); waits until somebody does."""

        def worker() -> str:
            view = self.store.view(session_id)
            work_id = view.running if kind == "turn_id" else view.rotation_id
            phase = self.watcher.phase(session_id, kind)
            return phase.worker if phase and work_id in (None, phase.ids[kind]) else ""

        return wait_for(worker, what=f"a worker of {session_id}")

    def await_start(self, session_id: str, turn_id: str, after: float) -> Event:
        """Wait until a turn is granted, later than *after*; the event that tells of it, by the server's clock."""

        def started() -> Event | None:
            events = self.store.events(session_id, turn_id)
            return next((event for event in events if event.kind == "started" and event.at > after), None)

        event = wait_for(started, what=f"{session_id}/{turn_id} to run again")
        assert event is not None
        return event

    def await_rotation_after(self, session_id: str, worker: str, after: float, seconds: float = 30.0) -> float:
        """Wait until a run of the session's rotation asks that is not the one which *worker* had at *after*; when it
        did, in seconds since the epoch."""

        def asked() -> float:
            phase = self.watcher.phase(session_id, "rotation_id")
            return phase.at if phase and (phase.worker != worker or phase.at > after) else 0.0

        return wait_for(asked, seconds, f"another run of the rotation of {session_id}")


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
