"""An agent that is rebuilt from what a store has of it asks as the original did, byte for byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.entries import Entry
from sessionlib.providers import anthropic, chat_completions, responses
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from sessionlib.tools.declaration import Tool
from tests.sessionlib.asking import request_of
from tests.sessionlib.official import fault_in
from tests.sessionlib.talks import ADAPTERS, provider_of

EACH_API = pytest.mark.parametrize("api", [chat_completions, anthropic, responses], ids=lambda api: api.__name__)


class Place(BaseModel):
    zone: int = 1
    area: float = 1e-7
    number: int = 12_345_678_901_234_567_890


def search(place: Place, limit: int, fraction: float = 0.10, *, weights: dict[str, float] | None = None) -> str:
    """Search a plâce."""
    return f"{place} {limit} {fraction} {weights}"


def look(path: str, depth: int = 1) -> str:
    """Look."""
    return path * depth


VERDICT = {"type": "object", "properties": {"title": {"type": "string"}, "basis": {"type": "string"}}}
AGENT = Agent(
    name="a",
    model="m-1",
    instructions="Sei freundlich, ü. " * 60,
    tools=(search, look),
    parameters={
        "temperature": 1.0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "V", "schema": VERDICT, "strict": True}},
        "metadata": {"z": "1", "a": "2"},
        "x": [1e-7, 1e22, 2, {"b": None, "a": True}],
    },
)


def body_of(api: ModuleType, agent: Agent) -> bytes:
    request = request_of(
        Entry.user("Hi"),
        tools=agent.declarations,
        parameters=agent.parameters,
        instructions=agent.full_instructions,
    )
    return bytes(api.serialised(request))


def rebuilt(description: str) -> Agent:
    return Catalog().agent_from_description(description)


@EACH_API
def test_a_rebuilt_agent_sends_the_same_bytes(api: ModuleType) -> None:
    """Of schemas and parameters nested in one another, too; a provider caches by the bytes."""
    assert body_of(api, rebuilt(AGENT.description())) == body_of(api, AGENT)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=4)


@EACH_API
@given(schema=objects, parameters=objects)
def test_whatever_an_agent_holds_is_rebuilt_in_its_order(
    api: ModuleType, schema: dict[str, object], parameters: dict[str, object]
) -> None:
    """Any schema, any parameters."""
    tool = Tool(ToolDeclaration(name="t", description="", parameters=schema), lambda text, _: text)
    made = Agent(name="a", tools=(tool,), parameters={"metadata": parameters})
    again = rebuilt(made.description())
    assert again.digest == made.digest
    assert body_of(api, again) == body_of(api, made)


def test_the_order_of_a_description_is_not_part_of_the_version() -> None:
    """Descriptions were once written with their keys sorted: whoever follows such a version goes on to do so."""
    as_before = json.dumps(AGENT.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert as_before != AGENT.description()
    assert AGENT.digest == hashlib.sha256(as_before.encode()).hexdigest()
    assert rebuilt(as_before).digest == rebuilt(AGENT.description()).digest == AGENT.digest
    current = Catalog({"a": AGENT}, {"default": ScriptedProvider()})
    assert current.agent_from_description(as_before) is AGENT


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_pinned_session_keeps_its_cached_prefix(tmp_path: Path, name: str) -> None:
    """While the catalog has a newer version already: nothing that was sent changes, and most of it is cached."""
    first = Agent(name="a", model="m-1", instructions="Be kind. " * 300, tools=(search, look))
    newer = first.model_copy(update={"instructions": "Be quick."})
    with FakeProviderServer(check=fault_in) as server:
        provider = provider_of(server, name)
        path = tmp_path / "sessions.sqlite"
        for agent, turn_ids in ((first, ("t1", "t2")), (newer, ("t3", "t4"))):
            with Session(agent, {"default": provider}, session_id="s", path=path, pin=agent is newer) as session:
                replies = [session.send(f"{turn_id} {'word ' * 200}", turn_id=turn_id) for turn_id in turn_ids]
            assert replies[-1].answer.cached_tokens > 0
        assert replies[0].answer.cached_tokens > replies[0].answer.prompt_tokens / 2
        assert server.report(["s"])["sessions"]["s"]["break_count"] == 0
        provider.close()
