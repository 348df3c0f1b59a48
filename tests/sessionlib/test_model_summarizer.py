"""Consolidations by a model: continuations of the generator's, with faults as results and provider errors raised."""

from __future__ import annotations

import pytest

from sessionlib.errors import Cancelled, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.contract import CallRequest, ModelReply, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.admission import estimated_tokens, most_tokens, usable_tokens
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest
from sessionlib.summaries.model import ModelSummarizer
from sessionlib.summaries.prompts import NO_PREVIOUS_RECORD, TERSE_CLAUSE
from sessionlib.summaries.purposes import Purpose
from sessionlib.tokens import Usage
from tests.sessionlib.summarizing import (
    LONG_MATERIAL,
    Streaming,
    consolidation,
    drawing,
    never,
    summarizer,
    summary,
    workload,
)

RECORD = summary(Purpose.CONTINUATION)


def asked(provider: object, request: ConsolidationRequest | None = None) -> Consolidated:
    return summarizer(provider).consolidate(request or consolidation(), never)


def test_a_valid_continuation_is_the_record() -> None:
    """With what it cost, in the summarizer's own tokens."""
    reply = ModelReply(text=f"{RECORD}\n", usage=Usage(900, 80))
    expected = Consolidated(text=RECORD, prompt_tokens=900, completion_tokens=80, model="small")
    assert asked(ScriptedProvider([reply])) == expected


def test_it_is_asked_for_a_continuation() -> None:
    """The previous record as authority, the material as evidence of a transcript; told to be terse at a second try."""
    provider = ScriptedProvider(lambda request: RECORD)
    asked(provider, consolidation(previous_record="Old fact."))
    asked(provider, consolidation(terse=True))
    first, second = provider.requests
    document = first.entries[0].text
    assert document.startswith("Purpose: continuation\n--- previous record ")
    assert document.index("Old fact.") < document.index("provenance: transcript ---\n" + LONG_MATERIAL.strip())
    assert NO_PREVIOUS_RECORD in second.entries[0].text
    assert [TERSE_CLAUSE in request.instructions for request in (first, second)] == [False, True]
    assert "4321" not in f"{first.instructions}{document}", "a budget is no length instruction"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (ModelReply(text="  \n "), "validation: the answer is blank"),
        (
            ModelReply(text="I will look.", calls=(CallRequest(call_id="c", name="f", arguments="{}"),)),
            "validation: the model called tools in the place of an answer",
        ),
        (ModelReply(text="Port is 8080."), "validation: a continuation has 9 headings; the answer has 0"),
    ],
)
def test_t66_t69_an_answer_that_is_no_record_is_a_fault(reply: ModelReply, fault: str) -> None:
    """It is a result and no error: saved as a step, it is not asked for again. What it cost is told."""
    consolidated = asked(ScriptedProvider([reply]))
    assert (consolidated.text, consolidated.fault) == ("", fault)
    assert consolidated.prompt_tokens > 0


def test_what_does_not_fit_is_a_fault_without_a_call() -> None:
    """Its estimate is above what the window offers."""
    provider = ScriptedProvider()
    consolidated = summarizer(provider, window_tokens=9_000).consolidate(consolidation("x" * 30_000), never)
    assert consolidated.fault.startswith("size: the request takes about 8,")
    assert provider.requests == ()


def test_a_record_without_room_for_its_headings_is_not_asked_for() -> None:
    """No answer could be accepted: nothing is paid for two that are refused."""
    provider = ScriptedProvider([RECORD])
    consolidated = asked(provider, consolidation(budget_tokens=63))
    assert consolidated.fault == "size: a record of 63 tokens has no room for its headings"
    assert provider.requests == ()
    assert asked(provider, consolidation(budget_tokens=64)).fault == ""


@pytest.mark.parametrize("error", [ProviderUnavailable("down", 3.0), ProviderRejected("HTTP 400")])
def test_t65_a_failure_is_raised(error: Exception) -> None:
    """Error text is never a record: the failure of the call is the failure of the consolidation, as it came."""
    with pytest.raises(type(error)) as raised:
        asked(ScriptedProvider(failures=[error]))
    assert raised.value is error


