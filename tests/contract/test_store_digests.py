"""Contract of digests: what is captured and when, one at a time, accepted once, tried again, left out at last."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, LeaseLost, UnknownSession
from sessionlib.stores.contract import AgentRef, DueKind, JobState, JournalRules, Lane, Refusal
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena
from tests.contract.jobs import audit_data, begun, digest, journal, result, settle, talk, view

REFUSED = ("validation", "headings reordered")


def capture(arena: Arena) -> str | None:
    return arena.store.capture(SESSION, "test")


def captures(arena: Arena) -> int:
    """How many captures are overdue: one, or none."""
    return len(arena.swept(DueKind.CAPTURE))


def test_nothing_to_digest(arena: Arena) -> None:
    """A session without entries, or with all of them digested."""
    assert capture(arena) is None
    arena.answer("t1")
    digest(arena)
    assert capture(arena) is None
    assert arena.try_begin(Lane.DIGEST) is Refusal.NOTHING


def test_capture_of_an_unknown_session(arena: Arena) -> None:
    """Nor of one that is being purged."""
    with pytest.raises(UnknownSession):
        arena.store.capture("never", "test")
    arena.answer("t1")
    arena.store.purge(SESSION, batch=0)
    with pytest.raises(UnknownSession):
        capture(arena)


@pytest.mark.parametrize("reason", ["", "\ud800"], ids=["blank", "surrogate"])
def test_bad_reasons(arena: Arena, reason: str) -> None:
    """A capture says why."""
    arena.answer("t1")
    with pytest.raises(InvalidInput):
        arena.store.capture(SESSION, reason)
    assert arena.try_begin(Lane.DIGEST) is Refusal.NOTHING


def test_captured_stretch(arena: Arena) -> None:
    """All that is finished; the digest is due at once, and in the audit."""
    arena.answer("t1")
    assert capture(arena) == "d1"
    waiting = view(arena, "d1", Lane.DIGEST)
    assert (waiting.lane, waiting.state, waiting.first_seq, waiting.last_seq) == (Lane.DIGEST, JobState.QUEUED, 1, 2)
    assert arena.swept(DueKind.DIGEST) == ["d1"]
    assert audit_data(arena, "digest_requested") == [
        {"digest_id": "d1", "reason": "test", "first_seq": 1, "last_seq": 2}
    ]


def test_grant_of_a_digest(arena: Arena) -> None:
    """It has the span, the reason, and a deadline of its own kind."""
    arena.answer("t1")
    grant = begun(arena, Lane.DIGEST)
    assert (grant.work_id, grant.reason, grant.request) == ("d1", "test", "")
    assert (grant.first_seq, grant.last_seq, grant.attempt) == (1, 2, 1)
    assert grant.deadline - grant.now == pytest.approx(arena.store.limits.digest_seconds)


def test_one_digest_at_a_time(arena: Arena) -> None:
    """Captured twice is once; what came since waits for the next."""
    arena.answer("t1")
    assert capture(arena) == "d1"
    arena.answer("t2")
    assert capture(arena) == "d1"
    grant = arena.begin(Lane.DIGEST)
    assert (capture(arena), grant.last_seq) == ("d1", 2)
    settle(arena, grant)
    second = begun(arena, Lane.DIGEST)
    assert (second.work_id, second.first_seq, second.last_seq) == ("d2", 3, 4)


def test_rounds_of_the_running_turn_are_not_finished(arena: Arena) -> None:
    """They are captured when their turn has ended."""
    arena.answer("t1")
    arena.submit("t2")
    turn = arena.begin()
    arena.commit(turn, number=0)
    assert begun(arena, Lane.DIGEST).last_seq == 2


def test_running_turn_without_rounds_bars_nothing(arena: Arena) -> None:
    """All that is there was finished before it."""
    arena.answer("t1")
    arena.submit("t2")
    arena.begin()
    assert begun(arena, Lane.DIGEST).last_seq == 2


def test_first_turn_that_still_runs(arena: Arena) -> None:
    """There is nothing finished yet."""
    arena.submit("t1")
    arena.commit(arena.begin(), number=0)
    assert capture(arena) is None


def test_rotated_entries_are_digested_all_the_same(arena: Arena) -> None:
    """A span goes by sequence number, wherever the entries are."""
    arena.answer("t1")
    arena.answer("t2")
    arena.rotate(3)
    grant = begun(arena, Lane.DIGEST)
    assert (grant.first_seq, grant.last_seq) == (1, 4)


def test_accepted_digest(arena: Arena) -> None:
    """It stands in the journal with its figures, is no job any more, and is to be published."""
    arena.answer("t1")
    settled = digest(arena, "## Done\n", figures={"model": "m", "kind": "k", "last_seq": 99})
    assert (settled.publication, settled.capture, settled.next_job_id) == (True, False, None)
    [entry] = journal(arena)
    assert (entry.session_id, entry.digest_id, entry.first_seq, entry.last_seq) == (SESSION, "d1", 1, 2)
    assert (entry.text, entry.is_published) == ("## Done\n", False)
    assert entry.figures == {"model": "m", "kind": "k", "last_seq": 99}
    assert arena.now() - 60 < entry.at <= arena.now()
    assert arena.store.job(SESSION, Lane.DIGEST, "d1") is None
    assert arena.swept(DueKind.PUBLICATION) == [""]
    [line] = audit_data(arena, "digested")
    assert line == {"model": "m", "kind": "k", "digest_id": "d1", "first_seq": 1, "last_seq": 2, "is_empty": False}


def test_settle_sent_twice_accepts_once(arena: Arena) -> None:
    """The settle token is recognised; another result comes too late."""
    arena.answer("t1")
    grant = begun(arena, Lane.DIGEST)
    settled = result(arena, grant, "first")
    assert arena.store.settle(grant, settled) == arena.store.settle(grant, settled)
    with pytest.raises(LeaseLost):
        settle(arena, grant, "second")
    assert [entry.text for entry in journal(arena)] == ["first"]
    assert len(audit_data(arena, "digested")) == 1


def test_empty_digest_is_accepted_and_never_published(arena: Arena) -> None:
    """The stretch is digested: there was nothing to say of it."""
    arena.answer("t1")
    assert not digest(arena, is_empty=True).publication
    assert [entry.is_published for entry in journal(arena)] == [True]
    assert arena.swept(DueKind.PUBLICATION) == []
    assert audit_data(arena, "digested")[0]["is_empty"] is True
    assert capture(arena) is None


def test_digest_of_a_part(arena: Arena) -> None:
    """It took what fitted: the rest is due at once, as the next digest."""
    arena.answer("t1")
    arena.answer("t2")
    assert digest(arena, last_seq=2).capture
    assert captures(arena) == 1
    grant = begun(arena, Lane.DIGEST)
    assert (grant.work_id, grant.first_seq, grant.last_seq) == ("d2", 3, 4)
    assert not settle(arena, grant).capture
    assert [(entry.first_seq, entry.last_seq) for entry in journal(arena)] == [(1, 2), (3, 4)]


@pytest.mark.parametrize("last_seq", [0, 2, 5])
def test_digest_of_what_it_was_not_given(arena: Arena, last_seq: int) -> None:
    """The span ends within the job's: nothing is accepted otherwise."""
    arena.answer("t1")
    digest(arena)
    arena.answer("t2")
    grant = begun(arena, Lane.DIGEST)
    with pytest.raises(InvalidInput):
        settle(arena, grant, last_seq=last_seq)
    assert len(journal(arena)) == 1
    settle(arena, grant)


