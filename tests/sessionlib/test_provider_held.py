"""Sessions that the provider holds, behind OpenAI's Responses API: continued, forgotten, disposed of."""

from __future__ import annotations

import pytest

from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import HandleForgotten
from sessionlib.providers.responses import Responses
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.asking import SINGLE, request_of
from tests.sessionlib.talks import ANSWERS, PAGE, SESSION, agent, call, history, play, provider_of, record_talk
from tests.waiting import wait_for

BOTH = pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.forget_recording(SESSION)
    running.responses.forget()
    return running


@BOTH
def test_a_forgotten_session_is_reseeded_within_the_round(server: FakeProviderServer, is_streamed: bool) -> None:
    """The provider loses all it holds before each turn: history is as ever, and the turns that went on from something
    say so. Those after a rotation began anew by themselves."""

    def lose(_: str) -> None:
        record_talk(server, ":1")
        server.responses.forget()

    expected = play(server, provider_of(server, "responses", is_streamed=is_streamed))
    told = play(server, provider_of(server, "responses", is_streamed=is_streamed), lose)
    assert (told.entries, told.records, told.answers) == (expected.entries, expected.records, ANSWERS)
    assert told.recovered == (False, False, True, False, True)


@BOTH
def test_a_session_that_is_forgotten_inside_a_turn_is_reseeded(server: FakeProviderServer, is_streamed: bool) -> None:
    """Between a call and its results: the window that is sent again has the calls too."""
    provider = provider_of(server, "responses", is_streamed=is_streamed)

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


def test_a_disposal_that_fails_is_tried_again(server: FakeProviderServer) -> None:
    """It harms no turn, and what was not let go of stays due until it is: all that led to the old layout."""
    server.fail(503, count=2, kind="disposals")
    made = agent(consolidation=ConsolidationWorkload(summarizer="extractive"))
    with Session(made, {"default": Responses(server.base_url)}, session_id="disposing") as session:
        for number in range(4):
            session.send(f"{number}: {PAGE}")
        old = server.responses.handles
        event = session.rotate(timeout_seconds=30)
        assert event is not None
        assert event.kind == "rotated"
        assert session.send("five").text == "Acknowledged: five"
        wait_for(lambda: not set(old) & set(server.responses.handles), what="the old chain to be deleted")
        assert len(old) == 4
        assert len(server.responses.handles) == 1
        assert history(session)[-1] == Entry.assistant("Acknowledged: five")
