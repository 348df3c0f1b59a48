"""`sessionctl rotate`: consolidate a session's older history now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.common import Call, SessionId, TimeoutSeconds, shared
from workers.cli.faults import ExitCode, RotationTimeout

if TYPE_CHECKING:
    from sessionlib.stores.contract import Event
    from workers.client import ClientSession

ENDINGS = frozenset({"rotated", "rotation_failed", "rotation_cancelled", "rotation_stale"})
"""Audit kinds that end a rotation."""


def register(app: typer.Typer) -> None:
    app.command("rotate")(shared(rotate))


def rotate(
    call: Call,
    session_id: SessionId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its outcome.")] = False,
    timeout_seconds: TimeoutSeconds = None,
) -> None:
    """Request a rotation, however full the window is.

    A background worker does it; turns go on meanwhile. If one is pending already, it is that one.

    \b
    Examples:
      sessionctl rotate trip-1
      sessionctl rotate trip-1 --wait --timeout 300 --json

    Exit codes: 0 requested, with --wait adopted; 1 not adopted (the reason is printed); 2 unknown session; 3 store;
    4 not done in time (it goes on).
    """
    if timeout_seconds is not None:
        from sessionlib.inputs import require_seconds

        require_seconds("--timeout", timeout_seconds)
    session = call.session(session_id)
    rotation_id = session.rotate()
    if not wait:
        call.answer({"rotation_id": rotation_id, "state": "requested"}, f"rotation {rotation_id} requested")
        return
    call.say(f"rotation {rotation_id} requested")
    ending = outcome(session, rotation_id, timeout_seconds)
    if ending is None:
        raise RotationTimeout(rotation_id, timeout_seconds or 0.0)
    call.answer({"rotation_id": rotation_id, "state": ending.kind, **ending.data}, outcome_text(rotation_id, ending))
    if ending.kind != "rotated":
        raise typer.Exit(ExitCode.FAILED)


def outcome(session: ClientSession, rotation_id: str, timeout_seconds: float | None) -> Event | None:
    """The audit line that ends the rotation; None if *timeout_seconds* passed first."""
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    after = ""
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return None
        for event in session.watch(after, left):
            after = event.id
            if event.kind in ENDINGS and rotation_id in (event.data.get("rotation_id"), event.data.get("id")):
                return event


def outcome_text(rotation_id: str, ending: Event) -> str:
    """How a rotation ended, in a line."""
    data = ending.data
    match ending.kind:
        case "rotated":
            before, after = data.get("tokens_before", 0), data.get("tokens_after", 0)
            return f"rotation {rotation_id} adopted: {before:,} to {after:,} tokens, epoch {data.get('epoch')}"
        case "rotation_failed" if data.get("code") == "no_gain":
            return f"rotation {rotation_id} changed nothing: there is nothing that it could shorten"
        case "rotation_failed":
            return f"rotation {rotation_id} failed ({data.get('code')}); nothing was changed"
        case "rotation_stale":
            return f"rotation {rotation_id} was computed from a layout that is no longer there; nothing was changed"
        case _:
            return f"rotation {rotation_id} was cancelled; nothing was changed"
