"""Contract of handoffs, and of what both lanes for jobs have in common: a job reads the session and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessionlib.errors import InvalidInput, LeaseLost, SessionBusy, TurnConflict, UnknownSession
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import JOB_LANES, DueKind, Grant, JobState, Lane, Refusal
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena
from tests.contract.jobs import REQUEST, audit_data, begun, hand_off, request, result, settle, talk, view

REPLY = ModelReply(text="a summary")
KINDS = {Lane.HANDOFF: DueKind.HANDOFF, Lane.DIGEST: DueKind.DIGEST}
of_both_lanes = pytest.mark.parametrize("lane", JOB_LANES)


@pytest.fixture
def spoken(arena: Arena) -> Arena:
    """A session with one answered turn: two entries."""
    arena.answer("t1")
    return arena


def test_handoff_is_of_all_entries_so_far(spoken: Arena) -> None:
    """It waits, due at once."""
    accepted = hand_off(spoken)
    assert (accepted.job_id, accepted.lane, accepted.state) == ("h1", Lane.HANDOFF, JobState.QUEUED)
    assert (accepted.first_seq, accepted.last_seq, accepted.attempt) == (1, 2, 0)
    assert accepted.submitted_at > 0
    assert view(spoken) == accepted
    assert spoken.swept(DueKind.HANDOFF) == ["h1"]


def test_handoff_requested_twice_is_one(spoken: Arena) -> None:
    """The job's id is the caller's idempotency key."""
    assert hand_off(spoken) == hand_off(spoken)
    assert spoken.swept(DueKind.HANDOFF) == ["h1"]
    settle(spoken, spoken.begin(Lane.HANDOFF), "done")
    assert hand_off(spoken).result == "done"
    assert spoken.try_begin(Lane.HANDOFF) is Refusal.NOTHING


def test_one_id_goes_with_one_request(spoken: Arena) -> None:
    """Another request under a known id is a caller's mistake."""
    hand_off(spoken)
    with pytest.raises(TurnConflict):
        hand_off(spoken, request='{"task": "another"}')


def test_handoff_of_an_unknown_session(spoken: Arena) -> None:
    """Nor of one that is being purged."""
    with pytest.raises(UnknownSession):
        hand_off(spoken, session_id="never")
    spoken.store.purge(SESSION, batch=0)
    with pytest.raises(UnknownSession):
        hand_off(spoken)


def test_handoff_of_nothing(arena: Arena) -> None:
    """A session without entries has nothing to hand off."""
    with pytest.raises(InvalidInput):
        hand_off(arena)
    assert arena.store.job(SESSION, Lane.HANDOFF, "h1") is None


def test_closed_session_can_be_handed_off(spoken: Arena) -> None:
    """Its history is there until it is purged."""
    spoken.store.close(SESSION)
    assert hand_off(spoken).state is JobState.QUEUED


def test_handoffs_of_one_session_are_limited(spoken: Arena) -> None:
    """A caller in a loop is stopped; what is known is still answered."""
    for number in range(100):
        hand_off(spoken, f"h{number}")
    spoken.begin(Lane.HANDOFF)
    with pytest.raises(SessionBusy):
        hand_off(spoken, "h100")
    assert hand_off(spoken, "h99").state is JobState.QUEUED


def test_span_is_of_the_moment_of_the_request(spoken: Arena) -> None:
    """What is said later is not in it, and a rotation takes nothing from it."""
    hand_off(spoken)
    spoken.answer("t2")
    spoken.rotate(3)
    grant = spoken.begin(Lane.HANDOFF)
    assert (grant.first_seq, grant.last_seq) == (1, 2)


def test_grant_of_a_handoff(spoken: Arena) -> None:
    """It has the request, the span, and the session as it is."""
    hand_off(spoken)
    grant = spoken.begin(Lane.HANDOFF)
    assert (grant.lane, grant.work_id, grant.request, grant.attempt) == (Lane.HANDOFF, "h1", REQUEST, 1)
    assert (grant.steps, grant.step_base, grant.input, grant.reason) == ((), 0, None, "")
    assert grant.snapshot == spoken.store.snapshot(SESSION)
    assert view(spoken).state is JobState.RUNNING
    assert spoken.swept(DueKind.HANDOFF) == []


