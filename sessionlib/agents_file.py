"""Reading agents and providers from a Python module or file, or from TOML."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, SecretStr, TypeAdapter, ValidationError, field_validator, model_validator

from sessionlib.agent import Agent
from sessionlib.errors import InvalidInput
from sessionlib.providers.access import require_base_url, require_key
from sessionlib.providers.contract import Provider
from sessionlib.tools.declaration import Tool
from sessionlib.workloads import Choice, Frozen

Parts = tuple[dict[str, Agent], dict[str, Any], dict[str, Choice]]
"""Agents by name; providers, or what makes them, by name; choices by name."""


class ApiTable(Frozen):
    """`[providers.NAME]` for a model behind an API. The key is named, never written down here."""

    kind: Literal["chat_completions", "responses", "anthropic"]
    """An OpenAI-compatible API, OpenAI's Responses API, or Anthropic's Messages API."""
    base_url: str
    """Where the API begins: with `/v1` for the first two, without it for Anthropic's, as their clients have it."""
    api_key_env: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    """Name of the environment variable that holds the key."""
    api_key_file: str = ""
    """File that holds the key, relative to this one."""
    prompt_cache_key: bool | None = None
    """Tell the provider which requests belong together; not given: as the adapter has it. Not of Anthropic's API."""
    silence_seconds: Annotated[float, Field(gt=0)] | None = None
    """How long a stream may be silent; not given: as the adapter has it."""

    @field_validator("base_url")
    @classmethod
    def _is_base_url(cls, value: str) -> str:
        try:
            return require_base_url(value)
        except InvalidInput as exc:
            raise ValueError(exc.rule) from None

    @model_validator(mode="after")
    def _fields_go_together(self) -> Self:
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file must not both be given")
        if self.kind == "anthropic" and self.prompt_cache_key is not None:
            raise ValueError("prompt_cache_key must be absent: this API has no such field")
        return self

    def provider(self, directory: Path, environment: Mapping[str, str]) -> Provider:
        """Raises InvalidInput if the key is not where it should be, or is none."""
        key, options = self._key(directory, environment), self._options()
        match self.kind:  # each loads httpx, which not everybody needs
            case "chat_completions":
                from sessionlib.providers.chat_completions import ChatCompletions

                return ChatCompletions(self.base_url, key, **options)
            case "responses":
                from sessionlib.providers.responses import Responses

                return Responses(self.base_url, key, **options)
            case "anthropic":
                from sessionlib.providers.anthropic import Anthropic

                return Anthropic(self.base_url, key, **options)

    def _options(self) -> dict[str, Any]:
        given = {"prompt_cache_key": self.prompt_cache_key, "silence_seconds": self.silence_seconds}
        return {name: value for name, value in given.items() if value is not None}

    def _key(self, directory: Path, environment: Mapping[str, str]) -> SecretStr | None:
        if self.api_key_env:
            key = environment.get(self.api_key_env, "").strip()
            if not key:
                raise InvalidInput("api_key_env", self.api_key_env, "must name a variable that is set")
            return SecretStr(require_key("api_key_env", self.api_key_env, key))
        if self.api_key_file:
            try:
                key = (directory / self.api_key_file).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as exc:
                rule = f"must name a readable file ({type(exc).__name__})"
                raise InvalidInput("api_key_file", self.api_key_file, rule) from None
            if not key:
                raise InvalidInput("api_key_file", self.api_key_file, "must name a file that is not empty")
            return SecretStr(require_key("api_key_file", self.api_key_file, key))
        return None


class ScriptedTable(Frozen):
    """`[providers.NAME]` for trying things out: one fixed reply, or without it an echo."""

    kind: Literal["scripted"]
    reply: str | None = None

    def provider(self, directory: Path, environment: Mapping[str, str]) -> Provider:
        from sessionlib.providers.scripted import ScriptedProvider, echo

        del directory, environment
        reply = self.reply
        return ScriptedProvider(echo if reply is None else lambda _: reply)


Made = TypeVar("Made", bound=Frozen)

ProviderTable = Annotated[ApiTable | ScriptedTable, Field(discriminator="kind")]


def read_module(name: str) -> Parts:
    """Agents, providers and choices of an importable module. Raises InvalidInput."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInput("module", name, "must be a module's name, or a path to a .py or .toml file")
    _search(Path.cwd())
    try:
        return _parts_of(importlib.import_module(name))
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise  # the module is there; something that it imports is not
        raise InvalidInput("module", name, "must be importable, or a path to a .py or .toml file") from None


def read_python(path: Path) -> Parts:
    """Agents, providers and choices of a Python file. Raises InvalidInput; what the file itself raises passes."""
    if not path.is_file():
        raise InvalidInput("file", str(path), "must be there")
    _search(path.resolve().parent)
    name = f"sessionlib_agents_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput("file", str(path), "must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are resolved through it
    spec.loader.exec_module(module)
    return _parts_of(module)


def read_toml(path: Path, environment: Mapping[str, str]) -> Parts:
    """Agents, providers and choices of a TOML file. Raises InvalidInput."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InvalidInput("file", str(path), "must be there and readable") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidInput("file", str(path), f"must be TOML ({exc})") from None
    if unknown := document.keys() - {"agents", "providers", "choices"}:
        raise InvalidInput("table", min(unknown), "must be agents, providers or choices")
    directory = path.resolve().parent
    _search(directory)
    agents = {name: _toml_agent(name, table) for name, table in _tables(document, "agents")}
    providers = {
        name: _toml_provider(name, table, directory, environment) for name, table in _tables(document, "providers")
    }
    choices = {name: _toml_choice(name, table) for name, table in _tables(document, "choices")}
    return agents, providers, choices


