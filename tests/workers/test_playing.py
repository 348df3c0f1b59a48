"""How a play is shown: its progress on stderr, its report on stdout, its broken promises by name."""

from __future__ import annotations

import io
import json

import pytest
import typer
from rich.console import Console

from sessionlib.stores.contract import AgentRef, SessionState, SessionView, Trim
from tests.workers.replaying import as_it_should_be, recording
from workers.cli import playing
from workers.cli.common import Call, Tools
from workers.replay.agents import Scene
from workers.replay.driver import Progress
from workers.replay.observed import Kill
from workers.replay.report import figures

VIEW = SessionView(
    session_id="replay",
    state=SessionState.OPEN,
    agent=AgentRef(name="replayed", digest="d"),
    epoch=3,
    next_seq=9,
    live_from=4,
    live_tokens=600,
    record_tokens=150,
    carried_tokens=0,
    calibration=1.0,
    trim=Trim(),
    queued=(),
    running=None,
    rotation_id="r1",
    rotation_state="running",
    open_calls=(),
    created_at=0.0,
    updated_at=0.0,
)


def at(turns: int, *killed: str) -> Progress:
    return Progress(turns=turns, rounds=2 * turns, view=VIEW, kills=tuple(Kill(worker=w, at=1.0) for w in killed))


def call(*, as_json: bool = False) -> Call:
    return Call(Tools(), as_json=as_json)


def test_without_a_terminal_progress_is_a_line_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    """And one for each kill; nothing of it on stdout."""
    with playing.progress(call(), recording(turn_count=100), Scene()) as listen:
        for turns in range(101):
            listen(at(turns))
        listen(at(100, "front"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 12
    assert "turn 50/100  round 100  epoch 3  window 750 tokens" in shown.err
    assert shown.err.endswith("killed: front\n")


def test_the_picture_tells_turn_round_fill_epoch_and_kills() -> None:
    """Also of a session that is larger than its window until the next rotation."""
    for window_tokens, filled in ((1_500, 25), (500, 50)):
        stream = io.StringIO()
        now = at(1, "front", "background")
        Console(file=stream, width=100).print(playing.picture(now, recording(), window_tokens))
        text = stream.getvalue()
        assert text.count("█") == filled
        for part in (
            "turn 1/2",
            "round 2/4",
            "killed: front, background",
            "epoch 3, rotation running",
            "750 tokens of",
        ):
            assert part in text


def test_a_report_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With the promises that were broken, none here."""
    report = figures(recording(), as_it_should_be())
    playing.shown(call(as_json=True), report, ())
    assert json.loads(capsys.readouterr().out) == {**report, "broken": []}


def test_a_report_for_people_says_that_all_promises_were_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside every figure."""
    kills = (Kill(worker="front", at=as_it_should_be().spans[0].started + 0.1),)
    playing.shown(call(), figures(recording(), as_it_should_be(kills=kills)), ())
    text = capsys.readouterr().out
    assert "all promises kept" in text
    assert "in_flight model replay/turn-0001/model:0" in text
    assert "rotation 0  trim 0  agent_version 0  nudge 0  other 0" in text


def test_a_broken_promise_is_an_exit_code_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The line goes to stderr."""
    with pytest.raises(typer.Exit) as ended:
        playing.shown(call(), {"waited": 1}, ["an answer never waits on a summary: 1 did"])
    assert ended.value.exit_code == 1
    shown = capsys.readouterr()
    assert "broken promise: an answer never waits on a summary: 1 did" in shown.err
    assert "kept" not in shown.out


def test_each_worker_is_killed_once_well_inside_the_session() -> None:
    """The front worker first."""
    assert [(drill.role, drill.after_rounds) for drill in playing.drills_for(90)] == [("front", 30), ("background", 60)]
