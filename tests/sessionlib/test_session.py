"""Session: the engine without workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.archive import unpack
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import (
    AnswerTimeout,
    CannotConverge,
    InputTooLarge,
    InvalidInput,
    ProviderRejected,
    ProviderUnavailable,
    SessionClosed,
    TurnConflict,
    TurnFailed,
)
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.providers.scripted import ScriptedProvider, late, unsplit
from sessionlib.session import Session
from sessionlib.stores.contract import TurnState
from sessionlib.tools.declaration import ToolContext
from sessionlib.window_facts import LearnedWindow
from sessionlib.workloads import ConsolidationWorkload
from tests.waiting import wait_for

WINDOW_TOKENS = 4_000
LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12


def agent(**fields: object) -> Agent:
    return Agent(name="coder", window_tokens=WINDOW_TOKENS, **fields)


def texts(entries: tuple[Entry, ...]) -> list[str]:
    return [entry.text for entry in entries]


def history(session: Session) -> list[Entry]:
    """Everything that the session ever recorded: archive, then live entries."""
    chunks = session.store.chunks(session.session_id)
    return [*(entry for chunk in chunks for entry in unpack(chunk.data)), *session.layout().live.entries]


def rotations(session: Session) -> int:
    return session.view().epoch


def test_opening_asks_the_provider_nothing() -> None:
    """A session that is open has no history, no rotation, and cost nothing."""
    provider = ScriptedProvider()
    with Session(agent(), {"default": provider}) as session:
        assert (session.view().epoch, len(session.layout().live)) == (0, 0)
    assert provider.requests == ()


def test_turn_below_the_line_is_answered_and_recorded() -> None:
    """Message and answer are the history; nothing rotates."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        reply = session.send("hello")
        assert (reply.text, reply.rotations, reply.is_saturated) == ("Acknowledged: hello", (), False)
        assert texts(session.layout().live.entries) == ["hello", "Acknowledged: hello"]


def test_crossing_the_line_rotates_in_the_background() -> None:
    """The next seed begins with a record, goes on with live entries, and declares the same tools."""
    provider = ScriptedProvider()
    with Session(agent(), {"default": provider}) as session:
        while not rotations(session):
            session.send(LONG)
        session.send("after")
        request = provider.requests[-1]
        assert request.entries[0].kind is EntryKind.RECORD
        assert [entry.kind for entry in request.entries[-2:]] == [EntryKind.ASSISTANT, EntryKind.USER]
        assert request.tools == provider.requests[0].tools


def test_next_answer_carries_the_rotation_outcomes() -> None:
    """The caller learns of each rotation once, with an answer after it."""
    outcomes: list[Mapping[str, Any]] = []
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        while rotations(session) < 2:
            outcomes += session.send(LONG).rotations
        outcomes += session.send("after").rotations
    assert [outcome["epoch"] for outcome in outcomes] == [1, 2]
    assert all(outcome["tokens_after"] < outcome["tokens_before"] for outcome in outcomes)


def test_t01_answers_never_wait_for_a_summarizer_that_blocks() -> None:
    """Two hundred turns are answered, across the limit too, while one consolidation hangs."""
    released, asked = threading.Event(), threading.Event()

    def summarize(request: ModelRequest) -> str:
        asked.set()
        assert released.wait(60)
        return "alpha-7 failed with error 1234"

    workload = ConsolidationWorkload(summarizer="model", provider="summaries")
    providers = {"default": ScriptedProvider(), "summaries": ScriptedProvider(summarize)}
    with Session(agent(consolidation=workload), providers) as session:
        while not asked.is_set():
            session.send(LONG)
        for number in range(200):
            session.send(f"{number} {LONG}")
        assert rotations(session) == 0
        largest_tokens = max(request.counted_tokens for request in providers["default"].requests)
        assert WINDOW_TOKENS * 0.5 < largest_tokens <= WINDOW_TOKENS
        released.set()
        wait_for(lambda: rotations(session), what="the rotation that was blocked")


