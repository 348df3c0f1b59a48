"""Contract of the rotation lane: request, begin, adopt, cancel, back-off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessionlib.archive import unpack
from sessionlib.errors import LeaseLost, UnknownSession
from sessionlib.layout import Record
from sessionlib.stores.contract import DueKind, Grant, Lane, Refusal
from sessionlib.summaries.contract import Consolidated
from tests.contract.arena import SESSION, Arena
from tests.contract.conftest import MakeArena


def test_request_twice_is_one_rotation(arena: Arena) -> None:
    """A session has one pending rotation at most; its id is given to everybody who asks."""
    first = arena.store.request_rotation(SESSION, "operator")
    assert arena.store.request_rotation(SESSION, "other") == first
    assert arena.swept(DueKind.ROTATION) == [first]
    assert arena.store.view(SESSION).rotation_state == "pending"


def test_request_for_an_unknown_session(arena: Arena) -> None:
    """There is nothing to rotate."""
    with pytest.raises(UnknownSession):
        arena.store.request_rotation("never", "operator")


def test_no_rotation_pending(arena: Arena) -> None:
    """A stale message finds nothing to claim."""
    assert arena.try_begin(Lane.ROTATION) is Refusal.NOTHING


def test_grant_names_boundary_and_reason(arena: Arena) -> None:
    """The boundary is the newest live entry at the first claim."""
    arena.answer("t1")
    rotation_id = arena.store.request_rotation(SESSION, "operator")
    grant = arena.begin(Lane.ROTATION)
    assert (grant.work_id, grant.boundary_seq, grant.reason, grant.attempt) == (rotation_id, 2, "operator", 1)
    assert arena.store.view(SESSION).rotation_state == "running"


def test_begin_sent_twice_gives_the_same_grant(arena: Arena) -> None:
    """The token is recognised."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    first = arena.store.begin(SESSION, Lane.ROTATION, "same")
    second = arena.store.begin(SESSION, Lane.ROTATION, "same")
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert replace(second, now=first.now) == first


def test_boundary_stays_with_the_first_claim(make_arena: MakeArena) -> None:
    """A second worker goes on with the first one's steps, so it must go on with its boundary too."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    first = arena.begin(Lane.ROTATION)
    arena.store.save_step(first, 0, "consolidation:1-2:0", Consolidated(text="gist"))
    arena.answer("t2")
    arena.expire()
    again = arena.begin(Lane.ROTATION)
    assert (again.boundary_seq, again.steps) == (2, (("consolidation:1-2:0", Consolidated(text="gist")),))


def test_t20_one_rotation_at_a_time(arena: Arena) -> None:
    """Two workers cannot consolidate the same history: the second is kept out by the lease."""
    arena.store.request_rotation(SESSION, "test")
    arena.begin(Lane.ROTATION)
    assert arena.try_begin(Lane.ROTATION) is Refusal.HELD


def test_lanes_do_not_disturb_each_other(arena: Arena) -> None:
    """A rotation is granted while a turn runs, and the turn keeps its lease and steps."""
    arena.answer("t1")
    arena.submit("t2")
    turn = arena.begin()
    arena.rotate(2)
    arena.store.renew(turn)
    arena.finish(turn)


def test_adopt_replaces_the_prefix(arena: Arena) -> None:
    """Records in, prefix out and archived, tail kept, epoch + 1."""
    arena.answer("t1")
    arena.answer("t2")
    adopted = arena.rotate(3)
    snapshot = arena.store.snapshot(SESSION)
    assert (adopted.is_adopted, adopted.epoch, snapshot.epoch) == (True, 1, 1)
    assert [record.text for record in snapshot.layout.records] == ["gist"]
    assert [entry.text for entry in snapshot.layout.live.entries] == ["t2:0"]
    [chunk] = arena.store.chunks(SESSION)
    assert (chunk.first_seq, chunk.last_seq, chunk.epoch) == (1, 3, 1)
    assert [entry.text for entry in unpack(chunk.data)] == ["hello", "t1:0", "hello"]
    view = arena.store.view(SESSION)
    assert (view.live_from, view.live_tokens, view.record_tokens) == (4, 10, 1)
    assert view.archived_bytes == len(chunk.data)


def test_adopt_sent_twice_adopts_once(arena: Arena) -> None:
    """The layout token is recognised, and the answer is the same."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    adoption = arena.adoption(grant, 2)
    assert arena.store.adopt(grant, adoption) == arena.store.adopt(grant, adoption)
    assert len(arena.store.chunks(SESSION)) == 1
    assert arena.store.view(SESSION).epoch == 1


