"""Which agents have notes, and how callers read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sessionlib.agent import Agent
from sessionlib.entries import EntryKind
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.session import Session
from sessionlib.tools.declaration import Tool
from sessionlib.tools.notes import NOTES_DECLARATIONS

NAMES = [declared.name for declared in NOTES_DECLARATIONS]


def declared(agent: Agent) -> list[str]:
    return [tool.name for tool in agent.declarations if tool.name.startswith("notes.")]


def test_notes_are_declared_where_they_are_asked_for() -> None:
    """With the policy that lives by them, and not with every other: each request would carry the declarations."""
    assert declared(Agent(name="a", policy=WorkRoom())) == NAMES
    assert declared(Agent(name="a", policy=WorkRoom(), notes_tool=False)) == []
    assert declared(Agent(name="a", policy=LogMerge())) == []
    assert declared(Agent(name="a", policy=LogMerge(), notes_tool=True)) == NAMES
    assert declared(Agent(name="a", policy=LogMerge(), notes_tool=False)) == []


@pytest.mark.parametrize("name", ["notes.write_file", "notes.mine"])
def test_names_of_private_tools_are_reserved(name: str) -> None:
    """Like those of the history tools."""

    def write(text: str) -> str:
        """Write."""
        return text

    with pytest.raises(ValidationError, match=f"tool name '{name}' is used twice or reserved"):
        Agent(name="a", tools=(Tool.from_function(write, name=name),))


def noting(request: ModelRequest) -> ModelReply | str:
    """Add what is said to a note, and say its size."""
    last = request.entries[-1]
    if last.kind is EntryKind.TOOL_RESULT:
        return last.text
    arguments = f'{{"name": "log.md", "content": "{last.text}."}}'
    return ModelReply(text="", calls=(CallRequest(call_id="c1", name="notes.append_to_file", arguments=arguments),))


def test_a_session_in_a_file_keeps_its_notes(tmp_path: Path) -> None:
    """Read by name and text; there again when it is opened anew."""
    agent = Agent(name="keeper", window_tokens=16_000, notes_tool=True)
    for expected in ("one.", "one.two."):
        with Session(agent, {"default": ScriptedProvider(noting)}, path=tmp_path / "s.db") as session:
            assert session.note("lost.md") is None
            session.send(expected.split(".")[-2])
            assert dict(session.notes()) == {"log.md": len(expected)}
            assert session.note("log.md") == expected


def test_an_agent_without_notes_leaves_such_calls_open() -> None:
    """A tool that is not declared is none of ours."""
    agent = Agent(name="keeper", window_tokens=16_000, notes_tool=False)
    with Session(agent, {"default": ScriptedProvider(noting)}) as session:
        assert [call.name for call in session.send("one").open_calls] == ["notes.append_to_file"]
        assert dict(session.notes()) == {}
