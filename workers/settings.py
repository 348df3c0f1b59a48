"""Settings: the only reader of the environment.

`python -m workers.settings` prints the table that README.md shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sessionlib.catalog import Catalog, load_catalog
from sessionlib.deltas import STREAM_MILLISECONDS
from sessionlib.errors import InvalidInput
from sessionlib.ids import require_id
from workers.transport import broker_url_for

PREFIX = "SESSIONLIB_"
STORE_SCHEMES = ("redis", "rediss", "unix", "sentinel", "redis+cluster", "rediss+cluster")
BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps")
DAY_SECONDS = 86_400.0

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """What a process is told from outside. Raises pydantic.ValidationError, which never shows a value."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_ignore_empty=True,
        hide_input_in_errors=True,
        validate_default=False,
    )

    store_url: str = Field(
        "redis://127.0.0.1:6379/0",
        repr=False,
        description="Where sessions live: `redis://`, `rediss://`, `unix://`, `sentinel://host:26379;sentinel://…`, "
        "`redis+cluster://`. Not set, `sessionctl up` and `demo` start an embedded server.",
    )
    broker_url: str = Field(
        "",
        repr=False,
        description="Where Celery's messages go: Redis, Sentinel or RabbitMQ (`amqp://`). Not set: the store's server.",
    )
    sentinel_name: str = Field("mymaster", description="Name of the primary that the Sentinels watch.")
    namespace: str = Field("sl", description="First part of every key and queue: two deployments may share a server.")
    partitions: Annotated[int, Field(ge=1, le=16_384)] = Field(
        64, description="Slices of the key space, fixed at the first start. 1 with the embedded server."
    )
    agents: str = Field("", description="Module or file (`.py`, `.toml`) with the agents that workers know.")
    lease_seconds: Seconds = Field(15.0, description="How long a worker that went silent keeps what it works on.")
    sweep_seconds: Seconds = Field(2.0, description="Time between two looks for work that nobody does.")
    idempotency_seconds: Seconds = Field(
        7 * DAY_SECONDS, description="How long a turn id is remembered after its turn ended."
    )
    retention_seconds: Seconds | None = Field(
        None, description="How long a session is kept after it was closed. Not set: until it is purged."
    )
    journal_seconds: Seconds = Field(14 * DAY_SECONDS, description="How long a digest is kept.")
    turns_concurrency: Count = Field(256, description="Turns in flight per front worker (threads).")
    rotations_concurrency: Count = Field(
        default_factory=lambda: max(1, (os.cpu_count() or 1) - 1),
        description="Rotations in flight per background worker (processes). Not set: one less than there are cores.",
    )
    stream_milliseconds: Annotated[float, Field(ge=0)] = Field(
        STREAM_MILLISECONDS, description="Pause between two pieces of a streamed answer; the first is sent at once."
    )
    grace_seconds: Seconds = Field(20.0, description="Time that a worker has to finish after SIGTERM.")
    store_connections: Count = Field(64, description="Connections to the store per process, at most.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="What workers log.")

    @field_validator("namespace", "sentinel_name")
    @classmethod
    def _is_an_id(cls, value: str) -> str:
        return require_id("name", value)

    @field_validator("store_url")
    @classmethod
    def _store_is_known(cls, value: str) -> str:
        return require_scheme(value, STORE_SCHEMES)

    @field_validator("broker_url")
    @classmethod
    def _broker_is_known(cls, value: str) -> str:
        return value and require_scheme(value, BROKER_SCHEMES)

    @model_validator(mode="after")
    def _cluster_needs_a_broker(self) -> Self:
        if "+cluster" in self.store_url and not self.broker_url:
            raise ValueError("Celery cannot use a Redis Cluster: set broker_url to another server")
        return self

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """What is given, else the environment, else the defaults; None counts as not given. Raises InvalidInput."""
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "settings"
            raise InvalidInput(field, "a value that is not shown", f"is refused: {first['msg']}") from None

    @property
    def is_store_given(self) -> bool:
        """Whether somebody named a store, or this is the default."""
        return "store_url" in self.model_fields_set

    @property
    def celery_broker_url(self) -> str:
        """The broker as Celery reads it: the one that was named, else the store's server."""
        return self.broker_url or broker_url_for(self.store_url)

    def for_embedded(self, store_url: str) -> Settings:
        """These settings on an embedded server: one partition, and the broker on the same server."""
        return self._changed(store_url=store_url, broker_url="", partitions=1)

    def _changed(self, **changes: Any) -> Settings:
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return Settings(**(named | changes))

    def catalog(self) -> Catalog:
        """The agents and providers that the settings name; keys are looked up in the environment when first used.

        Raises InvalidInput, naming file and field.
        """
        return load_catalog(self.agents, os.environ) if self.agents else Catalog()

    def environment(self) -> dict[str, str]:
        """The environment for a child process that shall have these settings."""
        named = self.model_dump(mode="json", include=self.model_fields_set, exclude_none=True)
        return dict(os.environ) | {variable(name): str(value) for name, value in named.items()}


def require_scheme(url: str, schemes: tuple[str, ...]) -> str:
    """*url* if its scheme is one of *schemes*. The error names no more than the schemes: a URL may hold a password."""
    if url.partition("://")[0] not in schemes or "://" not in url:
        raise ValueError(f"must begin with one of {', '.join(f'{scheme}://' for scheme in schemes)}")
    return url


def variable(name: str) -> str:
    """The environment variable of a field."""
    return f"{PREFIX}{name.upper()}"


def table() -> str:
    """All settings as a Markdown table: variable, default, meaning."""
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        shown = "" if field.default_factory or field.default in (None, "") else f"`{_plain(field.default)}`"
        yield f"| `{variable(name)}` | {shown} | {field.description} |"


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
