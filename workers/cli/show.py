"""`sessionctl show`: one session's window drawn, or one turn."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sessionlib.errors import InvalidInput
from sessionlib.ids import require_id
from sessionlib.window_facts import learned
from workers.cli.common import Call, SessionId, shared

if TYPE_CHECKING:
    from sessionlib.stores.contract import Event, SessionStore, TurnView


WINDOW_REPORT_SECONDS = 3.0
"""How long a provider is given to say how large its window is, where it can be asked from here."""


def register(app: typer.Typer) -> None:
    app.command("show")(shared(show))


def show(
    call: Call,
    session_id: SessionId,
    turn_id: Annotated[
        str | None, typer.Option("--turn", metavar="ID", help="Show this turn, with its answer.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Print what records and entries say, too.")] = False,
) -> None:
    """Draw a session's window; say why it rotates or not.

    Tiers from the oldest on: records (a higher tier is coarser), then tier 0, the entries that are sent word for word.
    Figures only; --text and --turn print content.

    \b
    Examples:
      sessionctl show trip-1
      sessionctl show trip-1 --text | less
      sessionctl show trip-1 --turn order-5512 --json

    Exit codes: 0 fine; 2 unknown session or turn; 3 store.
    """
    if turn_id is not None:
        _show_turn(call, session_id, require_id("--turn", turn_id))
    else:
        _show_session(call, session_id, text)


def _show_session(call: Call, session_id: str, with_text: bool) -> None:
    from workers.cli import drawing, figures
    from workers.cli.ls import window_of

    session = call.session(session_id)
    view, layout = session.view(), session.layout()
    known = call.sessions.connection.catalog.window(session.agent, WINDOW_REPORT_SECONDS)
    window = learned(known, view.window, session.agent.origin)
    budgets = window_of(session, view, window)
    audit = whole_audit(call.sessions.connection.store, session_id)
    rotated, failed = drawing.last_rotation(audit), drawing.failed_summaries(audit, time.time())
    if call.as_json:
        document = figures.session_figures(view, budgets) | {
            "layout": figures.layout_figures(layout, with_text=with_text),
            "window_source": window.source,
            "why": drawing.why(view, budgets),
            "last_rotation": figures.event_figures(rotated) if rotated else None,
            "failed_summaries": failed,
        }
        call.answer(document)
        return
    call.show(drawing.heading(view), "", drawing.tier_table(layout), "")
    if budgets:
        call.show(drawing.fill_text(layout, budgets), "")
    call.show(drawing.why(view, budgets), drawing.window_text(window, view))
    if rotated:
        call.show(drawing.rotation_text(rotated, time.time()))
    call.show(*failed, *drawing.notes(view))
    if with_text:
        call.show("", drawing.text_of(layout))


def whole_audit(store: SessionStore, session_id: str) -> list[Event]:
    """The audit from its oldest line on; the store caps it."""
    found: list[Event] = []
    while newer := store.audit(session_id, found[-1].id if found else ""):
        found.extend(newer)
    return found


def _show_turn(call: Call, session_id: str, turn_id: str) -> None:
    from workers.cli.figures import turn_figures

    view = call.sessions.connection.store.turn(call.session(session_id).session_id, turn_id)
    if view is None:
        raise InvalidInput("--turn", turn_id, "is not known: never submitted, or forgotten since it ended")
    call.answer(turn_figures(view), turn_text(view))


def turn_text(view: TurnView) -> str:
    """A turn with its answer, for people. Times are UTC."""
    lines = [f"turn {view.turn_id}: {view.state}", f"submitted {_moment(view.submitted_at)}"]
    if view.finished_at:
        took = view.finished_at - view.submitted_at
        lines[-1] += f", finished {_moment(view.finished_at)} ({took:.1f} s later)"
    lines.append(f"{view.round_count} rounds committed, attempt {view.attempt}")
    if view.last_seq:
        lines[-1] += f", entries {view.first_seq:,}–{view.last_seq:,}"
    if view.error_code:
        lines.append(f"ended by {view.error_code}: {view.error}")
    if view.answer:
        answer = view.answer
        lines.append(
            f"{answer.prompt_tokens:,} prompt tokens ({answer.cached_tokens:,} from the provider's cache, "
            f"{answer.written_tokens:,} into it), {answer.completion_tokens:,} answered; "
            f"largest request {answer.max_request_tokens:,}"
        )
        if answer.is_recovered:
            lines.append("recovered: the provider had forgotten its session, and was given the whole window again")
        lines += [f"open call {call.call_id}: {call.name}({call.arguments})" for call in answer.open_calls]
        lines += ["", answer.text]
    return "\n".join(lines)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
