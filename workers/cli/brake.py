"""`sessionctl brake`: whether a session stopped beginning fresh windows, and letting it begin them again."""

from __future__ import annotations

from typing import Annotated

import typer

from workers.cli.common import Call, SessionId, shared


def register(app: typer.Typer) -> None:
    app.command("brake")(shared(brake))


def brake(
    call: Call,
    session_id: SessionId,
    lift: Annotated[bool, typer.Option("--lift", help="Let it begin fresh windows again.")] = False,
) -> None:
    """Say whether a session is braked, or lift its brake.

    Under the policy work_room a window that is used up is replaced by a fresh one. Three running that were used up as
    soon as they began would go on so for ever: the session is braked, and its requests are trimmed instead. Give its
    agent a larger window or work room, or let it save less, then lift the brake.

    \b
    Examples:
      sessionctl brake trip-1
      sessionctl brake trip-1 --lift --json

    Exit codes: 0 fine; 2 unknown session; 3 store.
    """
    session = call.session(session_id)
    was_braked = session.lift_brake() if lift else session.view().room.is_braked
    state = ("lifted" if was_braked else "not braked") if lift else ("braked" if was_braked else "not braked")
    call.answer(
        {"session_id": session_id, "is_braked": was_braked and not lift, "was_braked": was_braked},
        f"session {session_id}: {state}",
    )
