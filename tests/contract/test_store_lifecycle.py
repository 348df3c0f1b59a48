"""Contract of open, close, retention, purge, agent versions and listings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, LeaseLost, SessionBusy, SessionClosed, UnknownSession
from sessionlib.stores.contract import DueKind, Grant, Lane, Refusal, SessionState, TurnState
from tests.contract.arena import AGENT, SESSION, Arena
from tests.contract.conftest import MakeArena

HISTORY = (Entry.user("before"), Entry.assistant("yes"), Entry.user("and?"))
SIZES = (5, 6, 7)
NEWER = replace(AGENT, digest="d2")


def purge(arena: Arena, batch: int = 1_000) -> int:
    """Purge the session to its end; how many calls it took."""
    for count in range(1, 200):
        if arena.store.purge(SESSION, batch):
            return count
    raise AssertionError("not purged within 200 calls")


def test_open_twice_is_one_session(arena: Arena) -> None:
    """The second confirms the first."""
    arena.answer("t1")
    opened = arena.open()
    assert (opened.is_new, opened.agent) == (False, AGENT)
    assert len(arena.history()) == 2


def test_open_new(make_arena: MakeArena) -> None:
    """A new session is empty and open."""
    arena = make_arena()
    assert arena.open().is_new
    view = arena.store.view(SESSION)
    assert (view.state, view.next_seq, view.epoch) == (SessionState.OPEN, 1, 0)


def test_open_with_history(make_arena: MakeArena) -> None:
    """A conversation that began elsewhere becomes the session's first entries."""
    arena = make_arena()
    arena.open(history=HISTORY, sizes=SIZES)
    live = arena.store.snapshot(SESSION).layout.live
    assert (live.entries, live.sizes, live.first_seq) == (HISTORY, SIZES, 1)
    arena.answer("t1")
    assert [entry.text for entry in arena.history()] == ["before", "yes", "and?", "hello", "t1:0"]


def test_open_with_the_same_history_twice(make_arena: MakeArena) -> None:
    """It is taken over once, also after turns."""
    arena = make_arena()
    arena.open(history=HISTORY, sizes=SIZES)
    arena.answer("t1")
    assert not arena.open(history=HISTORY, sizes=SIZES).is_new
    assert len(arena.history()) == 5


def test_open_with_another_history_is_refused(make_arena: MakeArena) -> None:
    """A session has one past."""
    arena = make_arena()
    arena.open(history=HISTORY, sizes=SIZES)
    with pytest.raises(InvalidInput):
        arena.open(history=HISTORY[:1], sizes=SIZES[:1])
    assert len(arena.history()) == 3


def test_open_with_history_after_turns_is_refused(arena: Arena) -> None:
    """History cannot come after what it precedes."""
    arena.answer("t1")
    with pytest.raises(InvalidInput):
        arena.open(history=HISTORY, sizes=SIZES)


def test_history_past_the_line_requests_a_rotation(make_arena: MakeArena) -> None:
    """One rotation, named and due."""
    arena = make_arena()
    opened = arena.open(history=HISTORY, sizes=SIZES, line_tokens=18)
    assert opened.rotation_id is not None
    grant = arena.begin(Lane.ROTATION)
    assert (grant.reason, grant.boundary_seq) == ("history", 3)
    assert arena.store.adopt(grant, arena.adoption(grant, 2)).is_adopted


def test_history_below_the_line_requests_none(make_arena: MakeArena) -> None:
    """One token less, and nothing is requested."""
    assert make_arena().open(history=HISTORY, sizes=SIZES, line_tokens=19).rotation_id is None


def test_snapshot_tells_what_was_sized_for_another_version(arena: Arena) -> None:
    """Entries of a turn that runs while the version changes were sized for the old one; those after it are not."""
    arena.answer("t1")
    assert arena.store.snapshot(SESSION).sized_from_seq == 1
    arena.submit("t2")
    running = arena.begin()
    arena.open(agent=NEWER)
    assert arena.store.snapshot(SESSION).sized_from_seq == 3
    arena.finish(running)
    assert arena.store.snapshot(SESSION).sized_from_seq == 5
    arena.submit("t3")
    grant = arena.begin()
    assert grant.snapshot.sized_from_seq == 5
    arena.finish(grant)
    assert arena.store.snapshot(SESSION).sized_from_seq == 5


def test_new_agent_version_applies_from_the_next_turn(arena: Arena) -> None:
    """A running turn keeps the version that it began with; its next snapshot has the new one."""
    arena.submit("t1")
    grant = arena.begin()
    arena.open(agent=NEWER, agent_json='{"v":2}')
    assert grant.snapshot.agent == AGENT
    arena.finish(grant)
    arena.submit("t2")
    assert arena.begin().snapshot.agent == NEWER
    assert arena.store.agent_json(SESSION) == '{"v":2}'
    assert "agent_version" in arena.audit_kinds()


