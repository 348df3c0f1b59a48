"""Session with `on_delta`: the text comes while the model says it, in the thread that sent the turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionlib.agent import Agent
from sessionlib.deltas import Delta
from sessionlib.errors import ProviderUnavailable
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.providers.scripted import ScriptedProvider, words
from sessionlib.session import Session

AGENT = Agent(name="a", window_tokens=8_000)
BACK = "(back)"


def look() -> str:
    """Look around."""
    return "seen"


class Screen:
    """What a caller shows."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.threads: set[int] = set()

    def show(self, delta: Delta) -> None:
        self.texts.append(BACK if delta.is_restart else str(delta))
        self.threads.add(threading.get_ident())


def test_text_comes_piece_by_piece_in_the_callers_thread() -> None:
    """Nothing is gathered on the way to a caller in the same process."""
    screen = Screen()
    provider = ScriptedProvider(lambda _: "one two three", pieces=words)
    with Session(AGENT, {"default": provider}) as session:
        reply = session.send("hello", on_delta=screen.show)
    assert (screen.texts, screen.threads) == (["one", " two", " three"], {threading.get_ident()})
    assert reply.text == "one two three"


def test_failed_try_is_taken_back() -> None:
    """The caller is told before the next try says a word."""
    screen, failures = Screen(), [ProviderUnavailable("cut off")]

    def pieces(text: str) -> Iterator[str]:
        for piece in words(text):
            yield piece
            if failures:
                raise failures.pop()

    with Session(AGENT, {"default": ScriptedProvider(lambda _: "one two", pieces=pieces)}) as session:
        session.send("hello", on_delta=screen.show)
    assert screen.texts == ["one", BACK, "one", " two"]


def test_text_beside_calls_names_its_round() -> None:
    """What a model says before it calls a tool is no part of the answer."""
    rounds: list[tuple[int, str]] = []
    call = CallRequest(call_id="c1", name="look", arguments="{}")
    provider = ScriptedProvider([ModelReply(text="I look.", calls=(call,)), "Seen."])
    agent = Agent(name="a", window_tokens=8_000, tools=(look,))
    with Session(agent, {"default": provider}) as session:
        session.send("hello", on_delta=lambda delta: rounds.append((delta.round, delta.text)))
    assert rounds == [(0, "I look."), (1, "Seen.")]


def test_answer_that_is_there_already_comes_whole() -> None:
    """Sent again under its id, a turn is not asked for again."""
    screen, provider = Screen(), ScriptedProvider(lambda _: "one two", pieces=words)
    with Session(AGENT, {"default": provider}) as session:
        session.send("hello", turn_id="t")
        session.send("hello", turn_id="t", on_delta=screen.show)
    assert (screen.texts, len(provider.requests)) == (["one two"], 1)


def test_error_of_the_callers_function_does_not_harm_the_turn() -> None:
    """It is raised when the turn has ended, and the answer is there."""

    def show(_: Delta) -> None:
        raise BrokenPipeError("nobody reads")

    with Session(AGENT, {"default": ScriptedProvider(lambda _: "one two", pieces=words)}) as session:
        with pytest.raises(BrokenPipeError):
            session.send("hello", turn_id="t", on_delta=show)
        assert session.send("hello", turn_id="t").text == "one two"


def test_turn_that_another_process_runs_is_streamed_as_well(tmp_path: Path) -> None:
    """Who only waits reads the turn's events; it shows all of the text, once."""
    screen, begun, go_on = Screen(), threading.Event(), threading.Event()

    def pieces(text: str) -> Iterator[str]:
        for piece in words(text):
            yield piece
            begun.set()
            assert go_on.wait(30.0)

    def show(delta: Delta) -> None:
        screen.show(delta)
        go_on.set()

    provider = ScriptedProvider(lambda _: "one two three", pieces=pieces)
    path = tmp_path / "s.db"
    providers = {"default": provider}
    with Session(AGENT, providers, path=path) as other, Session(AGENT, providers, path=path) as session:
        running = threading.Thread(
            target=lambda: other.send("hello", turn_id="t", on_delta=lambda _: None, timeout_seconds=30.0)
        )
        running.start()
        assert begun.wait(30.0)
        session.send("hello", turn_id="t", on_delta=show, timeout_seconds=30.0)
        running.join()
    assert screen.texts[0] == "one"
    assert "".join(screen.texts) == "one two three"
