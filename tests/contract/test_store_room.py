"""Contract of the work room's state: kept with the head, of the window that it is about, and its brake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessionlib.errors import UnknownSession
from sessionlib.stores.contract import Lane, Nudge, Room
from tests.contract.arena import SESSION, Arena

REMINDED = Room(is_reminded=True, had_breath=True, breathless_count=2, nudge=Nudge.REMINDER, remaining_tokens=812)
BRAKED = Room(is_reminded=True, breathless_count=3, is_braked=True)


def room(arena: Arena) -> Room:
    """As a worker reads it; an operator sees the same."""
    found = arena.store.snapshot(SESSION).room
    assert arena.store.view(SESSION).room == found
    return found


def brakes(arena: Arena) -> list[str]:
    return [kind for kind in arena.audit_kinds() if "brake" in kind]


def test_new_session_has_all_its_room(arena: Arena) -> None:
    """Nothing was said yet."""
    assert room(arena) == Room()


def test_commit_stores_the_room(arena: Arena) -> None:
    """The next grant begins with it."""
    arena.submit("t1")
    arena.commit(arena.begin(), room=REMINDED)
    assert room(arena) == REMINDED
    arena.expire()
    assert arena.begin().snapshot.room == REMINDED


def test_commit_of_an_older_epoch_does_not(arena: Arena) -> None:
    """What it says is of a window that is not there any more."""
    arena.answer("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.rotate(1)
    arena.commit(grant, room=BRAKED)
    assert (room(arena), brakes(arena)) == (Room(), [])


def test_adopt_replaces_the_room(arena: Arena) -> None:
    """A fresh window has its own."""
    arena.answer("t1", room=REMINDED)
    arena.rotate(1, room=Room(breathless_count=3))
    assert room(arena) == Room(breathless_count=3)


def test_stale_adopt_leaves_the_room(arena: Arena) -> None:
    """Nothing of it counts."""
    arena.answer("t1", room=REMINDED)
    arena.rotate(1, tail_token="other", room=Room())
    assert room(arena) == REMINDED


def test_brake_is_audited_once(arena: Arena) -> None:
    """By the commit that engages it: later ones only say that it still is, and that one may be sent twice."""
    arena.submit("t1")
    grant = arena.begin()
    commit = arena.round(grant, room=BRAKED)
    arena.store.commit(grant, commit)
    arena.store.commit(grant, commit)
    arena.commit(grant, number=1, room=BRAKED)
    [event] = [event for event in arena.store.audit(SESSION) if event.kind == "braked"]
    assert event.data == {"turn_id": "t1"}


def test_brake_is_lifted(arena: Arena) -> None:
    """Fresh windows may begin again; what else is known of this one stays."""
    arena.answer("t1", room=BRAKED)
    assert arena.store.lift_brake(SESSION)
    assert room(arena) == Room(is_reminded=True)
    assert not arena.store.lift_brake(SESSION)
    assert brakes(arena) == ["braked", "brake_lifted"]


def test_brake_that_is_not_engaged(arena: Arena) -> None:
    """There is nothing to lift, and nothing changes."""
    arena.answer("t1", room=REMINDED)
    assert not arena.store.lift_brake(SESSION)
    assert (room(arena), brakes(arena)) == (REMINDED, [])


def test_turn_that_runs_does_not_engage_a_lifted_brake(arena: Arena) -> None:
    """It still goes by what it was granted with; the next grant knows better, and may brake."""
    arena.answer("t1", room=BRAKED)
    arena.submit("t2")
    grant = arena.begin()
    arena.store.lift_brake(SESSION)
    arena.commit(grant, room=replace(BRAKED, remaining_tokens=5))
    assert room(arena) == Room(is_reminded=True, remaining_tokens=5)
    arena.store.release(grant)
    arena.finish(arena.begin(), room=BRAKED)
    assert brakes(arena) == ["braked", "brake_lifted", "braked"]


def test_brake_engaged_again_after_a_lift(arena: Arena) -> None:
    """A lift between turns bars no later one."""
    arena.answer("t1", room=BRAKED)
    arena.store.lift_brake(SESSION)
    arena.answer("t2", room=BRAKED)
    assert room(arena) == BRAKED


def test_lift_for_an_unknown_session(arena: Arena) -> None:
    """There is no brake."""
    with pytest.raises(UnknownSession):
        arena.store.lift_brake("never")


def test_rotation_sees_the_room(arena: Arena) -> None:
    """A reset is decided from it."""
    arena.answer("t1", room=REMINDED)
    arena.store.request_rotation(SESSION, "test")
    assert arena.begin(Lane.ROTATION).snapshot.room == REMINDED
