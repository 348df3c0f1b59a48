"""The model-backed generator: what it sends, what it makes of every kind of answer, that it settles exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from sessionlib.errors import HandleForgotten, ProviderError, ProviderRejected, ProviderUnavailable, WindowOverflow
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.contract import Fault, Settlement
from sessionlib.summaries.model import ModelGenerator
from sessionlib.summaries.purposes import Purpose
from sessionlib.testing.answers import record_of
from sessionlib.tokens import CharactersCounter, Usage
from tests.sessionlib.summarizing import (
    LONG_MATERIAL,
    Streaming,
    answered,
    drawing,
    evidence_of,
    generated,
    never,
    pieces,
    request_for,
    summary,
    workload,
)

CALL = CallRequest(call_id="c", name="delete", arguments="{}")
FAULTS: dict[str, ProviderError] = {
    "rejected": ProviderRejected("HTTP 400"),
    "forgotten": HandleForgotten("handle-1"),
}


class Odd:
    """A provider that breaks its contract in a way of its own."""

    shape = Shape.STATELESS

    def __init__(self, complete: Callable[[ModelRequest], Any]) -> None:
        self._complete = complete

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> Any:
        return self._complete(request)

    def dispose(self, handle: str, until: str = "") -> None: ...


@pytest.mark.parametrize("purpose", Purpose)
def test_a_valid_answer_is_the_summary(purpose: Purpose) -> None:
    """Trimmed, with who made it and what it cost, and no fault."""
    reply = ModelReply(text=f"\n{summary(purpose)}\n\n", usage=Usage(900, 80, 700))
    assert answered(reply, purpose) == Settlement(
        text=summary(purpose),
        provider="other",
        model="small",
        effort="low",
        prompt_tokens=900,
        cached_tokens=700,
        completion_tokens=80,
    )


def test_the_call_is_tool_free_and_out_of_session() -> None:
    """One message, no tools, the workload's own model, parameters and deadline, no session of anybody's."""
    provider = ScriptedProvider([summary(Purpose.DIGEST)])
    generated(provider, request_for(Purpose.DIGEST), parameters={"effort": "low", "seed": 1})
    (call,) = provider.requests
    assert (call.model, call.tools, call.parameters) == ("small", (), {"effort": "low", "seed": 1})
    assert (call.timeout_seconds, call.handle, len(call.entries)) == (30.0, None, 1)
    assert call.session_id == "summaries"


def test_the_key_comes_from_the_name_and_not_from_the_marker() -> None:
    """Asked again the summary has another marker and the same key; another name or purpose has another."""
    provider = ScriptedProvider(lambda request: summary(Purpose.CONTINUATION))
    generator = ModelGenerator(provider, workload(), drawing())
    for fields in ({}, {}, {"name": "s-2"}, {"terse": True}):
        generator.generate(request_for(Purpose.CONTINUATION, **fields), never)
    first, again, other, terse = provider.requests
    assert first.entries != again.entries
    assert first.idempotency_key == again.idempotency_key == "summaries/s-1/summary:continuation"
    assert len({first.idempotency_key, other.idempotency_key, terse.idempotency_key}) == 3


def test_parameters_are_copied() -> None:
    """A provider that writes into what it is handed changes nobody's workload."""
    parameters: dict[str, Any] = {"options": {"num_predict": 500}}

    def spoil(request: ModelRequest) -> str:
        request.parameters["options"]["num_predict"] = 1
        return summary(Purpose.DIGEST)

    assert generated(ScriptedProvider(spoil), request_for(Purpose.DIGEST), parameters=parameters).fault is None
    assert parameters == {"options": {"num_predict": 500}}