def test_handoffs_are_made_one_after_the_other(spoken: Arena) -> None:
    """In the order in which they were asked for; the next is named and due when one ends."""
    for job_id in ("h3", "h1", "h2"):
        hand_off(spoken, job_id)
    assert spoken.swept(DueKind.HANDOFF) == ["h3"]
    first = spoken.begin(Lane.HANDOFF)
    assert settle(spoken, first).next_job_id == "h1"
    assert spoken.swept(DueKind.HANDOFF) == ["h1"]
    second = spoken.begin(Lane.HANDOFF)
    spoken.store.fail(second, "provider_rejected", "bad key")
    assert spoken.swept(DueKind.HANDOFF) == ["h2"]
    third = spoken.begin(Lane.HANDOFF)
    assert settle(spoken, third).next_job_id is None
    assert [first.work_id, second.work_id, third.work_id] == ["h3", "h1", "h2"]


def test_waiting_handoff_is_looked_at_again(make_arena: MakeArena) -> None:
    """Like a turn that waits: its member is swept until it may begin."""
    arena = make_arena(sweep_first_seconds=0.1, sweep_last_seconds=0.1)
    talk(arena)
    hand_off(arena, "h1")
    hand_off(arena, "h2")
    arena.begin(Lane.HANDOFF)
    arena.wait_for_due("h2")


@of_both_lanes
def test_begin_sent_twice_gives_the_same_grant(spoken: Arena, lane: Lane) -> None:
    """The token is recognised, and nothing is counted."""
    request(spoken, lane)
    first = spoken.store.begin(SESSION, lane, "same")
    second = spoken.store.begin(SESSION, lane, "same")
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert replace(second, now=first.now) == first


@of_both_lanes
def test_why_nothing_is_granted(spoken: Arena, lane: Lane) -> None:
    """No job, another worker, no session."""
    assert spoken.try_begin(lane) is Refusal.NOTHING
    begun(spoken, lane)
    assert spoken.try_begin(lane) is Refusal.HELD
    assert spoken.try_begin(lane, "never") is Refusal.GONE
    spoken.store.purge(SESSION, batch=0)
    assert spoken.try_begin(lane) is Refusal.GONE


def test_four_lanes_do_not_disturb_each_other(spoken: Arena) -> None:
    """All are held at once; each goes on under its own token, and a rotation takes nothing from a job."""
    spoken.submit("t2")
    turn = spoken.begin()
    handoff, digest = begun(spoken, Lane.HANDOFF), begun(spoken, Lane.DIGEST)
    spoken.store.save_step(handoff, 0, "summary:handoff", REPLY)
    spoken.rotate(2)
    spoken.store.renew(turn)
    spoken.store.renew(digest)
    assert spoken.store.save_step(digest, 0, "summary:digest", REPLY) == 1
    settle(spoken, handoff)
    settle(spoken, digest)
    spoken.finish(turn)


@of_both_lanes
def test_job_changes_nothing_of_the_session(spoken: Arena, lane: Lane) -> None:
    """From its request to its end."""
    before, was = spoken.store.snapshot(SESSION), spoken.store.view(SESSION)
    settle(spoken, begun(spoken, lane))
    assert spoken.store.snapshot(SESSION) == before
    assert replace(spoken.store.view(SESSION), updated_at=was.updated_at) == was
    assert spoken.kinds("t1")[-1] == "answered"


@of_both_lanes
def test_saved_steps_come_with_the_next_grant(make_arena: MakeArena, lane: Lane) -> None:
    """Nobody pays twice for what a killed worker saved."""
    arena = make_arena(lease_seconds=0.1)
    talk(arena)
    first = begun(arena, lane)
    assert arena.store.save_step(first, 0, "capture:1-2", REPLY) == 1
    assert arena.store.save_step(first, 0, "capture:1-2", REPLY) == 1
    arena.expire()
    again = arena.begin(lane)
    assert (again.steps, again.step_base, again.attempt) == ((("capture:1-2", REPLY),), 0, 1)
    with pytest.raises(LeaseLost):
        arena.store.save_step(again, 2, "summary", REPLY)


@of_both_lanes
def test_steps_end_with_their_job(spoken: Arena, lane: Lane) -> None:
    """The next job begins without them."""
    first = begun(spoken, lane)
    spoken.store.save_step(first, 0, "summary", REPLY)
    settle(spoken, first)
    spoken.answer("t2")
    if lane is Lane.HANDOFF:
        hand_off(spoken, "h2")
    else:
        request(spoken, lane)
    assert spoken.begin(lane).steps == ()


