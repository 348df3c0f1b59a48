"""The catalog: loading agents and providers, making providers once, rebuilding older versions of agents."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog, load_catalog
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, StoreCorrupt
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.summaries.extractive import ExtractiveSummarizer
from sessionlib.tools.declaration import ToolContext
from sessionlib.workloads import ConsolidationWorkload

TOML = """
[providers.main]
kind = "chat_completions"
base_url = "http://model.test/v1"
api_key_env = "MAIN_KEY"

[providers.echo]
kind = "scripted"

[providers.fixed]
kind = "scripted"
reply = "fixed"

[agents.coder]
provider = "main"
model = "m-1"
window_tokens = 64000
tools = ["catalog_test_tools:double"]
policy = { kind = "log_merge" }

[agents.talker]
provider = "fixed"
"""

PYTHON = """
from sessionlib.agent import Agent
from sessionlib.providers.scripted import ScriptedProvider

def double(number: int) -> int:
    "Twice the number."
    return number * 2

AGENTS = [Agent(name="a", tools=[double]), Agent(name="b")]
PROVIDERS = {"default": ScriptedProvider}
"""


def double(number: int) -> int:
    """Twice the number."""
    return number * 2


def shout(text: str) -> str:
    """In capital letters."""
    return text.upper()


def request_of() -> ModelRequest:
    return ModelRequest(
        model="m",
        instructions="",
        tools=(),
        parameters={},
        entries=(Entry.user("Hi"),),
        session_id="s",
        turn_id="t",
        step="model:0",
        timeout_seconds=1,
    )


@pytest.fixture
def toml_file(tmp_path: Path) -> Path:
    (tmp_path / "catalog_test_tools.py").write_text("def double(number: int) -> int:\n    return number * 2\n")
    path = tmp_path / "agents.toml"
    path.write_text(TOML)
    return path


def test_toml_gives_agents_and_providers(toml_file: Path) -> None:
    """Agents with all their fields, tools as functions, providers by kind."""
    catalog = load_catalog(str(toml_file), {"MAIN_KEY": "secret-key"})
    coder = catalog.agent("coder")
    assert (coder.model, coder.window_tokens) == ("m-1", 64_000)
    assert coder.tools[0].run('{"number": 4}', ToolContext(session_id="s", turn_id="t", call_id="c")) == "8"
    assert catalog.provider("fixed").complete(request_of()).text == "fixed"
    assert catalog.provider("echo").complete(request_of()).text == "Acknowledged: Hi"
    assert "secret-key" not in repr(catalog.provider("main"))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("chat_completions", "ChatCompletions"), ("responses", "Responses"), ("anthropic", "Anthropic")],
)
def test_toml_names_every_api_by_its_kind(tmp_path: Path, kind: str, shown: str) -> None:
    """The same fields for each; the key comes from the environment and is shown nowhere."""
    path = tmp_path / "agents.toml"
    path.write_text(f'[providers.p]\nkind = "{kind}"\nbase_url = "http://m.test"\napi_key_env = "KEY"\n')
    assert repr(load_catalog(str(path), {"KEY": "secret-key"}).provider("p")) == f"{shown}('http://m.test')"


@pytest.mark.parametrize("policy", [LogMerge(), Tiers(), Slots(), WorkRoom(work_budget_tokens=20_000)])
def test_toml_names_every_policy_by_its_kind(tmp_path: Path, policy: LogMerge | Tiers | Slots | WorkRoom) -> None:
    """With its fields, in a table of its own."""
    fields = policy.model_dump(mode="json", exclude_defaults=True) | {"kind": policy.kind}
    written = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    path = tmp_path / "agents.toml"
    agent = "[agents.a]\nwindow_tokens = 64000\n[agents.a.policy]"
    path.write_text(f"[providers.default]\nkind = 'scripted'\n{agent}\n{written}\n")
    assert load_catalog(str(path)).agent("a").policy == policy


def test_a_key_can_stand_in_a_file(tmp_path: Path) -> None:
    """A key file is looked for beside the agents file, when the provider is first used."""
    path = tmp_path / "agents.toml"
    path.write_text('[providers.p]\nkind = "chat_completions"\nbase_url = "http://m.test"\napi_key_file = "key.txt"\n')
    catalog = load_catalog(str(path))
    with pytest.raises(InvalidInput, match="api_key_file"):
        catalog.provider("p")
    (tmp_path / "key.txt").write_text("secret-key\n")
    assert catalog.provider("p").shape


def test_a_python_file_gives_agents_and_providers(tmp_path: Path) -> None:
    """`AGENTS` and `PROVIDERS` of a file that is on no module path."""
    path = tmp_path / "my_agents.py"
    path.write_text(PYTHON)
    catalog = load_catalog(str(path))
    assert list(catalog.agents) == ["a", "b"]
    assert catalog.agent("a").tools[0].declaration.description == "Twice the number."
    assert isinstance(catalog.provider("default"), ScriptedProvider)


def test_a_module_gives_agents_and_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is found by name, the working directory included."""
    (tmp_path / "catalog_test_module.py").write_text(PYTHON)
    monkeypatch.chdir(tmp_path)
    assert list(load_catalog("catalog_test_module").agents) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[agents.x]\nprovider = 'p'\nwindow = 5\n", ["agents.x.window", "5"]),
        ("[agents.x]\nprovider = 'p'\nwindow_tokens = -5\n", ["agents.x.window_tokens", "-5", "greater than 0"]),
        ("[agents.x]\nprovider = 'p'\nwindow_tokens = nan\n", ["agents.x.window_tokens", "nan"]),
        ("[agents.x]\nprovider = 'p'\nname = 'y'\n", ["agents.x.name", "y"]),
        ("[agents.x]\nprovider = 'missing'\n", ["agents.x.provider", "missing", "p"]),
        (
            "[agents.x]\nprovider = 'p'\nconsolidation = {summarizer='model', provider='q'}\n",
            ["consolidation.provider"],
        ),
        ("[agents.x]\nprovider = 'p'\ntools = ['nowhere:f']\n", ["agents.x.tools", "nowhere:f"]),
        ("[agents.x]\nprovider = 'p'\ntools = ['json:nothing']\n", ["agents.x.tools", "json:nothing"]),
        ("[agents.x]\nprovider = 'p'\ntools = ['json']\n", ["agents.x.tools", "json"]),
        ("[agents.'a b']\nprovider = 'p'\n", ["agents.a b.name"]),
        ("[agents.x]\nprovider = 'p'\npolicy = {kind = 'other'}\n", ["agents.x.policy"]),
        ("[agent.x]\n", ["agent"]),
        ("agents = 3\n", ["agents", "3"]),
        ("[agents.x]\n[agents.x]\n", ["must be TOML"]),
        ("[providers.q]\nkind = 'other'\n", ["providers.q"]),
        ("[providers.q]\nkind = 'scripted'\nanswer = 'x'\n", ["providers.q.scripted.answer"]),
        ("[providers]\nq = 3\n", ["providers.q"]),
    ],
)
def test_bad_toml_is_named(tmp_path: Path, text: str, named: list[str]) -> None:
    """An error names file, field, value and rule."""
    path = tmp_path / "agents.toml"
    path.write_text(f"{text}\n[providers.p]\nkind = 'scripted'\n" if "[providers]" not in text else text)
    with pytest.raises(InvalidInput) as caught:
        load_catalog(str(path))
    for part in [str(path), *named]:
        assert part in str(caught.value)


