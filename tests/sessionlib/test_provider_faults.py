"""Providers that fail, plain or streamed: whatever goes wrong, history is what it would have been."""

from __future__ import annotations

from typing import Any

import pytest

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import ProviderError, ProviderRejected, ProviderUnavailable, TurnFailed, WindowOverflow
from sessionlib.providers.contract import ModelRequest
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.asking import request_of
from tests.sessionlib.talks import ADAPTERS, PAGE, agent, call, history, provider_of
from tests.waiting import wait_for

EACH = pytest.mark.parametrize("name", ADAPTERS)
BOTH = pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])

FAULTS: dict[str, dict[str, Any]] = {
    "overloaded": {"failure": 529},
    "server error": {"failure": 500},
    "rate limit": {"failure": 429, "retry_after_seconds": 0.1},
    "garbage": {"failure": "garbage"},
    "truncated": {"failure": "truncated"},
    "cut": {"failure": "cut"},
    "error in the stream": {"failure": "error_event"},
}
"""What the server is told to do once, in the middle of a turn."""


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.responses.forget()
    running.change(window_tokens=128_000)
    return running


SAID = {
    "t/model:0": {
        "text": "Looking.",
        "calls": [call("c1", "look", '{"path": "a"}'), call("c2", "look", '{"path": "b"}')],
    },
    "t/model:1": {"text": "Nothing there, 你好.", "reasoning": "Hm."},
}
HISTORY = (
    Entry.user("Go"),
    Entry.assistant("Looking."),
    Entry.tool_call("c1", '{"path": "a"}', "look"),
    Entry.tool_call("c2", '{"path": "b"}', "look"),
    Entry.tool_result("c1", "a is empty", "look"),
    Entry.tool_result("c2", "b is empty", "look"),
    Entry.assistant("Nothing there, 你好."),
)


@BOTH
@EACH
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_inside_a_turn_leaves_no_trace(
    server: FakeProviderServer, name: str, is_streamed: bool, fault: str
) -> None:
    """The call is made again and answered; nothing of the broken answer is used."""
    session_id = f"{fault}/{name}/{is_streamed}".replace(" ", "-")

    def look(path: str) -> str:
        """Read a file."""
        if path == "b":
            server.fail(**FAULTS[fault])
        return f"{path} is empty"

    server.record(session_id, {"answers": {f"{session_id}/{step}": reply for step, reply in SAID.items()}})
    provider = provider_of(server, name, is_streamed=is_streamed)
    with Session(agent(tools=(look,)), {"default": provider}, session_id=session_id) as session:
        assert session.send("Go", turn_id="t").text == "Nothing there, 你好."
        assert history(session) == HISTORY
    assert server.report([session_id])["sessions"][session_id]["asked_again"] == {f"{session_id}/t/model:1": 2}


@BOTH
@EACH
def test_a_refused_key_ends_the_turn(server: FakeProviderServer, name: str, is_streamed: bool) -> None:
    """What no second try mends is not tried again, and leaves nothing in history."""
    server.fail(401)
    provider = provider_of(server, name, is_streamed=is_streamed)
    with Session(agent(), {"default": provider}, session_id="refused") as session:
        with pytest.raises(TurnFailed) as caught:
            session.send("Hello")
        assert caught.value.reason_code == ProviderRejected.code
        assert history(session) == ()


@BOTH
@EACH
@pytest.mark.parametrize("status", [429, 503, 529])
def test_the_wish_to_wait_is_passed_on(server: FakeProviderServer, name: str, is_streamed: bool, status: int) -> None:
    """Retry-After reaches whoever tries again."""
    server.fail(status, retry_after_seconds=7)
    with pytest.raises(ProviderUnavailable) as caught:
        provider_of(server, name, is_streamed=is_streamed).complete(request_of())
    assert caught.value.retry_after_seconds == 7.0


def test_a_rate_limits_own_headers_are_read(server: FakeProviderServer) -> None:
    """Where there is no Retry-After: when the limit that was hit is over."""
    limits = {"x-ratelimit-remaining-tokens": 0, "x-ratelimit-reset-tokens": "1m3s", "x-ratelimit-reset-requests": "1s"}
    server.fail(429, headers=limits)
    with pytest.raises(ProviderUnavailable) as caught:
        provider_of(server, "chat_completions").complete(request_of())
    assert caught.value.retry_after_seconds == 63.0