@of_both_lanes
def test_lane_of_a_dead_worker_goes_to_the_next(make_arena: MakeArena, lane: Lane) -> None:
    """After its lease, with the attempt counted; the first worker's token is worth nothing any more."""
    arena = make_arena(lease_seconds=0.1)
    talk(arena)
    first = begun(arena, lane)
    arena.expire()
    assert arena.swept(KINDS[lane]) == [first.work_id]
    second = arena.begin(lane)
    assert (second.work_id, second.attempt) == (first.work_id, 2)
    for operation in (
        lambda: arena.store.renew(first),
        lambda: arena.store.save_step(first, 0, "summary", REPLY),
        lambda: arena.store.fail(first, "code", "reason"),
        lambda: settle(arena, first),
    ):
        with pytest.raises(LeaseLost):
            operation()
    arena.store.release(first)
    arena.store.renew(second)


@of_both_lanes
def test_released_job_is_due_and_not_counted(spoken: Arena, lane: Lane) -> None:
    """A worker that stops gives it back; twice is once."""
    grant = begun(spoken, lane)
    spoken.store.release(grant)
    spoken.store.release(grant)
    assert spoken.swept(KINDS[lane]) == [grant.work_id]
    assert view(spoken, grant.work_id, lane).state is JobState.RUNNING
    again = spoken.begin(lane)
    assert (again.work_id, again.attempt, again.deadline) == (grant.work_id, 1, grant.deadline)


@of_both_lanes
def test_failed_job_is_tried_again_later(make_arena: MakeArena, lane: Lane) -> None:
    """Not before its time; what fails for good is told from it. No turn is due by it."""
    arena = make_arena()
    talk(arena)
    arena.submit("t2")
    grant = begun(arena, lane)
    assert arena.store.fail(grant, "provider_rejected", "bad", 0.1) is None
    assert arena.try_begin(lane) is Refusal.NOTHING
    assert arena.swept(KINDS[lane]) == []
    arena.wait_for_due(grant.work_id)
    assert arena.begin(lane).attempt == 2


@of_both_lanes
def test_provider_that_is_away_is_not_counted(spoken: Arena, lane: Lane) -> None:
    """It is tried again until the deadline."""
    request(spoken, lane)
    for _ in range(5):
        grant = spoken.begin(lane)
        assert grant.attempt == 1
        spoken.store.fail(grant, "provider_unavailable", "503", 0.0)


def test_handoff_without_progress_is_dead_lettered(spoken: Arena) -> None:
    """After so many attempts, with its last error; the next one that waits is granted at once."""
    hand_off(spoken, "h1")
    hand_off(spoken, "h2")
    for _ in range(spoken.store.limits.max_attempts):
        spoken.store.fail(spoken.begin(Lane.HANDOFF), "validation", "no heading", 0.0)
    assert spoken.begin(Lane.HANDOFF).work_id == "h2"
    ended = view(spoken)
    assert (ended.state, ended.error_code, ended.attempt) == (JobState.FAILED, "dead_lettered", 3)
    assert "validation: no heading" in ended.error
    assert [failed["code"] for failed in audit_data(spoken, "handoff_failed")] == ["dead_lettered"]


def test_handoff_past_its_deadline(make_arena: MakeArena) -> None:
    """Its lease is not renewed, and the next begin ends it and goes on with the next one."""
    arena = make_arena(lease_seconds=0.1)
    talk(arena)
    hand_off(arena, "h1", timeout_seconds=0.1)
    hand_off(arena, "h2")
    grant = arena.begin(Lane.HANDOFF)
    assert 0 < grant.deadline - grant.now <= 0.11
    arena.expire()
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)
    assert arena.begin(Lane.HANDOFF).work_id == "h2"
    assert (view(arena).state, view(arena).error_code) == (JobState.FAILED, "deadline")


def test_settled_handoff(spoken: Arena) -> None:
    """It is done, its figures are in the audit, and nothing of it is due."""
    grant = begun(spoken, Lane.HANDOFF)
    settle(spoken, grant, '{"text": "…"}', figures={"model": "m", "tokens": 7, "job_id": "another", "kind": "k"})
    done = view(spoken)
    assert (done.state, done.result, done.error_code) == (JobState.DONE, '{"text": "…"}', "")
    assert done.finished_at >= done.submitted_at
    [line] = audit_data(spoken, "handed_off")
    assert line == {"model": "m", "tokens": 7, "kind": "k", "job_id": "h1", "first_seq": 1, "last_seq": 2}
    assert spoken.swept(DueKind.HANDOFF) == []
    assert spoken.try_begin(Lane.HANDOFF) is Refusal.NOTHING


