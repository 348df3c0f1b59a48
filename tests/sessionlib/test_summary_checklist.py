"""The checklist of spec/summaries C11, one test a line, numbered in the order in which they stand there.

Where the list speaks of an editor (buffers, text properties), the test asserts what that is here: the caller's values,
the request's own text, the thread that asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from sessionlib.agent import Agent, Journal
from sessionlib.catalog import Catalog
from sessionlib.errors import InvalidInput, ProviderUnavailable
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.admission import LIMIT_NAMES, LIMIT_PLACES, estimated_tokens
from sessionlib.summaries.contract import Fault
from sessionlib.summaries.model import ModelGenerator
from sessionlib.summaries.prompts import INSTRUCTIONS, compose
from sessionlib.summaries.purposes import DIGEST_LIMIT_BYTES, EMPTY_BULLET, HEADINGS, Purpose
from sessionlib.summaries.validation import complaint, is_empty_digest
from sessionlib.tokens import Usage
from sessionlib.workloads import SummaryWorkload, WorkloadKind
from tests.sessionlib.summarizing import (
    Streaming,
    answered,
    drawing,
    generated,
    never,
    pieces,
    request_for,
    summary,
    workload,
)

ACCOUNT = (
    "Scope",
    "Constraints & Preferences",
    "Work & Evidence",
    "Key Decisions",
    "Open Questions & Risks",
    "Critical Context",
    "Relevant Files",
    "Skills Invoked",
)
MARKER = "00000000000000a0"


def digest_of(size_bytes: int) -> str:
    """A valid digest of exactly so many bytes."""
    text = summary(Purpose.DIGEST, {"Done": "- "})
    return text.replace("- \n", f"- {'x' * (size_bytes - len(text))}\n", 1)


@pytest.mark.parametrize(
    ("purpose", "headings"),
    [
        (Purpose.CONTINUATION, (*ACCOUNT, "Next Steps")),
        (Purpose.HANDOFF, ACCOUNT),
        (Purpose.DIGEST, ("Done", "Learned", "Surprised", "Unfinished")),
    ],
)
def test_c11_01_headings_per_purpose(purpose: Purpose, headings: tuple[str, ...]) -> None:
    """Exactly these, in this order, in the values and in the instruction."""
    assert HEADINGS[purpose] == headings
    asked = [line[3:] for line in INSTRUCTIONS[purpose].split("\n") if line.startswith("## ")]
    assert tuple(asked) == headings


def test_c11_02_next_steps_are_asked_for_by_a_continuation_only() -> None:
    """No other instruction speaks of them."""
    assert [purpose for purpose in Purpose if "Next Steps" in INSTRUCTIONS[purpose]] == [Purpose.CONTINUATION]


def test_c11_03_the_input_holds_all_labelled_parts_and_plain_text() -> None:
    """Purpose, task or previous record, guidance and evidence in their order; a string, and nothing else."""
    continuation = request_for(Purpose.CONTINUATION, "seen", previous="known", guidance="only pumps")
    document = compose(continuation, MARKER).document
    parts = ["Purpose: continuation", "known", "only pumps", "provenance: user", "seen"]
    assert sorted(parts, key=document.index) == parts
    handoff = compose(request_for(Purpose.HANDOFF, "seen", focus="the task"), MARKER).document
    assert handoff.index("do not reproduce") < handoff.index("the task") < handoff.index("seen")
    assert type(document) is str


@pytest.mark.parametrize(("system", "document", "tokens"), [("1234", "5678", 3), ("", "", 1), ("", "字" * 400, 1_201)])
def test_c11_04_estimate_examples(system: str, document: str, tokens: int) -> None:
    """Old examples stay; any character that is not ASCII costs a token or more; 400 of Chinese exceed 900."""
    assert estimated_tokens(system, document) == tokens


def test_c11_05_the_policy_is_that_of_the_session_s_agent() -> None:
    """Whoever asks: what a workload leaves open is taken from the agent that the session is of."""
    agent = Agent(name="root", provider="own", model="large", handoff=SummaryWorkload(model="small", effort="low"))
    catalog = Catalog({"root": agent}, {"own": ScriptedProvider()})
    resolved = catalog.workload(agent, WorkloadKind.HANDOFF)
    assert (resolved.provider, resolved.model, resolved.effort) == ("own", "small", "low")


@pytest.mark.parametrize(
    "bad",
    [
        lambda text: text.replace("## Scope\n", ""),
        lambda text: text.replace("## Scope", "## Scope\n- x\n## Scope"),
        lambda text: text.replace("## Key Decisions", "## Work & Evidence").replace("## Work", "## Key", 1),
        lambda text: text + "\n## Appendix",
        lambda text: summary(Purpose.DIGEST),
    ],
    ids=["missing", "duplicate", "reordered", "extra", "of another purpose"],
)
@pytest.mark.parametrize("purpose", [Purpose.CONTINUATION, Purpose.HANDOFF])
def test_c11_06_the_heading_contract_is_exact(purpose: Purpose, bad: Any) -> None:
    """Five kinds of bad headings are refused; the good ones are accepted."""
    assert answered(summary(purpose), purpose).fault is None
    assert answered(bad(summary(purpose)), purpose).fault is Fault.VALIDATION


@pytest.mark.parametrize(
    ("section", "is_good"),
    [("none", False), ("- (none)", False), ("- none\n- x", False), ("", False), ("- none", True), ("- x\n- y", True)],
)
def test_c11_07_the_empty_marker_of_a_digest(section: str, is_good: bool) -> None:
    """Four bad forms, two good ones; only a digest of empty markers alone is empty."""
    text = summary(Purpose.DIGEST, {"Done": section})
    assert (complaint(text, Purpose.DIGEST, source="") == "") is is_good
    assert is_empty_digest(text) == (section == "- none")


def test_c11_08_one_isolated_request() -> None:
    """As the workload says, without tools, its usage returned, and no provider session left behind."""
    provider = ScriptedProvider([ModelReply(text=summary(Purpose.HANDOFF), usage=Usage(500, 60, 400))])
    settled = generated(provider, request_for(Purpose.HANDOFF))
    (call,) = provider.requests
    assert (call.model, call.parameters, call.tools, call.handle) == ("small", {"effort": "low"}, (), None)
    assert (settled.provider, settled.model, settled.effort) == ("other", "small", "low")
    assert (settled.prompt_tokens, settled.cached_tokens, settled.completion_tokens) == (500, 400, 60)
    assert provider.handles == ()


def test_c11_09_a_digest_has_its_own_workload_and_a_frozen_one_stays() -> None:
    """The journal's workload is resolved once; the generator asks under what it was handed, whatever changes since."""
    agent = Agent(name="a", model="large", journal=Journal(digest=SummaryWorkload(model="journal-model")))
    catalog = Catalog({"a": agent}, {"default": ScriptedProvider([summary(Purpose.DIGEST)])})
    frozen = catalog.workload(agent, WorkloadKind.DIGEST)
    assert frozen.model == "journal-model"
    with pytest.raises(FrozenInstanceError):
        frozen.model = "other"  # type: ignore[misc]
    generator = ModelGenerator(catalog.provider("default"), frozen, drawing())
    assert generator.generate(request_for(Purpose.DIGEST), never).model == "journal-model"


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({}, {}),
        ({"max_tokens": 9_000}, {"max_tokens": 9_000}),
        ({"max_tokens": 1_000}, {"max_tokens": 1_000}),
        ({"unknown_limit": 5}, {"unknown_limit": 5}),
    ],
    ids=["absent", "9,000", "1,000", "unsupported"],
)
def test_c11_10_output_limits_are_honoured_and_none_is_added(
    parameters: Mapping[str, Any], sent: Mapping[str, Any]
) -> None:
    """What the provider gets is what the workload says: no ceiling of ours, no reasoning turned off."""
    provider = ScriptedProvider([summary(Purpose.DIGEST)])
    assert generated(provider, request_for(Purpose.DIGEST), parameters=parameters).fault is None
    assert provider.requests[0].parameters == sent


