"""Try a provider out: one tiny call, and what can be learned from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import ProviderError, ProviderRejected, SessionError, place_of
from sessionlib.providers.contract import ModelReply, ModelRequest, Provider, Shape
from sessionlib.window_facts import WindowFact, known_window, smaller

QUESTION = "Answer with the one word: ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one call to one model of one provider came to."""

    provider: str
    model: str
    shape: Shape | None = None
    seconds: float = 0.0
    prompt_tokens: int = 0
    """As reported; 0 without a report."""
    completion_tokens: int = 0
    counted_tokens: int = 0
    """Of the prompt, by our own counter."""
    window: WindowFact | None = None
    error: SessionError | None = None

    @property
    def is_fine(self) -> bool:
        return self.error is None


def models_of(catalog: Catalog) -> Iterator[tuple[str, str, int | None]]:
    """Each provider with each model that an agent or a choice asks it for, and the smallest window that is declared.

    A provider that nobody names comes with the model "".
    """
    asked: dict[tuple[str, str], int | None] = {}
    for agent in sorted(catalog.agents.values(), key=lambda agent: agent.window_tokens):
        asked.setdefault((agent.provider, agent.model), agent.window_tokens)
    for choice in catalog.choices.values():
        asked.setdefault((choice.provider, choice.model), choice.window_tokens)
    for provider in catalog.provider_names:
        if all(named != provider for named, _ in asked):
            asked[(provider, "")] = None
    for (provider, model), window_tokens in sorted(asked.items(), key=lambda item: item[0]):
        yield provider, model, window_tokens


def check(
    catalog: Catalog, provider_name: str, model: str, window_tokens: int | None, timeout_seconds: float
) -> Checked:
    """Ask a model one short question. Never raises for what a provider does: the error is in the result.

    An exception that is none of ours is named by kind and place: providers are anybody's code, and its text may hold
    anything.
    """
    request = _request(model, timeout_seconds)
    begun = time.monotonic()
    try:
        provider = catalog.provider(provider_name)
        reply = provider.complete(request)
        seconds = time.monotonic() - begun
        window = _window(provider, model, window_tokens)
        _let_go(provider, reply)
    except SessionError as exc:
        return _failed(provider_name, model, begun, exc)
    except Exception as exc:  # noqa: BLE001 - the providers after this one are to be asked, too
        broken = ProviderRejected(f"the provider's own code failed: {type(exc).__name__} at {place_of(exc)}")
        return _failed(provider_name, model, begun, broken)
    usage = reply.usage
    return Checked(
        provider=provider_name,
        model=model,
        shape=provider.shape,
        seconds=seconds,
        prompt_tokens=usage.prompt_tokens if usage else 0,
        completion_tokens=usage.completion_tokens if usage else 0,
        counted_tokens=request.counted_tokens,
        window=window,
    )


def _failed(provider_name: str, model: str, begun: float, error: SessionError) -> Checked:
    return Checked(provider=provider_name, model=model, seconds=time.monotonic() - begun, error=error)


def _request(model: str, timeout_seconds: float) -> ModelRequest:
    agent, counter = Agent(name="check", model=model, history_tool=False), counter_named("auto")
    entry = Entry.user(QUESTION)
    return ModelRequest(
        model=model,
        instructions="",
        tools=(),
        parameters={},
        entries=(entry,),
        session_id="providers-check",
        turn_id=f"check-{time.time_ns()}",
        step="model:0",
        timeout_seconds=timeout_seconds,
        is_single=True,
        counted_tokens=agent.fixed_tokens(counter) + counter.entry(entry),
    )


def _window(provider: Provider, model: str, window_tokens: int | None) -> WindowFact:
    own = Agent(name="check", model=model, window_tokens=window_tokens).window if window_tokens else known_window(model)
    ask = getattr(provider, "reported_window", None)
    try:
        return smaller(own, ask(model) if ask else None)
    except ProviderError:  # it answered the question itself: not to tell of models is no fault
        return own


def _let_go(provider: Provider, reply: ModelReply) -> None:
    if reply.handle:
        provider.dispose(reply.handle)
