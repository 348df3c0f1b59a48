"""Fresh windows from a terminal: the window and its room in `show`, the brake, and what is told at start-up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessionlib.agent import Agent
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from tests.workers.commands import Desk, replying

WORD = "word " * 1_000


def look(place: str) -> str:
    """Look at a place."""
    return place * 16_000


def looking(request: ModelRequest) -> ModelReply | str:
    """Look for ever, or what every desk replies."""
    if request.step == "model:40" or not any(entry.text.startswith("look") for entry in request.entries):
        return replying(request)
    call = CallRequest(call_id=f"{request.turn_id}-{request.step}", name="look", arguments='{"place": "x"}')
    return ModelReply(text="", calls=(call,))


AGENT = Agent(
    name="roomy", window_tokens=10_000, counter="characters", tools=(look,), policy=WorkRoom(work_budget_tokens=100)
)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(agents=(AGENT,), provider=ScriptedProvider(looking))
    yield made
    made.store.close_connections()


@pytest.fixture
def braked(desk: Desk) -> Desk:
    """A session that was braked: three windows running were used up as soon as they began."""
    assert desk.run("send", "s", "look " + "y" * 18_000, "--agent", "roomy").exit_code == 0
    return desk


def test_show_says_where_the_window_stands(desk: Desk) -> None:
    """Its number, its room, what the model was told; openings and ledgers are called by their names."""
    desk.run("send", "s", "hello", "--agent", "roomy")
    assert (
        "window 001: 0 of 4,096 tokens of work room are used; a fresh one begins beyond" in desk.run("show", "s").stdout
    )
    while desk.sessions.get("s").view().epoch == 0:
        desk.run("send", "s", WORD)
    shown = desk.run("show", "s").stdout
    assert "window 002: " in shown
    assert "opening of a fresh window, after " in shown
    assert "ledger: what was done" in shown
    document = desk.json("show", "s")
    assert document["room"]["window"] == 2
    assert [record["kind"] for record in document["layout"]["records"]] == ["opening", "ledger"]
    assert document["last_rotation"]["data"]["window"] == 2


def test_show_says_that_the_model_was_told(desk: Desk) -> None:
    """A reminder is a matter of one request; that it was given is one of the window."""
    desk.run("send", "s", WORD, "--agent", "roomy")
    while not desk.sessions.get("s").view().room.is_reminded:
        desk.run("send", "s", "word " * 200)
    assert "the model was told" in desk.run("show", "s").stdout


def test_a_braked_session_shows_and_is_lifted(braked: Desk) -> None:
    """In `show`, by `brake`, and by its audit; a second lift finds nothing."""
    assert "braked: no fresh window begins until `sessionctl brake s --lift`" in braked.run("show", "s").stdout
    assert braked.json("show", "s")["room"]["is_braked"]
    assert braked.run("brake", "s").stdout == "session s: braked\n"
    assert braked.json("brake", "s") == {"session_id": "s", "is_braked": True, "was_braked": True}
    assert braked.json("brake", "s", "--lift") == {"session_id": "s", "is_braked": False, "was_braked": True}
    assert braked.run("brake", "s").stdout == "session s: not braked\n"
    assert braked.run("brake", "s", "--lift").stdout == "session s: not braked\n"
    assert [event.kind for event in braked.store.audit("s")][-1] == "brake_lifted"


def test_a_lift_says_so(braked: Desk) -> None:
    """For people."""
    assert braked.run("brake", "s", "--lift").stdout == "session s: lifted\n"


def test_the_brake_of_an_unknown_session(desk: Desk) -> None:
    """Bad input, lifted or not."""
    assert desk.run("brake", "nowhere").exit_code == 2
    assert desk.run("brake", "nowhere", "--lift").exit_code == 2


def test_a_clamped_work_room_is_told_at_start_up(desk: Desk) -> None:
    """Once, with both figures; the worker starts all the same."""
    result = desk.run("worker", "front", "--agents", "my_agents")
    assert result.exit_code == 0
    assert len(desk.became) == 1
    assert "agent roomy: a work room of 100 tokens is below" in result.stderr
    assert "4,096 are taken" in result.stderr
