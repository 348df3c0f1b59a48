"""One contract for all providers behind an API: whichever answers, the session is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.archive import unpack
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import (
    HandleForgotten,
    ProviderRejected,
    ProviderUnavailable,
    TurnFailed,
    WindowOverflow,
)
from sessionlib.policies.log_merge import LogMerge
from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import CallRequest, Shape
from sessionlib.providers.responses import Responses
from sessionlib.recordings import read_recording
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.asking import SINGLE, request_of
from tests.sessionlib.official import fault_in
from tests.waiting import wait_for

SESSION = "team/talk"
BROKEN_ARGUMENTS = '{"a": 1, "b":'
PAGE = "The build of module alpha failed with error 1234 in src/alpha.py, line 88. " * 30

Adapter = ChatCompletions | Anthropic | Responses
ADAPTERS: Mapping[str, Callable[[FakeProviderServer], Adapter]] = {
    "chat_completions": lambda server: ChatCompletions(server.base_url),
    "anthropic": lambda server: Anthropic(server.url),
    "responses": lambda server: Responses(server.base_url),
}
EACH = pytest.mark.parametrize("name", ADAPTERS)


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProviderServer]:
    """A server that also holds every request against the types of the official clients."""
    with FakeProviderServer(check=fault_in) as server:
        yield server


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.forget_recording(SESSION)
    running.responses.forget()
    running.change(window_tokens=128_000)
    return running


def look(path: str) -> str:
    """Read a file."""
    return f"{path}: {PAGE}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(**fields: Any) -> Agent:
    defaults: dict[str, Any] = {
        "name": "coder",
        "model": "m-1",
        "instructions": "Be kind.",
        "window_tokens": 64_000,
        "tools": (look, add),
        "policy": LogMerge(tail_tokens=600),
        "consolidation": ConsolidationWorkload(summarizer="model", model="summarizer"),
    }
    return Agent(**{**defaults, **fields})


def call(call_id: str, name: str, arguments: str) -> dict[str, str]:
    return {"call_id": call_id, "name": name, "arguments": arguments}


TALK: Mapping[str, Mapping[str, Any]] = {
    "t1/model:0": {
        "text": "Looking.",
        "calls": [call("c1", "look", '{"path": "a.py"}'), call("c2", "add", '{"a": 1, "b": 2}')],
    },
    "t1/model:1": {"calls": [call("c3", "add", BROKEN_ARGUMENTS)]},
    "t1/model:2": {"text": "It is 3."},
    "t2/model:0": {"calls": [call("c4", "look", '{"path": "b.py"}'), call("c5", "look", '{"path": "c.py"}')]},
    "t2/model:1": {"text": ""},
    "t3/model:0": {"refusal": "I will not do that."},
    "t4/model:0": {"text": "Again.", "calls": [call("c6", "history.read_item", '{"item": 1}')]},
    "t4/model:1": {"text": "You asked for a.py."},
    "t5/model:0": {"reasoning": "They want nothing."},
}
"""What the model says in the talk, by turn and step: parallel calls, arguments that do not parse, empty content, a
refusal, the private tool, and an answer that is reasoning only."""


@dataclass(frozen=True)
class Told:
    """What a session came to."""

    entries: tuple[Entry, ...]
    records: tuple[tuple[int, int, str], ...]
    answers: tuple[str, ...]
    recovered: tuple[bool, ...] = ()
    report: Mapping[str, Any] | None = None


def history(session: Session) -> tuple[Entry, ...]:
    """Everything that the session ever recorded: archive, then live entries."""
    chunks = session.store.chunks(session.session_id)
    return (*(entry for chunk in chunks for entry in unpack(chunk.data)), *session.layout().live.entries)


def play(
    server: FakeProviderServer, provider: Adapter, before_turn: Callable[[str], None] = lambda _: None, **fields: Any
) -> Told:
    """Have the talk, rotating after its first and third turn."""
    server.record(SESSION, {"answers": {f"{SESSION}/{step}": reply for step, reply in TALK.items()}})
    replies = []
    with Session(agent(**fields), {"default": provider}, session_id=SESSION) as session:
        for number, message in enumerate(["Fix a.py", "And b.py?", "Do harm", "What did I ask?", "Well"], start=1):
            before_turn(f"t{number}")
            replies.append(session.send(message, turn_id=f"t{number}"))
            if number in {1, 3}:
                event = session.rotate(timeout_seconds=30)
                assert event is not None
                assert event.kind == "rotated", event
        layout = session.layout()
        told = Told(
            entries=history(session),
            records=tuple((record.first_seq, record.last_seq, record.text) for record in layout.records),
            answers=tuple(reply.text for reply in replies),
            recovered=tuple(reply.answer.is_recovered for reply in replies),
            report=server.report([SESSION])["sessions"][SESSION],
        )
    provider.close()
    return told


@EACH
def test_the_same_talk_gives_the_same_history(server: FakeProviderServer, name: str) -> None:
    """Parallel calls, broken arguments, empty content, a refusal, reasoning only, and two rotations: history, records
    and answers do not tell who the provider was, and no request was one that the official client's types refuse."""
    expected = expected_talk()
    told = play(server, ADAPTERS[name](server))
    assert told.entries == expected.entries
    assert told.records == expected.records
    assert told.records
    assert told.answers == ("It is 3.", "", "I will not do that.", "You asked for a.py.", "")


