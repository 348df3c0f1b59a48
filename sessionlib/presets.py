"""Agents to start from."""

from __future__ import annotations

from typing import Any

from sessionlib.agent import Agent
from sessionlib.policies.tiers import Tiers

SPEC_POLICY = Tiers(
    tier_tokens=(2000, 1200, 900, 700), line_fraction=0.70, saturation_ratio=0.90, convergence_ratio=1.0
)
"""The published figures of spec/tiers A4: a rotated layout lands strictly below the line, nothing more (A9).

They hold at most 4,881 tokens after a rotation and take an effective window of 6,975 or more.
"""


def spec(name: str = "spec", **changes: Any) -> Agent:
    """An agent with the figures and the counter of spec/tiers; *changes* are fields of `Agent`.

    It declares no history tool: its records are seeded without the spans that the tool reads by.
    """
    fields: dict[str, Any] = {"counter": "characters", "history_tool": False, "policy": SPEC_POLICY}
    return Agent(name=name, **{**fields, **changes})
