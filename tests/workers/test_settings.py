"""Settings: defaults, the environment, what is refused, and the table of README.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sessionlib.errors import InvalidInput
from workers.settings import Settings, table, variable

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


def test_broker_is_the_stores_server_by_default() -> None:
    """One URL is enough."""
    assert Settings(store_url="redis://example:6380/2").celery_broker_url == "redis://example:6380/2"


def test_broker_may_be_another_server() -> None:
    """Store and broker are two URLs for whoever wants two."""
    assert Settings(broker_url="amqp://rabbit//").celery_broker_url == "amqp://rabbit//"


def test_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field has its variable."""
    monkeypatch.setenv("SESSIONLIB_LEASE_SECONDS", "1.5")
    monkeypatch.setenv("SESSIONLIB_AGENTS", "my_agents")
    settings = Settings()
    assert (settings.lease_seconds, settings.agents) == (1.5, "my_agents")


def test_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass variables on that are empty."""
    monkeypatch.setenv("SESSIONLIB_PARTITIONS", "")
    assert Settings().partitions == 64


def test_given_value_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a caller says explicitly holds."""
    monkeypatch.setenv("SESSIONLIB_NAMESPACE", "outside")
    assert Settings(namespace="inside").namespace == "inside"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_seconds", float("nan")),
        ("lease_seconds", float("inf")),
        ("lease_seconds", -1),
        ("sweep_seconds", 0),
        ("partitions", 0),
        ("partitions", 16_385),
        ("turns_concurrency", 0),
        ("store_url", "http://example"),
        ("store_url", "localhost:6379"),
        ("broker_url", "unix:///socket"),
        ("namespace", "with space"),
        ("namespace", "brace{"),
        ("log_level", "LOUD"),
        ("leese_seconds", 15),
    ],
)
def test_nonsense_is_refused(field: str, value: object) -> None:
    """Bad values, unknown schemes and unknown fields are refused, naming the field."""
    with pytest.raises(InvalidInput, match=field):
        Settings.read(**{field: value})


def test_cluster_store_needs_a_broker() -> None:
    """Celery cannot use a Redis Cluster."""
    with pytest.raises(InvalidInput, match="broker_url"):
        Settings.read(store_url="redis+cluster://example:7000")


def test_none_counts_as_not_given() -> None:
    """Command line options that were not used do not hide the environment."""
    assert Settings.read(agents=None, lease_seconds=3).lease_seconds == 3


def test_secrets_appear_neither_in_errors_nor_in_the_repr() -> None:
    """A URL may hold a password."""
    with pytest.raises(ValidationError) as refusal:
        Settings(store_url="http://user:hunter2@example")
    assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in repr(Settings(store_url="redis://user:hunter2@example"))


def test_settings_are_frozen() -> None:
    """Settings are a value."""
    with pytest.raises(ValidationError):
        Settings().namespace = "other"  # type: ignore[misc]


def test_child_process_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`environment` carries over whatever was given, and nothing that was not."""
    parent = Settings(namespace="here", agents="my_agents").for_embedded("unix:///s.sock?db=0")
    environment = parent.environment()
    assert "SESSIONLIB_LEASE_SECONDS" not in environment
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings() == parent


def test_embedded_server_has_one_partition_and_the_broker() -> None:
    """An embedded server takes the place of both URLs."""
    settings = Settings(broker_url="amqp://rabbit//").for_embedded("unix:///s.sock?db=0")
    assert (settings.partitions, settings.celery_broker_url) == (1, "redis+socket:///s.sock?virtual_host=0")


def test_table_names_every_variable() -> None:
    """Each field stands in the table with a meaning."""
    lines = table().splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == [variable(name) for name in Settings.model_fields]
    assert all(line.rsplit("|", 2)[1].strip() for line in lines)


@pytest.mark.skipif(not README.is_file() or not README.read_text(), reason="README.md is empty")
def test_readme_shows_the_table() -> None:
    """README.md quotes what `python -m workers.settings` prints."""
    assert table() in README.read_text()