def within(place: str, exc: InvalidInput) -> InvalidInput:
    """The same fault, its field named from further out."""
    named = InvalidInput(f"{place}{exc.field}", "", exc.rule)
    named.value = exc.value  # shortened already
    return named


def _parts_of(module: ModuleType) -> Parts:
    listed, providers = getattr(module, "AGENTS", None), getattr(module, "PROVIDERS", {})
    choices = getattr(module, "CHOICES", {})
    if not isinstance(listed, Iterable):
        raise InvalidInput("AGENTS", listed, "must list the agents")
    if not isinstance(providers, Mapping):
        raise InvalidInput("PROVIDERS", providers, "must map names to providers")
    if not isinstance(choices, Mapping) or not all(isinstance(choice, Choice) for choice in choices.values()):
        raise InvalidInput("CHOICES", choices, "must map names to choices")
    agents: dict[str, Agent] = {}
    for agent in listed:
        if not isinstance(agent, Agent):
            raise InvalidInput("AGENTS", agent, "must hold agents only")
        if agent.name in agents:
            raise InvalidInput("AGENTS", agent.name, "must not be listed twice")
        agents[agent.name] = agent
    for name, provider in providers.items():
        if not isinstance(name, str) or not (hasattr(provider, "complete") or callable(provider)):
            raise InvalidInput(f"PROVIDERS[{name!r}]", provider, "must be a provider, or a function that makes one")
    return agents, dict(providers), dict(choices)


def _tables(document: Mapping[str, Any], section: str) -> Iterable[tuple[str, dict[str, Any]]]:
    tables = document.get(section, {})
    if not isinstance(tables, dict):
        raise InvalidInput(section, tables, f"must be tables [{section}.NAME]")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InvalidInput(f"{section}.{name}", "…", "must be a table")
        yield name, table


def _toml_agent(name: str, table: dict[str, Any]) -> Agent:
    if "name" in table:
        raise InvalidInput(f"agents.{name}.name", table["name"], "must be absent: the table is named for the agent")
    tools = table.get("tools", [])
    if not isinstance(tools, list):
        raise InvalidInput(f"agents.{name}.tools", tools, 'must be a list of "module:function"')
    fields = {**table, "name": name, "tools": [_function(f"agents.{name}.tools", tool) for tool in tools]}
    return _validated(Agent, f"agents.{name}", fields)


def _toml_choice(name: str, table: dict[str, Any]) -> Choice:
    return _validated(Choice, f"choices.{name}", table)


def _validated(kind: type[Made], place: str, fields: dict[str, Any]) -> Made:
    try:
        return kind(**fields)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False)[0]
        raise InvalidInput(_field(place, first["loc"]), first["input"], _rule(first["msg"])) from None


def _toml_provider(
    name: str, table: dict[str, Any], directory: Path, environment: Mapping[str, str]
) -> Callable[[], Provider]:
    try:
        settings = TypeAdapter[ApiTable | ScriptedTable](ProviderTable).validate_python(table)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        # The value is not shown: somebody may have written a key here.
        raise InvalidInput(_field(f"providers.{name}", first["loc"]), "…", _rule(first["msg"])) from None

    def make() -> Provider:
        try:
            return settings.provider(directory, environment)
        except InvalidInput as exc:
            raise within(f"providers.{name}.", exc) from None

    return make


def _function(field: str, spec: object) -> Callable[..., Any] | Tool:
    """The function, or the tool made of one, that `"module:function"` names."""
    if not isinstance(spec, str) or spec.count(":") != 1:
        raise InvalidInput(field, spec, 'must hold "module:function" only')
    module_name, function_name = spec.split(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as exc:
        raise InvalidInput(field, spec, f"must name an importable function ({exc})") from None
    if not callable(function) and not isinstance(function, Tool):
        raise InvalidInput(field, spec, "must name a function or a Tool")
    return function  # type: ignore[no-any-return]


def _field(prefix: str, location: tuple[int | str, ...]) -> str:
    return ".".join([prefix, *map(str, location)])


def _rule(message: str) -> str:
    return f"is refused: {message}"


def _search(directory: Path) -> None:
    """Let modules beside an agents file be imported, after all others."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