def test_pinned_session_keeps_its_version(make_arena: MakeArena) -> None:
    """Later versions do not reach it."""
    arena = make_arena()
    pinned = replace(AGENT, is_pinned=True)
    arena.open(agent=pinned)
    assert arena.open(agent=NEWER, agent_json='{"v":2}').agent == pinned
    assert arena.store.agent_json(SESSION) == '{"name":"coder"}'


def test_pinning_keeps_the_version_that_is_there(arena: Arena) -> None:
    """`pin` holds the session at its own version, not at the caller's."""
    opened = arena.open(agent=replace(NEWER, is_pinned=True), agent_json='{"v":2}')
    assert opened.agent == replace(AGENT, is_pinned=True)


def test_closed_session_finishes_what_it_accepted(arena: Arena) -> None:
    """Running and queued turns are answered."""
    arena.submit("t1")
    grant = arena.begin()
    arena.submit("t2")
    arena.store.close(SESSION)
    arena.finish(grant)
    arena.finish(arena.begin())
    view = arena.store.turn(SESSION, "t2")
    assert view is not None
    assert view.state is TurnState.ANSWERED


def test_close_now_ends_what_it_accepted(arena: Arena) -> None:
    """Every unfinished turn fails with its event; a rotation is cancelled."""
    arena.submit("t1")
    grant = arena.begin()
    arena.submit("t2")
    arena.store.request_rotation(SESSION, "test")
    arena.store.close(SESSION, now=True)
    for turn_id in ("t1", "t2"):
        view = arena.store.turn(SESSION, turn_id)
        assert view is not None
        assert (view.state, view.error_code) == (TurnState.FAILED, "closed")
        assert arena.kinds(turn_id)[-1] == "failed"
    with pytest.raises(LeaseLost):
        arena.commit(grant)
    assert arena.store.view(SESSION).rotation_id is None
    assert arena.sweep() == []


def test_close_twice_is_one_close(arena: Arena) -> None:
    """The second changes nothing."""
    arena.store.close(SESSION)
    arena.store.close(SESSION)
    assert arena.audit_kinds().count("closed") == 1
    assert arena.store.view(SESSION).state is SessionState.CLOSED


def test_closed_session_cannot_be_opened(arena: Arena) -> None:
    """It is over; its id is free again after a purge."""
    arena.store.close(SESSION)
    with pytest.raises(SessionClosed):
        arena.open()
    purge(arena)
    assert arena.open().is_new


def test_close_of_an_unknown_session(arena: Arena) -> None:
    """There is nothing to close."""
    with pytest.raises(UnknownSession):
        arena.store.close("never")


def test_retention_begins_when_nothing_is_unfinished(make_arena: MakeArena) -> None:
    """A closed session is kept for its time after its last turn ended, then it is due."""
    arena = make_arena()
    arena.open(retention_seconds=60.0)
    arena.submit("t1")
    grant = arena.begin()
    arena.store.close(SESSION)
    arena.advance(61.0)
    assert arena.swept(DueKind.RETENTION) == []
    arena.finish(grant)
    assert arena.swept(DueKind.RETENTION) == []
    arena.advance(61.0)
    assert arena.swept(DueKind.RETENTION) == [""]


def test_second_close_does_not_prolong_retention(make_arena: MakeArena) -> None:
    """The time runs from the first."""
    arena = make_arena()
    arena.open(retention_seconds=120.0)
    arena.store.close(SESSION)
    arena.advance(60.0)
    arena.store.close(SESSION)
    arena.advance(61.0)
    assert arena.swept(DueKind.RETENTION) == [""]


def test_session_without_retention_is_kept(arena: Arena) -> None:
    """Nothing of it is ever due."""
    arena.store.close(SESSION)
    assert arena.sweep() == []


def test_purge_in_batches(arena: Arena) -> None:
    """Every call deletes a bounded number; the last leaves nothing, and the id is as never used."""
    for number in range(5):
        arena.answer(f"t{number}")
    arena.rotate(4)
    assert purge(arena, batch=3) > 2
    with pytest.raises(UnknownSession):
        arena.store.view(SESSION)
    assert arena.store.turn(SESSION, "t1") is None
    assert list(arena.store.chunks(SESSION)) == []
    assert arena.events("t1") == []
    assert arena.sweep() == []