def test_settle_sent_twice_settles_once(spoken: Arena) -> None:
    """The settle token is recognised, also when the lane has gone on."""
    hand_off(spoken, "h1")
    hand_off(spoken, "h2")
    grant = spoken.begin(Lane.HANDOFF)
    settled = result(spoken, grant, "first")
    assert spoken.store.settle(grant, settled) == spoken.store.settle(grant, settled)
    spoken.begin(Lane.HANDOFF)
    assert spoken.store.settle(grant, settled).next_job_id is None
    assert view(spoken).result == "first"
    assert len(audit_data(spoken, "handed_off")) == 1
    with pytest.raises(LeaseLost):
        settle(spoken, grant, "second")


def test_failed_handoff(spoken: Arena) -> None:
    """Its code and reason are kept for whoever asked; the audit has them too."""
    grant = begun(spoken, Lane.HANDOFF)
    assert spoken.store.fail(grant, "size", "it does not fit") is None
    with pytest.raises(LeaseLost):
        spoken.store.fail(grant, "size", "it does not fit")
    failed = view(spoken)
    assert (failed.state, failed.error_code, failed.error) == (JobState.FAILED, "size", "it does not fit")
    assert failed.finished_at > 0
    assert audit_data(spoken, "handoff_failed") == [{"job_id": "h1", "code": "size", "reason": "it does not fit"}]


@of_both_lanes
def test_jobs_have_no_event_stream(spoken: Arena, lane: Lane) -> None:
    """Only turns do."""
    with pytest.raises(InvalidInput):
        spoken.store.emit(begun(spoken, lane), "delta", {"text": "x"})


def test_turn_and_rotation_are_not_settled(spoken: Arena) -> None:
    """They are committed and adopted."""
    spoken.submit("t2")
    turn = spoken.begin()
    with pytest.raises(InvalidInput):
        settle(spoken, turn)
    spoken.finish(turn)


def test_handoff_is_forgotten_after_its_time(make_arena: MakeArena) -> None:
    """As if it had never been: its id can be used again, behind those that wait."""
    arena = make_arena(idempotency_seconds=0.1)
    talk(arena)
    settle(arena, begun(arena, Lane.HANDOFF))
    hand_off(arena, "h2")
    arena.advance(0.15)
    assert arena.store.job(SESSION, Lane.HANDOFF, "h1") is None
    assert view(arena, "h2").state is JobState.QUEUED
    assert hand_off(arena, request='{"task": "another"}').state is JobState.QUEUED
    assert [settle(arena, arena.begin(Lane.HANDOFF)).next_job_id for _ in range(2)] == ["h1", None]


def test_finished_handoff_is_remembered_for_its_time(spoken: Arena) -> None:
    """However many are asked for meanwhile."""
    settle(spoken, begun(spoken, Lane.HANDOFF), "done")
    hand_off(spoken, "h2")
    assert view(spoken).result == "done"


def test_running_handoff_is_never_forgotten(make_arena: MakeArena) -> None:
    """Its lifetime starts at its end."""
    arena = make_arena(idempotency_seconds=0.05)
    talk(arena)
    grant = begun(arena, Lane.HANDOFF)
    arena.advance(0.1)
    assert view(arena).state is JobState.RUNNING
    settle(arena, grant)


def test_close_now_leaves_jobs_alone(spoken: Arena) -> None:
    """They only read."""
    grants = [begun(spoken, lane) for lane in JOB_LANES]
    spoken.store.close(SESSION, now=True)
    for grant in grants:
        settle(spoken, grant)


@of_both_lanes
def test_closed_session_is_kept_for_its_jobs(make_arena: MakeArena, lane: Lane) -> None:
    """Its retention begins when the last has ended, and anew if another comes."""
    arena = make_arena()
    arena.open(retention_seconds=0.0)
    arena.answer("t1")
    grant = begun(arena, lane)
    arena.store.close(SESSION)
    assert arena.swept(DueKind.RETENTION) == []
    settle(arena, grant, is_empty=True)
    assert arena.swept(DueKind.RETENTION) == [""]


@of_both_lanes
def test_job_of_a_closed_session_suspends_its_retention(make_arena: MakeArena, lane: Lane) -> None:
    """It is not deleted under the worker's hands; its retention begins anew when the job has ended."""
    arena = make_arena()
    arena.open(retention_seconds=0.1)
    arena.answer("t1")
    arena.store.close(SESSION)
    grant = begun(arena, lane)
    arena.advance(0.15)
    assert arena.swept(DueKind.RETENTION) == []
    settle(arena, grant, is_empty=True)
    assert arena.swept(DueKind.RETENTION) == []
    arena.wait_for_due("")