@cache
def expected_talk() -> Told:
    """The talk with chat completions."""
    with FakeProviderServer() as server:
        return play(server, ChatCompletions(server.base_url))


@EACH
def test_a_prompt_changes_at_rotations_only(server: FakeProviderServer, name: str) -> None:
    """Between rotations each request extends the one before, as the provider sees it; and none is above the window."""
    report = play(server, ADAPTERS[name](server)).report
    assert report is not None
    assert [seen["key"] for seen in report["breaks"]] == [f"{SESSION}/t2/model:0", f"{SESSION}/t4/model:0"]
    assert report["refused"] == 0
    assert report["asked_again"] == {}


@EACH
def test_arguments_that_do_not_parse_go_back_to_the_model(server: FakeProviderServer, name: str) -> None:
    """They are history as the model wrote them, and their result says what is wrong; no tool ran on them."""
    entries = play(server, ADAPTERS[name](server)).entries
    asked = next(entry for entry in entries if entry.kind is EntryKind.TOOL_CALL and entry.tool_call_id == "c3")
    result = next(entry for entry in entries if entry.kind is EntryKind.TOOL_RESULT and entry.tool_call_id == "c3")
    assert asked.text == BROKEN_ARGUMENTS
    assert result.text.startswith("InvalidInput: arguments must fit the schema of add")


@EACH
def test_what_a_provider_reports_is_accounted(server: FakeProviderServer, name: str) -> None:
    """The prompt counts whole, whoever holds it, and what came from the cache is part of it."""
    provider = ADAPTERS[name](server)
    first = provider.complete(request_of(Entry.user(PAGE)))
    assert first.usage is not None
    again = provider.complete(request_of(Entry.user(PAGE), turn_id="t2"))
    assert again.usage is not None
    assert first.usage.cached_tokens == 0
    assert 0 < again.usage.cached_tokens <= again.usage.prompt_tokens
    assert abs(again.usage.prompt_tokens - first.usage.prompt_tokens) <= 1


@EACH
@pytest.mark.parametrize("failure", ["garbage", "truncated", 500, 529])
def test_a_broken_answer_is_asked_for_again(server: FakeProviderServer, name: str, failure: int | str) -> None:
    """A page of HTML, half of an answer and an overloaded server leave nothing in history; the next try answers."""
    server.fail(failure)
    with Session(agent(), {"default": ADAPTERS[name](server)}, session_id="broken") as session:
        assert session.send("Hello").text == "Acknowledged: Hello"
        assert history(session) == (Entry.user("Hello"), Entry.assistant("Acknowledged: Hello"))


@EACH
def test_a_refused_key_ends_the_turn(server: FakeProviderServer, name: str) -> None:
    """What no second try mends is not tried again, and leaves nothing in history."""
    server.fail(401)
    with Session(agent(), {"default": ADAPTERS[name](server)}, session_id="refused") as session:
        with pytest.raises(TurnFailed) as caught:
            session.send("Hello")
        assert caught.value.reason_code == ProviderRejected.code
        assert history(session) == ()


