"""`sessionctl replay`: a recorded session through real workers, and the promises as measured facts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from workers.cli import playing
from workers.cli.common import Call, shared
from workers.cli.recorded import read_file


def register(app: typer.Typer) -> None:
    app.command("replay")(shared(replay, playing.OPTIONS))


def replay(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The recording.", show_default=False)],
    window: playing.Window = 32_000,
    policy: playing.Policy = "log_merge",
    summarizer: playing.Summarizer = "fake",
    conversation: Annotated[
        str, typer.Option("--conversation", metavar="ID", help="Which one, where the file holds several.")
    ] = "",
    latency_seconds: playing.Latency = 0.06,
    pause_seconds: playing.Pace = 0.0,
    kill: playing.Kills = False,
    keep: playing.Keep = None,
) -> None:
    """Play a recorded session through workers of its own, and report what became of the promises.

    User messages and tool results are the inputs, recorded answers the provider's. Reads OpenAI chat messages (a JSON
    list, or JSONL), session files of Claude Code, and the data sets that docs/replay.md names; what of a file is
    skipped is counted and printed. Needs no server and no key: all that runs is started here, and stopped again.

    \b
    Examples:
      sessionctl replay chat.jsonl
      sessionctl replay ~/.claude/projects/my-project/SESSION.jsonl --window 64000
      sessionctl replay chat.json --policy tiers --summarizer extractive --json
      sessionctl replay chat.json --kill --keep ./evidence

    Exit codes: 0 all promises kept; 1 one was broken, and is named; 2 not a recording, or one that the window cannot
    hold; 3 no server; 130 Ctrl-C, with everything stopped.
    """
    from workers.replay.agents import Scene
    from workers.replay.report import broken_promises, figures

    begun = time.monotonic()
    recording = read_file(file, conversation)
    scene = Scene(window_tokens=window, policy=policy, summarizer=summarizer, latency_seconds=latency_seconds)
    observed = playing.played(call, recording, scene, kill=kill, keep=keep, pause_seconds=pause_seconds)
    report = figures(recording, observed)
    source = {"source": recording.source, "format": recording.format, "skipped": dict(recording.skipped)}
    playing.shown(call, {**source, **report, "seconds": playing.seconds_since(begun)}, broken_promises(report))
