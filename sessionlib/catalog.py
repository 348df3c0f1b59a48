"""Catalog: the agents and providers that a process knows by name."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sessionlib.agent import Agent
from sessionlib.agents_file import read_module, read_python, read_toml, within
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.policies.work_room import Clamp
from sessionlib.providers.contract import Provider, ToolDeclaration
from sessionlib.providers.window_reports import WindowReports
from sessionlib.summaries.contract import Generator, Summarizer, Workload
from sessionlib.summaries.extractive import ExtractiveGenerator, ExtractiveSummarizer
from sessionlib.summaries.model import ModelGenerator, ModelSummarizer
from sessionlib.tokens import Counter
from sessionlib.tools.declaration import Tool, ToolContext, ToolFunction
from sessionlib.window_facts import WindowFact, smaller
from sessionlib.workloads import Choice, WorkloadKind, efforts_of, resolved

ProviderSource = Provider | Callable[[], Provider]
"""A provider, or what makes one when it is first asked for."""

_WORKLOAD_FIELDS = {
    WorkloadKind.CONSOLIDATION: "consolidation",
    WorkloadKind.HANDOFF: "handoff",
    WorkloadKind.DIGEST: "journal.digest",
}

REBUILT_AGENTS = 256
"""How many agents of older versions a process keeps at hand."""


class Catalog:
    """Agents, providers and choices of models by name. Safe to share between threads; a provider is made once a
    process, when first used.

    Raises InvalidInput for an agent that names a provider, a choice or an effort which is not there.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent] | None = None,
        providers: Mapping[str, ProviderSource] | None = None,
        choices: Mapping[str, Choice] | None = None,
    ) -> None:
        self.agents: Mapping[str, Agent] = MappingProxyType(dict(agents or {}))
        self.choices: Mapping[str, Choice] = MappingProxyType(dict(choices or {}))
        self._sources = dict(providers or {})
        self._lock = threading.RLock()  # what makes a provider may ask for another
        self._made: dict[tuple[int, str], Provider] = {}
        self._window_reports = WindowReports()
        self._rebuilt = lru_cache(maxsize=REBUILT_AGENTS)(self._rebuild)
        for agent in self.agents.values():
            self._require_names(agent)

    @property
    def provider_names(self) -> tuple[str, ...]:
        return tuple(sorted(self._sources))

    def agent(self, name: str) -> Agent:
        """The agent of that name. Raises InvalidInput."""
        if name not in self.agents:
            raise InvalidInput("agent", name, f"must be one of the catalog's: {_names(self.agents)}")
        return self.agents[name]

    def clamps(self) -> Mapping[str, Clamp]:
        """By agent, what became of a work room that was asked for too small: to be told at start-up."""
        found = ((name, agent.clamp(agent.own_counter)) for name, agent in self.agents.items())
        return {name: clamp for name, clamp in found if clamp is not None}

    def provider(self, name: str) -> Provider:
        """The provider of that name, made now if this process had no use for it before. Raises InvalidInput."""
        if name not in self._sources:
            raise InvalidInput("provider", name, f"must be one of the catalog's: {_names(self._sources)}")
        key = (os.getpid(), name)  # a forked child makes its own: connections do not survive a fork
        with self._lock:
            if key not in self._made:
                self._made[key] = _made(self._sources[name])
            return self._made[key]

    def window(self, agent: Agent, wait_seconds: float = 0.0) -> WindowFact:
        """The window of *agent*: the smaller of its own and what its provider's models endpoint reports, as far as that
        is known by now, or at most *wait_seconds* later. It is asked for in the background, once a process."""
        try:
            ask = getattr(self.provider(agent.provider), "reported_window", None)
        except InvalidInput:  # who rotates a session of somebody's own loop needs no provider, and may have none
            ask = None
        if ask is None:
            return agent.window
        key = (os.getpid(), agent.provider, agent.model)
        return smaller(agent.window, self._window_reports.tokens(key, lambda: ask(agent.model), wait_seconds))

    def workload(self, agent: Agent, kind: WorkloadKind) -> Workload:
        """Who makes a kind of *agent*'s summaries, with nothing left open. Raises InvalidInput."""
        workload = resolved(agent.workload(kind), agent.own_model, self.choices)
        if not workload.effort:
            return workload
        efforts = efforts_of(self.provider(workload.provider))
        if workload.effort not in efforts:
            rule = f"must be one that the provider {workload.provider} takes: {_names(efforts)}"
            raise InvalidInput("effort", workload.effort, rule)
        return replace(workload, parameters={**efforts[workload.effort], **workload.parameters})

    def generator(self, workload: Workload, counter: Counter) -> Generator:
        """Who makes summaries under a workload. Raises InvalidInput if its provider is gone."""
        if workload.summarizer == "extractive":
            return ExtractiveGenerator(counter)
        return ModelGenerator(self.provider(workload.provider), workload, _draw_marker)

    def summarizer_for(self, agent: Agent) -> Summarizer:
        """Who makes the records of *agent*."""
        return self.summarizer(self.workload(agent, WorkloadKind.CONSOLIDATION), agent.own_counter)

    def summarizer(self, workload: Workload, counter: Counter) -> Summarizer:
        """Who makes records under a workload. Raises InvalidInput if its provider is gone."""
        if workload.summarizer == "extractive":
            return ExtractiveSummarizer(counter=counter, window_tokens=workload.window_tokens)
        return ModelSummarizer(self.provider(workload.provider), workload, _draw_marker)

    def agent_from_description(self, description: str) -> Agent:
        """The agent version that a store describes, its tools resolved by name from the current agent of its name.

        A tool that is no longer there is declared, so that the prompt stays as it was, and not among `runnable_tools`:
        calls of it stay open. Raises StoreCorrupt for a description that this version cannot read.
        """
        return self._rebuilt(description)

    def runnable_tools(self, agent: Agent) -> Mapping[str, Tool]:
        """The tools of *agent* that this process can run, by name."""
        return {tool.declaration.name: tool for tool in agent.tools if tool.run is not _gone}

    def close(self) -> None:
        """Close the connections of this process's providers; a later call opens new ones."""
        with self._lock:
            made = [provider for (process_id, _), provider in self._made.items() if process_id == os.getpid()]
        for provider in made:
            if close := getattr(provider, "close", None):
                close()

    def _rebuild(self, description: str) -> Agent:
        try:
            fields: dict[str, Any] = json.loads(description)
            current = self.agents.get(fields["name"])
            known = {tool.declaration.name: tool.run for tool in current.tools} if current else {}
            fields["tools"] = tuple(_rebuilt_tool(declaration, known) for declaration in fields["tools"])
            agent = Agent(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise StoreCorrupt(f"the stored description of an agent cannot be read ({type(exc).__name__})") from None
        return current if current and current.digest == agent.digest else agent

    def _require_names(self, agent: Agent) -> None:
        """Refuse an agent whose answers or summaries nobody here can make."""
        self._require_provider(f"agents.{agent.name}.provider", agent.provider)
        for kind in WorkloadKind:
            place = f"agents.{agent.name}.{_WORKLOAD_FIELDS[kind]}."
            try:
                workload = resolved(agent.workload(kind), agent.own_model, self.choices)
                if workload.provider:
                    self._require_provider("provider", workload.provider)
                self.workload(agent, kind)
            except InvalidInput as exc:
                raise within(place, exc) from None

    def _require_provider(self, field: str, name: str) -> None:
        if name not in self._sources:
            raise InvalidInput(field, name, f"must be one of the catalog's providers: {_names(self._sources)}")


def load_catalog(spec: str, environment: Mapping[str, str] | None = None) -> Catalog:
    """The catalog that *spec* names: a Python module, a `.py` file, or a `.toml` file.

    Python says `AGENTS` (agents), `PROVIDERS` (providers, or functions without arguments that make them, by name) and
    `CHOICES` (by name). TOML says `[agents.NAME]`, the fields of `Agent` with tools as `"module:function"`,
    `[providers.NAME]` with the fields of `agents_file.ApiTable` or, for `kind = "scripted"`, `ScriptedTable`, and
    `[choices.NAME]`, the fields of `Choice`.
    Keys are looked up in *environment* when a provider is first used. Raises InvalidInput, naming file and field.
    """
    path = Path(spec)
    try:
        if path.suffix == ".toml":
            return Catalog(*read_toml(path, environment or {}))
        return Catalog(*(read_python(path) if path.suffix == ".py" or "/" in spec else read_module(spec)))
    except InvalidInput as exc:
        raise within(f"{spec}: ", exc) from None


def _made(source: ProviderSource) -> Provider:
    is_provider = hasattr(source, "complete") and not isinstance(source, type)
    return source if is_provider else source()  # type: ignore[operator, return-value]


def _rebuilt_tool(described: Mapping[str, Any], known: Mapping[str, ToolFunction]) -> Tool:
    declaration = {field: value for field, value in described.items() if field != "instructions"}
    run = known.get(described["name"], _gone)
    return Tool(ToolDeclaration(**declaration), run, bool(described.get("instructions")))


def _draw_marker() -> str:
    """A fence marker: what untrusted text cannot know beforehand."""
    return secrets.token_hex(8)


def _gone(_: str, context: ToolContext) -> str:
    raise InvalidInput("tool", context.call_id, "is of an older version of the agent and no longer there")


def _names(mapping: Mapping[str, object]) -> str:
    return ", ".join(sorted(mapping)) or "(none)"
