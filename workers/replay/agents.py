"""The agent that a replay's workers run: the recording's tools, answered by the fake provider.

A replay writes a scene (JSON) and, beside it, the agents file that reads it: `AGENTS, PROVIDERS = parts(…)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import ToolDeclaration
from sessionlib.recordings import Recording
from sessionlib.testing.fake_provider import SUMMARIZER_MODEL
from sessionlib.tools.declaration import Tool, ToolContext
from sessionlib.window import require_fits
from sessionlib.workloads import ConsolidationWorkload
from workers.replay.provider import Results

AGENT = "replayed"
MODEL = "recorded"
POLICIES = {"log_merge": LogMerge, "tiers": Tiers, "slots": Slots, "work_room": WorkRoom}
SUMMARIZERS = ("fake", "extractive")

AGENTS_FILE = """\
from pathlib import Path

from workers.replay.agents import parts

AGENTS, PROVIDERS = parts(Path(__file__).with_name("scene.json"))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """How a session is replayed."""

    window_tokens: int = 32_000
    policy: str = "log_merge"
    summarizer: str = "fake"
    latency_seconds: float = 0.06
    """How long the provider takes for an answer."""
    summary_latency_seconds: float = 0.5
    """How long it takes for a consolidation: several times an answer, which would be seen if anybody waited."""


def require_playable(recording: Recording, scene: Scene) -> None:
    """Refuse what cannot be played, before anything starts.

    Raises CannotConverge if the window is too small for the recording's instructions and tools, InputTooLarge for an
    input that fits no request, InvalidInput for a tool that is named like one of the engine's own.
    """
    try:
        agent = _agent(_document(recording, scene, url=""))
    except ValidationError as exc:
        rule = f"must make an agent: {exc.errors(include_url=False, include_input=False)[0]['msg']}"
        raise InvalidInput(recording.source, ", ".join(recording.tool_names), rule) from None
    counter = agent.own_counter
    for turn in recording.turns:
        require_fits(Entry.user(turn.input), agent, counter)


def write_agents(directory: Path, recording: Recording, scene: Scene, url: str) -> Path:
    """Write the scene and the agents file that reads it; the path of the latter. *url*: the fake provider's."""
    (directory / "scene.json").write_text(json.dumps(_document(recording, scene, url)), encoding="utf-8")
    agents = directory / "replay_agents.py"
    agents.write_text(AGENTS_FILE, encoding="utf-8")
    return agents


def _document(recording: Recording, scene: Scene, url: str) -> dict[str, Any]:
    return {
        "url": url,
        "window_tokens": scene.window_tokens,
        "policy": scene.policy,
        "summarizer": scene.summarizer,
        "instructions": recording.instructions,
        "tools": list(recording.tool_names),
    }


def parts(scene_file: Path) -> tuple[Sequence[Agent], dict[str, Callable[[], ChatCompletions]]]:
    """Agents and providers of a scene, as a catalog takes them."""
    scene = json.loads(scene_file.read_text(encoding="utf-8"))
    url = scene["url"]
    return [_agent(scene)], {"default": lambda: ChatCompletions(f"{url}/v1")}


def _agent(scene: dict[str, Any]) -> Agent:
    model, results = scene["summarizer"] == "fake", Results(scene["url"])
    return Agent(
        name=AGENT,
        model=MODEL,
        instructions=scene["instructions"],
        tools=tuple(_tool(name, results) for name in scene["tools"]),
        window_tokens=scene["window_tokens"],
        policy=POLICIES[scene["policy"]](),
        consolidation=ConsolidationWorkload(
            summarizer="model" if model else "extractive",
            model=SUMMARIZER_MODEL if model else "",
            window_tokens=scene["window_tokens"],
        ),
    )


def _tool(name: str, results: Results) -> Tool:
    """A tool that gives what it gave when it was recorded. It takes any arguments: recordings have no schemas."""

    def run(_arguments: str, context: ToolContext) -> str:
        return results.recorded(context.session_id, context.call_id)

    return Tool(ToolDeclaration(name=name, description="A recorded tool.", parameters={"type": "object"}), run)
