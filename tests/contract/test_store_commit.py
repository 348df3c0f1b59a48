"""Contract of `commit`: rounds, answers, what they make due, and the rotation line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import LeaseLost
from sessionlib.stores.contract import Answer, DueKind, Refusal, Trim, TurnState
from sessionlib.window_facts import LearnedWindow
from tests.contract.arena import SESSION, Arena, handle
from tests.contract.conftest import MakeArena


def test_answered_turn(arena: Arena) -> None:
    """The answer is recorded with the turn, word for word, and ends its stream."""
    arena.submit("t1")
    answer = Answer(text="fine — 好", prompt_tokens=7, completion_tokens=3, cached_tokens=1, max_request_tokens=9)
    arena.commit(arena.begin(), answer=answer)
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.state, view.answer, view.round_count) == (TurnState.ANSWERED, answer, 1)
    assert (view.first_seq, view.last_seq) == (1, 2)
    assert arena.kinds("t1") == ["queued", "started", "round", "answered"]
    assert arena.events("t1")[-1].data["answer"]["text"] == "fine — 好"


def test_rounds_of_a_turn(arena: Arena) -> None:
    """A turn is a series of rounds; its entries are one span."""
    arena.submit("t1")
    grant = arena.begin()
    arena.commit(grant, number=0)
    arena.commit(grant, number=1)
    arena.finish(grant, number=2)
    view = arena.store.turn(SESSION, "t1")
    assert view is not None
    assert (view.round_count, view.first_seq, view.last_seq) == (3, 1, 4)
    assert [entry.text for entry in arena.history()] == ["hello", "t1:0", "t1:1", "t1:2"]


def test_round_event_has_figures_only(arena: Arena) -> None:
    """Number, size in tokens, and what its request was built on; no content."""
    arena.submit("t1")
    arena.commit(arena.begin())
    untrimmed = {"pointers_before_seq": 0, "dropped_before_seq": 0, "records_dropped": False}
    assert arena.events("t1")[-1].data == {"round": 0, "tokens": 20, "epoch": 0, "trim": untrimmed}


def test_input_seq_is_known_after_round_0(arena: Arena) -> None:
    """A resumed turn knows where its input stands."""
    arena.answer("t0")
    arena.submit("t1")
    grant = arena.begin()
    arena.commit(grant)
    arena.store.release(grant)
    assert arena.begin().input_seq == 3


def test_t115_commit_sent_twice_is_recorded_once(arena: Arena) -> None:
    """The commit token is recognised, and the answer to the caller is the same."""
    arena.submit("t1")
    grant = arena.begin()
    commit = arena.round(grant)
    assert arena.store.commit(grant, commit) == arena.store.commit(grant, commit)
    assert len(arena.history()) == 2
    assert arena.kinds("t1").count("round") == 1


def test_t115_last_commit_sent_twice_answers_once(arena: Arena) -> None:
    """Also when the first ended the turn and gave the lane away."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    commit = arena.round(grant, answer=Answer(text="done"), line_tokens=1)
    first, second = arena.store.commit(grant, commit), arena.store.commit(grant, commit)
    assert first == second
    assert first.next_turn_id == "t2"
    assert arena.kinds("t1").count("answered") == 1


def test_commit_under_another_token_changes_nothing(arena: Arena) -> None:
    """A worker that lost its lane records nothing."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(LeaseLost):
        arena.commit(replace(grant, token="stolen"))
    assert arena.history() == []


def test_commit_of_another_round_is_refused(arena: Arena) -> None:
    """Rounds come in order, each once."""
    arena.submit("t1")
    grant = arena.begin()
    arena.commit(grant)
    with pytest.raises(LeaseLost):
        arena.commit(grant, number=0)
    with pytest.raises(LeaseLost):
        arena.commit(grant, number=2)


def test_commit_of_a_cancelled_turn_is_refused(arena: Arena) -> None:
    """Nothing of a cancelled turn is recorded after it was cancelled."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.cancel(SESSION, "t1")
    with pytest.raises(LeaseLost):
        arena.finish(grant)
    assert arena.history() == []


