"""`sessionctl send`: a turn and its answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sessionlib.errors import InvalidInput
from workers.cli.attaching import read_attachments
from workers.cli.common import Call, SessionId, TimeoutSeconds, shared
from workers.cli.following import (
    Following,
    Listener,
    Typing,
    event_printer,
    progress_teller,
    reply_figures,
    tell_beside,
)

if TYPE_CHECKING:
    from sessionlib.events import Reply
    from workers.client import ClientSession, Turn


def register(app: typer.Typer) -> None:
    app.command("send")(shared(send))


def send(
    call: Call,
    session_id: SessionId,
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE|-", help="What to say; - reads it from stdin.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Open the session with this agent, or confirm it.")
    ] = None,
    turn_id: Annotated[
        str | None,
        typer.Option("--turn-id", metavar="ID", help="Idempotency key: the same id and input is the same turn."),
    ] = None,
    timeout_seconds: TimeoutSeconds = None,
    busy: Annotated[
        Literal["enqueue", "reject", "interrupt"],
        typer.Option("--busy", help="If the session has unfinished turns: wait behind them, refuse, or end them."),
    ] = "enqueue",
    results: Annotated[
        list[str] | None,
        typer.Option("--result", metavar="ID=TEXT", help="Result of an open call, in place of a message; repeatable."),
    ] = None,
    attached: Annotated[
        list[str] | None,
        typer.Option("--attach", metavar="FILE|URL", help="Image or file beside the message; repeatable."),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Print each event of the turn on stdout, the answer as the last.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the answer while it comes; with --json each event, a line each.")
    ] = False,
) -> None:
    """Send a message to a session and print the answer.

    Progress goes to stderr, the answer to stdout. If the answer leaves calls open (tools that the workers do not have),
    they are named on stderr; send their results as the next turn, all of them.

    \b
    Examples:
      sessionctl send trip-1 "Find me a train to Vienna" --agent travel
      git diff | sessionctl send review-7 - --agent reviewer --timeout 120
      sessionctl send trip-1 --result call_1="14:05, 39 EUR" --result call_2="sold out"
      sessionctl send trip-1 "and back?" --turn-id order-5512 --json
      sessionctl send trip-1 "and the night train?" --stream
      sessionctl send trip-1 "Is this the right one?" --attach ticket.pdf --attach https://example.org/map.png

    Exit codes: 0 answered; 1 the turn failed; 2 bad input; 3 store; 4 no answer in time (the turn goes on).
    """
    _require_timeout(timeout_seconds)
    text, given, media = _read_message(message), _read_results(results or ()), read_attachments(attached or ())
    session = call.sessions.open(session_id, agent) if agent else call.session(session_id)
    turn = session.submit(text, media=media, results=given, turn_id=turn_id, busy=busy, stream=stream)
    call.say(f"turn {turn.turn_id}")
    for item in media:
        call.say(f"attached {item.label}")
    as_events = events or (stream and call.as_json)
    typing = Typing(call) if stream and not as_events else None
    listener: Listener = typing or (event_printer(call) if as_events else progress_teller(call))
    with _left_running(call, session, turn):
        try:
            reply = Following(turn, listener).answer(timeout_seconds)
        finally:
            if typing:
                typing.end()
    _print_reply(call, reply, as_event=as_events, is_shown=typing is not None)


def _require_timeout(timeout_seconds: float | None) -> None:
    """Before anything is submitted. Raises InvalidInput."""
    from sessionlib.inputs import require_seconds

    if timeout_seconds is not None:
        require_seconds("--timeout", timeout_seconds)


def _read_message(message: str | None) -> str | None:
    if message != "-":
        return message
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as exc:
        raise InvalidInput("message", exc.object[exc.start : exc.start + 8], "must be UTF-8") from None


def _read_results(pairs: Sequence[str]) -> Mapping[str, str] | None:
    results: dict[str, str] = {}
    for pair in pairs:
        call_id, equals, text = pair.partition("=")
        if not equals or not call_id.strip() or call_id in results:
            raise InvalidInput("--result", pair, "must be ID=TEXT, each id once")
        results[call_id] = text
    return results or None


@contextmanager
def _left_running(call: Call, session: ClientSession, turn: Turn) -> Iterator[None]:
    """Say after Ctrl-C that the turn goes on."""
    try:
        yield
    except KeyboardInterrupt:
        call.say(f"the turn goes on; `sessionctl cancel {session.session_id} {turn.turn_id}` ends it")
        raise


def _print_reply(call: Call, reply: Reply, *, as_event: bool, is_shown: bool) -> None:
    tell_beside(call, reply)
    if as_event and call.as_json:
        call.event({"kind": "reply", **reply_figures(reply)}, "")
    elif call.as_json:
        call.answer(reply_figures(reply))
    elif is_shown:
        return
    elif sys.stdout.isatty():
        call.show(reply.text)
    else:
        sys.stdout.write(reply.text + "\n")
