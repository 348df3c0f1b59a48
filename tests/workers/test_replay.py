"""`sessionctl replay` as a process: real workers, real kills, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sessionlib.archive import unpack
from sessionlib.errors import CannotConverge, InputTooLarge, InvalidInput
from sessionlib.recordings import read_recording
from tests.waiting import wait_for
from tests.workers.replaying import recording
from workers.cli.app import build_app
from workers.embedded import EmbeddedServer
from workers.replay.agents import Scene, require_playable
from workers.replay.driver import SESSION_ID
from workers.replay.history import recorded_entries
from workers.settings import Settings
from workers.store import RedisStore

SESSIONCTL = [sys.executable, "-c", "from workers.cli import main; main()"]
COMMON = ["--window", "6000", "--latency", "0.02"]


def chat(turn_count: int = 6, round_count: int = 5) -> list[dict[str, Any]]:
    """A session of several times the window, as chat messages."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You sort a library."}]
    for turn in range(turn_count):
        messages.append({"role": "user", "content": f"Sort shelf {turn}, please, and say what you found."})
        for number in range(round_count):
            call_id = f"call-{turn}-{number}"
            function = {"name": "look.at-shelf", "arguments": json.dumps({"shelf": turn, "row": number})}
            call = {"id": call_id, "type": "function", "function": function}
            books = " ".join(f"Volume {turn}.{number}.{book} stands askew\u0007 — «näher»." for book in range(40))
            messages.append({"role": "assistant", "content": f"Row {number}.", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": f"{books}\r\n"})
        messages.append({"role": "assistant", "content": f"Shelf {turn} is sorted."})
    messages.append({"role": "user", "content": "Nobody answers this."})
    return messages


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(chat()), encoding="utf-8")
    return path


def sessionctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SESSIONCTL, *arguments], capture_output=True, text=True, timeout=200, check=False)


def test_a_recording_goes_through_real_workers_that_are_killed(file: Path, tmp_path: Path) -> None:
    """All promises are kept, the figures say so, and the store has what was fed, byte for byte."""
    kept = tmp_path / "kept"
    done = sessionctl("replay", str(file), *COMMON, "--json", "--kill", "--keep", str(kept))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    expected = {"format": "openai_chat", "turns": 6, "rounds": 36, "broken": [], "waited": 0, "lost": 0, "doubled": 0}
    assert {name: report[name] for name in expected} == expected
    assert report["skipped"] == {"unanswered messages at the end": 1}
    assert report["rotations"] >= 2
    assert 0 < report["max_fill"] <= 1
    breaks = report["prefix_breaks"]
    assert breaks["rotation"] + breaks["trim"] >= 1  # the last rotation may come after the last request
    assert breaks["other"] == 0
    assert [kill["worker"] for kill in report["kills"]] == ["front", "background"]
    assert report["kills"][0]["in_flight"][0].startswith("model replay/turn-")
    assert stored_texts(kept) == [entry.text for entry in recorded_entries(read_recording(file.read_bytes(), "chat"))]


def test_a_real_session_of_a_coding_agent_keeps_every_promise(data_dir: Path) -> None:
    """Two turns of 143 rounds, 157,000 tokens, a window of 32,000."""
    file = data_dir / "claude_code_8463c716.json"
    done = sessionctl("replay", str(file), "--window", "32000", "--latency", "0.02", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["turns"], report["rounds"]) == (2, 143)
    assert {report[name] for name in ("waited", "lost", "doubled", "out_of_order", "paid_again")} == {0}
    assert report["prefix_breaks"]["other"] == 0
    assert report["prefix_breaks"]["rotation"] >= 1
    assert report["rotations"] >= 2


def stored_texts(directory: Path) -> list[str]:
    """What the server of a kept replay has of its session, oldest first."""
    with EmbeddedServer(directory) as server:
        store = RedisStore.connect(Settings.read().for_embedded(server.url))
        archived = [entry for chunk in store.chunks(SESSION_ID) for entry in unpack(chunk.data)]
        live = store.snapshot(SESSION_ID).layout.live.entries
        store.close_connections()
    return [entry.text for entry in (*archived, *live)]


def test_ctrl_c_stops_all_that_was_started(file: Path, tmp_path: Path) -> None:
    """Exit code 130, and nothing runs any more that knows of the replay's directory."""
    kept = tmp_path / "kept"
    command = [*SESSIONCTL, "replay", str(file), *COMMON, "--latency", "2", "--keep", str(kept)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any("turn 0/6" in line for line in process.stderr)
    assert len(processes_of(kept)) >= 4
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.stderr.close()
    wait_for(lambda: not processes_of(kept), what="all processes of the replay ended")


def processes_of(directory: Path) -> list[int]:
    """Processes whose command line or environment names *directory*, the replay itself left out."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
        except OSError:  # no process, ended meanwhile, or somebody else's
            continue
        if os.fsencode(directory) in words and b"--keep" not in words:
            found.append(int(process.name))
    return found


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b'[{"role": "user", "content": "cut o', "chat.json"),
        (b"\x89PNG\r\n", "chat.json"),
        (b'{"rows": [1, 2]}', "must hold a recorded session"),
        (b"", "chat.json"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(content: bytes, rule: str, tmp_path: Path) -> None:
    """Exit code 2 before anything starts; the file is named."""
    path = tmp_path / "chat.json"
    path.write_bytes(content)
    done = sessionctl("replay", str(path), "--json")
    assert done.returncode == 2
    assert rule in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "invalid_input"


@pytest.mark.parametrize("option", ["--latency=nan", "--pace=inf", "--latency=-1", "--window=0", "--policy=none"])
def test_nonsense_options_are_refused(option: str, file: Path) -> None:
    """Before anything starts."""
    done = CliRunner().invoke(build_app(), ["replay", str(file), option])
    assert done.exit_code == 2
    assert option.partition("=")[0] in done.stderr


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """As a caller's error, not as ours."""
    done = sessionctl("replay", str(tmp_path / "nowhere.json"))
    assert done.returncode == 2
    assert "must be a readable file" in done.stderr


def test_a_directory_with_something_in_it_is_not_used(file: Path, tmp_path: Path) -> None:
    """An older server's data would be gone on with."""
    done = sessionctl("replay", str(file), *COMMON, "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "must be new, or empty" in done.stderr


def test_what_no_window_can_hold_is_refused_before_anything_starts() -> None:
    """Instructions and tools, a single input, and a tool named like one of the engine's own."""
    with pytest.raises(CannotConverge):
        require_playable(recording(), Scene(window_tokens=200))
    long_input = chat(turn_count=1)
    long_input[1]["content"] = "word " * 7_000
    with pytest.raises(InputTooLarge):
        require_playable(read_recording(json.dumps(long_input).encode(), "chat"), Scene(window_tokens=6_000))
    own = json.dumps(chat(turn_count=1)).replace("look.at-shelf", "history.read_item")
    with pytest.raises(InvalidInput, match="reserved"):
        require_playable(read_recording(own.encode(), "chat"), Scene())