@BOTH
@EACH
def test_a_window_that_is_smaller_than_thought_names_its_limit(
    server: FakeProviderServer, name: str, is_streamed: bool
) -> None:
    """Each API in its own words, but for one, which tells no figure, and in a stream that has begun."""
    server.change(window_tokens=1_234)
    with pytest.raises(WindowOverflow) as caught:
        provider_of(server, name, is_streamed=is_streamed).complete(request_of(Entry.user(PAGE * 4)))
    assert caught.value.limit_tokens == (None if name == "responses" else 1_234)


@BOTH
@EACH
def test_an_overflow_is_handled_inside_its_round(server: FakeProviderServer, name: str, is_streamed: bool) -> None:
    """The request is cut to what the provider takes and answered; history has all of it."""
    provider = provider_of(server, name, is_streamed=is_streamed)
    with Session(agent(), {"default": provider}, session_id="narrow") as session:
        sent = [f"{number}: {PAGE * 4}" for number in range(4)]
        for message in sent:
            session.send(message)
        server.change(window_tokens=8_000)
        assert session.send("Go on").text == "Acknowledged: Go on"
        wait_for(lambda: session.view().rotation_id is None, what="the rotation to end")
        entries = history(session)
    assert server.report(["narrow"])["sessions"]["narrow"]["refused"] == 1
    assert [entry.text for entry in entries if entry.kind is EntryKind.USER] == [*sent, "Go on"]
    assert len(entries) == 10


@pytest.mark.parametrize("failure", ["hang", "stall", "trickle", "trickle_head"])
@BOTH
@EACH
def test_the_calls_deadline_ends_it(server: FakeProviderServer, name: str, is_streamed: bool, failure: str) -> None:
    """No answer at all, half of one, or one that comes byte by byte, the head of the response too."""
    server.fail(failure, trickle_seconds=0.02)
    try:
        with pytest.raises(ProviderUnavailable, match=r"no whole answer within 0\.3 s"):
            provider_of(server, name, is_streamed=is_streamed).complete(request_of(timeout_seconds=0.3))
    finally:
        server.release()


@EACH
def test_a_stream_that_falls_silent_is_given_up(server: FakeProviderServer, name: str) -> None:
    """Long before the call's deadline; what was passed on until then is void."""
    heard: list[str] = []
    server.fail("stall")
    provider = ADAPTERS[name](server)
    silent = type(provider)(server.url if name == "anthropic" else server.base_url, silence_seconds=0.3)
    try:
        with pytest.raises(ProviderUnavailable):
            silent.complete(request_of(Entry.user("Hello " * 20)), heard.append)
    finally:
        server.release()
    assert heard[:1] == ["Ackn"]


@EACH
def test_a_first_piece_is_passed_on_at_once(server: FakeProviderServer, name: str) -> None:
    """While the rest of the answer is not there yet."""
    heard: list[str] = []
    server.hold("streams")

    def listen(text: str) -> None:
        heard.append(text)
        if len(heard) == 1:
            wait_for(lambda: server.report([])["held"]["streams"] == 1)
            server.release()

    assert ADAPTERS[name](server).complete(request_of(), listen).text == "".join(heard) == "Acknowledged: Hello"


@EACH
def test_a_connection_is_used_again_after_a_stream(server: FakeProviderServer, name: str) -> None:
    """Its end is read, so that the next call need not shake hands again."""
    provider = ADAPTERS[name](server)
    seen = server.connection_count
    for number in range(3):
        provider.complete(request_of(turn_id=f"t{number}"), lambda _: None)
    assert server.connection_count == seen + 1


@EACH
def test_who_listens_may_end_the_call(server: FakeProviderServer, name: str) -> None:
    """An error of the listener is nobody else's, whatever it is."""

    def refuse(_: str) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ADAPTERS[name](server).complete(request_of(), refuse)


def request_errors(server: FakeProviderServer, name: str, request: ModelRequest) -> list[str]:
    """The errors of a plain and of a streamed call."""
    said = []
    for is_streamed in (False, True):
        server.fail(400)
        with pytest.raises(ProviderError) as caught:
            provider_of(server, name, is_streamed=is_streamed).complete(request)
        said.append(str(caught.value))
    return said


@EACH
def test_a_streamed_call_fails_as_a_plain_one(server: FakeProviderServer, name: str) -> None:
    """What is refused before the stream begins is an answer like any other."""
    plain, streamed = request_errors(server, name, request_of())
    assert plain == streamed