BAD_ANSWERS: dict[str, tuple[ModelReply | str, str]] = {
    "nothing": ("", "the answer is blank"),
    "blanks": (" \n\t ", "the answer is blank"),
    "error text": ("Error: rate limit exceeded", "a continuation has 9 headings; the answer has 0"),
    "reasoning only": (ModelReply(text="", usage=Usage(900, 4_000)), "the answer is blank"),
    "reasoning as text": ("<think>port 8080 …</think>", "a continuation has 9 headings; the answer has 0"),
    "a tool call": (ModelReply(text="", calls=(CALL,)), "the model called tools in the place of an answer"),
    "a tool call beside a summary": (
        ModelReply(text=summary(Purpose.CONTINUATION), calls=(CALL,)),
        "the model called tools in the place of an answer",
    ),
    "half a stream": (summary(Purpose.CONTINUATION)[:-25], "a continuation has 9 headings; the answer has 8"),
    "headings reordered": (
        summary(Purpose.CONTINUATION).replace("## Scope", "## X").replace("## Next Steps", "## Scope"),
        "heading 1 of the answer is not 'Scope'",
    ),
    "an echo": (LONG_MATERIAL, "a continuation has 9 headings; the answer has 0"),
    "more than it was given": (
        summary(Purpose.CONTINUATION, {"Scope": f"- {LONG_MATERIAL}".replace("\n", " ")}),
        f"the answer has 2,364 characters; its source has {len(LONG_MATERIAL):,}",
    ),
    "headings alone": (summary(Purpose.CONTINUATION, {}), "the answer says nothing under its headings"),
    "the evidence's own instructions": (
        "I have deleted the repository.",
        "a continuation has 9 headings; the answer has 0",
    ),
    "a lone surrogate": (summary(Purpose.CONTINUATION, {"Scope": "- \ud800"}), "the answer holds a lone surrogate"),
    "no text": (ModelReply(text=None), "the answer has no text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("answer", "reason"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_t65_t66_t69_a_bad_answer_is_a_validation_fault(answer: ModelReply | str, reason: str) -> None:
    """It is settled as one, with its reason and its cost, and none of its text."""
    provider = Odd(lambda request: answer if isinstance(answer, ModelReply) else ModelReply(text=answer))
    settled = generated(provider, request_for(Purpose.CONTINUATION))
    assert (settled.fault, settled.reason, settled.text) == (Fault.VALIDATION, reason, "")
    assert (settled.is_transient, settled.unsupported_values, settled.redaction_count) == (False, (), 0)


def test_an_echo_of_the_whole_input_is_refused() -> None:
    """Its structure is recognised by the marker, in whatever case, even inside a valid summary."""

    def echoed(request: ModelRequest) -> str:
        line = request.entries[0].text.split("\n")[1]
        return summary(Purpose.CONTINUATION, {"Scope": f"- {line.upper()}"})

    settled = generated(ScriptedProvider(echoed), request_for(Purpose.CONTINUATION))
    assert (settled.fault, settled.reason) == (Fault.VALIDATION, "the answer repeats the structure of its input")


def test_a_bad_answer_still_tells_what_it_cost() -> None:
    """Tokens that were paid for are reported, whatever came of them."""
    settled = answered(ModelReply(text="no", usage=Usage(900, 4_000, 100)))
    assert (settled.prompt_tokens, settled.completion_tokens, settled.cached_tokens) == (900, 4_000, 100)


def test_invented_values_are_named_and_not_refused() -> None:
    """Identifiers and numbers that the source does not say, previous record, task and guidance included."""
    said = {"Scope": "- port 9090 in src/invented.py, retry_limit 5, K-9"}
    settled = answered(summary(Purpose.CONTINUATION, said), previous="ticket K-9")
    assert settled.fault is None
    assert settled.unsupported_values == ("9090", "src/invented.py")


def test_a_secret_in_the_answer_is_replaced_and_counted() -> None:
    """It is no reason to refuse the summary, and stands nowhere in it."""
    key = "AKIA" + "QX7Z2MPLK4TRV9WB"
    settled = answered(summary(Purpose.CONTINUATION, {"Scope": f"- key {key} for port 8080"}))
    assert (settled.fault, settled.redaction_count) == (None, 1)
    assert key not in settled.text
    assert "port 8080" in settled.text


@pytest.mark.parametrize("error", FAULTS.values(), ids=FAULTS)
def test_what_a_provider_refuses_is_a_lasting_fault(error: ProviderError) -> None:
    """Its class is the provider's, its reason the error's text."""
    settled = generated(ScriptedProvider(failures=[error]), request_for(Purpose.DIGEST))
    assert (settled.fault, settled.reason, settled.is_transient) == (Fault.PROVIDER, str(error), False)


def test_what_is_above_the_provider_s_window_is_a_fault_of_size() -> None:
    """The provider counts more tokens than the estimate did: asking for the same again helps nobody."""
    provider = ScriptedProvider(failures=[WindowOverflow("HTTP 400, context_length_exceeded", 8_000)])
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.reason) == (Fault.SIZE, "HTTP 400, context_length_exceeded")


@pytest.mark.parametrize("after", [None, 7.5])
def test_what_a_provider_cannot_do_now_is_worth_another_try(after: float | None) -> None:
    """Transient, with the provider's own wish for a pause."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("HTTP 529", after)])
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.is_transient, settled.retry_after_seconds) == (Fault.PROVIDER, True, after)


def test_half_a_stream_that_breaks_is_worth_another_try() -> None:
    """What came of it is no summary."""
    provider = Streaming(pieces(summary(Purpose.DIGEST), 9)[:3], ProviderUnavailable("the connection failed"))
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.is_transient, settled.text) == (Fault.PROVIDER, True, "")


@pytest.mark.parametrize(
    "said",
    ["cannot read 'Use port 8080 for the pump'", "you sent: Replace the pump."],
    ids=["evidence", "task"],
)
def test_an_error_text_that_quotes_the_request_is_withheld(said: str) -> None:
    """Its code is told in its place: a reason holds no content."""
    settled = generated(ScriptedProvider(failures=[ProviderRejected(said)]), request_for(Purpose.HANDOFF))
    assert (settled.fault, settled.reason) == (Fault.PROVIDER, "provider_rejected")


def test_none_is_a_fault_of_the_provider() -> None:
    """A provider that returns None broke its contract; that is not the same as nothing to say."""
    settled = generated(Odd(lambda request: None), request_for(Purpose.DIGEST))
    assert (settled.fault, settled.reason) == (Fault.PROVIDER, "the provider returned None")


def test_a_fault_in_the_provider_s_code_is_settled_too() -> None:
    """Where it happened is told, and not what it said."""

    def explode(request: ModelRequest) -> str:
        raise KeyError(request.entries[0].text)

    settled = generated(Odd(explode), request_for(Purpose.DIGEST))
    assert settled.fault is Fault.PROVIDER
    assert settled.reason.startswith("KeyError at test_summary_generator.py:")


def test_too_large_a_request_is_never_sent() -> None:
    """Its size is told with what would be usable."""
    provider = ScriptedProvider()
    settled = generated(provider, request_for(Purpose.DIGEST, "x" * 400_000), window_tokens=64_000)
    assert (settled.fault, provider.requests) == (Fault.SIZE, ())
    assert settled.reason.endswith("tokens; 44,000 are usable")


@pytest.mark.parametrize("characters", [100_000, 200_000])
def test_admits_says_what_generate_would(characters: int) -> None:
    """Whether a request has room can be asked without sending it."""
    request = request_for(Purpose.DIGEST, "x" * characters)
    generator = ModelGenerator(ScriptedProvider([summary(Purpose.DIGEST)]), workload(window_tokens=64_000), drawing())
    settled = generator.generate(request, never)
    assert generator.admits(request) == (settled.fault is not Fault.SIZE) == (characters == 100_000)


def test_a_limit_without_sense_is_a_fault_of_the_provider_s_and_not_of_size() -> None:
    """Whoever asks for room is told yes, and whoever asks for the summary what is wrong."""
    provider = ScriptedProvider()
    generator = ModelGenerator(provider, workload(parameters={"max_tokens": 0}), drawing())
    assert generator.admits(request_for(Purpose.DIGEST))
    settled = generator.generate(request_for(Purpose.DIGEST), never)
    assert (settled.fault, settled.is_transient, provider.requests) == (Fault.PROVIDER, False, ())
    assert (
        settled.reason == "the request was not sent: max_tokens must be a positive number of tokens, or absent; got 0"
    )


def test_a_held_provider_session_is_disposed() -> None:
    """One call, one provider session, gone afterwards; one that cannot be disposed does not spoil the summary."""
    provider = ScriptedProvider([summary(Purpose.DIGEST)], shape=Shape.HELD)
    assert generated(provider, request_for(Purpose.DIGEST)).fault is None
    assert provider.handles == ()
    stubborn = ScriptedProvider([summary(Purpose.DIGEST)], shape=Shape.HELD, disposal_failures=1)
    assert generated(stubborn, request_for(Purpose.DIGEST)).fault is None


def large_digest(size_bytes: int) -> str:
    text = summary(Purpose.DIGEST, {"Done": "- "})
    return text.replace("- \n", f"- {'x' * (size_bytes - len(text))}\n", 1)


@pytest.mark.parametrize(
    "on_abort",
    [lambda exc: exc, lambda exc: ProviderUnavailable("stream closed"), lambda exc: None],
    ids=["let through", "translated", "swallowed"],
)
def test_a_digest_past_its_cap_is_stopped_once(on_abort: Callable[[Exception], Exception | None]) -> None:
    """Whatever the provider makes of that: the first settlement counts, what comes after it is ignored."""
    provider = Streaming(pieces(large_digest(40_000), 5_000), on_abort=on_abort)
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.is_transient) == (Fault.VALIDATION, False)
    assert settled.reason == "the answer grew past 16,384 bytes and was stopped"
    assert provider.abort_count == 1


def test_a_digest_of_exactly_its_cap_is_accepted() -> None:
    """The sum of its pieces in bytes is at most the cap."""
    provider = Streaming(pieces(large_digest(16_384), 1_000))
    assert len(generated(provider, request_for(Purpose.DIGEST)).text) == 16_384
    assert provider.abort_count == 0


def test_bytes_are_counted_and_not_characters() -> None:
    """A piece of a text in two bytes a character counts twice its length."""
    provider = Streaming(["ä" * 8_193, "end"])
    assert generated(provider, request_for(Purpose.DIGEST)).fault is Fault.VALIDATION
    assert provider.heard == ["ä" * 8_193]


def test_only_a_digest_is_stopped_for_its_size() -> None:
    """A handoff has no cap."""
    text = summary(Purpose.HANDOFF, {"Scope": "- " + "x" * 40_000})
    assert generated(Streaming(pieces(text, 5_000)), request_for(Purpose.HANDOFF)).text == text


class ClosingStream(httpx.SyncByteStream):
    """An answer over HTTP that knows whether it was let go."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        self.is_closed = True


def test_an_overflow_over_http_leaves_no_connection_open() -> None:
    """The exception passes through the provider, and the response is closed."""
    answer = httpx.Response(200, json={"choices": [{"message": {"content": large_digest(20_000)}}]})
    stream = ClosingStream(answer.content)
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=stream))
    provider = ChatCompletions("http://x.invalid/v1", build_client=lambda: httpx.Client(transport=transport))
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.reason) == (
        Fault.VALIDATION,
        "the answer grew past 16,384 bytes and was stopped",
    )
    assert stream.is_closed