def test_failed_handoff_ends_what_a_closed_session_is_kept_for(make_arena: MakeArena) -> None:
    """Its retention begins."""
    arena = make_arena()
    arena.open(retention_seconds=0.0)
    arena.answer("t1")
    arena.store.close(SESSION)
    arena.store.fail(begun(arena, Lane.HANDOFF), "size", "it does not fit")
    assert arena.swept(DueKind.RETENTION) == [""]


def test_purge_takes_jobs_with_it(spoken: Arena) -> None:
    """With their steps and due members; a worker that held one has lost it."""
    grants = [begun(spoken, lane) for lane in JOB_LANES]
    spoken.store.save_step(grants[0], 0, "summary", REPLY)
    hand_off(spoken, "h2")
    while not spoken.store.purge(SESSION, batch=3):
        pass
    assert spoken.sweep() == []
    spoken.open()
    spoken.answer("t1")
    for grant in grants:
        assert spoken.store.job(SESSION, grant.lane, grant.work_id) is None
        with pytest.raises(LeaseLost):
            settle(spoken, grant)
    assert begun(spoken, Lane.HANDOFF).steps == ()
    assert spoken.try_begin(Lane.DIGEST) is Refusal.NOTHING


def test_jobs_of_unknown_sessions(arena: Arena) -> None:
    """Nothing is known of them."""
    assert arena.store.job("never", Lane.HANDOFF, "h1") is None
    assert arena.store.job(SESSION, Lane.DIGEST, "d1") is None


@pytest.mark.parametrize("bad", ["", " ", "a b", "x" * 129, "é", "a|b"])
def test_bad_ids(spoken: Arena, bad: str) -> None:
    """They never reach a key."""
    with pytest.raises(InvalidInput):
        hand_off(spoken, bad)
    with pytest.raises(InvalidInput):
        hand_off(spoken, session_id=bad)
    with pytest.raises(InvalidInput):
        spoken.store.job(SESSION, Lane.HANDOFF, bad)
    with pytest.raises(InvalidInput):
        spoken.store.begin(SESSION, Lane.HANDOFF, bad)


@pytest.mark.parametrize(
    "bad",
    [{"request": ""}, {"request": "\ud800"}, {"timeout_seconds": -1.0}, {"timeout_seconds": float("nan")}],
    ids=["blank", "surrogate", "negative", "nan"],
)
def test_bad_requests(spoken: Arena, bad: dict[str, Any]) -> None:
    """Nothing is queued by them."""
    with pytest.raises(InvalidInput):
        hand_off(spoken, **bad)
    assert spoken.try_begin(Lane.HANDOFF) is Refusal.NOTHING


@of_both_lanes
@pytest.mark.parametrize(
    "bad",
    [
        {"settle_token": ""},
        {"settle_token": "a b"},
        {"text": " \n"},
        {"text": "\udfff"},
        {"last_seq": -1},
        {"figures": {"x": float("nan")}},
        {"figures": {"x": object()}},
        {"figures": {"x": "\ud800"}},
        {"figures": {1: "x"}},
    ],
    ids=["no token", "spaced token", "blank", "surrogate", "negative", "nan", "object", "in figures", "key"],
)
def test_bad_results(spoken: Arena, lane: Lane, bad: dict[str, Any]) -> None:
    """Nothing is settled by them; the worker still holds the lane."""
    grant = begun(spoken, lane)
    with pytest.raises(InvalidInput):
        settle(spoken, grant, **bad)
    settle(spoken, grant)


@pytest.mark.parametrize("text", ["\x00 NUL", "好 🙂", "x" * 1_000_000], ids=["nul", "wide", "1MB"])
def test_odd_but_good_texts(spoken: Arena, text: str) -> None:
    """They come back as they were."""
    hand_off(spoken, request=text)
    grant = spoken.begin(Lane.HANDOFF)
    settle(spoken, grant, text)
    assert (grant.request, view(spoken).result) == (text, text)


@pytest.mark.parametrize("lane", [Lane.TURN, Lane.ROTATION])
def test_lanes_without_jobs(spoken: Arena, lane: Lane) -> None:
    """Turns and rotations have views of their own."""
    with pytest.raises(InvalidInput):
        spoken.store.job(SESSION, lane, "t1")
