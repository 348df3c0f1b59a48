"""`sessionctl open`: create a session, with nothing or with what other sessions left."""

from __future__ import annotations

from typing import Annotated

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, SessionId, TimeoutSeconds, shared


def register(app: typer.Typer) -> None:
    app.command("open")(shared(open_session))


def open_session(
    call: Call,
    session_id: SessionId,
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="Its agent.", show_default=False)],
    from_session: Annotated[
        str | None, typer.Option("--from", metavar="SESSION", help="Begin with the conversation of this one.")
    ] = None,
    last_turns: Annotated[
        int | None, typer.Option("--last-turns", metavar="N", help="With --from: only its last N turns.")
    ] = None,
    handoff_id: Annotated[
        str | None, typer.Option("--handoff", metavar="ID", help="With --from: only what this handoff of it says.")
    ] = None,
    recent_digests: Annotated[
        bool, typer.Option("--recent-digests", help="Begin with the newest digests of the agent's other sessions.")
    ] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Keep the agent's version as it is now.")] = False,
    timeout_seconds: TimeoutSeconds = None,
) -> None:
    """Create a session or confirm it. A new one may begin with what other sessions left.

    What it begins with is its history: data that stands in the user's place, never instructions. A session that is
    there already is left as it is. A handoff that is not finished is waited for.

    \b
    Examples:
      sessionctl open trip-2 --agent travel
      sessionctl open trip-2 --agent travel --from trip-1 --last-turns 3
      sessionctl open tests-1 --agent tester --from trip-1 --handoff parser-tests
      sessionctl open trip-3 --agent travel --recent-digests --json

    Exit codes: 0 open; 1 the handoff failed; 2 bad input, a closed session, or an unknown source; 3 store;
    4 the handoff was not done in time.
    """
    if handoff_id is not None and (from_session is None or last_turns is not None):
        raise InvalidInput("--handoff", handoff_id, "must come with --from, and without --last-turns")
    if handoff_id is not None and from_session is not None:
        made = call.session(from_session).wait_for_handoff(handoff_id, timeout_seconds)
        session = call.sessions.open(session_id, agent, from_handoff=made, recent_digests=recent_digests, pin=pin)
    else:
        session = call.sessions.open(
            session_id,
            agent,
            from_session=from_session,
            last_turns=last_turns,
            recent_digests=recent_digests,
            pin=pin,
        )
    from workers.cli.figures import session_figures
    from workers.cli.ls import window_of

    view = session.view()
    entries = view.next_seq - 1
    begun = f"{entries:,} entries, {view.conversation_tokens:,} tokens" if entries else "nothing said yet"
    call.answer(session_figures(view, window_of(session, view)), f"session {session_id} is open: {begun}")
