"""Contract of the notes: written under the turn's token, once each, within their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sessionlib.errors import InvalidInput, LeaseLost
from sessionlib.stores.contract import THREAD_HINT, Grant, Lane
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena


def running(arena: Arena, turn_id: str = "t1") -> Grant:
    arena.submit(turn_id)
    return arena.begin()


def write(arena: Arena, grant: Grant, name: str = "plan.md", text: str = "do it", key: str = "", **fields: Any) -> int:
    return arena.store.write_note(grant, name, text, key=key or arena.token("t1/call_"), **fields)


def note(arena: Arena, name: str = "plan.md") -> str | None:
    return arena.store.note(SESSION, name)


def test_note_is_read_as_it_was_written(arena: Arena) -> None:
    """To the byte; its size is in bytes."""
    text = "größer\r\n\x01 “so”\n\n"
    assert write(arena, running(arena), "plan ä.md", text) == len(text.encode())
    assert note(arena, "plan ä.md") == text


def test_notes_are_sorted_by_name(arena: Arena) -> None:
    """With their sizes."""
    grant = running(arena)
    for name in ("b", "a/ü", "a", "Z", "\U0001f600", "\uffee"):
        write(arena, grant, name, name)
    sizes = arena.store.notes(SESSION)
    assert list(sizes) == ["Z", "a", "a/ü", "b", "\uffee", "\U0001f600"]
    assert sizes["a/ü"] == 4


def test_notes_that_are_not_there(arena: Arena) -> None:
    """None, of an unknown session too."""
    assert (note(arena), arena.store.note("never", "plan.md")) == (None, None)
    assert (arena.store.notes(SESSION), arena.store.notes("never")) == ({}, {})


def test_write_replaces_and_append_lengthens(arena: Arena) -> None:
    """The answer is the size now."""
    grant = running(arena)
    assert write(arena, grant, text="one", append=True) == 3
    assert write(arena, grant, text=" two", append=True) == 7
    assert note(arena) == "one two"
    assert write(arena, grant, text="three") == 5
    assert note(arena) == "three"


def test_empty_note(arena: Arena) -> None:
    """It is there all the same."""
    write(arena, running(arena), text="")
    assert (note(arena), arena.store.notes(SESSION)) == ("", {"plan.md": 0})


@pytest.mark.parametrize("append", [False, True])
def test_same_write_again_changes_nothing(arena: Arena, append: bool) -> None:
    """A tool runs at least once: its key is recognised, under a later grant too."""
    grant = running(arena)
    assert write(arena, grant, text="one", key="t1/call_1", append=append) == 3
    arena.store.release(grant)
    assert write(arena, arena.begin(), text="other", key="t1/call_1", append=append) == 3
    assert note(arena) == "one"


def test_key_is_of_one_note(arena: Arena) -> None:
    """A call that writes two writes both."""
    grant = running(arena)
    write(arena, grant, "a", key="t1/call_1")
    write(arena, grant, "b", key="t1/call_1")
    assert list(arena.store.notes(SESSION)) == ["a", "b"]


def test_note_outlives_turn_and_rotation(arena: Arena) -> None:
    """It belongs to the session."""
    grant = running(arena)
    write(arena, grant)
    arena.finish(grant)
    arena.rotate(2)
    assert note(arena) == "do it"


def ended(arena: Arena, grant: Grant) -> Grant:
    arena.finish(grant)
    return grant


def taken_over(arena: Arena, grant: Grant) -> Grant:
    arena.expire()
    arena.begin()
    return grant


@pytest.mark.parametrize("lost", [ended, taken_over, lambda arena, grant: replace(grant, token="stolen")])
def test_only_the_holder_writes(arena: Arena, lost: Callable[[Arena, Grant], Grant]) -> None:
    """A worker that lost its turn must not write what another may have written since, not even the same again."""
    grant = running(arena)
    write(arena, grant, key="t1/call_1")
    stale = lost(arena, grant)
    for key in ("t1/call_1", "t1/call_2"):
        with pytest.raises(LeaseLost):
            write(arena, stale, text="late", key=key)
    assert note(arena) == "do it"


def test_other_lanes_write_no_notes(arena: Arena) -> None:
    """A summary reads the session and changes nothing."""
    arena.store.request_rotation(SESSION, "test")
    with pytest.raises(InvalidInput):
        write(arena, arena.begin(Lane.ROTATION))


def test_write_renews_the_lease(arena: Arena) -> None:
    """As every write under a token."""
    grant = running(arena)
    arena.advance(arena.store.limits.lease_seconds - 1)
    write(arena, grant)
    arena.advance(2)
    arena.store.renew(grant)


def test_write_is_no_progress(make_arena: MakeArena) -> None:
    """A turn that does nothing else is given up after its attempts."""
    arena = make_arena(max_attempts=2)
    arena.open()
    arena.submit("t1")
    for _ in range(2):
        write(arena, arena.begin())
        arena.expire()
    arena.try_begin()
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert view.error_code == "dead_lettered"


def refused(arena: Arena, grant: Grant, name: str, text: str, **fields: Any) -> str:
    """The rule that a write breaks; it changes nothing."""
    before = {one: arena.store.note(SESSION, one) for one in arena.store.notes(SESSION)}
    with pytest.raises(InvalidInput) as caught:
        write(arena, grant, name, text, **fields)
    assert {one: arena.store.note(SESSION, one) for one in arena.store.notes(SESSION)} == before
    return caught.value.rule


@pytest.mark.parametrize("append", [False, True])
def test_note_has_a_largest_size(make_arena: MakeArena, append: bool) -> None:
    """In bytes, reached exactly; what is lengthened counts as a whole."""
    arena = make_arena(note_bytes=8)
    arena.open()
    grant = running(arena)
    assert write(arena, grant, text="ä" * 4) == 8
    assert "within 8 bytes" in refused(arena, grant, "plan.md", "x" if append else "x" * 9, append=append)


def test_thread_hint_has_a_smaller_one(make_arena: MakeArena) -> None:
    """Every fresh window begins with it."""
    arena = make_arena(hint_bytes=4)
    arena.open()
    grant = running(arena)
    write(arena, grant, THREAD_HINT, "1234")
    write(arena, grant, "other.md", "12345")
    assert "fresh window" in refused(arena, grant, THREAD_HINT, "12345")


def test_notes_have_a_largest_number(make_arena: MakeArena) -> None:
    """Those that are there can still be written."""
    arena = make_arena(notes_limit=2)
    arena.open()
    grant = running(arena)
    write(arena, grant, "a")
    write(arena, grant, "b")
    assert "may have 2" in refused(arena, grant, "c", "x")
    write(arena, grant, "a", "again")


def test_notes_have_a_largest_sum(make_arena: MakeArena) -> None:
    """What a write replaces does not count."""
    arena = make_arena(notes_bytes=10)
    arena.open()
    grant = running(arena)
    write(arena, grant, "a", "12345")
    assert "within 10 bytes together" in refused(arena, grant, "b", "123456")
    write(arena, grant, "b", "12345")
    write(arena, grant, "a", "54321")


def test_same_write_again_is_not_measured(make_arena: MakeArena) -> None:
    """What was written within the limits is done, whatever they say of a second time."""
    arena = make_arena(note_bytes=4)
    arena.open()
    grant = running(arena)
    write(arena, grant, text="123", key="k", append=True)
    assert write(arena, grant, text="123", key="k", append=True) == 3


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "\ud800", "n" * 201])
def test_bad_names_are_refused(arena: Arena, name: str) -> None:
    """Before any store is asked."""
    grant = running(arena)
    with pytest.raises(InvalidInput):
        write(arena, grant, name)
    with pytest.raises(InvalidInput):
        arena.store.note(SESSION, name)


@pytest.mark.parametrize("wrong", [{"text": "\ud800"}, {"key": " "}, {"key": "\ud800"}])
def test_bad_texts_are_refused(arena: Arena, wrong: dict[str, str]) -> None:
    """So is what UTF-8 cannot carry, and a write without a key."""
    with pytest.raises(InvalidInput):
        write(arena, running(arena), **wrong)
    assert arena.store.notes(SESSION) == {}


def test_closed_session_keeps_its_notes(arena: Arena) -> None:
    """They can be read until it is purged."""
    write(arena, running(arena))
    arena.store.close(SESSION, now=True)
    assert note(arena) == "do it"


def test_purge_takes_the_notes(arena: Arena) -> None:
    """A tombstone shows none, and a session opened again has none."""
    write(arena, running(arena))
    arena.store.purge(SESSION, 0)
    assert (note(arena), arena.store.notes(SESSION)) == (None, {})
    while not arena.store.purge(SESSION):
        pass
    arena.open()
    assert (note(arena), arena.store.notes(SESSION)) == (None, {})
