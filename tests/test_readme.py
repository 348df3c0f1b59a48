"""README.md says what is true: its code runs, its table is the settings' own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.waiting import wait_for
from workers.client import Sessions
from workers.embedded import EmbeddedServer
from workers.settings import Settings, table
from workers.supervisor import Command, Supervisor, worker_command

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def run(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def block_with(text: str) -> str:
    (found,) = (block for block in BLOCKS if text in block)
    return found


def test_engine_example_runs_and_rotates(capsys: pytest.CaptureFixture[str]) -> None:
    """The ten lines of library, as they stand."""
    run(block_with("with Session("))
    assert re.search(r" [1-9]\d* rotations \d+ tokens", capsys.readouterr().out)


def test_client_example_runs_against_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ten lines of client, as they stand, on a server and a front worker started here."""
    with EmbeddedServer() as server:
        settings = Settings.read(agents=str(ROOT / "agents" / "agents.toml")).for_embedded(server.url)
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        with Supervisor() as supervisor:
            supervisor.start(
                Command(
                    name="front",
                    arguments=worker_command("front", settings),
                    environment=settings.environment(),
                    output=tmp_path / "front.log",
                )
            )
            run(block_with("Sessions.connect()"))
            with Sessions.connect() as sessions:
                wait_for(lambda: sessions.get("customer-42").view().next_seq == 3, what="the turn to be recorded")
    printed = capsys.readouterr().out
    assert re.fullmatch(r"This is the scripted provider\..* \(\d+ prompt tokens\)\n", printed)


def test_configuration_table_is_the_settings_own() -> None:
    """`python -m workers.settings` prints what README shows."""
    assert table() in README


def test_every_linked_page_is_there() -> None:
    """No link leads nowhere."""
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
