"""What every command shares: its options, its output, how its errors are shown, and what it reaches the world with."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sessionlib.errors import InvalidInput, SessionError
from workers.cli.faults import ExitCode, report_of
from workers.cli.printing import json_document, json_line, printable, rendered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from workers.client import ClientSession, Sessions
    from workers.health import Observations, Role
    from workers.settings import Settings

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)]
TimeoutSeconds = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait no longer. Not given: for ever.")
]


def connect(settings: Settings) -> Sessions:
    """The sessions that *settings* name. Raises InvalidInput, also for whatever an agents file raises."""
    from workers.client import Sessions

    try:
        return Sessions.connect(settings=settings)
    except SessionError:
        raise
    except Exception as exc:  # an agents file is the caller's own program
        raise InvalidInput("agents", settings.agents, f"cannot be loaded ({type(exc).__name__}: {exc})") from exc


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Go on as another program, in this process."""
    sys.stdout.flush()
    os.execve(command[0], list(command), dict(environment))


def observe(settings: Settings, roles: Sequence[Role], deadline_seconds: float) -> Observations:
    """What health is judged from. Raises StoreUnavailable."""
    from workers import probes

    return probes.observe(settings, roles, deadline_seconds)


@dataclass(frozen=True, slots=True)
class Tools:
    """What commands reach the world with; tests hand in others."""

    connect: Callable[[Settings], Sessions] = connect
    become: Callable[[Sequence[str], Mapping[str, str]], None] = become
    observe: Callable[[Settings, Sequence[Role], float], Observations] = observe


class Call:
    """One call of a command: its common options, and where its output goes."""

    def __init__(self, tools: Tools, *, as_json: bool, **options: str | None) -> None:
        self.tools, self.as_json, self._options = tools, as_json, options

    @cached_property
    def settings(self) -> Settings:
        """The options, else the environment, else the defaults. Raises InvalidInput."""
        from workers.settings import Settings

        Settings.read()  # a bad variable is named even where an option takes its place: workers/app.py reads it too
        return Settings.read(**self._options)

    @cached_property
    def sessions(self) -> Sessions:
        return self.tools.connect(self.settings)

    def session(self, session_id: str) -> ClientSession:
        """A session that is there. Raises UnknownSession."""
        return self.sessions.get(session_id)

    def answer(self, document: Any, *human: RenderableType) -> None:
        """Print what the command found: one JSON document, or for people each of *human*."""
        if self.as_json:
            sys.stdout.write(json_document(document) + "\n")
        else:
            self.show(*human)

    def show(self, *human: RenderableType) -> None:
        """Print for people: text as it is but for what steers a terminal, the rest as rich renders it."""
        for part in human:
            if isinstance(part, str):
                sys.stdout.write(printable(part) + "\n")
            else:
                rendered(part, sys.stdout)

    def event(self, document: Any, human: str) -> None:
        """Print one event of a stream: a line of JSON, or a line for people."""
        sys.stdout.write((json_line(document) if self.as_json else printable(human)) + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Tell whoever watches; never on stdout."""
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()

    def fail(self, exc: Exception) -> ExitCode:
        """Say what went wrong, whose fault it is and what to do; with --json, stdout gets it as its document too."""
        report = report_of(exc)
        self.say(f"error ({report.whose}): {report.message}\n  {report.advice}")
        if self.as_json:
            error = {"code": report.code, "fault": report.whose, "message": report.message, "advice": report.advice}
            self.event({"error": error}, "")
        return report.exit_code


@contextmanager
def errors_shown(call: Call) -> Iterator[None]:
    """End the command with an exit code, whatever it raises."""
    try:
        yield
    except SessionError as exc:
        raise typer.Exit(call.fail(exc)) from exc
    except KeyboardInterrupt:
        call.say("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as exc:  # the last place where it can be reported in words
        traceback.print_exc()
        raise typer.Exit(call.fail(exc)) from exc


_SHARED = {
    "store": Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Where sessions live. Else SESSIONLIB_STORE_URL."),
    ],
    "agents": Annotated[
        str | None,
        typer.Option("--agents", metavar="MODULE_OR_FILE", help="The agents that are known. Else SESSIONLIB_AGENTS."),
    ],
    "namespace": Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="First part of every key. Else SESSIONLIB_NAMESPACE."),
    ],
    "as_json": Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there.")],
}


def shared(command: Callable[..., None], options: Collection[str] = tuple(_SHARED)) -> Callable[..., None]:
    """*command* with the common options, which reach it as its first argument; its errors end it with an exit code.

    *options*: which of them it has, where not all make sense.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def run(
        context: typer.Context,
        *,
        as_json: bool,
        store: str | None = None,
        agents: str | None = None,
        namespace: str | None = None,
        **own: Any,
    ) -> None:
        tools = context.obj if isinstance(context.obj, Tools) else Tools()
        call = Call(tools, as_json=as_json, store_url=store, agents=agents, namespace=namespace)
        with errors_shown(call):
            command(call, **own)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("context", keyword, annotation=typer.Context),
        *(parameter.replace(kind=keyword) for parameter in own),
        *(
            inspect.Parameter(name, keyword, annotation=annotation, default=False if name == "as_json" else None)
            for name, annotation in _SHARED.items()
            if name in options
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
