"""Catalog: the agents and providers that a process knows by name."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sessionlib.agent import Agent
from sessionlib.agents_file import read_module, read_python, read_toml, within
from sessionlib.counters import counter_named
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.providers.contract import Provider, ToolDeclaration
from sessionlib.summaries.contract import Summarizer
from sessionlib.summaries.extractive import ExtractiveSummarizer
from sessionlib.summaries.model import ModelSummarizer
from sessionlib.tools.declaration import Tool, ToolContext

ProviderSource = Provider | Callable[[], Provider]
"""A provider, or what makes one when it is first asked for."""

REBUILT_AGENTS = 256
"""How many agents of older versions a process keeps at hand."""


class Catalog:
    """Agents and providers by name. Safe to share between threads; a provider is made once a process, when first used.

    Raises InvalidInput for an agent whose provider is not there.
    """

    def __init__(
        self, agents: Mapping[str, Agent] | None = None, providers: Mapping[str, ProviderSource] | None = None
    ) -> None:
        self.agents: Mapping[str, Agent] = MappingProxyType(dict(agents or {}))
        self._sources = dict(providers or {})
        self._lock = threading.RLock()  # what makes a provider may ask for another
        self._made: dict[tuple[int, str], Provider] = {}
        self._rebuilt = lru_cache(maxsize=REBUILT_AGENTS)(self._rebuild)
        for agent in self.agents.values():
            self._require_providers(agent)

    def agent(self, name: str) -> Agent:
        """The agent of that name. Raises InvalidInput."""
        if name not in self.agents:
            raise InvalidInput("agent", name, f"must be one of the catalog's: {_names(self.agents)}")
        return self.agents[name]

    def provider(self, name: str) -> Provider:
        """The provider of that name, made now if this process had no use for it before. Raises InvalidInput."""
        if name not in self._sources:
            raise InvalidInput("provider", name, f"must be one of the catalog's: {_names(self._sources)}")
        key = (os.getpid(), name)  # a forked child makes its own: connections do not survive a fork
        with self._lock:
            if key not in self._made:
                self._made[key] = _made(self._sources[name])
            return self._made[key]

    def summarizer_for(self, agent: Agent) -> Summarizer:
        """Who makes the records of *agent*. What its consolidation leaves open is as for its answers."""
        workload = agent.consolidation
        if workload.summarizer == "extractive":
            return ExtractiveSummarizer(counter=counter_named(agent.counter), window_tokens=workload.window_tokens)
        return ModelSummarizer(
            self.provider(workload.provider or agent.provider),
            workload.model or agent.model,
            workload.parameters,
            window_tokens=workload.window_tokens,
            timeout_seconds=workload.timeout_seconds,
        )

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
            fields["tools"] = tuple(
                Tool(ToolDeclaration(**declaration), known.get(declaration["name"], _gone))
                for declaration in fields["tools"]
            )
            agent = Agent(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise StoreCorrupt(f"the stored description of an agent cannot be read ({type(exc).__name__})") from None
        return current if current and current.digest == agent.digest else agent

    def _require_providers(self, agent: Agent) -> None:
        workload = agent.consolidation
        used = {"provider": agent.provider}
        if workload.summarizer == "model" and workload.provider:
            used["consolidation.provider"] = workload.provider
        for field, name in used.items():
            if name not in self._sources:
                rule = f"must be one of the catalog's providers: {_names(self._sources)}"
                raise InvalidInput(f"agents.{agent.name}.{field}", name, rule)


def load_catalog(spec: str, environment: Mapping[str, str] | None = None) -> Catalog:
    """The catalog that *spec* names: a Python module, a `.py` file, or a `.toml` file.

    Python says `AGENTS` (agents) and `PROVIDERS` (providers, or functions without arguments that make them, by name).
    TOML says `[agents.NAME]`, the fields of `Agent` with tools as `"module:function"`, and `[providers.NAME]` with
    `kind = "chat_completions"` (base_url; api_key_env or api_key_file) or `kind = "scripted"` (reply).
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


def _gone(_: str, context: ToolContext) -> str:
    raise InvalidInput("tool", context.call_id, "is of an older version of the agent and no longer there")


def _names(mapping: Mapping[str, object]) -> str:
    return ", ".join(sorted(mapping)) or "(none)"