@pytest.mark.parametrize(
    "text",
    [
        f"Here it is:\n{summary(Purpose.DIGEST)}",
        summary(Purpose.DIGEST, {"Done": "prose"}),
        summary(Purpose.DIGEST, {"Done": ""}),
        summary(Purpose.DIGEST, {"Done": "- x\n- none"}),
        summary(Purpose.DIGEST, {"Done": "- x\n```\ncode\n```"}),
        digest_of(DIGEST_LIMIT_BYTES + 1),
    ],
    ids=["preface", "prose", "no bullet", "marker beside a bullet", "fence", "too large"],
)
def test_c11_11_malformed_digests_are_validation_faults(text: str) -> None:
    """Six of them."""
    settled = answered(text, Purpose.DIGEST)
    assert (settled.fault, settled.text) == (Fault.VALIDATION, "")


def test_c11_12_streaming_overflow_aborts_once_and_ignores_late_events() -> None:
    """A provider that goes on, and then fails, changes nothing of the first settlement."""
    provider = Streaming(
        pieces(digest_of(60_000), 6_000), failure=ProviderUnavailable("aborted"), on_abort=lambda exc: None
    )
    settled = generated(provider, request_for(Purpose.DIGEST))
    assert (settled.fault, settled.is_transient, provider.abort_count) == (Fault.VALIDATION, False, 1)
    assert len(provider.heard) == 10


