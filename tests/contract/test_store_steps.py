"""Contract of saved steps, events, release, fail and cancel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessionlib.errors import InvalidInput, LeaseLost, UnknownSession
from sessionlib.providers.contract import ModelReply
from sessionlib.steps import ToolOutput
from sessionlib.stores.contract import Answer, DueKind, Lane, Refusal, TurnState, UnsavedStep
from tests.contract.arena import SESSION, Arena, calls
from tests.contract.conftest import MakeArena

REPLY = ModelReply(text="I look", calls=calls("c1"))
OUTPUT = ToolOutput("42", is_error=True)


def test_saved_steps_come_with_the_next_grant(make_arena: MakeArena) -> None:
    """After a crash the next worker has every saved result."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.submit("t1")
    grant = arena.begin()
    assert arena.store.save_step(grant, 0, "model:0", REPLY) == 1
    assert arena.store.save_step(grant, 1, "tool:0:c1", OUTPUT) == 2
    arena.expire()
    assert arena.begin().steps == (("model:0", REPLY), ("tool:0:c1", OUTPUT))


def test_step_sent_twice_is_saved_once(arena: Arena) -> None:
    """A step is recognised by its position."""
    arena.submit("t1")
    grant = arena.begin()
    assert [arena.store.save_step(grant, 0, "model:0", REPLY) for _ in range(2)] == [1, 1]


def test_step_that_leaves_a_gap_is_refused(arena: Arena) -> None:
    """A lost step cannot be jumped over."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.store.save_step(grant, 1, "tool:0:c1", OUTPUT)


def test_step_under_another_token_is_refused(arena: Arena) -> None:
    """A worker that lost its lane saves nothing."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.store.save_step(replace(grant, token="stolen"), 0, "model:0", REPLY)


def test_commit_brings_the_last_step_of_its_round(arena: Arena) -> None:
    """It is saved before the round is recorded, and counts: positions go on after it, without a gap."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.save_step(grant, 0, "model:0", REPLY)
    arena.commit(grant, last_step=UnsavedStep(position=1, name="tool:0:c1", result=OUTPUT))
    with pytest.raises(LeaseLost):
        arena.store.save_step(grant, 3, "model:1", REPLY)
    assert arena.store.save_step(grant, 2, "model:1", REPLY) == 3


def test_commit_with_a_step_sent_twice_is_done_once(arena: Arena) -> None:
    """The answer's own step too: the second finds the turn ended, and is told the same."""
    arena.submit("t1")
    grant = arena.begin()
    step = UnsavedStep(position=0, name="model:0", result=REPLY)
    last = arena.round(grant, answer=Answer(text="fine"), last_step=step)
    assert arena.store.commit(grant, last) == arena.store.commit(grant, last)
    assert [entry.text for entry in arena.history()] == ["hello", "t1:0"]


def test_commit_with_a_step_of_one_who_lost_the_lane_changes_nothing(arena: Arena) -> None:
    """Neither the step nor the round."""
    arena.submit("t1")
    grant = arena.begin()
    stolen = replace(grant, token="stolen")
    with pytest.raises(LeaseLost):
        arena.commit(stolen, last_step=UnsavedStep(position=0, name="model:0", result=REPLY))
    arena.store.release(grant)
    assert (arena.begin().steps, arena.history()) == ((), [])


def test_positions_go_on_over_committed_rounds(arena: Arena) -> None:
    """A commit drops its round's steps; positions count over the whole turn, so an old step stays recognised."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.save_step(grant, 0, "model:0", REPLY)
    arena.store.save_step(grant, 1, "tool:0:c1", OUTPUT)
    arena.commit(grant)
    assert arena.store.save_step(grant, 1, "tool:0:c1", OUTPUT) == 2
    assert arena.store.save_step(grant, 2, "model:1", REPLY) == 3
    arena.store.release(grant)
    again = arena.begin()
    assert (again.step_base, again.steps) == (2, (("model:1", REPLY),))


@pytest.mark.parametrize("end", ["answer", "fail", "cancel"])
def test_steps_of_a_finished_turn_are_dropped(arena: Arena, end: str) -> None:
    """The next turn starts with none, however the one before ended."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.store.save_step(grant, 0, "model:0", REPLY)
    if end == "answer":
        arena.finish(grant)
    elif end == "fail":
        arena.store.fail(grant, "provider_rejected", "bad key")
    else:
        arena.store.cancel(SESSION, "t1")
    later = arena.begin()
    assert (later.work_id, later.steps, later.step_base) == ("t2", (), 0)


def test_emitted_events_are_read_in_order_and_resumed(arena: Arena) -> None:
    """Every event has an id from which a reader goes on."""
    arena.submit("t1")
    grant = arena.begin()
    for text in ("a", "b", "c"):
        arena.store.emit(grant, "delta", {"text": text})
    events = arena.events("t1")
    assert [event.data.get("text") for event in events][-3:] == ["a", "b", "c"]
    rest = arena.store.events(SESSION, "t1", after=events[-2].id)
    assert [event.data for event in rest] == [{"text": "c"}]
    assert len(arena.store.events(SESSION, "t1", limit=2)) == 2