def test_failed_digest_is_captured_again_later(make_arena: MakeArena) -> None:
    """With what came since; code and reason are in the audit, and the journal has nothing of it."""
    arena = make_arena(digest_retry_seconds=60.0)
    talk(arena)
    assert arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED) is None
    assert arena.store.job(SESSION, Lane.DIGEST, "d1") is None
    assert audit_data(arena, "digest_failed") == [{"digest_id": "d1", "code": REFUSED[0], "reason": REFUSED[1]}]
    assert (journal(arena), captures(arena)) == ([], 0)
    arena.answer("t2")
    arena.advance(61.0)
    assert captures(arena) == 1
    again = begun(arena, Lane.DIGEST)
    assert (again.work_id, again.first_seq, again.last_seq, again.attempt) == ("d2", 1, 4, 1)


def test_stretch_that_fails_too_often_is_left_out(arena: Arena) -> None:
    """After three digests that failed the journal goes on behind it."""
    arena.answer("t1")
    for _ in range(arena.store.limits.digest_tries):
        assert audit_data(arena, "digest_dropped") == []
        arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    assert audit_data(arena, "digest_dropped") == [{"digest_id": "d3", "first_seq": 1, "last_seq": 2}]
    assert capture(arena) is None
    arena.answer("t2")
    assert begun(arena, Lane.DIGEST).first_seq == 3


