"""`sessionctl ls --braked`: the sessions that wait for an operator, found in one command."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from sessionlib.stores.contract import Room
from sessionlib.window_facts import LearnedWindow
from tests.contract.arena import Arena
from tests.workers.commands import Desk

BRAKED = Room(breathless_count=3, is_braked=True)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.store.close_connections()


def opened(desk: Desk, *session_ids: str, braked: Sequence[str] = ()) -> None:
    """Open sessions; those of *braked* answered a turn that braked them."""
    arena = Arena(desk.store, lambda _: None, time.time)
    for session_id in session_ids:
        desk.sessions.open(session_id, "echo")
        if session_id in braked:
            arena.submit("t", session_id=session_id)
            arena.finish(arena.begin(session_id=session_id), room=BRAKED)


def listed(desk: Desk, *arguments: str) -> list[str]:
    return [session["session_id"] for session in desk.json("ls", "--braked", *arguments)["sessions"]]


def test_braked_sessions_alone_are_listed(desk: Desk) -> None:
    """The others stay in the whole list."""
    opened(desk, "a", "b", "c", braked=("b",))
    assert listed(desk) == ["b"]
    assert len(desk.json("ls")["sessions"]) == 3
    _heading, row = desk.run("ls", "--braked").stdout.splitlines()
    assert row.split()[:3] == ["b", "open", "echo"]


def test_a_braked_session_far_behind_is_found(desk: Desk) -> None:
    """A page is counted in what is listed, not in what was looked at."""
    names = [f"s{number:02}" for number in range(20)]
    opened(desk, *names, braked=("s19",))
    assert desk.json("ls", "--braked", "--limit", "2")["after"] is None
    assert listed(desk, "--limit", "2") == ["s19"]


def test_pages_of_braked_sessions_have_each_once(desk: Desk) -> None:
    """Whatever lies between them; the last names none."""
    names = [f"s{number:02}" for number in range(12)]
    opened(desk, *names, braked=names[1::2])
    pages = [desk.json("ls", "--braked", "--limit", "4")]
    while cursor := pages[-1]["after"]:
        pages.append(desk.json("ls", "--braked", "--limit", "4", "--after", cursor))
    assert [session["session_id"] for page in pages for session in page["sessions"]] == names[1::2]
    assert len(pages[0]["sessions"]) == 4


def test_the_next_page_is_named_with_the_filter(desk: Desk) -> None:
    """What is said can be typed as it stands."""
    opened(desk, "a", "b", "c", braked=("a", "b"))
    assert desk.run("ls", "--braked", "--limit", "1").stderr == "more: sessionctl ls --braked --after 0:a\n"


def test_lifted_and_closed_sessions_are_not_listed(desk: Desk) -> None:
    """As health does not count them."""
    opened(desk, "closed", "lifted", "still", braked=("closed", "lifted", "still"))
    desk.store.close("closed")
    assert desk.run("brake", "lifted", "--lift").exit_code == 0
    assert listed(desk) == ["still"]


def test_that_none_is_braked_is_said(desk: Desk) -> None:
    """Not that there are no sessions."""
    opened(desk, "a")
    assert desk.run("ls", "--braked").stderr == "no braked sessions\n"
    assert desk.json("ls", "--braked") == {"sessions": [], "after": None}


@pytest.mark.parametrize(
    ("command", "taught"), [("ls", "--braked"), ("health", "ls --braked"), ("ls", "sessionctl brake SESSION --lift")]
)
def test_help_teaches_it(desk: Desk, command: str, taught: str) -> None:
    """Whoever reads one command's help finds the other."""
    assert taught in " ".join(desk.run(command, "--help").stdout.split())


@pytest.mark.parametrize("command", [("ls",), ("open", "a", "--agent", "echo"), ("show", "a")])
def test_figures_are_those_of_the_window_that_the_provider_has(desk: Desk, command: tuple[str, ...]) -> None:
    """It named 4,000 tokens when it refused a request; the agent declares twice as much."""
    opened(desk, "a")
    origin = desk.sessions.get("a").agent.origin
    arena = Arena(desk.store, lambda _: None, time.time)
    arena.submit("t", session_id="a")
    arena.finish(arena.begin(session_id="a"), window=LearnedWindow(tokens=4_000, origin=origin))
    told = desk.json(*command)
    figures = told["sessions"][0] if "sessions" in told else told
    assert figures["window"]["window_tokens"] == 4_000