def test_commit_to_a_purged_session_is_refused(arena: Arena) -> None:
    """A tombstone takes no writes."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.purge(SESSION, batch=1)
    with pytest.raises(LeaseLost):
        arena.commit(grant)


def test_answer_makes_the_next_turn_due(arena: Arena) -> None:
    """The next turn is named, so that it can be dispatched, and due, should that be lost."""
    arena.submit("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.sweep()
    assert arena.finish(grant).next_turn_id == "t2"
    assert arena.swept(DueKind.TURN) == ["t2"]


def test_round_in_between_names_no_next_turn(arena: Arena) -> None:
    """The lane still has work."""
    arena.submit("t1")
    arena.submit("t2")
    assert arena.commit(arena.begin()).next_turn_id is None


def test_entries_come_back_byte_for_byte(arena: Arena) -> None:
    """Whatever text entries hold, the store gives it back as it was."""
    texts = ("\x00 NUL", "line\nbreak\r\n", "\u2028 separator \x85", "<|endoftext|>", '"quoted" \\ {}', "🙂 好", " ")
    arena.submit("t1")
    arena.finish(arena.begin(), texts=texts)
    assert [entry.text for entry in arena.history()][1:] == list(texts)


def test_tool_calls_and_results_come_back(arena: Arena) -> None:
    """Every kind of entry is stored whole."""
    entries = (
        Entry.user("hello"),
        Entry.tool_call("c1", '{"a": 1.0}', "look"),
        Entry.tool_result("c1", "seen", "look"),
        Entry.assistant("done"),
    )
    arena.submit("t1")
    arena.finish(arena.begin(), entries=entries, sizes=(1, 2, 3, 4))
    assert tuple(arena.history()) == entries


def test_a_learned_window_stays_until_another_is_learned(arena: Arena) -> None:
    """What a round says of it is the session's; rounds that learned nothing leave it, and so do rotations."""
    assert arena.store.snapshot(SESSION).window is None
    for turn_id, tokens in (("t1", 16_000), ("t2", None), ("t3", 8_000)):
        arena.answer(turn_id, window=LearnedWindow(tokens=tokens, origin="p/m") if tokens else None)
        learned = arena.store.snapshot(SESSION).window
        assert learned == LearnedWindow(tokens=8_000 if turn_id == "t3" else 16_000, origin="p/m")
    arena.rotate(2)
    assert arena.store.snapshot(SESSION).window == arena.store.view(SESSION).window == learned


def test_calibration_keeps_the_largest(arena: Arena) -> None:
    """A small report after a large one does not make the window look emptier."""
    arena.answer("t1", calibration=1.4)
    arena.answer("t2", calibration=1.2)
    assert arena.store.snapshot(SESSION).calibration == pytest.approx(1.4)


def test_conversation_tokens_add_up(arena: Arena) -> None:
    """The head's totals follow the live entries."""
    arena.answer("t1")
    arena.answer("t2")
    view = arena.store.view(SESSION)
    assert (view.live_tokens, view.conversation_tokens, view.next_seq) == (40, 40, 5)


def test_line_requests_one_rotation(arena: Arena) -> None:
    """At the line a rotation is requested and due; it is named once, so that its hint is sent once."""
    committed = arena.answer("t1", line_tokens=20)
    assert committed.rotation_id is not None
    assert arena.answer("t2", line_tokens=20).rotation_id is None
    assert arena.swept(DueKind.ROTATION) == [committed.rotation_id]


def test_below_the_line_no_rotation(arena: Arena) -> None:
    """One token less, and nothing is requested."""
    assert arena.answer("t1", line_tokens=21).rotation_id is None


def test_trim_is_kept_for_the_epoch(arena: Arena) -> None:
    """The same trim goes with every request until the next rotation."""
    trim = Trim(pointers_before_seq=5)
    arena.answer("t1", trim=trim)
    assert arena.store.snapshot(SESSION).trim == trim
    arena.rotate(2)
    assert arena.store.snapshot(SESSION).trim == Trim()


def test_t10_what_a_turn_learned_of_an_older_epoch_is_not_stored(arena: Arena) -> None:
    """A turn that a rotation overtook commits all the same; its trim and handle are of a window that is gone."""
    arena.answer("t1")
    arena.submit("t2")
    grant = arena.begin()
    arena.rotate(2)
    committed = arena.finish(grant, trim=Trim(pointers_before_seq=2), handle=handle("h-old"))
    snapshot = arena.store.snapshot(SESSION)
    assert committed.epoch == 1
    assert (snapshot.trim, snapshot.handle) == (Trim(), None)
    assert [entry.text for entry in snapshot.layout.live.entries] == ["hello", "t2:0"]


def test_nothing_runs_after_the_last_answer(arena: Arena) -> None:
    """An answered session is idle, and nothing of it is due."""
    arena.answer("t1")
    assert arena.try_begin() is Refusal.NOTHING
    assert arena.sweep() == []
    view = arena.store.view(SESSION)
    assert (view.running, view.queued) == (None, ())


def test_begin_of_a_stale_message_after_the_answer(make_arena: MakeArena) -> None:
    """A message that is delivered again, much later, starts nothing."""
    arena = make_arena(lease_seconds=0.1)
    arena.open()
    arena.answer("t1")
    arena.expire()
    assert arena.try_begin() is Refusal.NOTHING
