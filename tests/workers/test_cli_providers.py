"""`sessionctl providers check`: which providers answer, what they count, and how large their windows are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sessionlib.testing.server import FakeProviderServer
from workers.cli.app import build_app

AGENTS = """
[providers.good]
kind = "chat_completions"
base_url = "{base_url}/v1"
api_key_env = "GOOD_KEY"

[providers.idle]
kind = "scripted"
reply = "ready"

[providers.away]
kind = "responses"
base_url = "http://127.0.0.1:9/v1"

[agents.coder]
provider = "good"
model = "gpt-4o"

[agents.writer]
provider = "good"
model = "my-model"
window_tokens = 50000
"""


@pytest.fixture
def base_url() -> Iterator[str]:
    with FakeProviderServer() as running:
        yield running.url


@pytest.fixture
def agents(tmp_path: Path, base_url: str) -> Path:
    path = tmp_path / "agents.toml"
    path.write_text(AGENTS.format(base_url=base_url))
    return path


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(build_app(), ["providers", "check", *arguments], env=environment)


def test_each_model_of_each_provider_is_asked_once(agents: Path) -> None:
    """Models that agents and choices name, and a provider that nobody names; window and source beside each."""
    result = run("good", "idle", "--agents", str(agents), "--json", GOOD_KEY="k-1")
    assert result.exit_code == 0, result.stderr
    found = {(one["provider"], one["model"]): one for one in json.loads(result.stdout)["providers"]}
    assert set(found) == {("good", "gpt-4o"), ("good", "my-model"), ("idle", "")}
    assert (found["good", "gpt-4o"]["window_tokens"], found["good", "gpt-4o"]["window_source"]) == (128_000, "table")
    assert found["good", "my-model"]["window_source"] == "declared"
    assert all(one["is_fine"] and one["prompt_tokens"] > 0 for one in found.values())


def test_a_provider_that_does_not_answer_fails_the_check_and_the_others_are_asked(agents: Path) -> None:
    """The error says whose fault it is; the exit code is 1."""
    result = run("--agents", str(agents), "--json", "--timeout", "5", GOOD_KEY="k-1")
    assert result.exit_code == 1
    by_name = {one["provider"]: one for one in json.loads(result.stdout)["providers"]}
    assert by_name["away"]["error"]["fault"] == "provider"
    assert by_name["good"]["is_fine"]
    assert "error (provider)" in result.stderr


BROKEN = """
from sessionlib.providers.scripted import ScriptedProvider

def broken():
    raise RuntimeError("sk-planted-secret")

AGENTS = []
PROVIDERS = {"a": broken, "b": ScriptedProvider}
"""


def test_a_provider_with_a_fault_of_its_own_does_not_keep_the_others_from_being_asked(tmp_path: Path) -> None:
    """It is the provider's, in no words that may hold a key."""
    path = tmp_path / "broken_agents.py"
    path.write_text(BROKEN)
    result = run("--agents", str(path), "--json")
    assert result.exit_code == 1
    broken, fine = json.loads(result.stdout)["providers"]
    assert (broken["error"]["fault"], fine["is_fine"]) == ("provider", True)
    assert "RuntimeError" in result.stderr
    assert "sk-planted-secret" not in result.stdout + result.stderr


def test_a_key_that_is_not_there_is_named_and_none_is_shown(agents: Path) -> None:
    """The variable is named; nothing that was set is printed."""
    missing = run("good", "--agents", str(agents), GOOD_KEY="")
    assert (missing.exit_code, "api_key_env" in missing.stderr) == (1, True)
    fine = run("good", "--agents", str(agents), GOOD_KEY="sk-planted-secret")
    assert "sk-planted-secret" not in fine.stdout + fine.stderr


def test_an_unknown_name_is_refused_before_anything_is_asked(agents: Path) -> None:
    """With the names that there are."""
    result = run("nobody", "--agents", str(agents))
    assert result.exit_code == 2
    assert "away, good, idle" in result.stderr


def test_without_agents_there_is_nothing_to_check() -> None:
    """The option that is missing is named."""
    result = run(SESSIONLIB_AGENTS="")
    assert (result.exit_code, "--agents" in result.stderr) == (2, True)