def test_t11_t13_t17_what_came_later_survives_adopt(arena: Arena) -> None:
    """Entries committed while the summarizer worked are simply later; none is lost or doubled."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    arena.answer("t2", "in between")
    arena.store.adopt(grant, arena.adoption(grant, 2))
    assert [entry.text for entry in arena.history()] == ["hello", "t1:0", "in between", "t2:0"]
    live = arena.store.snapshot(SESSION).layout.live
    assert (live.first_seq, len(live)) == (3, 2)


@pytest.mark.parametrize(
    "stale",
    [{"first_seq": 2}, {"old_layout_token": "other"}, {"tail_token": "other"}, {"tail_seq": 9}],
    ids=lambda changed: next(iter(changed)),
)
def test_t12_stale_rotation_changes_nothing(arena: Arena, stale: dict[str, Any]) -> None:
    """What the store no longer has cannot be replaced: nothing is adopted, and the rotation ends."""
    arena.answer("t1")
    before = arena.store.snapshot(SESSION)
    adopted = arena.rotate(1, "test", **stale)
    assert (adopted.is_adopted, adopted.epoch) == (False, 0)
    assert arena.store.snapshot(SESSION) == before
    assert arena.store.chunks(SESSION) == []
    assert "rotation_stale" in arena.audit_kinds()
    assert arena.try_begin(Lane.ROTATION) is Refusal.NOTHING


@pytest.mark.parametrize("seen", [{}, {"tail_seq": 0, "tail_token": ""}], ids=["some", "nothing"])
def test_t12_what_the_rotation_did_not_see_cannot_leave(arena: Arena, seen: dict[str, Any]) -> None:
    """Entries after the newest that it saw are not consolidated: they stay."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    arena.answer("t2")
    assert not arena.store.adopt(grant, arena.adoption(grant, 2, dropped_count=4, **seen)).is_adopted
    assert len(arena.store.snapshot(SESSION).layout.live) == 4


def test_stale_rotation_is_requested_again_at_the_line(arena: Arena) -> None:
    """The line is still passed: another rotation takes its place."""
    arena.answer("t1")
    adopted = arena.rotate(2, tail_token="other", line_tokens=1)
    assert adopted.rotation_id is not None
    assert arena.swept(DueKind.ROTATION) == [adopted.rotation_id]


