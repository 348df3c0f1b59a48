"""`sessionctl cancel` and `close`: end a turn, a rotation, or a session's life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, SessionId, shared

if TYPE_CHECKING:
    from workers.client import ClientSession


def register(app: typer.Typer) -> None:
    app.command("cancel")(shared(cancel))
    app.command("close")(shared(close))


def cancel(
    call: Call,
    session_id: SessionId,
    turn_id: Annotated[
        str | None, typer.Argument(metavar="TURN", help="Not given: the running turn, or else the next.")
    ] = None,
    rotation: Annotated[bool, typer.Option("--rotation", help="Cancel the rotation, not a turn.")] = False,
) -> None:
    """Cancel a turn or a rotation.

    What a turn has committed stays; nothing of a rotation is adopted. A second call is harmless, and so is one that
    comes too late: it says how the turn ended.

    \b
    Examples:
      sessionctl cancel trip-1
      sessionctl cancel trip-1 order-5512
      sessionctl cancel trip-1 --rotation

    Exit codes: 0 fine, also if there was nothing to cancel; 2 unknown session or turn; 3 store.
    """
    if rotation and turn_id is not None:
        raise InvalidInput("TURN", turn_id, "must not be given with --rotation")
    session = call.session(session_id)
    if rotation:
        was_there = session.cancel_rotation()
        call.answer({"cancelled": was_there}, "rotation cancelled" if was_there else "there is no rotation to cancel")
        return
    _cancel_turn(call, session, turn_id)


def _cancel_turn(call: Call, session: ClientSession, turn_id: str | None) -> None:
    if turn_id is None:
        view = session.view()
        turn_id = view.running or next(iter(view.queued), None)
    if turn_id is None:
        call.answer({"turn_id": None, "state": None}, "there is no turn to cancel")
        return
    state = session.get_turn(turn_id).cancel()
    call.answer({"turn_id": turn_id, "state": state}, f"turn {turn_id} is {state}")


def close(
    call: Call,
    session_id: SessionId,
    now: Annotated[bool, typer.Option("--now", help="End accepted turns as failed, do not finish them.")] = False,
) -> None:
    """Close a session to new turns; accepted ones finish.

    What it holds stays until it is purged.

    \b
    Examples:
      sessionctl close trip-1
      sessionctl close trip-1 --now

    Exit codes: 0 fine, also if it is closed already; 2 unknown session; 3 store.
    """
    session = call.session(session_id)
    session.close(now=now)
    view = session.view()
    left = [*([view.running] if view.running else []), *view.queued]
    still = f"; {len(left):,} accepted turns finish" if left else ""
    call.answer(
        {"session_id": session_id, "state": "closed", "unfinished": left}, f"session {session_id} is closed{still}"
    )