@pytest.mark.parametrize("between", ["accepted", "dropped"])
def test_failures_are_counted_from_the_start_of_a_stretch(arena: Arena, between: str) -> None:
    """What was accepted or left out before does not count for the next stretch."""
    arena.answer("t1")
    for _ in range(2):
        arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    if between == "accepted":
        digest(arena)
    else:
        arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    dropped = len(audit_data(arena, "digest_dropped"))
    arena.answer("t2")
    for _ in range(2):
        arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    assert len(audit_data(arena, "digest_dropped")) == dropped
    assert begun(arena, Lane.DIGEST).first_seq == 3


def test_digest_past_its_deadline_has_failed(make_arena: MakeArena) -> None:
    """The next begin ends it; the stretch is captured again later."""
    arena = make_arena(lease_seconds=0.1, digest_seconds=0.1, digest_retry_seconds=0.0)
    talk(arena)
    grant = begun(arena, Lane.DIGEST)
    arena.expire()
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)
    assert arena.try_begin(Lane.DIGEST) is Refusal.NOTHING
    assert [failed["code"] for failed in audit_data(arena, "digest_failed")] == ["deadline"]
    assert captures(arena) == 1


def test_digest_without_progress_has_failed(arena: Arena) -> None:
    """Like any work that is tried too often."""
    arena.answer("t1")
    capture(arena)
    for _ in range(arena.store.limits.max_attempts):
        arena.store.fail(arena.begin(Lane.DIGEST), "provider_rejected", "bad key", 0.0)
    assert arena.try_begin(Lane.DIGEST) is Refusal.NOTHING
    assert [failed["code"] for failed in audit_data(arena, "digest_failed")] == ["dead_lettered"]


def test_without_rules_nothing_is_captured(make_arena: MakeArena) -> None:
    """The journal is off by default."""
    arena = make_arena()
    talk(arena)
    arena.rotate(1)
    arena.store.close(SESSION)
    arena.advance(0.05)
    assert captures(arena) == 0


def test_capture_when_nobody_speaks(make_arena: MakeArena) -> None:
    """So long after the last answer; whoever speaks again moves it."""
    arena = make_arena()
    talk(arena, idle_seconds=500.0)
    arena.advance(300.0)
    arena.answer("t2")
    arena.advance(300.0)
    assert captures(arena) == 0
    arena.advance(250.0)
    assert captures(arena) == 1
    assert capture(arena) == "d1"
    assert captures(arena) == 0


def test_far_timer_is_not_pulled_back(make_arena: MakeArena) -> None:
    """Sweeps mend what lies too far ahead; a capture may lie as far as its rule says."""
    arena = make_arena(sweep_first_seconds=0.01, sweep_last_seconds=0.01)
    talk(arena, idle_seconds=1_000_000.0)
    assert captures(arena) == 0
    arena.advance(0.05)
    assert captures(arena) == 0


def test_overdue_capture_is_not_put_off(make_arena: MakeArena) -> None:
    """A session that is spoken to again and again is digested all the same, once the pause was long enough."""
    arena = make_arena(sweep_first_seconds=0.1)
    talk(arena, idle_seconds=0.2)
    arena.advance(0.25)
    assert captures(arena) == 1
    arena.answer("t2")
    arena.advance(0.12)
    assert captures(arena) == 1


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_unanswered_turn_is_no_speech(make_arena: MakeArena, how: str) -> None:
    """A turn that ends without answer sets no timer."""
    arena = make_arena()
    arena.open(journal=JournalRules(idle_seconds=0.0))
    arena.submit("t1")
    grant = arena.begin()
    arena.commit(grant, number=0)
    if how == "failed":
        arena.store.fail(grant, "tool_error", "broken")
    else:
        arena.store.cancel(SESSION, "t1")
    assert captures(arena) == 0


