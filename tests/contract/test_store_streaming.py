"""Contract of streamed turns: deltas among the other events while the turn runs, and gone with its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessionlib.stores.contract import DELTA, Event, Grant
from tests.contract.arena import SESSION, Arena


def streaming(arena: Arena, turn_id: str = "t1") -> Grant:
    arena.submit(turn_id, is_streamed=True)
    return arena.begin()


def say(arena: Arena, grant: Grant, *texts: str) -> None:
    for text in texts:
        arena.store.emit(grant, DELTA, {"text": text})


def texts(events: list[Event]) -> list[str]:
    """What was said, and what else happened, in order."""
    return [event.data["text"] if event.kind == DELTA else event.kind for event in events]


def read(arena: Arena, page: int, turn_id: str = "t1") -> list[Event]:
    """All events of a turn as a reader gets them that resumes by event id after every page."""
    found: list[Event] = []
    while more := arena.store.events(SESSION, turn_id, found[-1].id if found else "", page):
        found += more
    return found


@pytest.mark.parametrize("is_streamed", [False, True])
def test_grant_says_whether_the_turn_is_streamed(arena: Arena, is_streamed: bool) -> None:
    """As its caller asked; a later grant says the same."""
    arena.submit("t1", is_streamed=is_streamed)
    grant = arena.begin()
    arena.store.release(grant)
    assert (grant.is_streamed, arena.begin().is_streamed) == (is_streamed, is_streamed)


def test_events_come_in_the_order_in_which_they_were_written(arena: Arena) -> None:
    """Deltas and the others, whatever the size of a page."""
    grant = streaming(arena)
    say(arena, grant, "a", "b")
    arena.store.emit(grant, "tool", {"name": "ls"})
    say(arena, grant, "c")
    arena.commit(grant)
    say(arena, grant, "d")
    expected = ["queued", "started", "a", "b", "tool", "c", "round", "d"]
    for page in (1, 2, 3, 100):
        assert texts(read(arena, page)) == expected


def test_delta_sent_twice_stands_there_once(arena: Arena) -> None:
    """It is like the newest: what is said again later says where it stands."""
    grant = streaming(arena)
    say(arena, grant, "a", "a")
    arena.store.emit(grant, "tool", {"name": "ls"})
    say(arena, grant, "a", "b", "a")
    assert texts(read(arena, 100)) == ["queued", "started", "a", "tool", "b", "a"]


def test_events_of_several_turns_at_once(arena: Arena) -> None:
    """Each under its own grant: one that lost its lease keeps no other from being heard."""
    arena.open("other")
    arena.submit("t9", session_id="other")
    one, lost = streaming(arena), arena.begin(session_id="other")
    arena.store.cancel("other", "t9")
    sent = [(one, DELTA, {"text": "a"}), (lost, DELTA, {"text": "b"}), (one, "tool", {"name": "ls"})]
    assert list(arena.store.emit_all(sent)) == [True, False, True]
    assert texts(read(arena, 100)) == ["queued", "started", "a", "tool"]
    assert list(arena.store.emit_all([])) == []


def test_many_events_at_one_moment(arena: Arena) -> None:
    """However close they come, each has a number of its own, and they rise."""
    grant = streaming(arena)
    for number in range(60):
        say(arena, grant, f"{number}")
        arena.store.emit(grant, "tool", {})
    expected = ["queued", "started", *(text for number in range(60) for text in (f"{number}", "tool"))]
    assert texts(read(arena, 7)) == expected


def answered(arena: Arena, grant: Grant) -> None:
    arena.finish(grant)


def cancelled(arena: Arena, grant: Grant) -> None:
    arena.store.cancel(SESSION, grant.work_id)


def failed(arena: Arena, grant: Grant) -> None:
    arena.store.fail(grant, "tool_error", "it broke")


@pytest.mark.parametrize("end", [answered, cancelled, failed])
def test_deltas_go_when_their_turn_ends(arena: Arena, end: Callable[[Arena, Grant], None]) -> None:
    """The last event has it all."""
    grant = streaming(arena)
    say(arena, grant, "a", "b")
    end(arena, grant)
    kinds = arena.kinds("t1")
    assert (kinds[:2], DELTA in kinds) == (["queued", "started"], False)
    assert kinds[-1] == end.__name__


def test_reader_that_resumes_after_a_delta_misses_nothing_else(arena: Arena) -> None:
    """Whatever is deleted meanwhile, no later event stands before it."""
    grant = streaming(arena)
    say(arena, grant, *"abc")
    last_seen = arena.events("t1")[-1]
    assert texts([last_seen]) == ["c"]
    say(arena, grant, "d")
    arena.finish(grant)
    assert [event.kind for event in arena.store.events(SESSION, "t1", last_seen.id)] == ["round", "answered"]


def test_turn_that_is_tried_again_keeps_its_deltas(arena: Arena) -> None:
    """It has not ended; what its next run says comes after them."""
    grant = streaming(arena)
    say(arena, grant, "a")
    arena.store.release(grant)
    again = arena.begin()
    arena.store.emit(again, "restarted", {"round": 0})
    say(arena, again, "b")
    assert texts(read(arena, 100)) == ["queued", "started", "a", "started", "restarted", "b"]


def test_deltas_of_other_turns_stay(arena: Arena) -> None:
    """Each turn has its own."""
    arena.submit("t2", is_streamed=True)
    arena.finish(arena.begin())
    grant = streaming(arena)
    say(arena, grant, "a")
    arena.submit("t3", is_streamed=True)
    arena.store.cancel(SESSION, "t3")
    assert DELTA in arena.kinds("t1")


def test_purge_takes_the_deltas(arena: Arena) -> None:
    """A session opened again has none of them."""
    say(arena, streaming(arena), "a")
    while not arena.store.purge(SESSION):
        pass
    arena.open()
    arena.submit("t1")
    assert arena.kinds("t1") == ["queued"]


def test_no_deltas_are_nothing(arena: Arena) -> None:
    """Nothing is sent."""
    assert list(arena.store.emit_all([])) == []