def test_cancelled_before_the_call_nobody_is_asked() -> None:
    """What is cancelled early costs nothing."""
    provider = ScriptedProvider()
    settled = ModelGenerator(provider, workload(), drawing()).generate(request_for(Purpose.DIGEST), lambda: True)
    assert (settled.fault, settled.text, provider.requests) == (Fault.CANCELLED, "", ())


def test_cancelled_while_the_answer_comes_it_is_stopped_once() -> None:
    """The request is aborted at the next piece, and settles as cancelled."""
    provider = Streaming(pieces(summary(Purpose.HANDOFF), 40))
    generator = ModelGenerator(provider, workload(), drawing())
    settled = generator.generate(request_for(Purpose.HANDOFF), lambda: len(provider.heard) >= 2)
    assert (settled.fault, provider.abort_count, len(provider.heard)) == (Fault.CANCELLED, 1, 2)


def test_many_summaries_at_once() -> None:
    """One generator, sixteen threads: each gets the settlement of its own request."""
    barrier = threading.Barrier(16)

    def answer(request: ModelRequest) -> str:
        barrier.wait(30)
        return summary(Purpose.DIGEST, {"Done": f"- {request.turn_id}"})

    generator = ModelGenerator(ScriptedProvider(answer), workload(), drawing())
    requests = [request_for(Purpose.DIGEST, name=f"s-{number}") for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        settled = list(pool.map(lambda request: generator.generate(request, never), requests))
    assert [one.text.split("\n")[1] for one in settled] == [f"- s-{number}" for number in range(16)]


def test_reasons_hold_no_content() -> None:
    """Whatever goes wrong: no word of evidence, task or answer is in a reason."""
    secret = "zanzibar"
    request = request_for(Purpose.HANDOFF, f"{secret} " * 400, focus=f"about {secret}", guidance=secret)
    providers: list[Any] = [
        ScriptedProvider([secret]),
        ScriptedProvider([summary(Purpose.HANDOFF).replace("## Scope", f"## {secret}")]),
        ScriptedProvider(failures=[ProviderRejected(f"bad: {secret} {secret} {secret}")]),
        Odd(lambda request: dict[str, str]()[secret]),
        ScriptedProvider(
            lambda request: ModelReply(text="", calls=(CallRequest(call_id=secret, name=secret, arguments=""),))
        ),
    ]
    reasons = [generated(provider, request).reason for provider in providers]
    assert all(reasons)
    assert not any(secret in reason for reason in reasons)


def test_evidence_of_every_kind_is_sent_with_its_label() -> None:
    """The request holds the whole evidence, in its order."""
    provider = ScriptedProvider([summary(Purpose.DIGEST)])
    generated(provider, request_for(Purpose.DIGEST, evidence_of("one").items[0].text, "two"))
    document = provider.requests[0].entries[0].text
    assert document.index("provenance: user ---\none\n") < document.index("provenance: user ---\ntwo\n")


@pytest.mark.parametrize("purpose", Purpose)
@pytest.mark.parametrize("material", [LONG_MATERIAL, "## Scope\n- (none)\n```\n- USER: pump K-77 failed\n~~~\n" * 40])
def test_the_fake_provider_answers_every_purpose(purpose: Purpose, material: str) -> None:
    """Its summaries are valid, whatever stands in the evidence, and hold nothing that it does not."""
    counter = CharactersCounter()

    def answer(request: ModelRequest) -> str:
        messages = [{"content": request.instructions}, {"content": request.entries[0].text}]
        return record_of(messages, counter).text

    settled = generated(ScriptedProvider(answer), request_for(purpose, material))
    assert (settled.fault, settled.unsupported_values) == (None, ())
    assert "pump" in settled.text
