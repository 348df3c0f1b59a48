"""Workloads: who makes an agent's summaries, resolved and refused at configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sessionlib.agent import Agent, Journal
from sessionlib.catalog import Catalog, load_catalog
from sessionlib.errors import InvalidInput
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.contract import Workload
from sessionlib.workloads import Choice, ConsolidationWorkload, SummaryWorkload, WorkloadKind

FAST = Choice(provider="other", model="small", effort="low", parameters={"temperature": 0}, window_tokens=64_000)
CHOICES = {"fast": FAST}


def catalog_of(agent: Agent) -> Catalog:
    providers = {"default": ScriptedProvider(), "other": ScriptedProvider(efforts=("low", "high"))}
    return Catalog({agent.name: agent}, providers, CHOICES)


def agent_with(**fields: Any) -> Agent:
    return Agent(name="coder", model="large", window_tokens=32_000, **fields)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (SummaryWorkload(), Workload(provider="default", model="large", window_tokens=32_000)),
        (SummaryWorkload(model="tiny"), Workload(provider="default", model="tiny", window_tokens=128_000)),
        (SummaryWorkload(provider="other", model="large"), Workload(provider="other", model="large")),
        (SummaryWorkload(window_tokens=9_000), Workload(provider="default", model="large", window_tokens=9_000)),
        (
            SummaryWorkload(choice="fast"),
            Workload(
                provider="other",
                model="small",
                effort="low",
                parameters={"effort": "low", "temperature": 0},
                window_tokens=64_000,
            ),
        ),
        (
            SummaryWorkload(choice="fast", effort="high", parameters={"temperature": 1}),
            Workload(
                provider="other",
                model="small",
                effort="high",
                parameters={"effort": "high", "temperature": 1},
                window_tokens=64_000,
            ),
        ),
        (SummaryWorkload(summarizer="extractive"), Workload(summarizer="extractive", window_tokens=32_000)),
    ],
)
def test_what_a_workload_leaves_open_is_as_for_answers(workload: SummaryWorkload, expected: Workload) -> None:
    """Own provider, model and window where nothing is said; a choice's where it is named."""
    agent = agent_with(handoff=workload)
    assert catalog_of(agent).workload(agent, WorkloadKind.HANDOFF) == expected


def test_each_kind_of_summary_has_its_own_workload() -> None:
    """Consolidations, handoffs and digests may be made by different models."""
    agent = agent_with(
        consolidation=ConsolidationWorkload(summarizer="model", model="a"),
        handoff=SummaryWorkload(model="b"),
        journal=Journal(digest=SummaryWorkload(model="c")),
    )
    catalog = catalog_of(agent)
    assert [catalog.workload(agent, kind).model for kind in WorkloadKind] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"handoff": SummaryWorkload(effort="extreme")}, "agents.coder.handoff.effort"),
        ({"handoff": SummaryWorkload(choice="slow")}, "agents.coder.handoff.choice"),
        ({"handoff": SummaryWorkload(provider="nowhere")}, "agents.coder.handoff.provider"),
        (
            {"journal": Journal(digest=SummaryWorkload(choice="fast", effort="medium"))},
            "agents.coder.journal.digest.effort",
        ),
        (
            {"consolidation": ConsolidationWorkload(summarizer="model", effort="extreme")},
            "agents.coder.consolidation.effort",
        ),
    ],
)
def test_who_cannot_make_a_summary_is_refused_at_configuration(fields: dict[str, Any], place: str) -> None:
    """An unknown choice or provider, and an effort that the provider does not take, name their place."""
    with pytest.raises(InvalidInput) as refused:
        catalog_of(agent_with(**fields))
    assert refused.value.field == place


def test_a_workload_names_a_choice_or_a_model_and_not_both() -> None:
    """Which of the two would count is not for us to guess."""
    with pytest.raises(ValidationError, match="and not both"):
        SummaryWorkload(choice="fast", model="large")


def test_choices_are_read_from_toml(tmp_path: Any) -> None:
    """`[choices.NAME]` beside agents and providers; a workload's table may name one."""
    file = tmp_path / "agents.toml"
    file.write_text(
        """
        [providers.default]
        kind = "scripted"
        [choices.balanced]
        model = "middle"
        effort = "medium"
        [agents.coder.journal]
        on_close = true
        [agents.coder.journal.digest]
        choice = "balanced"
        """
    )
    catalog = load_catalog(str(file))
    agent = catalog.agent("coder")
    assert agent.journal.rules.on_close
    assert catalog.workload(agent, WorkloadKind.DIGEST).model == "middle"


def test_a_bad_choice_in_toml_names_its_place(tmp_path: Any) -> None:
    """Field, value and rule, as everywhere."""
    file = tmp_path / "agents.toml"
    file.write_text("[choices.fast]\nwindow_tokens = -1\n")
    with pytest.raises(InvalidInput, match=r"choices\.fast\.window_tokens"):
        load_catalog(str(file))
