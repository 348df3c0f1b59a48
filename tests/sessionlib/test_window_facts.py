"""How large a window is: the agent's word, the provider's, a table's; the smaller of the first two wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.errors import ProviderRejected, ProviderUnavailable
from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.api import ApiProvider
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.responses import Responses
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.providers.window_reports import ASK_AGAIN_SECONDS, WindowReports
from sessionlib.window_facts import WindowFact, WindowSource, known_window, reported_window, smaller
from tests.waiting import wait_for

OWN = WindowFact(128_000, WindowSource.DECLARED)


@pytest.mark.parametrize(
    ("model", "tokens", "source"),
    [
        ("claude-sonnet-4-5", 200_000, WindowSource.TABLE),
        ("GPT-4o-mini", 128_000, WindowSource.TABLE),
        ("gpt-5", 272_000, WindowSource.TABLE),
        ("gpt-5-chat-latest", 128_000, WindowSource.TABLE),
        ("openai/gpt-4.1", 1_047_576, WindowSource.TABLE),
        ("", 128_000, WindowSource.DEFAULT),
        ("my-own-model", 128_000, WindowSource.DEFAULT),
    ],
)
def test_a_window_is_known_by_the_longest_beginning_of_the_models_name(
    model: str, tokens: int, source: WindowSource
) -> None:
    """Beginnings are compared without a router's prefix and without case."""
    assert known_window(model) == WindowFact(tokens, source)


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"id": "claude", "max_input_tokens": 200_000}, 200_000),
        ({"id": "qwen", "max_model_len": 32_768}, 32_768),
        ({"id": "llama", "context_length": 131_072}, 131_072),
        ({"id": "groq", "context_window": 8_192}, 8_192),
        ({"id": "gpt"}, None),
        ({"max_model_len": 0}, None),
        ({"max_model_len": 1_023}, None),
        ({"max_model_len": 10**9}, None),
        ({"max_model_len": "32768"}, 32_768),
        ({"max_model_len": 32_768.0}, 32_768),
        ({"max_model_len": "32k"}, None),
        ({"max_model_len": "9" * 5_000}, None),
        ({"max_model_len": 32_768.5}, None),
        ({"max_model_len": float("inf")}, None),
        ({"max_model_len": float("nan")}, None),
        ({"max_model_len": True}, None),
        ({"max_model_len": [32_768]}, None),
        ({"max_model_len": None, "context_length": 4_096}, 4_096),
        ({"context_length": 131_072, "max_model_len": 8_192}, 8_192),
        ({"max_input_tokens": "65536", "context_window": 32_768.0, "max_context_length": 512}, 32_768),
        (None, None),
        ([], None),
    ],
)
def test_a_report_counts_if_it_makes_sense(answer: Any, tokens: int | None) -> None:
    """A figure outside of the sane range, or that is no whole number, is no report; of several the smallest counts."""
    assert reported_window(answer) == tokens


def test_the_smaller_of_declared_and_reported_wins() -> None:
    """A provider that reports more does not widen what was declared."""
    assert smaller(OWN, 64_000) == WindowFact(64_000, WindowSource.REPORTED)
    assert smaller(OWN, 200_000) == OWN
    assert smaller(OWN, None) == OWN


def test_an_agent_without_a_declared_window_has_its_models() -> None:
    """The figure is part of the version, so that a later table makes another version of it."""
    agent = Agent(name="a", model="claude-opus-4-1")
    assert agent.window == WindowFact(200_000, WindowSource.TABLE)
    assert '"window_tokens":200000' in agent.description()


def test_a_declared_window_stays_as_it_is() -> None:
    """Also one that is larger than the table's."""
    assert Agent(name="a", model="claude-opus-4-1", window_tokens=1_000_000).window == WindowFact(
        1_000_000, WindowSource.DECLARED
    )