def test_emit_under_another_token_is_refused(arena: Arena) -> None:
    """Nobody but the holder reports."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.store.emit(replace(grant, token="stolen"), "delta", {})


def test_emit_needs_the_turn_lane(arena: Arena) -> None:
    """A rotation has no event stream."""
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    with pytest.raises(InvalidInput):
        arena.store.emit(grant, "delta", {})


def test_release_gives_the_lane_back_at_once(arena: Arena) -> None:
    """The same turn is granted next, with no attempt counted, and is due now."""
    arena.submit("t1")
    arena.sweep()
    arena.store.release(arena.begin())
    assert arena.swept(DueKind.TURN) == ["t1"]
    grant = arena.begin()
    assert (grant.work_id, grant.attempt) == ("t1", 1)


def test_release_never_counts(make_arena: MakeArena) -> None:
    """However often workers shut down, the turn is not dead-lettered."""
    arena = make_arena(max_attempts=2)
    arena.open()
    arena.submit("t1")
    for _ in range(5):
        arena.store.release(arena.begin())
    assert arena.begin().attempt == 1


def test_t97_release_of_a_lost_lane_leaves_the_successor_alone(arena: Arena) -> None:
    """A release compares the token: a late one does not take the lane from its new holder."""
    arena.submit("t1")
    first = arena.begin()
    arena.expire()
    second = arena.begin()
    arena.store.release(first)
    assert arena.try_begin() is Refusal.HELD
    arena.store.renew(second)


def test_release_sent_twice_is_harmless(arena: Arena) -> None:
    """The second finds the lane free and does nothing."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.release(grant)
    arena.store.release(grant)
    assert arena.begin().attempt == 1


def test_failed_for_retry_waits_for_its_time(arena: Arena) -> None:
    """Before the retry time nothing is granted, nor to the turns behind; then the turn is due and granted again."""
    arena.submit("t1")
    arena.submit("t2")
    assert arena.store.fail(arena.begin(), "tool_failed", "no disk", 60.0) is None
    arena.sweep()
    assert arena.try_begin() is Refusal.NOTHING
    arena.advance(61.0)
    assert "t1" in arena.swept(DueKind.TURN)
    grant = arena.begin()
    assert (grant.work_id, grant.attempt) == ("t1", 2)


def test_retries_end_in_a_dead_letter_that_names_the_last_error(make_arena: MakeArena) -> None:
    """The caller learns what went wrong last."""
    arena = make_arena(max_attempts=2)
    arena.open()
    arena.submit("t1")
    for _ in range(2):
        arena.store.fail(arena.begin(), "tool_failed", "no disk", 0.0)
    assert arena.try_begin() is Refusal.NOTHING
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert view.error_code == "dead_lettered"
    assert "tool_failed" in view.error
    assert "no disk" in view.error


@pytest.mark.parametrize("code", ["provider_unavailable", "store_unavailable"])
def test_transient_errors_are_not_counted(make_arena: MakeArena, code: str) -> None:
    """An overloaded provider is tried until the turn's deadline."""
    arena = make_arena(max_attempts=2)
    arena.open()
    arena.submit("t1")
    for _ in range(5):
        arena.store.fail(arena.begin(), code, "overloaded", 0.0)
    assert arena.begin().attempt == 1


def test_failed_for_good(arena: Arena) -> None:
    """The turn ends with its code and reason; the next one is named and due."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    assert arena.store.fail(grant, "provider_rejected", "bad key") == "t2"
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.state, view.error_code, view.error) == (TurnState.FAILED, "provider_rejected", "bad key")
    assert arena.events("t1")[-1].data == {"code": "provider_rejected", "reason": "bad key"}
    assert arena.swept(DueKind.TURN) == ["t2"]


def test_fail_sent_twice_ends_one_turn(arena: Arena) -> None:
    """The second is told that the lane is no longer its own."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.store.fail(grant, "provider_rejected", "bad key")
    with pytest.raises(LeaseLost):
        arena.store.fail(grant, "provider_rejected", "bad key")
    assert arena.store.view(SESSION).queued == ("t2",)


def test_failed_turn_goes_to_the_audit_without_its_reason(arena: Arena) -> None:
    """The audit holds figures and codes only."""
    arena.submit("t1")
    arena.store.fail(arena.begin(), "provider_rejected", "secret content")
    [line] = [event for event in arena.store.audit(SESSION) if event.kind == "turn_failed"]
    assert line.data == {"turn_id": "t1", "code": "provider_rejected"}


def test_failed_turn_keeps_its_committed_rounds(arena: Arena) -> None:
    """History holds what was committed."""
    arena.submit("t1")
    grant = arena.begin()
    arena.commit(grant)
    arena.store.fail(grant, "provider_rejected", "bad key")
    assert [entry.text for entry in arena.history()] == ["hello", "t1:0"]


def test_cancel_a_queued_turn(arena: Arena) -> None:
    """It leaves the inbox and never begins."""
    arena.submit("t1")
    arena.submit("t2")
    assert arena.store.cancel(SESSION, "t1") is TurnState.CANCELLED
    assert arena.begin().work_id == "t2"
    assert arena.kinds("t1") == ["queued", "cancelled"]


def test_cancel_a_running_turn(arena: Arena) -> None:
    """Its worker loses the lane; the next turn is due."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.store.cancel(SESSION, "t1")
    with pytest.raises(LeaseLost):
        arena.commit(grant)
    assert arena.swept(DueKind.TURN) == ["t2"]
    assert arena.begin().work_id == "t2"


def test_cancel_sent_twice_is_harmless(arena: Arena) -> None:
    """The second finds the turn ended and adds no event."""
    arena.submit("t1")
    assert [arena.store.cancel(SESSION, "t1") for _ in range(2)] == [TurnState.CANCELLED] * 2
    assert arena.kinds("t1") == ["queued", "cancelled"]


def test_cancel_an_answered_turn_changes_nothing(arena: Arena) -> None:
    """Too late: the answer stands."""
    arena.answer("t1")
    assert arena.store.cancel(SESSION, "t1") is TurnState.ANSWERED


def test_cancel_what_is_not_there(arena: Arena) -> None:
    """Unknown ids are the caller's error."""
    with pytest.raises(InvalidInput):
        arena.store.cancel(SESSION, "never")
    with pytest.raises(UnknownSession):
        arena.store.cancel("never", "t1")
