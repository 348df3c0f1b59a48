"""`sessionctl chat`: a conversation line by line, each answer while it comes."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from sessionlib.errors import InvalidInput, SessionError, StoreError, TurnFailed
from workers.cli.common import Call, shared
from workers.cli.faults import ExitCode
from workers.cli.following import Following, Listener, Typing, event_printer, reply_figures, tell_beside
from workers.cli.show import show

if TYPE_CHECKING:
    from sessionlib.events import Reply
    from workers.client import ClientSession

PROMPT = "> "
COMMANDS = """/help   this
/show   what is in the session's window
//text  send "/text"
Ctrl-C ends the answer that is coming, or drops what is typed; twice at the prompt, or Ctrl-D, ends the chat."""


def register(app: typer.Typer) -> None:
    app.command("chat")(shared(chat))


def chat(
    call: Call,
    session_id: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="Not given: a new one.", show_default=False)
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Open the session with this agent, or confirm it."),
    ] = None,
) -> None:
    """Talk to a session: a message a line, each answer while it comes.

    Ctrl-C cancels the turn that is running; what it has committed stays. At the prompt it drops what was typed, and
    pressed again it leaves; so does Ctrl-D. The session stays: `sessionctl chat SESSION` goes on. Lines that begin with
    a slash are commands, /help names them.
    Calls that an answer leaves open are dropped by the next message; `sessionctl send --result` answers them.

    Without a terminal the messages are the lines of stdin, and answers alone are on stdout; with --json each event is,
    on a line each, and each reply.

    \b
    Examples:
      sessionctl chat --agent travel
      sessionctl chat trip-1
      printf '%s\\n' "Hello" "And in French?" | sessionctl chat trip-1

    Exit codes: 0 left, or all lines answered; 1 a turn failed (the others were sent all the same); 2 bad input;
    3 store; 130 left by Ctrl-C.
    """
    session = _session(call, session_id, agent)
    call.say(f"session {session.session_id}" + ("; /help for help" if sys.stdin.isatty() else ""))
    worst = Chat(call, session).run()
    if worst is not ExitCode.FINE:
        raise typer.Exit(worst)


def _session(call: Call, session_id: str | None, agent: str | None) -> ClientSession:
    if session_id is not None and agent is None:
        return call.session(session_id)
    if agent is None:
        known = sorted(call.sessions.connection.catalog.agents)
        if len(known) != 1:
            rule = f"must be given for a new session; known are {', '.join(known) or 'none'}"
            raise InvalidInput("--agent", agent, rule)
        agent = known[0]
    return call.sessions.open(session_id or f"chat-{uuid.uuid4().hex[:8]}", agent)


def _no_text(exc: UnicodeDecodeError) -> InvalidInput:
    return InvalidInput("message", exc.object[exc.start : exc.start + 8], "must be UTF-8")


class Chat:
    """A conversation with one session, until its lines end."""

    def __init__(self, call: Call, session: ClientSession) -> None:
        self._call, self._session = call, session
        self._is_terminal = sys.stdin.isatty()
        self._are_calls_open = False

    def run(self) -> ExitCode:
        """Answer every line; the first exit code that is not fine. On a terminal what goes wrong was told, and is fine.

        Raises KeyboardInterrupt for one who wants to leave, and StoreError.
        """
        worst = ExitCode.FINE
        for line in self._lines():
            try:
                self._take(line)
            except StoreError:
                raise  # there is nobody to talk to
            except SessionError as exc:
                code = self._call.fail(exc)
                worst = worst or code
        return ExitCode.FINE if self._is_terminal else worst

    def _lines(self) -> Iterator[str]:
        if not self._is_terminal:
            try:
                yield from sys.stdin
            except UnicodeDecodeError as exc:
                raise _no_text(exc) from None
            return
        with suppress(ImportError):
            import readline  # noqa: F401 - `input` edits lines with it
        with suppress(EOFError):
            while True:
                yield self._asked()

    def _asked(self) -> str:
        """A line from the terminal; blank where that was no text. The first Ctrl-C drops what was typed. Raises
        KeyboardInterrupt at the second, and EOFError."""
        try:
            return self._typed()
        except KeyboardInterrupt:
            self._call.say("Ctrl-C again leaves, and so does Ctrl-D")
            return self._typed()

    def _typed(self) -> str:
        """What is typed at one prompt. Raises KeyboardInterrupt and EOFError when the prompt's line is ended."""
        try:
            if sys.stdout.isatty():
                return input(PROMPT)
            sys.stderr.write(PROMPT)  # answers alone go where stdout does
            sys.stderr.flush()
            return input()
        except UnicodeDecodeError as exc:
            self._call.fail(_no_text(exc))
            return ""
        except (KeyboardInterrupt, EOFError):
            self._call.say("")
            raise

    def _take(self, line: str) -> None:
        text = line.strip()
        match text:
            case "":
                return
            case "/help":
                self._call.say(COMMANDS)
            case "/show":
                show(self._call, self._session.session_id)
            case _ if text.startswith("/") and not text.startswith("//"):
                self._call.say(f"{text.split()[0]} is no command; /help names them, // sends a slash")
            case _:
                self._send(text.removeprefix("/") if text.startswith("//") else line.rstrip("\r\n"))

    def _send(self, message: str) -> None:
        reply = self._answered(message)
        if reply:
            self._are_calls_open = bool(reply.open_calls)
            tell_beside(self._call, reply)
            if self._call.as_json:
                self._call.event({"kind": "reply", **reply_figures(reply)}, "")

    def _answered(self, message: str) -> Reply | None:
        """Submit a turn and show it until its end, which Ctrl-C brings about; None if that came before its answer.

        Raises what `submit` raises, TurnFailed, and KeyboardInterrupt at the second Ctrl-C.
        """
        turn = self._session.get_turn(uuid.uuid4().hex)
        typing = None if self._call.as_json else Typing(self._call)
        listener: Listener = typing or event_printer(self._call)
        following = Following(turn, listener)
        try:
            busy = "interrupt" if self._are_calls_open else "enqueue"
            self._session.submit(message, turn_id=turn.turn_id, busy=busy, stream=True)
            if not self._is_terminal:
                self._call.say(f"turn {turn.turn_id}")
            return following.answer()
        except KeyboardInterrupt:
            if typing:
                typing.echoed()
            with suppress(TurnFailed, InvalidInput):  # invalid: it was not accepted yet
                turn.cancel()
                return following.answer()
            if typing:
                typing.end()
            self._call.say(f"turn {turn.turn_id} is cancelled")
            return None
        finally:
            if typing:
                typing.end()
