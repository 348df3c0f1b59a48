"""`sessionctl send --stream` and `sessionctl chat`: answers while they come, through pipes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessionlib.agent import Agent
from sessionlib.errors import ProviderRejected, ProviderUnavailable
from sessionlib.providers.contract import ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.stores.contract import SubmitRequest, Submitted
from sessionlib.stores.sqlite import SqliteStore
from tests.workers.commands import Desk, replying
from tests.workers.local import LocalWorkers
from tests.workers.speaking import PATIENCE_SECONDS, Mouth, awaited, options, speaking
from tests.workers.test_cli_processes import SESSIONCTL, environment


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.store.close_connections()


def test_streamed_answer_is_alone_on_stdout(desk: Desk) -> None:
    """As without: pipes get the same bytes."""
    result = desk.run("send", "s", "hello\x1b[1m", "--agent", "echo", "--turn-id", "t", "--stream")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "You said: hello\x1b[1m\n", "turn t\n")


def test_streamed_events_are_lines_and_the_reply_is_the_last(desk: Desk) -> None:
    """Each line is a document."""
    result = desk.run("send", "s", "hello", "--agent", "echo", "--stream", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["queued", "started", "round", "answered", "reply"]
    assert lines[-1]["text"] == "You said: hello"


def test_chat_answers_line_by_line(desk: Desk) -> None:
    """Blank lines are no messages; answers alone are on stdout."""
    result = desk.run("chat", "s", "--agent", "echo", stdin="one\n\n  two\n")
    assert (result.exit_code, result.stdout) == (0, "You said: one\nYou said:   two\n")
    assert result.stderr.splitlines()[0] == "session s"


def test_chat_without_a_session_opens_one(desk: Desk) -> None:
    """With the only agent there is; its name is told, so that it can be gone on with."""
    result = desk.run("chat", stdin="hello\n")
    (session_id,) = desk.sessions
    assert (result.exit_code, result.stdout) == (0, "You said: hello\n")
    assert result.stderr.splitlines()[0] == f"session {session_id}"


def test_chat_asks_which_agent_if_there_are_several() -> None:
    """Nothing is opened by guessing."""
    desk = Desk(agents=[Agent(name=name, window_tokens=8_000) for name in ("b", "a")])
    result = desk.run("chat", stdin="hello\n")
    assert (result.exit_code, list(desk.sessions)) == (2, [])
    assert "known are a, b" in result.stderr
    desk.store.close_connections()


def test_chat_with_an_unknown_session_is_bad_input(desk: Desk) -> None:
    """It is not opened by mistyping."""
    assert desk.run("chat", "nobody", stdin="hello\n").exit_code == 2


def test_chat_commands_are_not_sent(desk: Desk) -> None:
    """Help and unknown commands are told on stderr; a slash is sent by two."""
    result = desk.run("chat", "s", "--agent", "echo", stdin="/help\n/show\n/nonsense x\n//etc\n")
    assert [request.entries[-1].text for request in desk.provider.requests] == ["/etc"]
    assert "//text  send" in result.stderr
    assert "/nonsense is no command" in result.stderr
    assert result.stdout.startswith("session s: open, epoch 0")
    assert result.stdout.endswith("You said: /etc\n")


def test_chat_goes_on_after_a_turn_that_failed() -> None:
    """The other lines are sent all the same; the exit code tells."""

    def answer(request: ModelRequest) -> ModelReply | str:
        if request.entries[-1].text == "bad":
            raise ProviderRejected("no such thing")
        return replying(request)

    desk = Desk(provider=ScriptedProvider(answer))
    result = desk.run("chat", "s", "--agent", "echo", stdin="bad\ngood\n")
    assert (result.exit_code, result.stdout) == (1, "You said: good\n")
    assert "error (provider): turn" in result.stderr
    desk.store.close_connections()


def test_chat_refuses_a_line_that_does_not_fit_and_goes_on(desk: Desk) -> None:
    """Nothing of it was accepted."""
    result = desk.run("chat", "s", "--agent", "echo", stdin="word " * 20_000 + "\nhello\n")
    assert (result.exit_code, result.stdout) == (2, "You said: hello\n")


def test_chat_drops_open_calls_with_the_next_message(desk: Desk) -> None:
    """It would wait behind them for an hour."""
    result = desk.run("chat", "s", "--agent", "echo", stdin="call it\nnever mind\n")
    assert (result.exit_code, result.stdout) == (0, "You said: never mind\n")
    assert "open call c1: lookup" in result.stderr


def test_ctrl_c_while_a_message_is_handed_in_cancels_its_turn() -> None:
    """Whether it was accepted is not known then. The chat goes on."""

    def answer(request: ModelRequest) -> ModelReply | str:
        if request.entries[-1].text == "stop":
            raise KeyboardInterrupt
        return replying(request)

    desk = Desk(provider=ScriptedProvider(answer))
    result = desk.run("chat", "s", "--agent", "echo", stdin="stop\ngood\n")
    assert (result.exit_code, result.stdout) == (0, "You said: good\n")
    assert "is cancelled" in result.stderr
    desk.store.close_connections()


def test_ctrl_c_before_a_message_is_accepted_leaves_nothing_of_it() -> None:
    """There is no turn to cancel, and calls that were open still are. The chat goes on."""

    class Interrupted(SqliteStore):
        def submit(self, request: SubmitRequest) -> Submitted:
            if request.input.message == "stop":
                raise KeyboardInterrupt
            return super().submit(request)

    desk = Desk(store=Interrupted())
    result = desk.run("chat", "s", "--agent", "echo", stdin="call it\nstop\ngood\n")
    assert (result.exit_code, result.stdout) == (0, "You said: good\n")
    assert "is cancelled" in result.stderr
    desk.store.close_connections()


def test_chat_prints_events_as_documents(desk: Desk) -> None:
    """Each on a line, each reply as the last of its turn."""
    result = desk.run("chat", "s", "--agent", "echo", "--json", stdin="one\ntwo\n")
    kinds = [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert kinds == ["queued", "started", "round", "answered", "reply"] * 2


def test_chat_input_that_is_no_text_is_bad_input(desk: Desk) -> None:
    """What came before it was answered."""
    result = desk.run("chat", "s", "--agent", "echo", stdin=b"one\n\xff\xfe\n")
    assert result.exit_code == 2
    assert "must be UTF-8" in result.stderr


@pytest.fixture
def mouth() -> Mouth:
    return Mouth()


@pytest.fixture
def workers(valkey_url: str, namespace: str, mouth: Mouth) -> Iterator[LocalWorkers]:
    provider = ScriptedProvider(lambda request: f"one two {request.entries[-1].text}", pieces=mouth.pieces)
    with speaking(valkey_url, namespace, provider, mouth) as workers:
        yield workers


@contextmanager
def command(*arguments: str, directory: Path, url: str, namespace: str) -> Iterator[subprocess.Popen[bytes]]:
    """`sessionctl` as a process of its own, its output in files `out` and `err`."""
    with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
        process = subprocess.Popen(
            [SESSIONCTL, *arguments, *options(directory, url, namespace)],
            cwd=directory,
            env=environment(SESSIONLIB_PARTITIONS="1"),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def typed(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def test_words_are_printed_while_they_come(
    workers: LocalWorkers, mouth: Mouth, tmp_path: Path, valkey_url: str, namespace: str
) -> None:
    """Before the answer is whole; one that begins anew is said to, on a line of its own."""
    mouth.failures = [ProviderUnavailable("cut off")]
    arguments = ["send", "s", "three", "--agent", "echo", "--stream"]
    with command(*arguments, directory=tmp_path, url=valkey_url, namespace=namespace) as process:
        out = tmp_path / "out"
        mouth.say()
        awaited(out, "one")
        awaited(tmp_path / "err", "its answer begins anew")
        mouth.say(2)
        awaited(out, "one\none two")
        assert process.poll() is None
        mouth.say()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert out.read_text() == "one\none two three\n"


def test_ctrl_c_cancels_the_turn_and_the_chat_goes_on(
    workers: LocalWorkers, mouth: Mouth, tmp_path: Path, valkey_url: str, namespace: str
) -> None:
    """The next line is answered; the end of the input ends the chat."""
    arguments = ["chat", "s", "--agent", "echo"]
    with command(*arguments, directory=tmp_path, url=valkey_url, namespace=namespace) as process:
        typed(process, "first\n")
        mouth.say()
        awaited(tmp_path / "out", "one")
        process.send_signal(signal.SIGINT)
        awaited(tmp_path / "err", "is cancelled")
        mouth.say(10)
        typed(process, "second\n")
        awaited(tmp_path / "out", "one\none two second\n")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert workers.store.view("s").next_seq == 3  # nothing was committed of the first


def test_ctrl_c_without_a_turn_leaves(
    workers: LocalWorkers, mouth: Mouth, tmp_path: Path, valkey_url: str, namespace: str
) -> None:
    """There is nothing to cancel. What was said stays."""
    arguments = ["chat", "s", "--agent", "echo"]
    with command(*arguments, directory=tmp_path, url=valkey_url, namespace=namespace) as process:
        typed(process, "first\n")
        mouth.say(10)
        awaited(tmp_path / "out", "one two first\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
    assert "interrupted" in (tmp_path / "err").read_text()