def test_capture_at_a_rotation(make_arena: MakeArena) -> None:
    """At once, if it was adopted."""
    arena = make_arena()
    talk(arena, on_rotation=True)
    assert not arena.rotate(1, tail_token="other").is_adopted
    assert captures(arena) == 0
    assert arena.rotate(1).is_adopted
    assert captures(arena) == 1


def test_no_capture_at_a_rotation_of_what_is_digested(make_arena: MakeArena) -> None:
    """There is nothing after the last digest."""
    arena = make_arena()
    talk(arena, on_rotation=True)
    digest(arena)
    arena.rotate(1)
    assert captures(arena) == 0


def test_capture_at_the_close(make_arena: MakeArena) -> None:
    """At once, and once only."""
    arena = make_arena()
    talk(arena, on_close=True)
    assert captures(arena) == 0
    arena.store.close(SESSION)
    assert captures(arena) == 1
    arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    arena.store.close(SESSION, now=True)
    assert captures(arena) == 0


def test_single_entry_is_captured(make_arena: MakeArena) -> None:
    """A stretch is of one entry at least: a conversation taken over is one like any other."""
    arena = make_arena()
    arena.open(history=(Entry.user("old times"),), sizes=(10,), journal=JournalRules(on_close=True))
    arena.store.close(SESSION)
    assert captures(arena) == 1
    grant = begun(arena, Lane.DIGEST)
    assert (grant.first_seq, grant.last_seq) == (1, 1)
    settle(arena, grant)
    assert len(journal(arena)) == 1


def test_no_capture_at_the_close_of_what_is_digested(make_arena: MakeArena) -> None:
    """There is nothing after the last digest."""
    arena = make_arena()
    talk(arena, on_close=True)
    digest(arena)
    arena.store.close(SESSION)
    assert captures(arena) == 0


def cancel_them(arena: Arena) -> None:
    arena.store.cancel(SESSION, "t3")
    arena.store.cancel(SESSION, "t2")


def finish_them(arena: Arena) -> None:
    arena.finish(arena.begin())
    arena.finish(arena.begin())


def close_now(arena: Arena) -> None:
    arena.store.close(SESSION, now=True)


@pytest.mark.parametrize("end", [cancel_them, finish_them, close_now])
def test_close_waits_for_accepted_turns(make_arena: MakeArena, end: Callable[[Arena], None]) -> None:
    """The last stretch of a closed session is finished when its last turn has ended, whatever ended it."""
    arena = make_arena()
    talk(arena, on_close=True)
    arena.submit("t2")
    arena.submit("t3")
    arena.store.close(SESSION)
    assert captures(arena) == 0
    end(arena)
    assert captures(arena) == 1


def test_rules_come_with_the_agent_version(make_arena: MakeArena) -> None:
    """A new version brings its own; the same version, or a pinned session, changes nothing."""
    arena = make_arena()
    arena.open()
    arena.open(journal=JournalRules(idle_seconds=0.0))
    arena.answer("t1")
    assert captures(arena) == 0
    arena.open(agent=AgentRef(name="coder", digest="d2"), journal=JournalRules(idle_seconds=0.0))
    arena.answer("t2")
    assert captures(arena) == 1


def test_pinned_session_keeps_its_rules(make_arena: MakeArena) -> None:
    """With the version that it keeps."""
    arena = make_arena()
    arena.open(agent=AgentRef(name="coder", digest="d1", is_pinned=True))
    arena.open(agent=AgentRef(name="coder", digest="d2"), journal=JournalRules(idle_seconds=0.0))
    arena.answer("t1")
    assert captures(arena) == 0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_bad_rules(arena: Arena, seconds: float) -> None:
    """A time is finite and not negative."""
    with pytest.raises(InvalidInput):
        arena.open("other", journal=JournalRules(idle_seconds=seconds))