def test_t12_adopt_under_another_token_is_refused(arena: Arena) -> None:
    """A receipt that is not the lane's is worth nothing."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    with pytest.raises(LeaseLost):
        arena.store.adopt(replace(grant, token="stolen"), arena.adoption(grant, 2))
    assert arena.store.view(SESSION).epoch == 0


def test_t56_records_and_what_they_replace_change_together(arena: Arena) -> None:
    """After every adopt, records and live entries meet without gap or overlap."""
    for number in range(4):
        arena.answer(f"t{number}")
        arena.rotate(1 + number % 2)
        layout = arena.store.snapshot(SESSION).layout
        assert layout.records[0].first_seq == 1
        assert layout.records[-1].last_seq + 1 == layout.live.first_seq


def test_t59_sequence_numbers_never_change(arena: Arena) -> None:
    """An entry keeps its number through every rotation: spans go by number, not by place."""
    arena.answer("t1")
    arena.answer("t2")
    arena.rotate(1)
    arena.rotate(2)
    live = arena.store.snapshot(SESSION).layout.live
    assert (live.first_seq, [entry.text for entry in live.entries]) == (4, ["t2:0"])
    assert [(chunk.first_seq, chunk.last_seq) for chunk in arena.store.chunks(SESSION)] == [(1, 1), (2, 3)]


@pytest.mark.parametrize(
    ("span", "found"), [((1, None), [1, 2, 4]), ((2, 2), [2]), ((3, 4), [2, 4]), ((9, None), []), ((1, 1), [1])]
)
def test_chunks_by_span(arena: Arena, span: tuple[int, int | None], found: list[int]) -> None:
    """Only chunks that overlap the asked span come back, oldest first."""
    for turn_id in ("t1", "t2", "t3"):
        arena.answer(turn_id)
    for count in (1, 2, 1):
        arena.rotate(count)
    assert [chunk.first_seq for chunk in arena.store.chunks(SESSION, *span)] == found


def test_rotation_of_records_only(arena: Arena) -> None:
    """With no live entry leaving, only the records are replaced; no chunk is made."""
    arena.answer("t1")
    record = Record(first_seq=1, last_seq=1, text="merged", tokens=3)
    assert arena.rotate(0, records=(record,)).is_adopted
    layout = arena.store.snapshot(SESSION).layout
    assert (layout.records, len(layout.live)) == ((record,), 2)
    assert arena.store.chunks(SESSION) == []


def test_running_turns_input_is_carried(arena: Arena) -> None:
    """What the agent was asked stays in its window until the turn has ended."""
    arena.submit("t1", "the question")
    grant = arena.begin()
    arena.commit(grant, number=0)
    arena.rotate(2)
    carried = arena.store.snapshot(SESSION).layout.carried
    assert carried is not None
    assert (carried.seq, carried.entry.text, carried.tokens) == (1, "the question", 10)
    assert arena.store.view(SESSION).carried_tokens == 10
    arena.commit(grant, number=1)
    arena.rotate(1)
    assert arena.store.snapshot(SESSION).layout.carried == carried
    arena.finish(grant, number=2)
    assert arena.store.snapshot(SESSION).layout.carried == carried
    arena.rotate(1)
    assert arena.store.snapshot(SESSION).layout.carried is None
    assert arena.store.view(SESSION).carried_tokens == 0


def test_input_that_stays_live_is_not_carried(arena: Arena) -> None:
    """It is in the window already."""
    arena.answer("t1")
    arena.submit("t2")
    arena.commit(arena.begin())
    arena.rotate(2)
    assert arena.store.snapshot(SESSION).layout.carried is None


def test_outcome_comes_with_the_next_answer(arena: Arena) -> None:
    """The figures of every rotation since the last answer, once."""
    arena.answer("t1")
    arena.rotate(1, figures={"tokens_before": 20}, reason="operator")
    arena.answer("t2")
    arena.answer("t3")
    view = arena.store.turn(SESSION, "t2")
    assert view is not None
    [outcome] = view.rotations
    assert (outcome["tokens_before"], outcome["epoch"], outcome["reason"]) == (20, 1, "operator")
    assert arena.events("t2")[-1].data["rotations"] == [outcome]
    after = arena.store.turn(SESSION, "t3")
    assert after is not None
    assert after.rotations == ()


def test_outcomes_for_the_next_answer_are_bounded(arena: Arena) -> None:
    """A session that rotates while nobody asks keeps the newest twenty."""
    arena.answer("t1")
    for _ in range(22):
        arena.rotate(0)
    arena.answer("t2")
    view = arena.store.turn(SESSION, "t2")
    assert view is not None
    assert [outcome["epoch"] for outcome in view.rotations] == list(range(3, 23))


def test_outcome_goes_to_the_audit(arena: Arena) -> None:
    """As figures, for `watch` and the operator."""
    arena.answer("t1")
    arena.rotate(1, figures={"tokens_before": 20})
    [line] = [event for event in arena.store.audit(SESSION) if event.kind == "rotated"]
    assert (line.data["tokens_before"], line.data["epoch"]) == (20, 1)


def test_rotation_at_the_line_again(arena: Arena) -> None:
    """If the conversation is still past the line after adopt, the next rotation is requested."""
    arena.answer("t1")
    arena.answer("t2")
    adopted = arena.rotate(1, line_tokens=20)
    assert adopted.rotation_id is not None
    assert arena.begin(Lane.ROTATION).work_id == adopted.rotation_id


def test_no_gain_twice_running_backs_off(arena: Arena) -> None:
    """Two rotations that free nothing: the line is left alone for a while; whoever asks still gets a rotation."""
    arena.answer("t1")
    useless = Record(first_seq=1, last_seq=1, text="no shorter", tokens=10)
    first = arena.rotate(1, records=(useless,), line_tokens=1)
    assert first.rotation_id is not None
    grant = arena.begin(Lane.ROTATION)
    longer = (useless, Record(first_seq=2, last_seq=2, text="no shorter", tokens=10))
    assert arena.store.adopt(grant, arena.adoption(grant, 1, records=longer, line_tokens=1)).rotation_id is None
    assert arena.store.view(SESSION).rotation_state == "backing off: no_gain"
    assert arena.answer("t2", line_tokens=1).rotation_id is None
    arena.advance(arena.store.limits.no_gain_backoff_seconds + 1.0)
    assert arena.answer("t3", line_tokens=1).rotation_id is not None


def test_no_gain_reported_by_the_worker_counts_alike(arena: Arena) -> None:
    """A rotation that was given up because it would free nothing is one that freed nothing."""
    states = []
    for _ in range(2):
        arena.store.request_rotation(SESSION, "test")
        arena.store.fail(arena.begin(Lane.ROTATION), "no_gain", "nothing to free")
        states.append(arena.store.view(SESSION).rotation_state)
    assert states == ["", "backing off: no_gain"]


def test_gain_resets_the_count_of_no_gain(arena: Arena) -> None:
    """Only rotations without gain one after the other count."""
    arena.answer("t1")
    for _ in range(2):
        arena.store.request_rotation(SESSION, "test")
        arena.store.fail(arena.begin(Lane.ROTATION), "no_gain", "nothing to free")
        arena.rotate(1)
    assert arena.store.view(SESSION).rotation_state == ""


def test_request_ignores_the_back_off(arena: Arena) -> None:
    """An operator's wish is not the line's."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    arena.store.fail(arena.begin(Lane.ROTATION), "provider_rejected", "bad key")
    assert arena.answer("t2", line_tokens=1).rotation_id is None
    assert arena.store.request_rotation(SESSION, "operator") is not None


