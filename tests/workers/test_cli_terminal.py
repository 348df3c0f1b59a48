"""`sessionctl chat` at a terminal: what is shown, what keys do, and what is left behind."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sessionlib.providers.contract import ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from tests.workers.local import LocalWorkers
from tests.workers.speaking import Mouth, awaited, options, speaking
from tests.workers.terminals import Terminal, terminal
from tests.workers.test_cli_processes import SESSIONCTL, environment
from workers.embedded import EmbeddedServer

CTRL_D, UP, LEFT = "\x04", "\x1b[A", "\x1b[D"
PROMPT = "\r\n> "
"""The prompt on a line of its own."""

STEERING = "red \x1b[31m title \x1b]0;owned\x07 wiped \x9b2J over\rwritten \u202etxt.exe"
"""Colours the rest, names the window, clears the screen, overwrites the line, shows text backwards."""


def answer(request: ModelRequest) -> str:
    text = request.entries[-1].text
    return STEERING if text == "steer me" else f"one two {text}"


class Room:
    """Where chats take place: one session, and who answers in it."""

    def __init__(self, directory: Path, url: str) -> None:
        self.mouth = Mouth()
        self.provider = ScriptedProvider(answer, pieces=self.mouth.pieces)
        self._directory, self._url, self._namespace = directory, url, f"t-{uuid.uuid4().hex[:12]}"

    def workers(self) -> AbstractContextManager[LocalWorkers]:
        return speaking(self._url, self._namespace, self.provider, self.mouth)

    def chat(self, *more: str, output: Path | None = None) -> AbstractContextManager[Terminal]:
        """A chat at a terminal that is sent UTF-8, and takes nothing else."""
        given = options(self._directory, self._url, self._namespace)
        variables = environment(SESSIONLIB_PARTITIONS="1", LC_ALL="C.UTF-8", PYTHONIOENCODING="utf-8:strict")
        command = (SESSIONCTL, "chat", "s", "--agent", "echo", *more, *given)
        return terminal(*command, directory=self._directory, environment=variables, output=output)

    def last_conversation(self) -> list[str]:
        """The texts of the request that was sent last."""
        return [entry.text for entry in self.provider.requests[-1].entries]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedServer) -> Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("room"), valkey.url)
    with made.workers():
        yield made


@pytest.fixture(scope="module")
def talk(room: Room) -> Iterator[Terminal]:
    """A chat that tests share: a process takes a second to start. Each leaves it at an empty prompt."""
    with room.chat() as shown:
        assert shown.shows(PROMPT) == "session s; /help for help"
        yield shown


@pytest.fixture
def mouth(room: Room) -> Mouth:
    """Says nothing yet."""
    room.mouth.hush()
    return room.mouth


def test_an_answer_is_shown_while_it_comes(talk: Terminal, mouth: Mouth) -> None:
    """Its words below the line that was typed, and a new prompt below them."""
    talk.type("first\r")
    assert talk.shows("\r\n") == "first"
    mouth.say()
    assert talk.shows("one") == ""
    mouth.say(2)
    assert talk.shows(PROMPT) == " two first"


def test_the_next_line_goes_on_with_the_conversation(room: Room, talk: Terminal, mouth: Mouth) -> None:
    """The model is asked with what was said before."""
    mouth.say(10)
    for line in ("I am Ann", "who am I?"):
        talk.type(f"{line}\r")
        talk.shows(f"one two {line}{PROMPT}")
    assert room.last_conversation()[-3:] == ["I am Ann", "one two I am Ann", "who am I?"]


def test_lines_can_be_edited_and_recalled(talk: Terminal, mouth: Mouth) -> None:
    """Arrows go back to what was typed before, and within it."""
    pytest.importorskip("readline")
    mouth.say(10)
    talk.type("recalled\r")
    talk.shows(f"one two recalled{PROMPT}")
    talk.type(f"{UP}{LEFT}{LEFT}-l\r")
    talk.shows(f"one two recall-led{PROMPT}")


def test_what_is_typed_ahead_is_the_next_message(talk: Terminal, mouth: Mouth) -> None:
    """While an answer comes, too."""
    talk.type("slow\r")
    mouth.say()
    talk.shows("one")
    talk.type("ahead\r")
    talk.shows("ahead\r\n")
    mouth.say(2)
    talk.shows(f"two slow{PROMPT}")
    mouth.say(3)
    talk.shows(f"one two ahead{PROMPT}")


def test_ctrl_c_ends_an_answer_and_nothing_else(room: Room, talk: Terminal, mouth: Mouth) -> None:
    """What was said before stays in the conversation; of the turn nothing does. The next line is answered."""
    mouth.say(3)
    talk.type("kept\r")
    talk.shows(f"one two kept{PROMPT}")
    talk.type("unwanted\r")
    mouth.say()
    talk.shows("one")
    talk.interrupt()
    assert talk.shows("is cancelled").startswith("^C\r\nturn ")
    talk.shows(PROMPT)
    mouth.say(10)
    talk.type("wanted\r")
    talk.shows(f"one two wanted{PROMPT}")
    assert room.last_conversation()[-3:] == ["kept", "one two kept", "wanted"]


def test_ctrl_c_before_the_first_word_is_told_on_a_line_of_its_own(talk: Terminal, mouth: Mouth) -> None:
    """Not behind the `^C` that the terminal shows."""
    talk.type("mute\r")
    talk.shows("mute\r\n")
    talk.interrupt()
    assert talk.shows("is cancelled").startswith("^C\r\nturn ")
    mouth.say(10)
    talk.shows(PROMPT)


def test_ctrl_c_at_the_prompt_drops_what_was_typed(talk: Terminal, mouth: Mouth) -> None:
    """And says how to leave."""
    mouth.say(3)
    talk.type("half")
    talk.shows("half")
    talk.interrupt()
    assert talk.shows(PROMPT) == "\r\nCtrl-C again leaves, and so does Ctrl-D"
    talk.type("whole\r")
    talk.shows(f"one two whole{PROMPT}")


def test_an_answer_cannot_steer_the_terminal(talk: Terminal, mouth: Mouth) -> None:
    """Control characters are shown as escapes, also where a sequence comes in pieces."""
    mouth.say(10)
    talk.type("steer me\r")
    talk.shows("\r\n")
    shown = r"red \x1b[31m title \x1b]0;owned\x07 wiped \x9b2J over\rwritten \u202etxt.exe"
    assert talk.shows(PROMPT) == shown


def test_a_line_that_is_no_text_is_refused_and_the_chat_goes_on(talk: Terminal, mouth: Mouth) -> None:
    """A paste in another encoding ends nothing."""
    mouth.say(3)
    talk.type(b"\xff\xfe\r")
    assert "error (caller): message must be UTF-8" in talk.shows(PROMPT)
    talk.type("café\r")
    talk.shows(f"one two café{PROMPT}")


def test_ctrl_c_twice_at_the_prompt_leaves_the_terminal_as_it_was(room: Room) -> None:
    """With 130; what a shell says next begins a line."""
    with room.chat() as leaving:
        modes = leaving.modes()
        leaving.shows(PROMPT)
        leaving.interrupt()
        leaving.shows(PROMPT)
        leaving.interrupt()
        assert leaving.shows("interrupted\r\n") == "\r\n"
        assert leaving.exit_code() == 130
        assert leaving.modes() == modes


def test_ctrl_d_leaves_the_terminal_as_it_was(room: Room) -> None:
    """With 0, from a prompt that edits lines in a mode of its own; what a shell says next begins a line."""
    pytest.importorskip("readline")
    with room.chat() as leaving:
        modes = leaving.modes()
        leaving.shows(PROMPT)
        assert leaving.modes() != modes
        leaving.type(CTRL_D)
        assert leaving.shows("\r\n") == ""
        assert leaving.exit_code() == 0
        assert leaving.modes() == modes


def test_output_that_goes_elsewhere_has_no_prompt_in_it(room: Room, mouth: Mouth, tmp_path: Path) -> None:
    """The prompt is at the terminal; a document that tells of an error is written at once, like each event."""
    mouth.say(3)
    out = tmp_path / "out"
    with room.chat("--json", output=out) as talk:
        talk.shows(PROMPT)
        talk.type("hello\r")
        talk.shows("hello\r\n> ")
        talk.type(b"\xff\r")
        awaited(out, '"error"')
        talk.shows(PROMPT)
        talk.type(CTRL_D)
        assert talk.exit_code() == 0
    kinds = [json.loads(line).get("kind", "error") for line in out.read_text().splitlines()]
    assert kinds[-3:] == ["answered", "reply", "error"]
