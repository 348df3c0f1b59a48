"""`sessionctl purge`: delete a session and all it ever held."""

from __future__ import annotations

from typing import Annotated

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, SessionId, shared


def register(app: typer.Typer) -> None:
    app.command("purge")(shared(purge))


def purge(
    call: Call,
    session_id: SessionId,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete it.")] = False,
) -> None:
    """Delete a session and all it ever held.

    History, archive, turns, audit: it cannot be undone. The session refuses everything from then on; a large one is
    deleted bit by bit in the background.

    \b
    Examples:
      sessionctl purge trip-1 --yes

    Exit codes: 0 fine; 2 unknown session, or --yes is missing; 3 store.
    """
    session = call.session(session_id)
    if not yes:
        view = session.view()
        held = f"{view.next_seq - 1:,} entries and {len(view.queued) + bool(view.running):,} unfinished turns"
        raise InvalidInput("--yes", False, f"must be given: {held} would be deleted for ever")
    session.purge()
    call.answer({"session_id": session_id, "state": "purged"}, f"session {session_id} is purged")