def test_t16_failed_rotation_changes_nothing_and_is_over(arena: Arena) -> None:
    """A failed rotation leaves no mark: the session goes on, and another rotation can be requested."""
    arena.answer("t1")
    before = arena.store.snapshot(SESSION)
    first = arena.store.request_rotation(SESSION, "test")
    arena.store.fail(arena.begin(Lane.ROTATION), "provider_rejected", "secret")
    assert arena.store.snapshot(SESSION) == before
    assert arena.swept(DueKind.ROTATION) == []
    [line] = [event for event in arena.store.audit(SESSION) if event.kind == "rotation_failed"]
    assert line.data == {"id": first, "code": "provider_rejected"}
    assert arena.store.request_rotation(SESSION, "again") != first


def test_t16_abandoned_rotation_does_not_last(make_arena: MakeArena) -> None:
    """A rotation whose worker died is due at its lease's end; turns never wait for it meanwhile."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.answer("t1")
    rotation_id = arena.store.request_rotation(SESSION, "test")
    arena.begin(Lane.ROTATION)
    arena.answer("t2")
    arena.expire()
    assert arena.swept(DueKind.ROTATION) == [rotation_id]
    assert arena.begin(Lane.ROTATION).attempt == 2


def test_rotation_is_dead_lettered(make_arena: MakeArena) -> None:
    """Attempts without progress end it like a failure."""
    arena = make_arena(lease_seconds=0.1, max_attempts=1)
    arena.open()
    arena.store.request_rotation(SESSION, "test")
    arena.begin(Lane.ROTATION)
    arena.expire()
    assert arena.try_begin(Lane.ROTATION) is Refusal.NOTHING
    [line] = [event for event in arena.store.audit(SESSION) if event.kind == "rotation_failed"]
    assert line.data["code"] == "dead_lettered"


def test_rotation_past_its_deadline_ends(make_arena: MakeArena) -> None:
    """From its first claim a rotation has a bounded time."""
    arena = make_arena(rotation_seconds=30.0)
    arena.open()
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    arena.advance(31.0)
    with pytest.raises(LeaseLost):
        arena.store.renew(grant)
    arena.store.release(grant)
    assert arena.try_begin(Lane.ROTATION) is Refusal.NOTHING
    assert arena.store.view(SESSION).rotation_id is None


def test_released_rotation_is_granted_again(arena: Arena) -> None:
    """No attempt is counted; its steps are kept."""
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    arena.store.save_step(grant, 0, "consolidation:1-2:0", Consolidated(text="gist"))
    arena.store.release(grant)
    again = arena.begin(Lane.ROTATION)
    assert (again.attempt, len(again.steps)) == (1, 1)


def test_rotation_failed_for_retry_waits(arena: Arena) -> None:
    """It is granted again after its retry time, not before."""
    arena.store.request_rotation(SESSION, "test")
    arena.store.fail(arena.begin(Lane.ROTATION), "provider_unavailable", "overloaded", 60.0)
    assert arena.try_begin(Lane.ROTATION) is Refusal.NOTHING
    arena.advance(61.0)
    assert arena.begin(Lane.ROTATION).attempt == 1


def test_cancel_rotation(arena: Arena) -> None:
    """Pending or running, it is gone, its worker is refused, and a second call finds nothing."""
    arena.answer("t1")
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    assert [arena.store.cancel_rotation(SESSION) for _ in range(2)] == [True, False]
    with pytest.raises(LeaseLost):
        arena.store.adopt(grant, arena.adoption(grant, 2))
    assert arena.store.view(SESSION).epoch == 0
    assert arena.audit_kinds().count("rotation_cancelled") == 1


def test_steps_of_an_ended_rotation_are_dropped(arena: Arena) -> None:
    """The next rotation starts with none."""
    arena.store.request_rotation(SESSION, "test")
    grant = arena.begin(Lane.ROTATION)
    arena.store.save_step(grant, 0, "consolidation:1-2:0", Consolidated(text="gist"))
    arena.store.cancel_rotation(SESSION)
    arena.store.request_rotation(SESSION, "test")
    assert arena.begin(Lane.ROTATION).steps == ()


def test_t22_session_takes_turns_after_every_rotation(arena: Arena) -> None:
    """The session is never closed for its successor: it is the same session, before, while and after."""
    for number in range(3):
        arena.store.request_rotation(SESSION, "test")
        grant = arena.begin(Lane.ROTATION)
        arena.answer(f"t{number}")
        live_count = len(grant.snapshot.layout.live)
        assert arena.store.adopt(grant, arena.adoption(grant, live_count)).is_adopted
    assert len(arena.history()) == 6
