"""The findings of a replay, by value: what should be is found well, and every planted fault is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.layout import Layout, Record
from sessionlib.stores.contract import Trim
from sessionlib.tokens import CharactersCounter
from tests.workers.replaying import (
    BEGUN,
    as_it_should_be,
    broken,
    call,
    consolidation,
    key,
    live,
    played,
    recording,
    turn,
)
from workers.demo import Decision, DemoSession
from workers.replay.breaks import REASONS, prefix_breaks
from workers.replay.history import Comparison, compared, recorded_entries
from workers.replay.observed import Kill, Observed, Place, place_of
from workers.replay.planted import broken_archive, planted_figures, truncation
from workers.replay.report import broken_promises, figures, tier_tokens, waited_count
from workers.replay.waits import (
    Gap,
    added_seconds,
    gaps,
    in_flight,
    noise_seconds,
    percentile,
    recovery_seconds,
    waited_turns,
)

ENTRIES = list(recorded_entries(recording()))


def promises(observed: Observed) -> tuple[str, ...]:
    return broken_promises(figures(recording(), observed))


def test_a_good_replay_breaks_no_promise() -> None:
    """Counts, fill and added time come out; nothing is broken."""
    report = figures(recording(), as_it_should_be())
    assert (report["turns"], report["rounds"], report["max_fill"]) == (2, 4, 0.8)
    assert report["added_p50_ms"] == pytest.approx(200)
    assert broken_promises(report) == ()


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"archived": tuple(ENTRIES[:2])}, "nothing is lost: 1 lost"),
        ({"archived": (*ENTRIES[:3], ENTRIES[2])}, "nothing is lost: 1 doubled"),
        ({"archived": (ENTRIES[1], ENTRIES[0], ENTRIES[2])}, "nothing is lost: 1 out of order"),
        ({"archived": (Entry.user("input 0 "), *ENTRIES[1:3])}, "nothing is lost: 1 lost, 1 foreign"),
        ({"largest_request_tokens": 1_001}, "the window is never exceeded"),
        ({"refused_count": 1}, "the window is never exceeded"),
        ({"breaks": (broken((1, 1), (1, 0)),), "break_count": 1}, "the prompt only grows at its end"),
        ({"asked_again": {key(1, 1): 2}}, "no model call whose result was saved is paid again"),
        ({"turns": as_it_should_be().turns[:1]}, "every turn is answered once"),
        ({"turns": tuple(replace(t, answer="another") for t in as_it_should_be().turns)}, "every turn is answered"),
        ({"turns": tuple(replace(t, answer=None) for t in as_it_should_be().turns)}, "every turn is answered"),
    ],
)
def test_a_broken_promise_is_named(changes: dict[str, Any], promise: str) -> None:
    """Each planted fault breaks exactly the promise that it is about."""
    named = promises(as_it_should_be(**changes))
    assert len(named) == 1
    assert named[0].startswith(promise)


# --- waits


def waiting_turn(gap_seconds: float, *kills: Kill) -> Observed:
    """A turn whose second model call begins *gap_seconds* after its first; a consolidation of one second began 0.2 s
    before that gap and ends within it, if it is long enough."""
    first_ended = BEGUN + 1.0
    second_started = first_ended + gap_seconds
    return as_it_should_be(
        turns=(turn(1, BEGUN, seconds=gap_seconds + 2.0),),
        spans=(call(1, 0, BEGUN, first_ended), call(1, 1, second_started, second_started + 1.0)),
        consolidations=(consolidation(first_ended - 0.2, first_ended + 0.8),),
        kills=kills,
    )


def test_a_turn_that_waits_for_a_consolidation_is_found() -> None:
    """It stands still until the consolidation has ended, and then goes on."""
    assert waited_turns(waiting_turn(0.81)) == ("turn-0001",)
    assert any("waits on a summary: 1 did" in promise for promise in promises(waiting_turn(0.81)))


def test_a_turn_that_waits_at_its_beginning_is_found() -> None:
    """Between submission and first call, too."""
    first, second = as_it_should_be().turns
    early = replace(first, submitted_at=BEGUN - 0.5)
    consolidations = (consolidation(BEGUN - 0.6, BEGUN + 0.08),)
    assert waited_turns(as_it_should_be(turns=(early, second), consolidations=consolidations)) == ("turn-0001",)


@pytest.mark.parametrize("gap_seconds", [0.0, 0.01, 0.4, 0.79])
def test_a_gap_that_ends_before_the_consolidation_is_no_wait(gap_seconds: float) -> None:
    """The turn went on while the summarizer worked."""
    assert waited_turns(waiting_turn(gap_seconds)) == ()


def test_a_short_gap_across_the_end_of_a_consolidation_is_no_wait() -> None:
    """Gaps of the engine itself fall where they fall."""
    observed = as_it_should_be(consolidations=(consolidation(BEGUN - 1.0, BEGUN + 0.05),))
    assert waited_turns(observed) == ()


@pytest.mark.parametrize("killed_at", [BEGUN + 0.5, BEGUN + 1.1])
def test_a_dead_front_worker_is_no_wait(killed_at: float) -> None:
    """Killed in its call or after it: a successor had to start first, whatever the background did. A killed background
    worker excuses nothing."""
    assert waited_turns(waiting_turn(0.9, Kill(worker="front", at=killed_at))) == ()
    assert waited_turns(waiting_turn(0.9, Kill(worker="background", at=killed_at))) == ("turn-0001",)


def test_a_turn_that_moves_on_in_a_gap_does_not_wait() -> None:
    """A commit in the middle of it: two standstills, each too short."""
    observed = waiting_turn(0.9)
    moving = turn(1, BEGUN, played(1, 0, BEGUN + 1.45), seconds=2.9)
    assert waited_turns(replace(observed, turns=(moving,))) == ()


def test_a_standstill_no_longer_than_the_noise_of_the_play_is_no_wait() -> None:
    """Where the machine lets the turn stand as long without any consolidation, nothing is shown by it."""
    observed = waiting_turn(0.9)
    later = (turn(2, BEGUN + 10, seconds=2.0), call(2, 0, BEGUN + 11.0, BEGUN + 12.0))
    noisy = replace(observed, turns=(*observed.turns, later[0]), spans=(*observed.spans, later[1]))
    assert noise_seconds(noisy) == pytest.approx(1.0)
    assert waited_turns(noisy) == ()


def test_gaps_are_what_no_call_covers() -> None:
    """Calls may overlap, begin before the turn, end after it."""
    spans = [call(1, 0, 9.0, 11.0), call(1, 1, 12.0, 14.0), call(1, 2, 12.5, 13.0), call(1, 3, 18.0, 30.0)]
    assert list(gaps(turn(1, 10.0, seconds=10.0), spans)) == [Gap(11.0, 12.0), Gap(14.0, 18.0)]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5)), max_size=6))
def test_gaps_never_overlap_a_call(calls: list[tuple[float, float]]) -> None:
    """They lie inside the turn, in order, and no call runs within one."""
    spans = [call(1, number, start, start + length) for number, (start, length) in enumerate(calls)]
    found = list(gaps(turn(1, 2.0, seconds=6.0), spans))
    assert all(2.0 <= gap.started < gap.ended <= 8.0 for gap in found)
    assert all(
        span.ended <= gap.started or span.started >= gap.ended for gap in found for span in spans if span.seconds
    )
    assert found == sorted(found, key=lambda gap: gap.started)


def test_waits_on_consolidations_that_nobody_saw_are_not_claimed_to_be_none() -> None:
    """Rotated without the provider: not measured. Never rotated: none."""
    assert waited_count(as_it_should_be(rotations=({"consolidation_count": 1},))) is None
    assert waited_count(as_it_should_be()) == 0
    assert waited_count(replace(waiting_turn(0.81), rotations=({"consolidation_count": 1},))) == 1


def test_added_time_leaves_out_turns_with_a_killed_front_worker() -> None:
    """Their recovery is reported with the kill."""
    assert len(added_seconds(as_it_should_be())) == 2
    assert len(added_seconds(as_it_should_be(kills=(Kill(worker="front", at=BEGUN + 1.0),)))) == 1
    assert len(added_seconds(as_it_should_be(kills=(Kill(worker="background", at=BEGUN + 1.0),)))) == 2


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([4.0, 1.0, 2.0], 0.5, 2.0), ([1, 2], 0.99, 2)],
)
def test_percentile(values: Sequence[float], share: float, expected: float) -> None:
    """By nearest rank: always one of the values."""
    assert percentile(values, share) == expected


def test_a_kill_names_what_was_in_flight_and_when_it_went_on() -> None:
    """The calls of its kind that were open then; the next one after it."""
    observed = as_it_should_be(consolidations=(consolidation(BEGUN + 1.5, BEGUN + 2.5),))
    front, background = Kill(worker="front", at=BEGUN + 1.6), Kill(worker="background", at=BEGUN + 1.6)
    assert in_flight(front, observed) == (f"model {key(1, 1)}",)
    assert in_flight(background, observed) == ("consolidation consolidation/x/consolidation:1-9",)
    assert recovery_seconds(front, observed) == pytest.approx(0.5)
    assert recovery_seconds(background, observed) is None


def test_a_call_that_a_kill_interrupted_may_be_asked_again() -> None:
    """Nothing was saved of it; any other call that is asked again was paid twice."""
    kill = Kill(worker="front", at=BEGUN + 0.5)
    assert promises(as_it_should_be(asked_again={key(1, 0): 2}, kills=(kill,))) == ()
    assert len(promises(as_it_should_be(asked_again={key(1, 1): 2}, kills=(kill,)))) == 1


# --- prefix breaks


def rounds_of(before: dict[str, Any], after: dict[str, Any], **changes: Any) -> Observed:
    """Two rounds of a turn that were built on *before* and *after*, and a break between them."""
    rounds = (played(1, 0, BEGUN + 1, **before), played(1, 1, BEGUN + 2, **after))
    defaults = {"breaks": (broken((1, 1), (1, 0)),), "break_count": 1, "turns": (turn(1, BEGUN, *rounds),)}
    return as_it_should_be(**{**defaults, **changes})


TRIMMED = Trim(pointers_before_seq=5)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (rounds_of({}, {"epoch": 1}), "rotation"),
        (rounds_of({"trim": TRIMMED}, {"epoch": 1}), "rotation"),
        (rounds_of({}, {"trim": TRIMMED}), "trim"),
        (rounds_of({"trim": TRIMMED}, {"trim": replace(TRIMMED, dropped_before_seq=3)}), "trim"),
        (rounds_of({"trim": TRIMMED}, {"trim": Trim()}), "other"),
        (rounds_of({"is_nudged": True}, {}), "nudge"),
        (rounds_of({"is_nudged": True}, {"epoch": 1}), "rotation"),
        (rounds_of({"is_nudged": True}, {"trim": TRIMMED}), "trim"),
        (rounds_of({}, {"is_nudged": True}), "other"),
        (rounds_of({}, {}), "other"),
        (rounds_of({"epoch": 1}, {"epoch": 0}), "other"),
        (rounds_of({}, {}, version_changes=[BEGUN + 1.5]), "agent_version"),
        (rounds_of({}, {}, version_changes=[BEGUN + 0.5]), "other"),
        (rounds_of({}, {"epoch": 1}, breaks=(broken((1, 1), (2, 0)),)), "other"),
        (rounds_of({}, {"epoch": 1}, breaks=(broken((7, 1), (7, 0)),)), "other"),
        (rounds_of({}, {"epoch": 1}, breaks=()), "other"),
    ],
)
def test_a_break_is_put_down_to_its_evidence(observed: Observed, reason: str) -> None:
    """Epoch, trim and version of both rounds decide; without evidence it is something else."""
    assert prefix_breaks(observed) == dict.fromkeys(REASONS, 0) | {reason: 1}


def test_one_epoch_explains_one_break() -> None:
    """A round that was asked twice after one rotation, and broke the prefix twice, has one break too many."""
    twice = (broken((1, 1), (1, 0)), broken((1, 1), (1, 1)))
    for epoch, other in ((1, 1), (2, 0)):
        found = prefix_breaks(rounds_of({}, {"epoch": epoch}, breaks=twice, break_count=2))
        assert (found["rotation"], found["other"]) == (2 - other, other)


@pytest.mark.parametrize("step", ["model:12", "model:12:1"])
def test_a_key_names_its_round(step: str) -> None:
    """Further attempts belong to the same round."""
    assert place_of(f"a/b/turn-0003/{step}") == Place("turn-0003", 12)


# --- history


@given(st.lists(st.sampled_from("abcde"), max_size=12), st.randoms(use_true_random=False))
def test_what_is_the_same_differs_in_nothing(texts: list[str], random: Any) -> None:
    """Equal entries included; any other order of it loses nothing, and is found unless it is the same."""
    entries = [Entry.user(text) for text in texts]
    assert compared(entries, entries) == Comparison(lost=0, doubled=0, foreign=0, out_of_order=0)
    shuffled = random.sample(entries, len(entries))
    found = compared(entries, shuffled)
    assert (found.lost, found.doubled, found.foreign) == (0, 0, 0)
    assert (found.out_of_order == 0) == (shuffled == entries)


def test_recorded_entries_are_in_the_order_of_the_conversation() -> None:
    """Input, calls, results, answer."""
    assert [(entry.kind.value, entry.text) for entry in ENTRIES[:4]] == [
        ("user", "input 0"),
        ("tool_call", '{"at": 0}'),
        ("tool_result", "a result of 0.0"),
        ("assistant", "answer 0"),
    ]


# --- layout


def test_tokens_by_tier() -> None:
    """Tier 0 is what is verbatim."""
    records = tuple(
        Record(first_seq=1, last_seq=2, text="r", tokens=tokens, tier=tier) for tier, tokens in ((2, 5), (1, 7), (1, 9))
    )
    assert tier_tokens(Layout(records=records, live=live(*ENTRIES[:3]))) == {"0": 30, "1": 16, "2": 5}


def test_truncation_keeps_the_newest_that_fits() -> None:
    """As long as it is no larger than the layout that it is compared with."""
    entries = tuple(Entry.user(str(number) * 36) for number in range(5))  # 13 tokens each
    assert truncation(entries, 26, CharactersCounter()) == entries[3:]


def test_a_decision_that_cannot_be_found_again_is_a_broken_promise() -> None:
    """The archive has all of them, or something was lost."""
    assert list(broken_archive({"planted": 3, "in_archive": 3})) == []
    assert len(list(broken_archive({"planted": 3, "in_archive": 2}))) == 1


def test_planted_decisions_are_counted_where_they_are() -> None:
    """In the layout, in what is stored word for word, and in a truncation of the layout's size."""
    old, new = (Decision(turn_index=i, subject=f"port {n}", value=n) for i, n in enumerate(("4711", "8080")))
    told = [Entry.user("the port 4711 is 4711"), Entry.user("the port 8080 is 8080")]
    session = DemoSession(recording(), (old, new))
    record = Record(first_seq=1, last_seq=1, text="port 4711 was set to 4711", tokens=10)
    layout = Layout(records=(record,), live=live(told[1]))
    observed = as_it_should_be(archived=(told[0],), layout=layout)
    assert planted_figures(session, observed, CharactersCounter()) == {
        "planted": 2,
        "in_layout": 2,
        "in_archive": 2,
        "planted_after_truncation": 2,
    }
    smaller = replace(observed, layout=Layout(live=live(told[1])))
    assert planted_figures(session, smaller, CharactersCounter())["planted_after_truncation"] == 1
