"""`sessionctl worker`: become a front or a background worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from workers.cli.common import Call, shared


def register(app: typer.Typer) -> None:
    app.command("worker")(shared(worker))


def worker(
    call: Call,
    role: Annotated[
        Literal["front", "background"],
        typer.Argument(metavar="front|background", help="front answers turns, background rotates.", show_default=False),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Tells workers of one host apart. Else the role.")
    ] = "",
    command_only: Annotated[bool, typer.Option("--print", help="Print the command, do not run it.")] = False,
) -> None:
    """Become a front or a background worker.

    It is the plain celery command, with these options in its environment. Makes sure first that the agents can be
    loaded, and that no other package named `workers` would be run in the place of ours. SIGTERM makes a worker take
    nothing new, finish within its grace time and give the rest back.

    \b
    Examples:
      sessionctl worker front --agents my_agents.py
      sessionctl worker background --store redis://cache:6379/0
      SESSIONLIB_TURNS_CONCURRENCY=64 sessionctl worker front --name front-2
      sessionctl worker front --print

    Exit codes: 2 bad settings or agents, or a shadowed package; else celery's own.
    """
    from sessionlib.ids import require_id
    from workers.shadow import require_own_package
    from workers.supervisor import worker_command

    settings = call.settings
    command = worker_command(role, settings, require_id("--name", name) if name else "")
    if command_only:
        import shlex

        call.answer({"command": command}, shlex.join(command))
        return
    require_own_package(Path.cwd())
    require_agents(call)
    call.tools.become(command, settings.environment())


def require_agents(call: Call) -> None:
    """Load the agents that a worker will load; say so if none are named, or what one asks for cannot be given.

    Raises InvalidInput.
    """
    if call.settings.agents:
        catalog = call.tools.connect(call.settings).connection.catalog
        for name, clamp in catalog.clamps().items():
            call.say(f"agent {name}: {clamp}")
    else:
        call.say("no agents are named (--agents, SESSIONLIB_AGENTS): this worker can answer no turn")
