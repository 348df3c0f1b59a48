"""`sessionctl handoff`: an account of a session for another agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sessionlib.errors import InvalidInput
from sessionlib.ids import require_id
from workers.cli.common import Call, SessionId, TimeoutSeconds, shared

if TYPE_CHECKING:
    from sessionlib.handoffs import Handoff


def register(app: typer.Typer) -> None:
    app.command("handoff")(shared(handoff))


def handoff(
    call: Call,
    session_id: SessionId,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="What the receiving agent is to do.", show_default=False)
    ] = None,
    guidance: Annotated[
        str, typer.Option("--guidance", metavar="TEXT", help="What matters for it, what does not.")
    ] = "",
    handoff_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Its idempotency key; without TASK, the handoff to print again."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SESSION", help="Open this new session from it, with --agent.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent of the new session.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for it and print it.")] = True,
    timeout_seconds: TimeoutSeconds = None,
) -> None:
    """Hand a session's work to another agent: what it needs for TASK, told from what is in the window.

    A background worker makes it from the session as it stands when it begins; the session goes on meanwhile and is not
    changed. The same --id asks again for the same handoff and pays for no second call.

    \b
    Examples:
      sessionctl handoff trip-1 "book the return flight"
      sessionctl handoff trip-1 "write the tests" --guidance "only the parser" --id parser-tests --json
      sessionctl handoff trip-1 "write the tests" --to tests-1 --agent tester
      sessionctl handoff trip-1 --id parser-tests

    Exit codes: 0 there it is (or requested, with --no-wait); 1 it failed (the reason is printed); 2 bad input or
    unknown session; 3 store; 4 not done in time (it goes on).
    """
    from sessionlib.inputs import require_timeout

    if task is None and (handoff_id is None or guidance):
        raise InvalidInput("TASK", "", "must be given, or just --id of a handoff that was asked for before")
    require_timeout(timeout_seconds)
    session = call.session(session_id)
    _require_receiver(call, to, agent, is_new=handoff_id is None, is_waiting=wait)
    if task is not None:
        handoff_id = session.request_handoff(task, guidance=guidance, handoff_id=handoff_id)
        call.say(f"handoff {handoff_id} requested")
    asked = str(handoff_id)
    if not wait:
        call.answer({"handoff_id": asked, "state": "requested"}, f"handoff {asked} requested")
        return
    made = session.wait_for_handoff(asked, timeout_seconds)
    if to is not None and agent is not None:
        _begin(call, to, agent, made)
    call.answer({**handoff_figures(made), "opened": to}, made.text, "", handoff_note(made, to))


def _require_receiver(call: Call, to: str | None, agent: str | None, *, is_new: bool, is_waiting: bool) -> None:
    """Refuse, before anybody is asked, what could not begin with the handoff; one that *is_new* no session began with.

    Raises InvalidInput.
    """
    from sessionlib.starts import is_there

    if (to is None) != (agent is None):
        raise InvalidInput("--to", to or agent, "must come with --agent, and --agent with --to")
    if to is None or agent is None:
        return
    if not is_waiting:
        raise InvalidInput("--no-wait", to, "must be absent with --to: a session begins with what is there")
    connection = call.sessions.connection
    connection.catalog.agent(agent)
    if is_new and is_there(connection.store, require_id("--to", to)):
        raise InvalidInput("--to", to, "must be a new session")


def _begin(call: Call, session_id: str, agent: str, made: Handoff) -> None:
    """Open the session that begins with *made*; opened so before, it is confirmed. Raises InvalidInput."""
    from sessionlib.handoffs import handoff_entry
    from sessionlib.starts import all_entries, is_there

    store = call.sessions.connection.store
    if is_there(store, session_id) and all_entries(store, store.snapshot(session_id), 1, 1) != (handoff_entry(made),):
        raise InvalidInput("--to", session_id, "must be a new session, and began with something else")
    call.sessions.open(session_id, agent, from_handoff=made)


def handoff_figures(handoff: Handoff) -> dict[str, Any]:
    """A handoff as a document."""
    from sessionlib.codec import plain

    document: dict[str, Any] = plain(handoff)
    return document


def handoff_note(handoff: Handoff, opened: str | None) -> str:
    """What a reader should know of a handoff, in a few lines."""
    by = f"{handoff.provider}/{handoff.model}" if handoff.provider else "the extractive summarizer"
    lines = [
        f"handoff {handoff.handoff_id}: entries {handoff.first_seq:,}–{handoff.last_seq:,}, by {by}"
        + (f" ({handoff.prompt_tokens:,} + {handoff.completion_tokens:,} tokens)" if handoff.prompt_tokens else "")
    ]
    if handoff.redaction_count:
        lines.append(f"{handoff.redaction_count} secrets were replaced")
    if handoff.unsupported_values:
        lines.append(f"not in its source: {', '.join(handoff.unsupported_values)}")
    if opened:
        lines.append(f"session {opened} begins with it")
    return "\n".join(lines)
