"""`sessionctl ls`: the sessions of a store, page by page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sessionlib.errors import InvalidInput, SessionError, StoreCorrupt, UnknownSession
from sessionlib.window_facts import learned
from workers.cli.common import Call, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from sessionlib.stores.contract import SessionStore, SessionView
    from sessionlib.window import Budgets
    from sessionlib.window_facts import WindowFact
    from workers.client import ClientSession, Sessions

Listed = tuple["SessionView", "Budgets | None"]


def register(app: typer.Typer) -> None:
    app.command("ls")(shared(list_sessions))


def list_sessions(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Sessions on a page.")] = 50,
    after: Annotated[
        str, typer.Option("--after", metavar="CURSOR", help="The next page: what the page before named.")
    ] = "",
    braked: Annotated[
        bool, typer.Option("--braked", help="Only open sessions that are braked, found by looking at every session.")
    ] = False,
) -> None:
    """List sessions: state, fill, queue, archive.

    Fill is conversation tokens as a share of the window without instructions and tools. The order is the store's own.
    With --braked a page is full of sessions whose requests are trimmed, since fresh windows brought nothing: what
    `sessionctl health` counts, and `sessionctl brake SESSION --lift` releases.

    \b
    Examples:
      sessionctl ls
      sessionctl ls --limit 500 --json | jq '.sessions[] | select(.queued_count > 3).session_id'
      sessionctl ls --after 3:trip-1
      sessionctl ls --braked --json | jq -r '.sessions[].session_id'

    Exit codes: 0 fine; 2 bad input; 3 store.
    """
    ids, cursor = (braked_page if braked else page)(call.sessions.connection.store, after, limit)
    listed = [found for session_id in ids if (found := look(call.sessions, session_id)) is not None]
    if call.as_json:
        from workers.cli.figures import session_figures

        call.answer({"sessions": [session_figures(view, budgets) for view, budgets in listed], "after": cursor or None})
        return
    call.show(session_table(listed, time.time()))
    if not listed:
        call.say("no braked sessions" if braked else "no sessions")
    if cursor:
        call.say(f"more: sessionctl ls {'--braked ' if braked else ''}--after {cursor}")


def page(store: SessionStore, after: str, limit: int) -> tuple[list[str], str]:
    """At most *limit* session ids behind the cursor *after*, and the cursor of the next page ("" at the end).

    A cursor is the number of a partition, a colon, and the store's own cursor in it. Raises InvalidInput.
    """
    partition, cursor = _position(after, store.partition_count)
    ids: list[str] = []
    while partition < store.partition_count and len(ids) < limit:
        found, cursor = store.sessions(partition, cursor, limit - len(ids))
        ids.extend(found)
        partition += 0 if cursor else 1
    return ids, f"{partition}:{cursor}" if partition < store.partition_count else ""


def braked_page(store: SessionStore, after: str, limit: int) -> tuple[list[str], str]:
    """As `page`, of those that are open and braked: it looks on until there are *limit*, or nothing is left."""
    ids: list[str] = []
    cursor = after
    while len(ids) < limit:
        seen, cursor = page(store, cursor, limit - len(ids))
        ids += [session_id for session_id in seen if is_braked(store, session_id)]
        if not cursor:
            break
    return ids, cursor


def is_braked(store: SessionStore, session_id: str) -> bool:
    """Whether a session is there, open and braked."""
    try:
        view = store.view(session_id)
    except UnknownSession:
        return False
    return view.room.is_braked and view.state == "open"


def _position(after: str, partition_count: int) -> tuple[int, str]:
    number, colon, cursor = (after or "0:").partition(":")
    if not (colon and number.isascii() and number.isdigit() and int(number) < partition_count):
        raise InvalidInput("--after", after, "must be a cursor that `ls` named")
    return int(number), cursor


def look(sessions: Sessions, session_id: str) -> Listed | None:
    """A session's figures and its window (None: not known); None for a session that was purged in the meantime."""
    try:
        view = sessions.connection.store.view(session_id)
    except UnknownSession:
        return None
    try:
        return view, window_of(sessions.get(session_id), view)
    except (UnknownSession, StoreCorrupt):
        return view, None


def window_of(session: ClientSession, view: SessionView, window: WindowFact | None = None) -> Budgets | None:
    """The window's figures as the session has them now; None if its agent's description gives none."""

    agent = session.agent
    known = learned(window or agent.window, view.window, agent.origin)
    try:
        return agent.session_budgets(agent.own_counter, view.calibration, known)
    except SessionError:
        return None


def session_table(listed: Sequence[Listed], now: float) -> Table:
    """One row a session."""
    from rich.table import Table
    from rich.text import Text

    from workers.cli.drawing import small_bar
    from workers.cli.figures import fill_of
    from workers.cli.printing import age_text, bytes_text, one_line

    table = Table("session", "state", "agent", "fill", box=None, pad_edge=False)
    for name in ("tokens", "epoch", "queued", "archive", "updated"):
        table.add_column(name, justify="right")
    for view, budgets in listed:
        fill = fill_of(view, budgets)
        table.add_row(
            Text(one_line(view.session_id), overflow="fold"),
            state_text(view),
            one_line(view.agent.name),
            "?" if fill is None else f"{small_bar(fill)} {fill:4.0%}",
            f"{view.conversation_tokens:,}",
            str(view.epoch),
            str(len(view.queued)),
            bytes_text(view.archived_bytes),
            age_text(now - view.updated_at),
        )
    return table


def state_text(view: SessionView) -> str:
    """What the session is at: running and rotating are worth more than open."""
    parts = [*(["running"] if view.running else []), *(["rotating"] if view.rotation_id else [])]
    return "+".join(parts) or str(view.state)