def test_a_key_written_into_the_file_is_not_shown(tmp_path: Path) -> None:
    """A key in the wrong place is refused without repeating it."""
    path = tmp_path / "agents.toml"
    path.write_text('[providers.p]\nkind = "chat_completions"\nbase_url = "http://m.test"\napi_key = "sk-1234567"\n')
    with pytest.raises(InvalidInput, match="api_key") as caught:
        load_catalog(str(path))
    assert "sk-1234567" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("", "AGENTS"),
        ("AGENTS = ['x']", "must hold agents only"),
        ("from sessionlib.agent import Agent\nAGENTS = [Agent(name='a'), Agent(name='a')]", "must not be listed twice"),
        ("from sessionlib.agent import Agent\nAGENTS = [Agent(name='a')]", "default"),
        ("AGENTS = []\nPROVIDERS = {'x': 3}", "PROVIDERS"),
        ("AGENTS = []\nPROVIDERS = [3]", "PROVIDERS"),
    ],
)
def test_bad_python_is_named(tmp_path: Path, code: str, named: str) -> None:
    """An agents file that lacks something says what."""
    path = tmp_path / "bad_agents.py"
    path.write_text(code)
    with pytest.raises(InvalidInput, match=named):
        load_catalog(str(path))


@pytest.mark.parametrize(
    "spec", ["no_such_module", "no/such/file.py", "none.toml", "no.such.module", ".relative", "two words"]
)
def test_a_missing_source_is_named(spec: str) -> None:
    """A module or file that is not there is a caller's error."""
    with pytest.raises(InvalidInput, match=spec.replace(".", r"\.")):
        load_catalog(spec)


