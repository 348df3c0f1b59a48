"""`sessionctl notes`: what a session's agent wrote down for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, SessionId, shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


def register(app: typer.Typer) -> None:
    app.command("notes")(shared(notes))


def notes(
    call: Call,
    session_id: SessionId,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this note. Not given: list all.", show_default=False)
    ] = None,
) -> None:
    """List the notes that a session's agent keeps, or print one.

    Agents that have the notes tools write them; they stay when older messages leave the window, and are purged with the
    session.

    \b
    Examples:
      sessionctl notes trip-1
      sessionctl notes trip-1 thread_hint.md
      sessionctl notes trip-1 --json

    Exit codes: 0 fine; 2 unknown session or note; 3 store.
    """
    session = call.session(session_id)
    if name is None:
        sizes = session.notes()
        listed = [{"name": name, "bytes": size} for name, size in sizes.items()]
        call.answer({"session_id": session_id, "notes": listed}, note_table(sizes) if sizes else "no notes")
        return
    text = session.note(name)
    if text is None:
        raise InvalidInput("NAME", name, "must be one of the session's notes (`sessionctl notes SESSION` lists them)")
    document = {"session_id": session_id, "name": name, "bytes": len(text.encode()), "text": text}
    call.answer(document, text.removesuffix("\n"))


def note_table(sizes: Mapping[str, int]) -> RenderableType:
    """One row a note."""
    from rich.table import Table
    from rich.text import Text

    from workers.cli.printing import bytes_text, one_line

    table = Table("note", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    for name, size in sizes.items():
        table.add_row(Text(one_line(name), overflow="fold"), bytes_text(size))
    return table
