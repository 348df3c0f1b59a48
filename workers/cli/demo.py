"""`sessionctl demo`: a long session that the project wrote itself, through real workers that are killed on the way."""

from __future__ import annotations

import time

import typer

from workers.cli import playing
from workers.cli.common import Call, shared


def register(app: typer.Typer) -> None:
    app.command("demo")(shared(demo, playing.OPTIONS))


def demo(
    call: Call,
    window: playing.Window = 32_000,
    policy: playing.Policy = "log_merge",
    summarizer: playing.Summarizer = "fake",
    kill: playing.Kills = True,
    keep: playing.Keep = None,
) -> None:
    """See it work: a coding agent's session of 190,000 tokens in a window of 32,000, in about a minute.

    Starts a server, a fake provider, a front and a background worker; plays the session; kills each worker once on
    the way; reports what became of the promises, and how many of the decisions that were planted in the session its
    window still tells, beside a plain truncation of the same size. Needs no server and no key.

    \b
    Examples:
      sessionctl demo
      sessionctl demo --json
      sessionctl demo --no-kill --policy tiers

    Exit codes: 0 all promises kept; 1 one was broken, and is named; 2 a window that cannot hold it; 3 no server;
    130 Ctrl-C, with everything stopped.
    """
    from sessionlib.counters import counter_named
    from workers.demo import demo_session
    from workers.replay.agents import Scene
    from workers.replay.planted import broken_archive, planted_figures
    from workers.replay.report import broken_promises, figures

    begun = time.monotonic()
    session = demo_session()
    scene = Scene(window_tokens=window, policy=policy, summarizer=summarizer)
    observed = playing.played(call, session.recording, scene, kill=kill, keep=keep)
    report = figures(session.recording, observed)
    planted = planted_figures(session, observed, counter_named("auto"))
    broken = (*broken_promises(report), *broken_archive(planted))
    playing.shown(call, {**report, **planted, "seconds": playing.seconds_since(begun)}, broken)
