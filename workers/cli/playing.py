"""What `replay` and `demo` share: their options, the play itself, its progress, and how its report is shown."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from workers.cli.common import Call
from workers.cli.faults import ExitCode, WorkersNotReady
from workers.cli.up import READY_SECONDS, ended_by_sigterm

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sessionlib.recordings import Recording
    from workers.replay.agents import Scene
    from workers.replay.driver import Drill, Listener, Progress
    from workers.replay.observed import Observed

OPTIONS = ("as_json",)
"""A play has a store, agents and a namespace of its own."""

Window = Annotated[int, typer.Option("--window", metavar="TOKENS", min=1, help="The provider's context window.")]
Policy = Annotated[
    Literal["log_merge", "tiers", "slots", "work_room"], typer.Option("--policy", help="How history ages.")
]
Summarizer = Annotated[
    Literal["fake", "extractive"],
    typer.Option("--summarizer", help="fake: a model's, asked at the fake provider; extractive: no model."),
]


def finite(seconds: float) -> float:
    """An option's value that is a time. Raises BadParameter (NaN and infinity pass for numbers)."""
    if not 0 <= seconds < math.inf:
        raise typer.BadParameter(f"must be seconds, 0 or more; got {seconds}")
    return seconds


Latency = Annotated[
    float,
    typer.Option("--latency", metavar="SECONDS", callback=finite, help="How long the provider takes for an answer."),
]
Pace = Annotated[float, typer.Option("--pace", metavar="SECONDS", callback=finite, help="Pause between turns.")]
Kills = Annotated[bool, typer.Option("--kill/--no-kill", help="Kill each worker once on the way.")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIRECTORY", help="Keep the server's data and the logs here. Else thrown away."),
]

BAR_CELLS = 50
DOTS = 10
"""How many lines of progress are written where there is no terminal, about."""


def played(
    call: Call, recording: Recording, scene: Scene, *, kill: bool, keep: Path | None, pause_seconds: float = 0.0
) -> Observed:
    """Play *recording* on a stage of its own, which is gone afterwards. Raises WorkersNotReady."""
    from workers.replay.driver import play
    from workers.replay.stage import staged
    from workers.shadow import require_own_package

    require_own_package(Path.cwd())
    with ended_by_sigterm(), staged(recording, scene, keep) as stage, _logged(stage.directory / "replay.log"):
        call.say(f"started in {stage.directory}: server, fake provider, front worker, background worker")
        if not stage.await_workers(READY_SECONDS):
            raise WorkersNotReady(READY_SECONDS)
        with progress(call, recording, scene) as listen:
            drills = drills_for(recording.round_count) if kill else ()
            return play(stage, recording, drills=drills, pause_seconds=pause_seconds, listen=listen)


def drills_for(round_count: int) -> Sequence[Drill]:
    """Each worker is killed once: the front at a third of the session, the background worker at two thirds."""
    from workers.replay.driver import Drill

    return (
        Drill(role="front", after_rounds=round_count // 3),
        Drill(role="background", after_rounds=2 * round_count // 3),
    )


def shown(call: Call, report: dict[str, Any], broken: Sequence[str]) -> None:
    """Print a report. Ends with exit code 1 if promises broke, each named."""
    kept = () if broken else ("\nall promises kept",)
    call.answer({**report, "broken": list(broken)}, table(report), *kept)
    for promise in broken:
        call.say(f"broken promise: {promise}")
    if broken:
        raise typer.Exit(ExitCode.FAILED)


def table(report: dict[str, Any]) -> RenderableType:
    """The figures in two columns."""
    from rich.table import Table

    drawn = Table(show_header=False, box=None, pad_edge=False)
    drawn.add_column(style="bold")
    drawn.add_column()
    for name, value in report.items():
        for position, line in enumerate(_lines(value)):
            drawn.add_row(name.replace("_", " ") if position == 0 else "", line)
    return drawn


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return ["  ".join(f"{name} {_text(inner)}" for name, inner in value.items()) or "none"]
    if isinstance(value, list):
        return [", ".join(f"{name} {_text(inner)}" for name, inner in item.items()) for item in value] or ["none"]
    return [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(str, value)) or "nothing"
    if value is None:
        return "not measured"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def progress(call: Call, recording: Recording, scene: Scene) -> Iterator[Listener]:
    """Show where the play is, on stderr: redrawn in place on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _Lines(call, recording).tell
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=8, transient=True) as live:
        yield lambda now: live.update(picture(now, recording, scene.window_tokens))


class _Lines:
    """Progress in plain lines: at the start of each tenth of the turns, and at each kill."""

    def __init__(self, call: Call, recording: Recording) -> None:
        self._call, self._turn_count = call, len(recording.turns)
        self._told: tuple[int, int] = (-1, 0)

    def tell(self, now: Progress) -> None:
        mark = (now.turns * DOTS // self._turn_count, len(now.kills))
        if mark != self._told:
            self._told = mark
            self._call.say(
                f"turn {now.turns}/{self._turn_count}  round {now.rounds}  epoch {now.view.epoch}"
                f"  window {now.view.conversation_tokens:,} tokens{_killed(now)}"
            )


def picture(now: Progress, recording: Recording, window_tokens: int) -> RenderableType:
    """Turn, round, fill of the window, epoch, and what was killed."""
    from rich.text import Text

    tokens = now.view.conversation_tokens
    filled = min(BAR_CELLS, round(BAR_CELLS * tokens / window_tokens))
    rotating = f", rotation {now.view.rotation_state}" if now.view.rotation_state else ""
    return Text(
        f"turn {now.turns}/{len(recording.turns)}   round {now.rounds}/{recording.round_count}{_killed(now)}\n"
        f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {tokens:,} tokens of conversation, window {window_tokens:,}\n"
        f"epoch {now.view.epoch}{rotating}"
    )


def _killed(now: Progress) -> str:
    workers = ", ".join(kill.worker for kill in now.kills)
    return f"   killed: {workers}" if workers else ""


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What our own parts log (a worker was started again) goes beside the workers' logs, not between the progress."""
    handler, logger = logging.FileHandler(path, encoding="utf-8"), logging.getLogger("workers")
    logger.addHandler(handler)
    is_propagating, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = is_propagating
        handler.close()


def seconds_since(begun: float) -> float:
    """Seconds since *begun*, a `time.monotonic()`."""
    return round(time.monotonic() - begun, 1)
