"""`sessionctl health`: whether the work is done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from workers.cli.common import Call, shared
from workers.cli.faults import ExitCode

MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def register(app: typer.Typer) -> None:
    app.command("health")(shared(health))


def health(
    call: Call,
    role: Annotated[
        Literal["store", "front", "background"] | None,
        typer.Option("--role", help="Judge only this part. Not given: all three."),
    ] = None,
    deadline_seconds: Annotated[
        float,
        typer.Option("--deadline", metavar="SECONDS", min=0.5, max=600.0, help="Time for workers to finish a probe."),
    ] = 10.0,
) -> None:
    """Judge a deployment by the work that it finishes.

    The store must answer (its memory policy and append-only file are checked). A worker of each role must finish a
    probe, or other work, in time; nothing may wait long that nobody begins. Warnings do not fail the check; one is that
    sessions are braked, which `sessionctl ls --braked` lists.

    \b
    Examples:
      sessionctl health
      sessionctl health --role front --deadline 5      as a container's health check; likewise store, background
      sessionctl health --json | jq '.checks[] | select(.verdict != "ok")'

    Exit codes: 0 well; 1 a check failed (the reason is printed); 2 bad settings; 3 the store cannot be reached.
    """
    from workers.health import ROLES, judge

    roles = (role,) if role else ROLES
    found = call.tools.observe(call.settings, roles, deadline_seconds)
    verdict = judge(found, roles)
    lines = [f"{MARKS[check.verdict]}  {check.name}: {check.reason}" for check in verdict.checks]
    call.answer({"is_well": verdict.is_well, "checks": [asdict(check) for check in verdict.checks]}, *lines)
    if not verdict.is_well:
        for check in verdict.checks:
            if check.verdict == "failed":
                call.say(f"{check.name}: {check.reason}")
        raise typer.Exit(ExitCode.FAILED)
