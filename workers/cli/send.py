"""`sessionctl send`: a turn and its answer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sessionlib.errors import AnswerTimeout, InvalidInput, SessionError
from workers.cli.common import Call, SessionId, TimeoutSeconds, shared

if TYPE_CHECKING:
    from sessionlib.events import Reply
    from sessionlib.stores.contract import Event
    from workers.client import ClientSession, Turn

Listener = Callable[["Event"], None]


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
    events: Annotated[
        bool, typer.Option("--events", help="Print each event of the turn on stdout, the answer as the last.")
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

    Exit codes: 0 answered; 1 the turn failed; 2 bad input; 3 store; 4 no answer in time (the turn goes on).
    """
    _require_timeout(timeout_seconds)
    text, given = _read_message(message), _read_results(results or ())
    session = call.sessions.open(session_id, agent) if agent else call.session(session_id)
    turn = session.submit(text, results=given, turn_id=turn_id, busy=busy)
    call.say(f"turn {turn.turn_id}")
    listener = event_printer(call) if events else progress_teller(call)
    with _left_running(call, session, turn):
        reply = answered(turn, listener, timeout_seconds)
    _print_reply(call, reply, as_event=events)


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


def event_printer(call: Call) -> Listener:
    """Prints events as they come."""
    from workers.cli.figures import event_figures

    return lambda event: call.event(event_figures(event), f"{event.kind} {progress_text(event)}".rstrip())


def progress_teller(call: Call) -> Listener:
    """Tells of events as they come; pieces of the answer are not shown before it is whole."""

    def tell(event: Event) -> None:
        if event.kind != "delta":
            call.say(f"  {event.kind} {progress_text(event)}".rstrip())

    return tell


def progress_text(event: Event) -> str:
    """The figures and names of an event: `round=2 tokens=812`. Text of any length is left out: it may be content."""
    return " ".join(
        f"{name}={value}"
        for name, value in event.data.items()
        if isinstance(value, int | float) or name in ("code", "tool", "name", "rotation_id")
    )


def answered(turn: Turn, listener: Listener, timeout_seconds: float | None) -> Reply:
    """The answer to a turn, when *listener* was told of all its events. Raises TurnFailed, AnswerTimeout.

    The events are read on a thread of their own: waiting for the next one has no deadline.
    """

    def follow() -> None:
        try:
            for event in turn.events():
                listener(event)
        except SessionError:
            return  # whoever asks for the answer meets the same error, and reports it

    follower = threading.Thread(target=follow, name="events", daemon=True)
    follower.start()
    follower.join(timeout_seconds)
    if timeout_seconds is not None and follower.is_alive():
        raise AnswerTimeout(turn.turn_id, timeout_seconds)
    return turn.answer(timeout_seconds)


@contextmanager
def _left_running(call: Call, session: ClientSession, turn: Turn) -> Iterator[None]:
    """Say after Ctrl-C that the turn goes on."""
    try:
        yield
    except KeyboardInterrupt:
        call.say(f"the turn goes on; `sessionctl cancel {session.session_id} {turn.turn_id}` ends it")
        raise


def reply_figures(reply: Reply) -> dict[str, object]:
    """A reply as plain values, its text included."""
    from dataclasses import asdict

    return {
        "turn_id": reply.turn_id,
        **asdict(reply.answer),
        "rotations": [dict(figures) for figures in reply.rotations],
    }


def _print_reply(call: Call, reply: Reply, *, as_event: bool) -> None:
    for open_call in reply.open_calls:
        call.say(f"open call {open_call.call_id}: {open_call.name}({open_call.arguments})")
    for rotation in reply.rotations:
        before, after = rotation.get("tokens_before", 0), rotation.get("tokens_after", 0)
        call.say(f"  rotated in the meantime: {before:,} to {after:,} tokens")
    if as_event and call.as_json:
        call.event({"kind": "reply", **reply_figures(reply)}, "")
    elif call.as_json:
        call.answer(reply_figures(reply))
    elif sys.stdout.isatty():
        call.show(reply.text)
    else:
        sys.stdout.write(reply.text + "\n")
