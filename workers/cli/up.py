"""`sessionctl up`: all that a session needs, on this machine, until Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workers.cli.common import Call, shared
from workers.cli.faults import WorkersNotReady
from workers.cli.worker import require_agents

if TYPE_CHECKING:
    from workers.settings import Settings
    from workers.supervisor import Child, Role, Supervisor

READY_SECONDS = 60.0
"""How long workers may take until they answer: a loaded machine needs ten seconds and more to import them twice."""
ASK_AGAIN_SECONDS = 0.2
LOG_CHARACTERS = 2_000
"""How much of a log is shown of a worker that does not answer."""
ROLES: tuple[Role, ...] = ("front", "background")


def register(app: typer.Typer) -> None:
    app.command("up")(shared(up))


def up(
    call: Call,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIRECTORY", help="Keep the server's data and the logs here. Else thrown away."),
    ] = None,
) -> None:
    """Start a server and both workers; Ctrl-C stops them.

    The server is one of their own, started if no store is named (--store, SESSIONLIB_STORE_URL).
    Whatever exits is started again, and said. The workers log into files beside the server's data. With --json, each
    line of stdout is one event: started, ready, restarted, stopped.

    \b
    Examples:
      sessionctl up --agents my_agents.py
      sessionctl up --agents my_agents.py --data ./state     sessions are there again next time
      sessionctl up --agents my_agents --store redis://cache:6379/0

    Exit codes: 1 the workers did not get ready; 2 bad settings or agents; 3 no server; 130 Ctrl-C, the usual end.
    """
    from workers.shadow import require_own_package

    settings = call.settings
    require_own_package(Path.cwd())
    require_agents(call)
    with ExitStack() as stack, ended_by_sigterm():
        directory = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sessionlib-")))
        directory.mkdir(parents=True, exist_ok=True)
        stack.callback(_tell, call, "stopped")
        if not settings.is_store_given:
            settings = _serve(call, stack, settings, directory)
        workers = stack.enter_context(_supervisor(call))
        _start_workers(call, workers, settings, directory)
        _await_workers(call, settings, directory)
        _tell_how(call, settings, directory)
        threading.Event().wait()


def _serve(call: Call, stack: ExitStack, settings: Settings, directory: Path) -> Settings:
    """Keep a server of our own running; it is stopped after the workers. The settings that reach it."""
    from workers.embedded import EmbeddedServer

    server = EmbeddedServer(directory)
    stack.callback(server.stop)
    supervisor = stack.enter_context(_supervisor(call))
    child = supervisor.start(server)
    server.wait()
    _tell(call, "started", child=child.name, pid=child.pid, url=server.url)
    return settings.for_embedded(server.url)


def _supervisor(call: Call) -> Supervisor:
    from workers.supervisor import Supervisor

    def tell(child: Child) -> None:
        figures = {"pid": child.pid, "exit_code": child.exit_code, "restart_count": child.restart_count}
        _tell(call, "restarted", child=child.name, **figures)

    return Supervisor(on_restart=tell)


def _start_workers(call: Call, supervisor: Supervisor, settings: Settings, directory: Path) -> None:
    from workers.supervisor import Command, worker_command

    for role in ROLES:
        log = directory / f"{role}.log"
        command = Command(
            name=role,
            arguments=worker_command(role, settings),
            environment=settings.environment(),
            output=log,
            grace_seconds=settings.grace_seconds,
        )
        child = supervisor.start(command)
        _tell(call, "started", child=role, pid=child.pid, log=str(log))


def _await_workers(call: Call, settings: Settings, directory: Path) -> None:
    """Return when both answer. Raises WorkersNotReady."""
    from workers import probes
    from workers.app import make_app

    begun, app = time.monotonic(), make_app(settings)
    while time.monotonic() < begun + READY_SECONDS:
        try:
            if all(probes.listening(app, ROLES).values()):
                _tell(call, "ready", seconds=round(time.monotonic() - begun, 2))
                return
        except probes.BROKER_ERRORS:
            time.sleep(ASK_AGAIN_SECONDS)
    for role in ROLES:
        log = directory / f"{role}.log"
        call.say(f"{log} ends in:\n{log.read_text(errors='replace')[-LOG_CHARACTERS:]}")
    raise WorkersNotReady(READY_SECONDS)


def _tell(call: Call, event: str, **figures: Any) -> None:
    shown = "  ".join(f"{name}={value}" for name, value in figures.items())
    call.event({"event": event, **figures}, f"{event:<10}{shown}".rstrip())


def _tell_how(call: Call, settings: Settings, directory: Path) -> None:
    """What to type in another terminal."""
    given = settings.environment()
    if (agents := Path(settings.agents)).is_file():
        given["SESSIONLIB_AGENTS"] = str(agents.resolve())
    names = ["SESSIONLIB_PARTITIONS", "SESSIONLIB_NAMESPACE", "SESSIONLIB_AGENTS"]
    if not call.settings.is_store_given:  # whoever named a store knows its URL, which may hold a password
        names.insert(0, "SESSIONLIB_STORE_URL")
    variables = " ".join(f"{name}={shlex.quote(given[name])}" for name in names if name in given)
    call.say(f"logs in {directory}; Ctrl-C stops all that was started. In another terminal:")
    if variables:
        call.say(f"  export {variables}")
    call.say('  sessionctl send my-session "Hello" --agent NAME')


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