@EACH
def test_the_wish_to_wait_is_passed_on(server: FakeProviderServer, name: str) -> None:
    """Retry-After of a 429 reaches whoever tries again."""
    server.fail(429, retry_after_seconds=7)
    with pytest.raises(ProviderUnavailable) as caught:
        ADAPTERS[name](server).complete(request_of())
    assert caught.value.retry_after_seconds == 7.0


@EACH
def test_a_window_that_is_smaller_than_thought_names_its_limit(server: FakeProviderServer, name: str) -> None:
    """Each API says in its own words how much it takes."""
    server.change(window_tokens=1_234)
    with pytest.raises(WindowOverflow) as caught:
        ADAPTERS[name](server).complete(request_of(Entry.user(PAGE * 4)))
    assert caught.value.limit_tokens == 1_234


@EACH
def test_an_overflow_is_handled_inside_its_round(server: FakeProviderServer, name: str) -> None:
    """The request is cut to what the provider takes and answered; history has all of it."""
    with Session(agent(), {"default": ADAPTERS[name](server)}, session_id="narrow") as session:
        for number in range(4):
            session.send(f"{number}: {PAGE * 4}")
        server.change(window_tokens=8_000)
        assert session.send("Go on").text == "Acknowledged: Go on"
        report = server.report(["narrow"])["sessions"]["narrow"]
        assert report["refused"] == 1
        assert len([entry for entry in history(session) if entry.kind is EntryKind.USER]) == 5


def test_a_forgotten_session_is_reseeded_within_the_round(server: FakeProviderServer) -> None:
    """The provider loses all it holds before each turn: history is as ever, and the turns that went on from something
    say so. Those after a rotation began anew by themselves."""

    def lose(_: str) -> None:
        record_second_tries(server)
        server.responses.forget()

    told = play(server, Responses(server.base_url), lose)
    expected = expected_talk()
    assert (told.entries, told.records, told.answers) == (expected.entries, expected.records, expected.answers)
    assert told.recovered == (False, False, True, False, True)


def record_second_tries(server: FakeProviderServer) -> None:
    """An attempt after the first has a key of its own; it gets the same answer."""
    server.record(SESSION, {"answers": {f"{SESSION}/{step}:1": reply for step, reply in TALK.items()}})


def test_a_session_that_is_forgotten_inside_a_turn_is_reseeded(server: FakeProviderServer) -> None:
    """Between a call and its results: the window that is sent again has the calls too."""
    provider = Responses(server.base_url)

    def forgetful(path: str) -> str:
        """Read a file."""
        server.responses.forget()
        return path

    key = "team/inside/t1/model"
    asked = {"calls": [call("c1", "forgetful", '{"path": "a.py"}')]}
    server.record("team/inside", {"answers": {f"{key}:0": asked, f"{key}:1:1": {"text": "Read."}}})
    with Session(agent(tools=(forgetful,)), {"default": provider}, session_id="team/inside") as session:
        reply = session.send("Read a.py", turn_id="t1")
        assert reply.text == "Read."
        assert reply.answer.is_recovered
        kinds = [entry.kind for entry in history(session)]
    assert kinds == [EntryKind.USER, EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT, EntryKind.ASSISTANT]


def test_a_held_call_carries_only_what_is_new(server: FakeProviderServer) -> None:
    """The handle continues the conversation; what it holds counts as prompt all the same."""
    provider = Responses(server.base_url)
    first = provider.complete(request_of(Entry.user(PAGE)))
    assert first.usage is not None
    entries = (Entry.user(PAGE), *first.entries(), Entry.user("And now?"))
    request = request_of(*entries, turn_id="t2", handle=first.handle, held_count=2)
    assert PAGE.encode() not in provider.body(request)
    second = provider.complete(request)
    assert second.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.handle not in {None, first.handle}
    assert server.report()["sessions"][SINGLE]["break_count"] == 0


