"""The command line over a store in memory, whose work is done at once or never."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from typer.testing import CliRunner, Result

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import (
    Engine,
    Held,
    publish_digests,
    run_digest,
    run_handoff,
    run_rotation,
    run_turn,
    unobserved,
)
from sessionlib.stores.contract import Grant
from sessionlib.stores.sqlite import SqliteStore
from workers.cli.app import build_app
from workers.cli.common import Tools
from workers.client import Connection, Sessions
from workers.dispatch import RUN_DIGEST, RUN_HANDOFF, RUN_ROTATION, RUN_TURN
from workers.health import Observations
from workers.hints import Hints
from workers.settings import Settings


class Kept:
    """A lease that nobody else wants."""

    is_lost = False


@contextmanager
def held(_grant: Grant) -> Iterator[Held]:
    yield Kept()


class Patient:
    """Hints that never come: whoever waits, waits as long as was asked for."""

    def wait(self, _session_id: str, _turn_id: str, timeout: float) -> bool:
        return threading.Event().wait(min(timeout, 0.05))


@dataclass
class Inline:
    """A dispatch that does the work itself, before it returns; or not at all."""

    engine: Engine
    is_working: bool = True

    def send(self, task: str, **ids: str) -> None:
        if not self.is_working:
            return
        if task == RUN_TURN:
            ran = run_turn(self.engine, ids["session_id"])
            if ran.rotation_id:
                run_rotation(self.engine, ids["session_id"])
        elif task == RUN_ROTATION:
            run_rotation(self.engine, ids["session_id"])
        elif task == RUN_HANDOFF:
            run_handoff(self.engine, ids["session_id"])
        elif task == RUN_DIGEST:
            run_digest(self.engine, ids["session_id"])
            publish_digests(self.engine.store, ids["session_id"])


def replying(request: ModelRequest) -> ModelReply | str:
    """Echo, or ask for a tool that nobody has if the message begins with `call`."""
    text = request.entries[-1].text
    if text.startswith("call"):
        return ModelReply(text="", calls=(CallRequest(call_id="c1", name="lookup", arguments='{"q": "train"}'),))
    return f"You said: {text}"


@dataclass
class Desk:
    """A store, agents, a dispatch, and the commands over them."""

    agents: Sequence[Agent] = (Agent(name="echo", window_tokens=8_000),)
    provider: ScriptedProvider = field(default_factory=lambda: ScriptedProvider(replying))
    store: SqliteStore = field(default_factory=SqliteStore)
    became: list[tuple[Sequence[str], dict[str, str]]] = field(default_factory=list)
    observed: Observations | None = None

    def __post_init__(self) -> None:
        catalog = Catalog({agent.name: agent for agent in self.agents}, {"default": self.provider})
        self.dispatch = Inline(Engine(self.store, catalog, held, unobserved))
        self.sessions = Sessions(Connection(self.store, self.dispatch, cast(Hints, Patient()), catalog))

    def connect(self, _settings: Settings) -> Sessions:
        return self.sessions

    def run(self, *arguments: str, stdin: str | bytes = "", interrupt: bool = False) -> Result:
        """Run `sessionctl` with these arguments. A command reaches nothing but this desk.

        *interrupt*: Ctrl-C is pressed when it observes.
        """
        tools = Tools(
            connect=self.connect,
            become=lambda command, environment: self.became.append((command, dict(environment))),
            observe=lambda *_: self.observed or unexpected(interrupt),
        )
        return CliRunner().invoke(build_app(), list(arguments), obj=tools, input=stdin)

    def json(self, *arguments: str) -> Any:
        """The document that a command prints with `--json`; its exit code must be 0."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


def unexpected(interrupt: bool) -> Observations:
    if interrupt:
        raise KeyboardInterrupt
    raise AssertionError("nothing was to be observed")
