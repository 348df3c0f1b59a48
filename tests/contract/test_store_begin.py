"""Contract of the turn lane's grants: begin, leases, attempts, deadlines, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sessionlib.errors import LeaseLost, UnknownSession
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import DueKind, Grant, Lane, Refusal, TurnState
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena

REPLY = ModelReply(text="saved")


def test_grant_carries_the_turn(arena: Arena) -> None:
    """A grant has all that the work needs."""
    arena.submit("t1", "hello", timeout_seconds=50.0)
    grant = arena.begin()
    assert grant.input is not None
    assert (grant.session_id, grant.lane, grant.work_id, grant.input.message) == (SESSION, Lane.TURN, "t1", "hello")
    assert (grant.attempt, grant.first_round, grant.input_seq, grant.steps) == (1, 0, 0, ())
    assert grant.deadline - grant.now == pytest.approx(50.0, abs=0.001)
    assert arena.kinds("t1") == ["queued", "started"]


def test_begin_sent_twice_gives_the_same_grant(arena: Arena) -> None:
    """The token is recognised: nothing is counted, no second start is reported."""
    arena.submit("t1")
    first = arena.store.begin(SESSION, Lane.TURN, "same")
    second = arena.store.begin(SESSION, Lane.TURN, "same")
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert replace(second, now=first.now) == first
    assert arena.kinds("t1") == ["queued", "started"]


def test_nothing_to_do(arena: Arena) -> None:
    """An empty inbox grants nothing."""
    assert arena.try_begin() is Refusal.NOTHING


def test_session_that_is_not_there(arena: Arena) -> None:
    """A message may outlive its session."""
    assert arena.try_begin(session_id="never") is Refusal.GONE
    assert arena.try_begin(Lane.ROTATION, session_id="never") is Refusal.GONE


def test_t96_one_turn_of_a_session_runs_at_a_time(arena: Arena) -> None:
    """A live lease keeps every other worker out, whichever turn its message named."""
    arena.submit("t1")
    arena.submit("t2")
    arena.begin()
    assert arena.try_begin() is Refusal.HELD


def test_turns_run_in_the_order_of_submit(arena: Arena) -> None:
    """A grant is for whatever is next."""
    for turn_id in ("t1", "t2", "t3"):
        arena.submit(turn_id)
    order = []
    for _ in range(3):
        grant = arena.begin()
        order.append(grant.work_id)
        arena.finish(grant)
    assert order == ["t1", "t2", "t3"]


def test_sessions_run_in_parallel(arena: Arena) -> None:
    """The lane of one session bars no other."""
    arena.open("other")
    arena.submit("t1")
    arena.submit("t1", session_id="other")
    arena.begin()
    assert arena.begin(session_id="other").session_id == "other"


def test_t91_a_dead_lease_is_taken_over(make_arena: MakeArena) -> None:
    """A lock whose holder died ends by itself: the turn is granted again and is due then."""
    arena = make_arena(lease_seconds=0.2)
    arena.open()
    arena.submit("t1")
    first = arena.begin()
    arena.expire()
    assert arena.swept(DueKind.TURN) == ["t1"]
    second = arena.begin()
    assert (second.work_id, second.attempt) == ("t1", 2)
    with pytest.raises(LeaseLost):
        arena.commit(first)


def test_a_dead_lease_that_nobody_took_is_renewed_by_a_write(arena: Arena) -> None:
    """A slow worker goes on until it is refused."""
    arena.submit("t1")
    grant = arena.begin()
    arena.expire()
    assert arena.store.save_step(grant, 0, "model:0", REPLY) == 1
    assert arena.try_begin() is Refusal.HELD


def test_every_write_of_the_holder_renews_the_lease(arena: Arena) -> None:
    """A worker that does anything keeps its lane."""
    arena.submit("t1")
    grant = arena.begin()
    writes: list[Callable[[], object]] = [
        lambda: arena.store.save_step(grant, 0, "model:0", REPLY),
        lambda: arena.store.emit(grant, "delta", {}),
        lambda: arena.commit(grant),
        lambda: arena.store.renew(grant),
    ]
    for write in writes:
        write()
        arena.advance(0.6 * arena.store.limits.lease_seconds)
        assert arena.try_begin() is Refusal.HELD


def test_renew_is_refused_past_the_deadline(arena: Arena) -> None:
    """The turn's own deadline ends what renewing would keep up."""
    arena.submit("t1", timeout_seconds=50.0)
    grant = arena.begin()
    arena.store.renew(grant)
    arena.advance(51.0)
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)


def test_renew_is_refused_to_another_token(arena: Arena) -> None:
    """Only the holder renews."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.store.renew(replace(grant, token="stolen"))


def test_renew_is_refused_after_the_work_ended(arena: Arena) -> None:
    """A cancelled turn's worker is told at its next renewal."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.cancel(SESSION, "t1")
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)