def test_capture_that_came_due_meanwhile_follows_at_once(make_arena: MakeArena) -> None:
    """While a digest is unfinished it waits, swept like all that is due; the end of the digest brings it forward."""
    arena = make_arena()
    talk(arena)
    grant = begun(arena, Lane.DIGEST)
    arena.open(agent=AgentRef(name="coder", digest="d2"), journal=JournalRules(idle_seconds=0.0))
    arena.answer("t2")
    assert captures(arena) == 1
    assert capture(arena) == "d1"
    assert captures(arena) == 0
    assert settle(arena, grant).capture
    assert captures(arena) == 1
    assert capture(arena) == "d2"


def test_timer_that_lies_ahead_stays(make_arena: MakeArena) -> None:
    """The end of a digest does not bring forward what is not due yet."""
    arena = make_arena()
    talk(arena, idle_seconds=1_000.0)
    grant = begun(arena, Lane.DIGEST)
    arena.answer("t2")
    assert not settle(arena, grant).capture
    assert captures(arena) == 0


def test_capture_with_nothing_left_is_done(make_arena: MakeArena) -> None:
    """Its due member goes: the digest that was unfinished had taken all of it."""
    arena = make_arena(sweep_first_seconds=0.05)
    talk(arena, on_rotation=True)
    grant = begun(arena, Lane.DIGEST)
    arena.rotate(1)
    assert settle(arena, grant).capture
    assert captures(arena) == 1
    assert capture(arena) is None
    arena.advance(0.1)
    assert captures(arena) == 0


def test_closed_session_is_kept_until_its_last_digest_is_published(make_arena: MakeArena) -> None:
    """Capture, digest, publication: its retention begins after them."""
    arena = make_arena()
    arena.open(retention_seconds=0.0, journal=JournalRules(on_close=True))
    arena.answer("t1")
    arena.store.close(SESSION)
    assert arena.swept(DueKind.RETENTION) == []
    grant = begun(arena, Lane.DIGEST)
    assert arena.swept(DueKind.RETENTION) == []
    settle(arena, grant)
    assert arena.swept(DueKind.RETENTION) == []
    arena.store.published(SESSION, "d1")
    assert arena.swept(DueKind.RETENTION) == [""]


def test_closed_session_is_kept_for_a_digest_that_is_tried_again(make_arena: MakeArena) -> None:
    """Its retention begins when the stretch is left out."""
    arena = make_arena(digest_tries=2)
    arena.open(retention_seconds=0.0)
    arena.answer("t1")
    first = begun(arena, Lane.DIGEST)
    arena.store.close(SESSION)
    arena.store.fail(first, *REFUSED)
    assert arena.swept(DueKind.RETENTION) == []
    arena.store.fail(begun(arena, Lane.DIGEST), *REFUSED)
    assert arena.swept(DueKind.RETENTION) == [""]


def test_retention_begins_when_there_is_nothing_to_digest(make_arena: MakeArena) -> None:
    """A capture that finds nothing was the last thing that it was kept for."""
    arena = make_arena()
    arena.open(retention_seconds=0.0, journal=JournalRules(on_rotation=True))
    arena.answer("t1")
    grant = begun(arena, Lane.DIGEST)
    arena.rotate(1)
    settle(arena, grant, is_empty=True)
    arena.store.close(SESSION)
    assert arena.swept(DueKind.RETENTION) == []
    assert capture(arena) is None
    assert arena.swept(DueKind.RETENTION) == [""]


def test_rotation_of_a_closed_session_suspends_its_retention(make_arena: MakeArena) -> None:
    """A capture that becomes due is to be done first."""
    arena = make_arena()
    arena.open(retention_seconds=0.0, journal=JournalRules(on_rotation=True))
    arena.answer("t1")
    arena.store.close(SESSION)
    arena.rotate(1)
    assert [item.kind for item in arena.sweep()] == [DueKind.CAPTURE]


def test_purge_takes_digests_with_it(make_arena: MakeArena) -> None:
    """With what is due of them; a session of the same name begins anew."""
    arena = make_arena()
    talk(arena, idle_seconds=0.0)
    digest(arena)
    arena.answer("t2")
    capture(arena)
    while not arena.store.purge(SESSION, batch=2):
        pass
    assert arena.sweep() == []
    assert journal(arena) == []
    arena.open()
    assert (journal(arena), capture(arena)) == ([], None)
    arena.answer("t1")
    assert begun(arena, Lane.DIGEST).work_id == "d1"