def test_budgets_are_made_for_the_smaller_window() -> None:
    """A window reported half as large gives the budgets of an agent that declares it so."""
    counter = counter_named("characters")
    large = Agent(name="a", window_tokens=64_000, counter="characters", output_reserve_tokens=0)
    small = large.model_copy(update={"window_tokens": 32_000})
    reported = large.session_budgets(counter, 1.0, WindowFact(32_000, WindowSource.REPORTED))
    assert reported == small.budgets(counter)
    assert large.session_budgets(counter, 1.0, WindowFact(90_000, WindowSource.REPORTED)) == large.budgets(counter)


Handler = Callable[[httpx.Request], httpx.Response]


def provider_of(kind: type[ApiProvider], handler: Handler) -> ApiProvider:
    return kind("https://models.test", build_client=lambda: httpx.Client(transport=httpx.MockTransport(handler)))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (ChatCompletions, "/models/m%201"),
        (Responses, "/models/m%201"),
        (Anthropic, "/v1/models/m%201"),
    ],
)
def test_each_api_is_asked_about_the_model_where_it_tells_of_models(kind: type[ApiProvider], path: str) -> None:
    """One question, at the model's own address."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"id": "m 1", "max_model_len": 16_384})

    assert provider_of(kind, answer).reported_window("m 1") == 16_384
    assert asked == [path]


def test_a_server_that_only_lists_its_models_is_understood() -> None:
    """Where nothing is at the model's own address, the list is looked through."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/models":
            listed = [{"id": "other", "max_model_len": 4_096}, {"id": "m", "max_model_len": 8_192}]
            return httpx.Response(200, json={"data": listed})
        return httpx.Response(404)

    assert provider_of(ChatCompletions, answer).reported_window("m") == 8_192


def test_a_server_that_tells_of_no_models_reports_nothing() -> None:
    """Most compatible servers are content with one address."""
    assert provider_of(ChatCompletions, lambda _: httpx.Response(404)).reported_window("m") is None


def test_a_refused_question_is_an_error_that_shows_no_key() -> None:
    """A key that is not accepted is the caller's to mend."""
    with pytest.raises(ProviderRejected):
        provider_of(ChatCompletions, lambda _: httpx.Response(401)).reported_window("m")


def test_a_report_is_asked_for_once_and_nobody_waits_for_it() -> None:
    """The first look starts the question and knows nothing; a later one knows the answer."""
    reports, may_answer, asked = WindowReports(), threading.Event(), []

    def ask() -> int:
        asked.append(1)
        may_answer.wait(10)
        return 32_768

    assert reports.tokens("key", ask) is None
    may_answer.set()
    wait_for(lambda: reports.tokens("key", ask) == 32_768)
    assert asked == [1]


def test_a_provider_that_could_not_be_asked_is_asked_again_later() -> None:
    """Its silence is not remembered for good, and it is not asked at every turn."""
    outcomes: list[Exception | int] = [ProviderUnavailable("away"), RuntimeError("odd"), 4_096]
    now, answers = [0.0], iter(outcomes)
    reports, asked = WindowReports(lambda: now[0]), []

    def ask() -> int:
        asked.append(now[0])
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    for moment in (0.0, 1.0, ASK_AGAIN_SECONDS, 2 * ASK_AGAIN_SECONDS):
        now[0] = moment
        reports.tokens("key", ask)
        wait_for(lambda: not any(thread.name == "window-report" for thread in threading.enumerate()))
    assert reports.tokens("key", ask) == 4_096
    assert asked == [0.0, ASK_AGAIN_SECONDS, 2 * ASK_AGAIN_SECONDS]


def test_a_catalog_takes_the_smaller_window_once_it_is_known() -> None:
    """Until then, and for providers that cannot be asked, the agent's word counts."""
    agent = Agent(name="a", model="m", provider="api", window_tokens=64_000)
    plain = Agent(name="b", provider="scripted", window_tokens=64_000)
    api = provider_of(ChatCompletions, lambda _: httpx.Response(200, json={"id": "m", "max_model_len": 32_768}))
    catalog = Catalog({"a": agent, "b": plain}, {"api": api, "scripted": ScriptedProvider()})
    wait_for(lambda: catalog.window(agent) == WindowFact(32_768, WindowSource.REPORTED))
    assert catalog.window(plain) == WindowFact(64_000, WindowSource.DECLARED)
