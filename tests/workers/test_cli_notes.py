"""`sessionctl notes`: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import EntryKind
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from tests.workers.commands import Desk

KEEPER = Agent(name="keeper", window_tokens=16_000, notes_tool=True)


def writing(request: ModelRequest) -> ModelReply | str:
    """Write down what was said under the name before the colon; then say so."""
    last = request.entries[-1]
    if last.kind is EntryKind.TOOL_RESULT:
        return last.text
    name, content = last.text.split(": ", 1)
    arguments = json.dumps({"name": name, "content": content})
    return ModelReply(text="", calls=(CallRequest(call_id="c1", name="notes.write_file", arguments=arguments),))


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(agents=(KEEPER,), provider=ScriptedProvider(writing))
    made.run("send", "s", "plan.md: First the pump,\nthen the Rohr für Öl.\n", "--agent", "keeper")
    made.run("send", "s", "a/list.md: \x1b[31mred")
    yield made
    made.store.close_connections()


def test_notes_lists_names_and_sizes(desk: Desk) -> None:
    """Sorted by name, for people and as a document."""
    lines = desk.run("notes", "s").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["note", "a/list.md", "plan.md"]
    assert desk.json("notes", "s") == {
        "session_id": "s",
        "notes": [{"name": "a/list.md", "bytes": 8}, {"name": "plan.md", "bytes": 40}],
    }


def test_notes_prints_one_note(desk: Desk) -> None:
    """As it is, with one line break at its end."""
    assert desk.run("notes", "s", "plan.md").stdout == "First the pump,\nthen the Rohr für Öl.\n"
    assert desk.json("notes", "s", "plan.md") == {
        "session_id": "s",
        "name": "plan.md",
        "bytes": 40,
        "text": "First the pump,\nthen the Rohr für Öl.\n",
    }


def test_a_note_does_not_steer_the_terminal(desk: Desk) -> None:
    """An escape sequence is printed as what it is."""
    assert desk.run("notes", "s", "a/list.md").stdout == "\\x1b[31mred\n"


def test_a_session_without_notes_says_so(desk: Desk) -> None:
    """No table without rows."""
    desk.run("open", "t", "--agent", "keeper")
    assert desk.run("notes", "t").stdout == "no notes\n"
    assert desk.json("notes", "t") == {"session_id": "t", "notes": []}


@pytest.mark.parametrize("arguments", [("notes", "nowhere"), ("notes", "s", "unknown.md"), ("notes", "s", "")])
def test_what_is_not_there_is_refused(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Exit code 2, and the caller is named."""
    result = desk.run(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["fault"] == "caller"
