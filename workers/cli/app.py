"""The command line put together: one module a group of commands, each with a `register`."""

from __future__ import annotations

import typer

from workers.cli import (
    brake,
    cancel,
    chat,
    demo,
    handoff,
    health,
    journal,
    ls,
    notes,
    open,
    providers,
    purge,
    replay,
    rotate,
    send,
    show,
    summarize,
    up,
    worker,
)
from workers.cli.faults import EXIT_CODES

HELP = f"""Long agent sessions that outlive their model's context window: start, use and watch them.

\b
Try it:
  sessionctl demo                              a long session of its own through real workers
  sessionctl replay FILE                       the same with a session that you recorded
  sessionctl up --agents my_agents.py          a server, a front and a background worker
  sessionctl send trip-1 "Hello" --agent NAME  open a session and get an answer
  sessionctl chat trip-1                       go on talking, each answer while it comes
  sessionctl show trip-1                       what is in its window, and why it rotates or not
  sessionctl ls                                all sessions
  sessionctl handoff trip-1 "book a hotel"     what another agent must know to take over
  sessionctl journal trip-1                    what was done and learned in it
  sessionctl notes trip-1                      what its agent wrote down for itself
  sessionctl providers check                   whether the models that your agents name answer

Every command takes --json. Answers and findings go to stdout, progress and errors to stderr.

{EXIT_CODES}"""


def build_app() -> typer.Typer:
    """The `sessionctl` application. Its commands import what they need when they run, so that help is quick."""
    app = typer.Typer(
        name="sessionctl",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for group in (demo, replay, up, worker, open, send, chat, ls, show, rotate, handoff, journal, notes):
        group.register(app)
    for group in (summarize, brake, cancel, purge, health, providers):
        group.register(app)
    return app