def test_tombstone_refuses_everything(arena: Arena) -> None:
    """While a purge is under way the session is gone for all, and cannot be opened again yet."""
    arena.submit("t1")
    grant = arena.begin()
    assert not arena.store.purge(SESSION, batch=1)
    with pytest.raises(SessionBusy):
        arena.open()
    with pytest.raises(UnknownSession):
        arena.submit("t2")
    with pytest.raises(UnknownSession):
        arena.store.snapshot(SESSION)
    with pytest.raises(UnknownSession):
        arena.store.close(SESSION)
    with pytest.raises(UnknownSession):
        arena.store.request_rotation(SESSION, "test")
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)
    assert arena.try_begin() is Refusal.GONE
    assert arena.store.turn(SESSION, "t1") is None
    arena.store.release(grant)
    arena.store.close_open_calls(SESSION)
    arena.store.disposed(SESSION, "h")
    assert list(arena.store.handles_to_dispose(SESSION)) == []


def test_purge_under_way_is_due(arena: Arena) -> None:
    """If its caller dies, the reaper finishes; nothing else of the session is due."""
    arena.submit("t1")
    arena.store.request_rotation(SESSION, "test")
    assert not arena.store.purge(SESSION, batch=1)
    assert [item.kind for item in arena.sweep()] == [DueKind.RETENTION]


def test_purge_of_what_is_not_there(arena: Arena) -> None:
    """Nothing is left of it."""
    assert arena.store.purge("never")


def test_purge_gives_its_turns_place_back(make_arena: MakeArena) -> None:
    """Purged turns do not count against the partition's limit."""
    arena = make_arena(queued_limit=2)
    arena.open()
    arena.submit("t1")
    arena.begin()
    arena.submit("t2")
    purge(arena)
    arena.open("other")
    assert arena.submit("t1", session_id="other").is_new


def test_opened_again_after_purge_remembers_nothing(arena: Arena) -> None:
    """A new life: no entries, no turns, no events, no audit of the old one."""
    arena.answer("t1")
    purge(arena)
    arena.open()
    assert arena.submit("t1", "other input").is_new
    assert (arena.history(), arena.kinds("t1")) == ([], ["queued"])
    assert "rotated" not in arena.audit_kinds()


@pytest.mark.parametrize("lane", [Lane.TURN, Lane.ROTATION])
def test_begin_sent_again_after_purge_is_granted_other_work(arena: Arena, lane: Lane) -> None:
    """Ids may come again in a session that is opened anew; a grant from before the purge is no grant of that work."""

    def begin() -> Grant:
        arena.submit("t1")
        arena.store.request_rotation(SESSION, "test")
        grant = arena.store.begin(SESSION, lane, "same")
        assert isinstance(grant, Grant)
        return grant

    before = begin()
    purge(arena)
    arena.advance(0.01)
    arena.open()
    after = begin()
    assert after.work_id == before.work_id
    with pytest.raises(LeaseLost):
        arena.store.renew(before)
    arena.store.renew(after)


def test_sessions_in_pages(make_arena: MakeArena) -> None:
    """Every session is listed once, page by page; purged ones are not."""
    arena = make_arena()
    ids = {f"s{number:02d}" for number in range(7)}
    for session_id in ids:
        arena.open(session_id)
    arena.store.purge("s03", batch=1)
    listed: list[str] = []
    for partition in range(arena.store.partition_count):
        cursor = ""
        while True:
            page, cursor = arena.store.sessions(partition, cursor, limit=3)
            listed.extend(page)
            if not cursor:
                break
    assert sorted(listed) == sorted(ids - {"s03"})


def test_view_of_a_running_session(arena: Arena) -> None:
    """What runs and what waits."""
    arena.submit("t1")
    arena.submit("t2")
    arena.begin()
    view = arena.store.view(SESSION)
    assert (view.running, view.queued) == ("t1", ("t2",))
    assert view.updated_at >= view.created_at > 0


def test_audit_is_capped(make_arena: MakeArena) -> None:
    """The newest lines stay, and a reader goes on from the last it saw."""
    arena = make_arena(audit_limit=5)
    arena.open()
    for _ in range(8):
        arena.store.request_rotation(SESSION, "test")
        arena.store.cancel_rotation(SESSION)
    lines = arena.store.audit(SESSION)
    assert [line.data["id"] for line in lines] == ["r4", "r5", "r6", "r7", "r8"]
    assert list(arena.store.audit(SESSION, after=lines[-2].id)) == [lines[-1]]


def test_agent_json_of_an_unknown_session(arena: Arena) -> None:
    """It follows no agent."""
    with pytest.raises(UnknownSession):
        arena.store.agent_json("never")
