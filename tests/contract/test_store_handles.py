"""Contract of held provider sessions: chains of handles, those that nobody took over, and what is to be let go of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sessionlib.errors import InvalidInput
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import Busy, DueKind, Grant, Handle, Lane, UnsavedStep
from tests.contract.arena import SESSION, Arena, handle
from tests.contract.conftest import MakeArena

REPLY = ModelReply(text="so it is")


def child(name: str, parent: str, epoch: int = 0) -> Handle:
    return replace(handle(name, epoch), parent=parent)


def to_dispose(arena: Arena) -> list[tuple[str, str]]:
    """Handles that are due, each with where its disposal stops. There is a due member exactly if there are any."""
    found = [(held.handle, held.parent) for held in arena.store.handles_to_dispose(SESSION)]
    arena.advance(arena.store.limits.sweep_last_seconds)
    assert arena.swept(DueKind.DISPOSAL) == [""][: len(found)]
    return found


def brought(arena: Arena, turn_id: str, *handles: Handle) -> Grant:
    """A turn that runs, whose saved steps brought these."""
    arena.submit(turn_id)
    grant = arena.begin()
    for position, held in enumerate(handles):
        arena.store.save_step(grant, position, f"model:0:{position}", REPLY, held)
    return grant


def test_replaced_handle_is_disposed_of(arena: Arena) -> None:
    """A new provider session takes the old one's place; the old one is due for disposal."""
    arena.answer("t1", handle=handle("h1"))
    committed = arena.answer("t2", handle=handle("h2"))
    assert committed.disposal
    assert [held.handle for held in arena.store.handles_to_dispose(SESSION)] == ["h1"]
    assert arena.store.snapshot(SESSION).handle == handle("h2")
    assert arena.swept(DueKind.DISPOSAL) == [""]


def test_same_handle_is_kept(arena: Arena) -> None:
    """Going on in the same provider session disposes of nothing."""
    arena.answer("t1", handle=handle("h1"))
    assert not arena.answer("t2", handle=handle("h1")).disposal


def test_rotation_retires_the_handle(arena: Arena) -> None:
    """After adopt the next turn seeds a new provider session."""
    arena.answer("t1", handle=handle("h1"))
    assert arena.rotate(2).disposal
    assert arena.store.snapshot(SESSION).handle is None
    assert [held.handle for held in arena.store.handles_to_dispose(SESSION)] == ["h1"]


def test_handle_waits_for_the_turn_that_uses_it(arena: Arena) -> None:
    """A handle is let go only when no turn that began on it is unfinished."""
    arena.answer("t1", handle=handle("h1"))
    arena.submit("t2")
    grant = arena.begin()
    assert not arena.rotate(2).disposal
    assert list(arena.store.handles_to_dispose(SESSION)) == []
    assert arena.swept(DueKind.DISPOSAL) == []
    assert arena.finish(grant, handle=handle("h1")).disposal
    assert [held.handle for held in arena.store.handles_to_dispose(SESSION)] == ["h1"]
    assert arena.swept(DueKind.DISPOSAL) == [""]