def test_a18_58_a_held_session_is_never_reused_after_a_turn_that_was_not_recorded(server: FakeProviderServer) -> None:
    """Each response is a link of its own: asked again under the same key, a call goes on from where it began."""
    provider = Responses(server.base_url)
    first = provider.complete(request_of(Entry.user("one")))
    entries = (Entry.user("one"), *first.entries(), Entry.user("two"))
    request = request_of(*entries, turn_id="t2", handle=first.handle, held_count=2)
    lost, again = provider.complete(request), provider.complete(request)
    assert lost.handle != again.handle
    assert lost.usage is not None
    assert again.usage is not None
    assert lost.usage.prompt_tokens == again.usage.prompt_tokens


def test_an_unknown_handle_is_forgotten(server: FakeProviderServer) -> None:
    """That is an error of its own, so that the engine can seed anew."""
    with pytest.raises(HandleForgotten):
        Responses(server.base_url).complete(request_of(handle="resp_none", held_count=0))


@EACH
def test_disposal_is_harmless(server: FakeProviderServer, name: str) -> None:
    """What is not there can be let go of twice; a stateless provider has nothing to let go of."""
    provider = ADAPTERS[name](server)
    handle = provider.complete(request_of()).handle
    assert (handle is not None) == (provider.shape is Shape.HELD)
    provider.dispose(handle or "none")
    provider.dispose(handle or "none")
    assert server.responses.handles == ()


def test_a_disposal_that_fails_is_tried_again(server: FakeProviderServer) -> None:
    """It harms no turn, and what was not let go of stays due until it is."""
    server.fail(503, count=2, kind="disposals")
    with Session(agent(), {"default": Responses(server.base_url)}, session_id="disposing") as session:
        for message in ("one", "two", "three"):
            assert session.send(message).text == f"Acknowledged: {message}"
        wait_for(lambda: len(server.responses.handles) == 1)
        assert history(session)[-1] == Entry.assistant("Acknowledged: three")


@EACH
def test_calls_have_their_names_and_ids_back(server: FakeProviderServer, name: str) -> None:
    """What the wire cannot carry comes back as it was: names with dots, and ids as the provider gave them."""
    asked = call("call_1b2c-4d5e-6f", "history.read_item", '{"item": 3}')
    server.record(SINGLE, {"answers": {f"{SINGLE}/t1/model:0": {"calls": [asked]}}})
    reply = ADAPTERS[name](server).complete(request_of())
    server.forget_recording(SINGLE)
    assert reply.calls == (CallRequest(call_id="call_1b2c-4d5e-6f", name="history.read_item", arguments='{"item": 3}'),)


@EACH
def test_a_history_from_elsewhere_can_be_sent(server: FakeProviderServer, name: str) -> None:
    """Odd call ids, arguments of every kind, blank texts and a beginning by the assistant are no fault of a request."""
    rounds = [
        (Entry.tool_call(call_id, arguments, "look"), Entry.tool_result(call_id, result))
        for call_id, arguments, result in [
            ("call:1/ü", "", ""),
            ("x" * 300, "[1, 2]", " "),
            ("c3", "not JSON", "r"),
            ("c4", '{"a": NaN}', "r"),
            ("c5", '{"a": "\\ud800"}', "r"),
        ]
    ]
    entries = [Entry.assistant("Hi"), Entry.user("Go"), *(entry for pair in rounds for entry in pair)]
    entries += [Entry.assistant(""), Entry.user("On"), Entry.tool_result("gone", "late"), Entry.user("?")]
    assert ADAPTERS[name](server).complete(request_of(*entries)).text == "Acknowledged: ?"


@EACH
@pytest.mark.parametrize("source", ["claude_code_4d5611e5.json", "tau_airline_gpt4o.json"])
def test_real_sessions_can_be_sent(server: FakeProviderServer, data_dir: Path, name: str, source: str) -> None:
    """All that a real agent recorded goes into one request that the API takes: names, ids, arguments, results."""
    server.change(window_tokens=10_000_000)
    recording = read_recording((data_dir / source).read_bytes(), source)
    entries = [Entry.user(recording.turns[0].input)]
    for turn in recording.turns[1:]:
        for played in turn.rounds:
            results = (Entry.tool_result(call_id, text) for call_id, text in played.results)
            entries += [*played.reply().entries(), *results]
        entries.append(Entry.user(turn.input))
    request = request_of(*entries, tools=recording.tool_declarations())
    assert ADAPTERS[name](server).complete(request).text.startswith("Acknowledged: ")