def test_a18_09_56_unanswered_turn_leaves_no_trace() -> None:
    """What the provider refused is not recorded; the session goes on."""
    provider = ScriptedProvider(failures=[ProviderRejected("no")])
    with Session(agent(), {"default": provider}) as session:
        with pytest.raises(TurnFailed, match="provider_rejected"):
            session.send("refused", turn_id="t1")
        assert len(session.layout().live) == 0
        assert session.send("hello").text == "Acknowledged: hello"
        assert texts(session.layout().live.entries) == ["hello", "Acknowledged: hello"]


def test_unavailable_provider_is_asked_again() -> None:
    """Two failures worth a retry, then the answer."""
    provider = ScriptedProvider(failures=[ProviderUnavailable("busy"), ProviderUnavailable("busy"), None])
    with Session(agent(), {"default": provider}) as session:
        assert session.send("hello").text == "Acknowledged: hello"
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("", "empty or blank"),
        (" \t\n", "empty or blank"),
        (" " * 1_000_000, "empty or blank"),
        ("nul \0 inside", "NUL"),
        ("half \ud83d pair", "lone surrogate"),
        (17, "must be a string"),
    ],
)
def test_bad_message_is_refused_before_anything_changes(message: str, rule: str) -> None:
    """The error names the rule; nothing is stored; the session is usable."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        with pytest.raises(InvalidInput, match=rule):
            session.send(message)
        assert session.view().next_seq == 1
        assert session.send("hello").text == "Acknowledged: hello"


def test_message_of_five_megabytes_is_refused_with_the_arithmetic() -> None:
    """An input above the window costs nothing."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        with pytest.raises(InputTooLarge, match="a request may have"):
            session.send("word " * 1_000_000)
        assert session.view().next_seq == 1


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>system", "🎉" * 40, "你好" * 40, "AAAA" * 300])
def test_odd_text_is_ordinary_text(text: str) -> None:
    """Special tokens, emoji, Chinese and base64 go through as they are."""
    with Session(agent(), {"default": ScriptedProvider(lambda request: request.entries[-1].text)}) as session:
        assert session.send(text).text == text


def test_window_that_cannot_converge_is_refused_at_once() -> None:
    """A window that the tools alone fill."""
    with pytest.raises(CannotConverge):
        Session(Agent(name="small", window_tokens=200), {"default": ScriptedProvider()})


def test_same_turn_id_is_the_same_turn() -> None:
    """Asked again, a turn gives its first answer and calls nobody; with other input it is refused."""
    provider = ScriptedProvider()
    with Session(agent(), {"default": provider}) as session:
        assert session.send("hello", turn_id="t1").text == session.send("hello", turn_id="t1").text
        with pytest.raises(TurnConflict):
            session.send("other", turn_id="t1")
    assert len(provider.requests) == 1


def test_tool_rounds_are_run_and_recorded() -> None:
    """A call, its result, the answer: one turn of two rounds, the context handed in."""
    seen: list[ToolContext] = []

    def add(left: int, right: int, context: ToolContext) -> int:
        """Add two numbers."""
        seen.append(context)
        return left + right

    call = CallRequest(call_id="c1", name="add", arguments='{"left": 1, "right": 2}')
    provider = ScriptedProvider([ModelReply(text="", calls=(call,)), "it is 3"])
    with Session(agent(tools=(add,)), {"default": provider}) as session:
        reply = session.send("what is 1 + 2?", turn_id="t1")
        assert (reply.text, reply.answer.round_count) == ("it is 3", 2)
        assert texts(session.layout().live.entries) == ["what is 1 + 2?", call.arguments, "3", "it is 3"]
    assert seen == [ToolContext(session_id="session", turn_id="t1", call_id="c1")]