def test_a_module_that_fails_to_import_something_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault inside an agents module is not taken for a missing agents module."""
    (tmp_path / "catalog_test_broken.py").write_text("import no_such_dependency")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load_catalog("catalog_test_broken")


def test_a_missing_key_variable_is_named(toml_file: Path) -> None:
    """The variable that should hold a key is named when the provider is first used."""
    with pytest.raises(InvalidInput, match="MAIN_KEY"):
        load_catalog(str(toml_file), {}).provider("main")


def test_providers_are_made_once() -> None:
    """However many threads ask, a provider is made once, and not before somebody asks."""
    made: list[ScriptedProvider] = []

    def make() -> ScriptedProvider:
        made.append(ScriptedProvider())
        return made[-1]

    catalog = Catalog({}, {"p": make})
    assert made == []
    with ThreadPoolExecutor(16) as pool:
        providers = set(pool.map(lambda _: catalog.provider("p"), range(64)))
    assert providers == set(made)
    assert len(made) == 1


def test_closing_closes_what_was_made() -> None:
    """Providers that have connections close them; the others are left alone, and so are those never used."""
    closed: list[str] = []

    class Connected(ScriptedProvider):
        def close(self) -> None:
            closed.append("connected")

    catalog = Catalog({}, {"connected": Connected, "plain": ScriptedProvider, "unused": Connected})
    catalog.provider("connected")
    catalog.provider("plain")
    catalog.close()
    assert closed == ["connected"]


def test_unknown_names_are_refused() -> None:
    """An agent or provider that is not there is named beside those that are."""
    catalog = Catalog({"a": Agent(name="a", provider="p")}, {"p": ScriptedProvider()})
    with pytest.raises(InvalidInput, match="catalog's: a"):
        catalog.agent("b")
    with pytest.raises(InvalidInput, match="catalog's: p"):
        catalog.provider("q")


def test_the_extractive_summarizer_is_the_default() -> None:
    """Without a word about consolidation no model is asked."""
    agent = Agent(name="a", provider="p", counter="characters")
    summarizer = Catalog({}, {"p": ScriptedProvider()}).summarizer_for(agent)
    assert isinstance(summarizer, ExtractiveSummarizer)
    assert summarizer.window_tokens == agent.consolidation.window_tokens


@pytest.mark.parametrize(("model", "asked"), [("small", "small"), ("", "large")])
def test_a_model_summarizer_falls_back_to_the_agents_own(model: str, asked: str) -> None:
    """What the workload leaves open is as for the agent's answers."""
    provider = ScriptedProvider()
    workload = ConsolidationWorkload(summarizer="model", model=model)
    agent = Agent(name="a", provider="p", model="large", consolidation=workload)
    request = ConsolidationRequest(tier=1, first_seq=1, last_seq=2, material="USER: x", budget_tokens=100)
    Catalog({}, {"p": provider}).summarizer_for(agent).consolidate(request, lambda: False)
    assert provider.requests[0].model == asked


def test_a_current_agent_is_found_by_its_description() -> None:
    """The description of the current version gives that very agent."""
    agent = Agent(name="a", provider="p", tools=(double,))
    catalog = Catalog({"a": agent}, {"p": ScriptedProvider()})
    assert catalog.agent_from_description(agent.description()) is agent


def test_an_older_version_is_rebuilt() -> None:
    """An older version keeps its description and digest; its tools are those of today by name."""
    older = Agent(name="a", provider="p", instructions="Old.", tools=(double, shout))
    catalog = Catalog({"a": Agent(name="a", provider="p", tools=(double,))}, {"p": ScriptedProvider()})
    rebuilt = catalog.agent_from_description(older.description())
    assert rebuilt.digest == older.digest
    assert [tool.declaration.name for tool in rebuilt.tools] == ["double", "shout"]
    assert catalog.runnable_tools(rebuilt).keys() == {"double"}
    assert catalog.agent_from_description(older.description()) is rebuilt


def test_an_agent_of_another_catalog_is_rebuilt_without_tools() -> None:
    """A process that does not have the agent still reads its version."""
    agent = Agent(name="a", provider="p", tools=(double,))
    catalog = Catalog()
    rebuilt = catalog.agent_from_description(agent.description())
    assert rebuilt.digest == agent.digest
    assert not catalog.runnable_tools(rebuilt)


@pytest.mark.parametrize("description", ["", "[]", "{}", '{"name": "a", "tools": [], "new_field": 1}'])
def test_an_unreadable_description_is_corrupt(description: str) -> None:
    """What this version cannot read is an error of the store, not of the caller."""
    with pytest.raises(StoreCorrupt):
        Catalog().agent_from_description(description)


def test_descriptions_are_json() -> None:
    """A description comes through JSON unchanged, and sorted it has the digest, which so can be checked anywhere."""
    agent = Agent(name="a", tools=(double,))
    fields = json.loads(agent.description())
    assert json.dumps(fields, ensure_ascii=False, separators=(",", ":")) == agent.description()
    ordered = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(ordered.encode()).hexdigest() == agent.digest
