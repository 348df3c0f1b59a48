"""Which models `providers check` asks."""

from __future__ import annotations

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.providers.checking import models_of
from sessionlib.providers.scripted import ScriptedProvider


def test_each_model_is_asked_once_with_the_smallest_window_that_is_declared() -> None:
    """Two agents may differ in what they let it hold."""
    made = (Agent(name=f"a{tokens}", model="m", window_tokens=tokens) for tokens in (64_000, 32_000, 48_000))
    catalog = Catalog(
        {agent.name: agent for agent in made}, {"default": ScriptedProvider(), "spare": ScriptedProvider()}
    )
    assert list(models_of(catalog)) == [("default", "m", 32_000), ("spare", "", None)]