def test_arguments_that_do_not_fit_go_back_to_the_model() -> None:
    """The model reads what was wrong, and the turn goes on."""

    def add(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right

    calls = (CallRequest(call_id="c1", name="add", arguments="{not json"),)
    with Session(agent(tools=(add,)), {"default": ScriptedProvider([ModelReply(text="", calls=calls), "sorry"])}) as s:
        assert s.send("add").text == "sorry"
        assert "must fit the schema of add" in s.layout().live.entries[2].text


def test_call_of_an_unknown_tool_is_left_to_the_caller() -> None:
    """The turn ends with open calls; only results for exactly these go on."""
    calls = (CallRequest(call_id="c1", name="deploy", arguments="{}"),)
    with Session(agent(), {"default": ScriptedProvider([ModelReply(text="", calls=calls), "deployed"])}) as session:
        assert [call.call_id for call in session.send("deploy it").open_calls] == ["c1"]
        with pytest.raises(InvalidInput, match="exactly the calls"):
            session.send(results={"other": "ok"})
        assert session.send(results={"c1": "done"}).text == "deployed"


def test_tool_result_without_its_call_is_refused() -> None:
    """No calls wait, so no results are taken."""
    with (
        Session(agent(), {"default": ScriptedProvider()}) as session,
        pytest.raises(InvalidInput, match="calls that wait"),
    ):
        session.send(results={"c1": "done"})


@pytest.mark.parametrize("shape", list(Shape))
def test_both_shapes_record_the_same_history(shape: Shape) -> None:
    """Resent or held by the provider, through rotations: what is recorded is the same, in order, nothing lost."""
    provider = ScriptedProvider(shape=shape)
    said: list[str] = []
    with Session(agent(), {"default": provider}) as session:
        while rotations(session) < 3:
            message = f"{len(said)} {LONG}"
            said += [message, session.send(message).text]
        assert texts(tuple(history(session))) == said


def test_held_provider_is_sent_only_what_is_new() -> None:
    """Between rotations a held session carries on; what the provider holds is what we would seed."""
    provider = ScriptedProvider(shape=Shape.HELD)
    with Session(agent(), {"default": provider}) as session:
        session.send("one")
        session.send("two")
        request = provider.requests[-1]
        assert (request.handle, request.held_count) == ("handle-1", 2)
        assert provider.held("handle-2") == session.layout().live.entries


def test_forgotten_handle_is_seeded_again_in_the_same_turn() -> None:
    """History is never silently missing."""
    provider = ScriptedProvider(shape=Shape.HELD)
    with Session(agent(), {"default": provider}) as session:
        session.send("one")
        provider.forget()
        session.send("two")
        assert provider.answered[-1].request.handle is None
        assert texts(provider.answered[-1].request.entries) == ["one", "Acknowledged: one", "two"]


def test_a18_19_disposal_that_fails_harms_nobody_and_is_tried_again() -> None:
    """The rotation is reported, the next turn works, and the old provider session goes in the end."""
    provider = ScriptedProvider(shape=Shape.HELD, disposal_failures=2)
    with Session(agent(), {"default": provider}) as session:
        while not rotations(session):
            session.send(LONG)
        session.send("after")
        wait_for(lambda: len(provider.handles) <= 1, what="the disposal of all but the newest")
        assert len(provider.disposed) >= len(provider.answered) - 1


def test_refused_overflow_is_answered_in_the_same_turn() -> None:
    """A provider whose window is smaller than declared: learned, trimmed, asked once more."""
    provider = ScriptedProvider(window_tokens=WINDOW_TOKENS // 2)
    with Session(agent(), {"default": provider}) as session:
        for number in range(40):
            assert session.send(f"{number} {LONG}").text.startswith(f"Acknowledged: {number} ")
        view = session.view()
        assert view.window == LearnedWindow(tokens=WINDOW_TOKENS // 2, origin=session.agent.origin)
        assert view.calibration == 1.0


@pytest.mark.parametrize("usage", [late(3), unsplit])
def test_turns_go_on_whatever_the_provider_reports(usage: Callable[..., object]) -> None:
    """Late usage and totals without a split only make requests smaller."""
    with Session(agent(), {"default": ScriptedProvider(usage=usage)}) as session:  # type: ignore[arg-type]
        while rotations(session) < 2:
            session.send(LONG)


def test_t117_prompt_only_grows_at_its_end_between_rotations() -> None:
    """Each request extends the one before, unless a rotation came between."""
    provider = ScriptedProvider()
    epochs: list[int] = []
    with Session(agent(), {"default": provider}) as session:
        while rotations(session) < 3:
            epochs.append(rotations(session))
            session.send(LONG)
            wait_for(lambda: session.view().rotation_id is None, what="the rotation to end")
    for (before, after), (old, new) in zip(pairwise(provider.requests), pairwise(epochs), strict=True):
        if old == new:
            assert after.entries[: len(before.entries)] == before.entries


def test_what_left_the_window_is_read_through_the_history_tool() -> None:
    """The first message, long archived, comes back word for word."""
    read = ModelReply(text="", calls=(CallRequest(call_id="r", name="history.read_item", arguments='{"item": 1}'),))
    fetch = threading.Event()

    def answer(request: ModelRequest) -> ModelReply | str:
        if request.entries[-1].kind is EntryKind.TOOL_RESULT:
            return request.entries[-1].text
        return read if fetch.is_set() else "noted"

    with Session(agent(), {"default": ScriptedProvider(answer)}) as session:
        session.send("the password rotation is every 37 days")
        while not rotations(session):
            session.send(LONG)
        fetch.set()
        assert "the password rotation is every 37 days" in session.send("what was the first thing I said?").text


def test_file_goes_on_where_it_was(tmp_path: Path) -> None:
    """Another process opens the same file and has the same history."""
    provider = ScriptedProvider()
    with Session(agent(), {"default": provider}, path=tmp_path / "s.db") as session:
        session.send("one")
    with Session(agent(), {"default": provider}, path=tmp_path / "s.db") as session:
        session.send("two")
        assert texts(provider.requests[-1].entries) == ["one", "Acknowledged: one", "two"]


def test_saved_answer_is_not_paid_for_again(tmp_path: Path) -> None:
    """A turn whose tool took the process down goes on with the model's saved answer."""

    class Killed(BaseException):
        """Stands for the end of the process: no handler of ours catches it."""

    def work() -> str:
        """Do it."""
        if not provider.requests[1:] and not (tmp_path / "second").exists():
            (tmp_path / "second").touch()
            raise Killed
        return "done"

    calls = (CallRequest(call_id="c1", name="work", arguments="{}"),)
    provider = ScriptedProvider([ModelReply(text="", calls=calls), "finished"])
    first_run = Session(agent(tools=(work,)), {"default": provider}, path=tmp_path / "s.db")
    with first_run as session, pytest.raises(Killed):
        session.send("go", turn_id="t1")
    with Session(agent(tools=(work,)), {"default": provider}, path=tmp_path / "s.db") as session:
        assert session.send("go", turn_id="t1").text == "finished"
    assert len(provider.requests) == 2


def test_concurrent_senders_are_answered_in_one_order() -> None:
    """Four threads, one session: every turn answered once, entries of turns never mixed."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:

        def talk(name: str) -> None:
            for number in range(10):
                session.send(f"{name}{number}")

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        said = texts(tuple(history(session)))
    assert sorted(said[0::2]) == sorted(f"{name}{i}" for name in "abcd" for i in range(10))
    assert said[1::2] == [f"Acknowledged: {message}" for message in said[0::2]]


def test_rotate_waits_and_reports() -> None:
    """The explicit form returns the outcome's figures."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        for _ in range(4):
            session.send(LONG)
        event = session.rotate(30)
        assert event is not None
        assert (event.kind, event.data["reason"]) == ("rotated", "asked")


def test_a18_23_rotation_that_would_shorten_nothing_is_no_rotation() -> None:
    """An empty session rotates to nothing: epoch and layout stay, the audit says why."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        event = session.rotate(30)
        assert event is not None
        assert (event.kind, event.data["code"]) == ("rotation_failed", "no_gain")
        assert session.view().epoch == 0


def test_failed_rotation_changes_nothing_and_the_session_goes_on() -> None:
    """A summarizer that is refused: layout as before, turns answered."""
    summaries = ScriptedProvider(failures=lambda request: ProviderRejected("no summaries today"))
    workload = ConsolidationWorkload(summarizer="model", provider="summaries")
    with Session(agent(consolidation=workload), {"default": ScriptedProvider(), "summaries": summaries}) as session:
        for _ in range(4):
            session.send(LONG)
        before = session.layout()
        event = session.rotate(30)
        assert event is not None
        assert (event.kind, event.data["code"]) == ("rotation_failed", "provider_rejected")
        assert session.layout() == before
        assert session.send("hello").text == "Acknowledged: hello"


def test_leaving_abandons_a_rotation_that_does_not_end(tmp_path: Path) -> None:
    """The block is left after the grace time; the rotation is pending still and done by the next opening."""
    released, asked = threading.Event(), threading.Event()

    def summarize(request: ModelRequest) -> str:
        asked.set()
        released.wait(60)
        return "alpha-7 failed with error 1234"

    workload = ConsolidationWorkload(summarizer="model", provider="summaries")
    providers = {"default": ScriptedProvider(), "summaries": ScriptedProvider(summarize)}
    with Session(agent(consolidation=workload), providers, path=tmp_path / "s.db", grace_seconds=0.1) as session:
        while not asked.is_set():
            session.send(LONG)
    released.set()
    with Session(agent(consolidation=workload), providers, path=tmp_path / "s.db") as session:
        wait_for(lambda: rotations(session), what="the rotation that was abandoned")


def test_closed_session_takes_no_turn() -> None:
    """A closed session says so."""
    with Session(agent(), {"default": ScriptedProvider()}) as session:
        session.send("hello")
        session.close()
        with pytest.raises(SessionClosed):
            session.send("more")


def test_answer_that_takes_too_long_can_be_asked_for_again() -> None:
    """The caller's deadline ends the waiting, not the turn."""
    released = threading.Event()
    provider = ScriptedProvider(lambda request: str(released.wait(30)))
    with Session(agent(), {"default": provider}) as session:
        other = threading.Thread(target=lambda: session.send("hello", turn_id="t1"))
        other.start()
        wait_for(lambda: provider.requests, what="the first call")
        with pytest.raises(AnswerTimeout):
            session.send("hello", turn_id="t1", timeout_seconds=0.1)
        released.set()
        assert session.send("hello", turn_id="t1").text == "True"
        other.join(30)
        assert session.cancel("t1") is TurnState.ANSWERED


def test_background_goes_on_after_a_fault() -> None:
    """A provider whose disposal has a fault of its own does not end rotations."""

    class Faulty(ScriptedProvider):
        def dispose(self, handle: str, until: str = "") -> None:
            raise ZeroDivisionError

    with Session(agent(), {"default": Faulty(shape=Shape.HELD)}) as session:
        while rotations(session) < 3:
            session.send(LONG)


def test_interrupted_call_can_be_made_again_at_once() -> None:
    """Ctrl-C while the model answers: the same turn goes on with the next call, not when a lease has run out."""

    def interrupted_first(request: ModelRequest) -> str:
        if not provider.requests[1:]:
            raise KeyboardInterrupt
        return "done"

    provider = ScriptedProvider(interrupted_first)
    with Session(agent(), {"default": provider}) as session:
        with pytest.raises(KeyboardInterrupt):
            session.send("hello", turn_id="t1")
        assert session.send("hello", turn_id="t1", timeout_seconds=5.0).text == "done"


def test_pinned_session_keeps_its_agent(tmp_path: Path) -> None:
    """Opened by a newer version, it goes on under its own, its limits for messages included."""
    with Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db", pin=True) as session:
        session.send("hello")
    newer = Agent(name="coder", window_tokens=100_000)
    with Session(newer, {"default": ScriptedProvider()}, path=tmp_path / "s.db") as session:
        assert session.agent.window_tokens == WINDOW_TOKENS
        with pytest.raises(InputTooLarge):
            session.send("word " * 20_000)


def test_t24_two_processes_on_one_file_share_its_session(tmp_path: Path) -> None:
    """Both send; every turn is answered once, in one order, and each sees the other's."""
    with (
        Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db") as one,
        Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db") as other,
    ):
        senders = [
            threading.Thread(target=lambda s=s, name=name: [s.send(f"{name}{i}") for i in range(5)])
            for s, name in ((one, "a"), (other, "b"))
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        said = texts(tuple(history(one)))
        assert sorted(said[0::2]) == sorted(f"{name}{i}" for name in "ab" for i in range(5))
        assert said == texts(tuple(history(other)))


def test_a18_45_session_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    """A closed session refuses; no thread stays, and no provider session was begun."""
    with Session(agent(), {"default": ScriptedProvider()}, path=tmp_path / "s.db") as session:
        session.close()
    before, provider = threading.active_count(), ScriptedProvider(shape=Shape.HELD)
    with pytest.raises(SessionClosed):
        Session(agent(), {"default": provider}, path=tmp_path / "s.db")
    assert threading.active_count() <= before
    assert (provider.requests, provider.handles) == ((), ())
