"""Which models `providers check` asks, and what it makes of a provider that fails."""

from __future__ import annotations

import re

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog, ProviderSource
from sessionlib.errors import ProviderError
from sessionlib.providers.checking import check, models_of
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta
from sessionlib.providers.scripted import ScriptedProvider


def test_each_model_is_asked_once_with_the_smallest_window_that_is_declared() -> None:
    """Two agents may differ in what they let it hold."""
    made = (Agent(name=f"a{tokens}", model="m", window_tokens=tokens) for tokens in (64_000, 32_000, 48_000))
    catalog = Catalog(
        {agent.name: agent for agent in made}, {"default": ScriptedProvider(), "spare": ScriptedProvider()}
    )
    assert list(models_of(catalog)) == [("default", "m", 32_000), ("spare", "", None)]


class Broken(ScriptedProvider):
    """A provider with a fault of its own, in the words of which there is a key."""

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        raise RuntimeError("the key sk-secret of no use")


def broken_source() -> ScriptedProvider:
    raise KeyError("sk-secret")


@pytest.mark.parametrize("source", [Broken(), broken_source])
def test_a_fault_of_a_providers_own_is_in_the_result(source: ProviderSource) -> None:
    """By kind and place, without its words: so the providers after it are asked, too."""
    checked = check(Catalog({}, {"broken": source}), "broken", "m", None, timeout_seconds=5)
    assert isinstance(checked.error, ProviderError)
    assert re.search(r"(RuntimeError|KeyError) at test_checking\.py:\d+", str(checked.error))
    assert "sk-secret" not in str(checked.error)