@pytest.mark.parametrize("name", LIMIT_NAMES)
@pytest.mark.parametrize("place", ["", *LIMIT_PLACES])
def test_c11_13_limits_are_found_in_the_payload(name: str, place: str) -> None:
    """Wherever one is stated it is reserved: the same request has room beside a small limit, not beside a large one."""
    request = request_for(Purpose.DIGEST, "x" * 4 * 40_000)
    for limit, fault in ((1_000, None), (64_000, Fault.SIZE)):
        parameters: dict[str, Any] = {name: limit}
        provider = ScriptedProvider([summary(Purpose.DIGEST)])
        sent = {place: parameters} if place else parameters
        assert generated(provider, request, window_tokens=80_000, parameters=sent).fault is fault


@pytest.mark.parametrize("limit", [None, 0, -5])
@pytest.mark.parametrize("place", ["", *LIMIT_PLACES])
def test_c11_14_invalid_limits_are_never_sent(limit: int | None, place: str) -> None:
    """Null, zero, negative: a fault of the provider's class, before anything is sent."""
    provider = ScriptedProvider()
    parameters: dict[str, Any] = {"max_tokens": limit}
    settled = generated(provider, request_for(Purpose.DIGEST), parameters={place: parameters} if place else parameters)
    assert (settled.fault, settled.is_transient, provider.requests) == (Fault.PROVIDER, False, ())


def test_c11_15_a_digest_of_the_maximum_size_settles() -> None:
    """Exactly 16,384 bytes, whole or in pieces."""
    text = digest_of(DIGEST_LIMIT_BYTES)
    assert answered(text, Purpose.DIGEST).text == text
    assert generated(Streaming(pieces(text, 999)), request_for(Purpose.DIGEST)).text == text


def test_c11_16_the_policy_travels_on_the_request_itself() -> None:
    """Two workloads at one provider do not mix, and what the caller holds is not written to."""
    provider = ScriptedProvider(lambda request: summary(Purpose.DIGEST))
    shared: dict[str, Any] = {"options": {"num_predict": 900}}
    for model in ("one", "two"):
        generated(provider, request_for(Purpose.DIGEST), model=model, parameters=shared)
    assert [request.model for request in provider.requests] == ["one", "two"]
    assert provider.requests[0].parameters == shared
    assert provider.requests[0].parameters["options"] is not shared["options"]


def test_c11_17_pieces_are_joined() -> None:
    """A stream of pieces, empty ones for reasoning between them, is one text."""
    text = summary(Purpose.DIGEST)
    settled = generated(Streaming([text[:30], "", "", text[30:]]), request_for(Purpose.DIGEST))
    assert settled.text == text