def test_a_grant_of_ended_work_is_void_though_its_token_was_granted_again(arena: Arena) -> None:
    """The work's id counts too: a begin that was sent again may have been given other work."""
    arena.submit("t1")
    arena.submit("t2")
    first = arena.store.begin(SESSION, Lane.TURN, "same")
    arena.store.cancel(SESSION, "t1")
    second = arena.store.begin(SESSION, Lane.TURN, "same")
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert second.work_id == "t2"
    with pytest.raises(LeaseLost):
        arena.commit(first)


def test_turn_past_its_deadline_fails_and_the_next_begins(make_arena: MakeArena) -> None:
    """The deadline counts from the first begin; what comes behind is not kept waiting."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.submit("t1", timeout_seconds=0.05)
    arena.submit("t2")
    arena.begin()
    arena.expire()
    assert arena.begin().work_id == "t2"
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.state, view.error_code) == (TurnState.FAILED, "deadline")
    assert arena.kinds("t1")[-1] == "failed"


def test_queued_turn_has_no_deadline_yet(arena: Arena) -> None:
    """Waiting in the inbox costs a turn none of its time."""
    arena.submit("t1", timeout_seconds=50.0)
    arena.advance(51.0)
    assert arena.begin().work_id == "t1"


def test_attempts_without_progress_are_dead_lettered(make_arena: MakeArena) -> None:
    """A turn that kills its workers ends with its reason; it does not run for ever."""
    arena = make_arena(lease_seconds=0.1, max_attempts=2)
    arena.open()
    arena.submit("t1")
    for attempt in (1, 2):
        assert arena.begin().attempt == attempt
        arena.expire()
    assert arena.try_begin() is Refusal.NOTHING
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.state, view.error_code) == (TurnState.FAILED, "dead_lettered")
    assert "turn_failed" in arena.audit_kinds()


def test_a_saved_step_resets_the_count(make_arena: MakeArena) -> None:
    """An attempt counts only if no step was saved since the last."""
    arena = make_arena(lease_seconds=0.1, max_attempts=2)
    arena.open()
    arena.submit("t1")
    attempts = []
    for position in range(4):
        grant = arena.begin()
        attempts.append(grant.attempt)
        arena.store.save_step(grant, position, f"model:{position}", REPLY)
        arena.expire()
    assert attempts == [1, 1, 1, 1]


def test_progress_counts_once(make_arena: MakeArena) -> None:
    """Attempts after the one that saved a step count again."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.submit("t1")
    arena.store.save_step(arena.begin(), 0, "model:0", REPLY)
    attempts = []
    for _ in range(3):
        arena.expire()
        attempts.append(arena.begin().attempt)
    assert attempts == [1, 2, 3]


def test_deadline_is_set_by_the_first_grant(arena: Arena) -> None:
    """Being granted again gives a turn no more time."""
    arena.submit("t1")
    first = arena.begin()
    arena.store.release(first)
    arena.advance(0.05)
    again = arena.begin()
    assert again.deadline == first.deadline
    assert again.now > first.now


def test_a_committed_round_resets_the_count(make_arena: MakeArena) -> None:
    """A round is progress like a step."""
    arena = make_arena(lease_seconds=0.1, max_attempts=2)
    arena.open()
    arena.submit("t1")
    arena.begin()
    arena.expire()
    arena.commit(arena.begin())
    arena.expire()
    grant = arena.begin()
    assert (grant.attempt, grant.first_round) == (1, 1)


def test_snapshot_follows_the_session(arena: Arena) -> None:
    """The snapshot has the live entries, their sizes and the newest commit's token."""
    arena.submit("t1")
    grant = arena.begin()
    arena.finish(grant, commit_token="tail", calibration=1.5)
    snapshot = arena.store.snapshot(SESSION)
    assert [entry.text for entry in snapshot.layout.live.entries] == ["hello", "t1:0"]
    assert (snapshot.layout.live.sizes, snapshot.layout.live.first_seq) == ((10, 10), 1)
    assert (snapshot.tail_token, snapshot.layout_token, snapshot.calibration) == ("tail", "", 1.5)


@pytest.mark.parametrize("rotated", [0, 1, 2], ids=["no_rotation", "rotated_once", "rotated_twice"])
def test_known_snapshot_is_brought_up_to_date(arena: Arena, rotated: int) -> None:
    """With a cache of an older state the answer is the same as without."""
    arena.answer("t1")
    arena.answer("t2")
    known = arena.store.snapshot(SESSION)
    for _ in range(rotated):
        arena.rotate(1)
    arena.answer("t3")
    assert arena.store.snapshot(SESSION, known) == arena.store.snapshot(SESSION)


def test_known_snapshot_of_another_life_of_the_session_is_not_used(arena: Arena) -> None:
    """A cache is judged by its newest token, not by its sequence numbers."""
    arena.answer("t1", "old")
    known = arena.store.snapshot(SESSION)
    while not arena.store.purge(SESSION):
        pass
    arena.open()
    arena.answer("t1", "new")
    arena.answer("t2", "newer")
    assert arena.store.snapshot(SESSION, known) == arena.store.snapshot(SESSION)


def test_snapshot_of_an_unknown_session(arena: Arena) -> None:
    """There is nothing to show."""
    with pytest.raises(UnknownSession):
        arena.store.snapshot("never")