def test_what_is_above_the_provider_s_window_is_a_fault() -> None:
    """As what is never sent for its size: the extractive summarizer takes over."""
    provider = ScriptedProvider(failures=[WindowOverflow("HTTP 400", 8_000)])
    assert asked(provider).fault == "size: HTTP 400"


def test_none_is_an_error() -> None:
    """A provider that returns None broke its contract; that is not the same as nothing to say."""

    class Silent(ScriptedProvider):
        def complete(self, request: object, on_delta: object = None) -> ModelReply:
            return None  # type: ignore[return-value]

    with pytest.raises(ProviderRejected, match="None"):
        asked(Silent())


def test_a_limit_without_sense_is_an_error() -> None:
    """Nothing is sent, and the rotation fails with the reason."""
    provider = ScriptedProvider()
    with pytest.raises(ProviderRejected, match="max_tokens must be a positive number"):
        summarizer(provider, parameters={"max_tokens": None}).consolidate(consolidation(), never)
    assert provider.requests == ()


def test_a_cancelled_consolidation_asks_nobody() -> None:
    """What is cancelled before the call is not paid for."""
    provider = ScriptedProvider()
    with pytest.raises(Cancelled):
        summarizer(provider).consolidate(consolidation(), lambda: True)
    assert provider.requests == ()


def test_one_that_is_cancelled_on_its_way_is_stopped() -> None:
    """At the next piece of the answer."""
    provider = Streaming([RECORD, "more"])
    with pytest.raises(Cancelled):
        summarizer(provider).consolidate(consolidation(), lambda: bool(provider.heard))
    assert provider.heard == [RECORD]


def test_a_provider_need_not_hold_the_call() -> None:
    """Nothing will follow it, and it says so."""
    provider = ScriptedProvider([RECORD])
    asked(provider)
    assert [request.is_single for request in provider.requests] == [True]


def test_a_held_provider_session_is_disposed() -> None:
    """Of a provider that holds it all the same: one call, one provider session, gone afterwards."""
    provider = ScriptedProvider([RECORD], shape=Shape.HELD)
    asked(provider)
    assert provider.handles == ()


def test_the_same_request_has_the_same_key() -> None:
    """Equal requests are asked under one idempotency key, another material or a second attempt under another."""
    provider = ScriptedProvider(lambda request: RECORD)
    for request in (consolidation(), consolidation(), consolidation("USER: else " * 90), consolidation(terse=True)):
        asked(provider, request)
    first, again, other, terse = (request.idempotency_key for request in provider.requests)
    assert first == again
    assert first.startswith("summaries/consolidation:3-9:")
    assert len({first, other, terse}) == 3


def test_a_secret_in_the_answer_is_counted() -> None:
    """The generator replaces it; the rotation adds it up."""
    said = summary(Purpose.CONTINUATION, {"Scope": "- key AKIA" + "QX7Z2MPLK4TRV9WB"})
    consolidated = asked(ScriptedProvider([said]))
    assert consolidated.redaction_count == 1
    assert "AKIA" not in consolidated.text


@pytest.mark.parametrize("window_tokens", [4_000, 32_000, 128_000])
@pytest.mark.parametrize("text", ["a ", "ä", "字", "🚢"])
def test_half_of_its_window_is_always_admitted(window_tokens: int, text: str) -> None:
    """Previous record and material that take half of what it says it holds fit beside the prompt, in any script."""
    one = ModelSummarizer(ScriptedProvider([RECORD]), workload(window_tokens=window_tokens), drawing())
    shown = text * int(one.window_tokens / 4 / (most_tokens(text * 100) / 100))
    request = consolidation(shown, previous_record=shown, terse=True)
    assert not one.consolidate(request, never).fault.startswith("size")


def test_a_window_too_small_for_the_prompt_is_halved() -> None:
    """Such a window is good for no model; what it says it holds stays sensible."""
    assert summarizer(ScriptedProvider(), window_tokens=1_000).window_tokens == 500
    large = summarizer(ScriptedProvider(), window_tokens=128_000)
    assert 128_000 - 2_500 < large.window_tokens < 128_000
    assert usable_tokens(128_000) > large.window_tokens // 2 + estimated_tokens("x" * 3_000)