def test_c11_18_a_handoff_with_next_steps_is_refused() -> None:
    """It assigns no work."""
    settled = answered(f"{summary(Purpose.HANDOFF)}\n## Next Steps\n- deploy", Purpose.HANDOFF)
    assert (settled.fault, settled.reason) == (
        Fault.VALIDATION,
        "a handoff has 8 headings; the answer has 9",
    )


@pytest.mark.parametrize("text", ["x" * 200_000, "字" * 16_000], ids=["large", "multibyte"])
def test_c11_19_oversized_and_multibyte_input_is_refused_locally(text: str) -> None:
    """By the estimate, and without a call."""
    provider = ScriptedProvider()
    settled = generated(provider, request_for(Purpose.DIGEST, text), window_tokens=64_000)
    assert (settled.fault, provider.requests) == (Fault.SIZE, ())


def test_c11_20_two_requests_at_once_do_not_mix() -> None:
    """Each is settled with its own answer, while both are open."""
    barrier = threading.Barrier(2)

    def answer(request: ModelRequest) -> str:
        barrier.wait(30)
        return summary(Purpose.DIGEST, {"Done": f"- {request.turn_id}"})

    generator = ModelGenerator(ScriptedProvider(answer), workload(), drawing())
    texts: dict[str, str] = {}

    def ask(name: str) -> None:
        texts[name] = generator.generate(request_for(Purpose.DIGEST, name=name), never).text

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {name: text.split("\n")[1] for name, text in texts.items()} == {"first": "- first", "second": "- second"}


@pytest.mark.parametrize(
    "answer",
    ["zanzibar", ModelReply(text="", calls=(CallRequest(call_id="c", name="zanzibar", arguments="{}"),))],
    ids=["text", "call"],
)
def test_c11_21_what_is_told_of_a_fault_has_no_content(answer: ModelReply | str) -> None:
    """Class, reason, who and how much; no word of evidence or answer."""
    settled = generated(ScriptedProvider([answer]), request_for(Purpose.DIGEST, "zanzibar " * 90))
    assert settled.fault is Fault.VALIDATION
    assert "zanzibar" not in json.dumps(asdict(settled))


def test_c11_22_cancellation_yields_one_cancelled_settlement() -> None:
    """Before the call and during it; what comes later is ignored."""
    late = Streaming(pieces(summary(Purpose.DIGEST), 20), on_abort=lambda exc: None)
    generator = ModelGenerator(late, workload(), drawing())
    assert generator.generate(request_for(Purpose.DIGEST), lambda: True).fault is Fault.CANCELLED
    assert late.heard == []
    assert generator.generate(request_for(Purpose.DIGEST), lambda: bool(late.heard)).fault is Fault.CANCELLED
    assert late.abort_count == 1


def test_c11_23_the_settlement_comes_to_whoever_asked() -> None:
    """It is what the call returns, in the caller's own thread, wherever the provider works."""

    def elsewhere(request: ModelRequest) -> str:
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(summary(Purpose.DIGEST)))
        thread.start()
        thread.join(30)
        return answers[0]

    assert generated(ScriptedProvider(elsewhere), request_for(Purpose.DIGEST)).text == summary(Purpose.DIGEST)


def test_c11_24_a_policy_that_cannot_be_used_settles() -> None:
    """What is wrong with a workload or its provider is in the settlement; wrong arguments of the caller raise."""
    settled = generated(ScriptedProvider(), request_for(Purpose.DIGEST), parameters={"max_tokens": "many"})
    assert settled.fault is Fault.PROVIDER
    with pytest.raises(InvalidInput):
        request_for(Purpose.DIGEST, previous="only a continuation has one")


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_c11_25_fenced_headings_are_accepted(fence: str) -> None:
    """A heading that is quoted inside a fenced block is text."""
    quoted = f"{fence}\n## Scope\n## Done\n{fence}"
    said = {"Scope": f"- the template is\n{quoted}", "Key Decisions": EMPTY_BULLET[Purpose.HANDOFF]}
    assert answered(summary(Purpose.HANDOFF, said), Purpose.HANDOFF).fault is None