def test_handle_of_an_older_epoch_is_disposed_of(arena: Arena) -> None:
    """A provider session seeded with a layout that is gone is of no use."""
    arena.answer("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.rotate(2)
    assert arena.finish(grant, handle=handle("h-old")).disposal
    assert [held.handle for held in arena.store.handles_to_dispose(SESSION)] == ["h-old"]


def test_disposed_twice(arena: Arena) -> None:
    """The handle is gone and nothing is due; a second report is harmless."""
    arena.answer("t1", handle=handle("h1"))
    arena.rotate(2)
    for _ in range(2):
        arena.store.disposed(SESSION, "h1")
    assert list(arena.store.handles_to_dispose(SESSION)) == []
    assert arena.swept(DueKind.DISPOSAL) == []


def test_one_of_two_disposed(arena: Arena) -> None:
    """What is left stays due."""
    for number in (1, 2, 3):
        arena.answer(f"t{number}", handle=handle(f"h{number}"))
    arena.store.disposed(SESSION, "h1")
    assert [held.handle for held in arena.store.handles_to_dispose(SESSION)] == ["h2"]
    assert arena.swept(DueKind.DISPOSAL) == [""]


# Chains


def test_continued_handle_is_not_disposed_of(arena: Arena) -> None:
    """The new one needs it."""
    arena.answer("t1", handle=handle("h1"))
    assert not arena.answer("t2", handle=child("h2", "h1")).disposal
    assert to_dispose(arena) == []
    assert arena.store.snapshot(SESSION).handle == child("h2", "h1")


def test_chain_ends_as_one(arena: Arena) -> None:
    """By its newest handle, back to the oldest."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=child("h2", "h1"))
    arena.answer("t3", handle=child("h3", "h2"))
    arena.rotate(2)
    assert to_dispose(arena) == [("h3", "")]


def test_replaced_chain_ends_as_one(arena: Arena) -> None:
    """A provider session that was seeded anew continues nothing."""
    arena.answer("t1", handle=handle("h1"))
    arena.answer("t2", handle=child("h2", "h1"))
    assert arena.answer("t3", handle=handle("n1")).disposal
    assert to_dispose(arena) == [("h2", "")]


def test_provider_that_holds_nothing_ends_the_chain(arena: Arena) -> None:
    """The agent's new version has another provider."""
    arena.answer("t1", handle=handle("h1"))
    assert arena.answer("t2").disposal
    assert to_dispose(arena) == [("h1", "")]


def test_round_that_a_rotation_overtook(arena: Arena) -> None:
    """Its handle goes by itself; the chain that it continued goes when the turn has ended."""
    arena.answer("t1", handle=handle("h1"))
    arena.submit("t2")
    grant = arena.begin()
    arena.rotate(2)
    arena.commit(grant, handle=child("h2", "h1"))
    assert to_dispose(arena) == [("h2", "h1")]
    arena.finish(grant, number=1, epoch=1)
    assert sorted(to_dispose(arena)) == [("h1", ""), ("h2", "h1")]


# Handles of rounds that are not committed


def test_saved_handle_waits_for_its_round(make_arena: MakeArena) -> None:
    """A crash in between: another worker goes on with it."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    brought(arena, "t1", handle("h1"))
    arena.expire()
    assert to_dispose(arena) == []
    assert not arena.finish(arena.begin(), handle=handle("h1")).disposal
    assert arena.store.snapshot(SESSION).handle == handle("h1")


def test_round_that_goes_on_without_it(arena: Arena) -> None:
    """What the round does not take over is due with its commit; the chain lives on."""
    arena.answer("t1", handle=handle("h1"))
    grant = brought(arena, "t2", child("lost", "h1"), child("h2", "h1"))
    assert arena.finish(grant, handle=child("h2", "h1")).disposal
    assert to_dispose(arena) == [("lost", "h1")]


def test_round_without_handle(arena: Arena) -> None:
    """Both go, each by itself."""
    arena.answer("t1", handle=handle("h1"))
    arena.finish(brought(arena, "t2", child("h2", "h1")))
    assert to_dispose(arena) == [("h1", ""), ("h2", "h1")]


def cancelled(arena: Arena, grant: Grant) -> None:
    arena.store.cancel(SESSION, grant.work_id)


def failed(arena: Arena, grant: Grant) -> None:
    arena.store.fail(grant, "tool_error", "it broke")


def interrupted(arena: Arena, grant: Grant) -> None:
    arena.submit("newer", busy=Busy.INTERRUPT)


def closed(arena: Arena, grant: Grant) -> None:
    arena.store.close(SESSION, now=True)


def out_of_time(arena: Arena, grant: Grant) -> None:
    arena.advance(100_000.0)
    arena.try_begin()


@pytest.mark.parametrize("end", [cancelled, failed, interrupted, closed, out_of_time])
def test_turn_that_ends_without_its_round(arena: Arena, end: Callable[[Arena, Grant], None]) -> None:
    """Its handle is of no use; what it continued is the session's and stays."""
    arena.answer("t1", handle=handle("h1"))
    end(arena, brought(arena, "t2", child("h2", "h1")))
    assert to_dispose(arena) == [("h2", "h1")]
    assert arena.store.snapshot(SESSION).handle == handle("h1")


def test_turn_that_ends_in_a_session_of_its_own(arena: Arena) -> None:
    """A handle that continues none goes as a whole."""
    failed(arena, brought(arena, "t1", handle("h1")))
    assert to_dispose(arena) == [("h1", "")]


def test_turn_that_is_tried_again_keeps_it(arena: Arena) -> None:
    """The saved step that brought it is fed to the next run."""
    grant = brought(arena, "t1", handle("h1"))
    arena.store.fail(grant, "provider_unavailable", "busy", 0.0)
    arena.store.release(arena.begin())
    assert to_dispose(arena) == []
    arena.finish(arena.begin(), handle=handle("h1"))
    assert to_dispose(arena) == []


def test_handle_that_the_session_has_is_not_let_go_of(arena: Arena) -> None:
    """A provider may name a session alike for ever."""
    arena.answer("t1", handle=handle("h1"))
    failed(arena, brought(arena, "t2", handle("h1")))
    assert to_dispose(arena) == []


def test_same_handle_of_two_steps_is_let_go_of_once(arena: Arena) -> None:
    """It is one provider session."""
    failed(arena, brought(arena, "t1", handle("h1"), handle("h1")))
    assert to_dispose(arena) == [("h1", "")]


def test_rotation_while_the_round_is_not_committed(arena: Arena) -> None:
    """The chain waits for the turn; what its step brought goes with the turn's end too."""
    arena.answer("t1", handle=handle("h1"))
    grant = brought(arena, "t2", child("h2", "h1"))
    arena.rotate(2)
    assert to_dispose(arena) == []
    failed(arena, grant)
    assert sorted(to_dispose(arena)) == [("h1", ""), ("h2", "h1")]


def test_step_sent_twice_brings_its_handle_once(arena: Arena) -> None:
    """It is recognised by its position, and nothing of the second counts."""
    grant = brought(arena, "t1", handle("h1"))
    arena.store.save_step(grant, 0, "model:0", REPLY, handle("other"))
    failed(arena, grant)
    assert to_dispose(arena) == [("h1", "")]


def test_step_that_comes_with_its_commit(arena: Arena) -> None:
    """Its handle is remembered and taken over at once, or remembered if the round cannot be recorded."""
    arena.submit("t1")
    grant = arena.begin()
    step = UnsavedStep(position=0, name="model:0", result=REPLY, handle=handle("h1"))
    arena.commit(grant, last_step=step, handle=handle("h1"))
    assert to_dispose(arena) == []
    arena.commit(grant, number=1, last_step=replace(step, position=1, handle=handle("h2")), handle=handle("h1"))
    assert to_dispose(arena) == [("h2", "")]


def test_other_lanes_bring_no_handle(arena: Arena) -> None:
    """A summarizer lets go of what it used by itself."""
    arena.store.request_rotation(SESSION, "test")
    with pytest.raises(InvalidInput):
        arena.store.save_step(arena.begin(Lane.ROTATION), 0, "consolidation", REPLY, handle("h1"))


def test_names_of_handles_may_hold_anything(arena: Arena) -> None:
    """They are the provider's."""
    odd, odder = 'h\t1\n"ü', "h\t2\x00\\"
    arena.answer("t1", handle=handle(odd))
    failed(arena, brought(arena, "t2", child(odder, odd)))
    arena.rotate(2)
    assert to_dispose(arena) == [(odder, odd), (odd, "")]
    arena.store.disposed(SESSION, odder)
    assert to_dispose(arena) == [(odd, "")]
