"""The agent that a replay's workers run: the recording's tools, answered by the fake provider.

A replay writes a scene (JSON) and, beside it, the agents file that reads it: `AGENTS, PROVIDERS = parts(…)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sessionlib.agent import Agent, ConsolidationWorkload
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.recordings import Recording
from sessionlib.testing.fake_provider import SUMMARIZER_MODEL
from sessionlib.tools.declaration import Tool, ToolContext
from workers.replay.provider import fetch

AGENT = "replayed"
MODEL = "recorded"
POLICIES = {"log_merge": LogMerge, "tiers": Tiers}
SUMMARIZERS = ("fake", "extractive")

AGENTS_FILE = """\
from pathlib import Path

from workers.replay.agents import parts

AGENTS, PROVIDERS = parts(Path(__file__).with_name("scene.json"))
"""


def write_scene(directory: Path, recording: Recording, url: str, *, window: int, policy: str, summarizer: str) -> Path:
    """Write the scene and its agents file; the path of the latter. *url*: the fake provider's."""
    scene = {
        "url": url,
        "window_tokens": window,
        "policy": policy,
        "summarizer": summarizer,
        "instructions": recording.instructions,
        "tools": list(recording.tool_names),
    }
    (directory / "scene.json").write_text(json.dumps(scene), encoding="utf-8")
    agents = directory / "replay_agents.py"
    agents.write_text(AGENTS_FILE, encoding="utf-8")
    return agents


def parts(scene_file: Path) -> tuple[Sequence[Agent], dict[str, Callable[[], ChatCompletions]]]:
    """Agents and providers of a scene, as a catalog takes them."""
    scene = json.loads(scene_file.read_text(encoding="utf-8"))
    url = scene["url"]
    return [_agent(scene)], {"default": lambda: ChatCompletions(f"{url}/v1")}


def _agent(scene: dict[str, Any]) -> Agent:
    model = scene["summarizer"] == "fake"
    return Agent(
        name=AGENT,
        model=MODEL,
        instructions=scene["instructions"],
        tools=tuple(_tool(name, scene["url"]) for name in scene["tools"]),
        window_tokens=scene["window_tokens"],
        policy=POLICIES[scene["policy"]](),
        consolidation=ConsolidationWorkload(
            summarizer="model" if model else "extractive",
            model=SUMMARIZER_MODEL if model else "",
            window_tokens=scene["window_tokens"],
        ),
    )


def _tool(name: str, url: str) -> Tool:
    """A tool that gives what it gave when it was recorded. It takes any arguments: recordings have no schemas."""

    def run(_arguments: str, context: ToolContext) -> str:
        place = f"{quote(context.session_id, safe='')}/results/{quote(context.call_id, safe='')}"
        return fetch(f"{url}/recordings/{place}").decode()

    return Tool(ToolDeclaration(name=name, description="A recorded tool.", parameters={"type": "object"}), run)
