"""The store's state machine, explored: the rules as they are hold, and rules with a fault are found out."""

from __future__ import annotations

import pytest

from tests.checker.complete import complete
from tests.checker.covering import uncovered
from tests.checker.explore import Violation, explore
from tests.checker.faults import PLANTED, Planted
from tests.checker.model import DOUBLED, FAULTS, LOST, RESTORE


@pytest.mark.timeout(600)
def test_every_pair_of_faults_is_harmless() -> None:
    """Whatever two of the faults meet, at whatever moments, nothing is violated and everything can be finished."""
    explored = complete(faults_at_once=2)
    assert explored.before_count > 10_000, "much of what should have been explored was not"
    assert explored.after_count > 5_000, "much of what should have been explored was not"


@pytest.mark.timeout(600)
def test_what_is_taken_together_covers_every_state_by_itself() -> None:
    """Each state of the plain search is covered, with no more faults than it took; and nothing else is looked at."""
    assert uncovered(faults_at_once=1) == (0, 0)


def test_without_faults_everything_ends() -> None:
    """With no fault at all there is little to explore, and it ends in the one history."""
    explored = explore(faults_at_once=0)
    assert 0 < explored.done_count < explored.state_count


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_adds_states(fault: str) -> None:
    """Every fault does happen: it reaches states that are not reached without it."""
    assert explore(1, faults=(fault,)).state_count > explore(0).state_count


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in (LOST, DOUBLED)])
def test_each_fault_adds_moments(fault: str) -> None:
    """So it does where states are taken together, but for what happens to hints: there any may be in flight."""
    few, more = complete(0), complete(1, faults=(fault,))
    assert more.before_count + more.after_count > few.before_count + few.after_count


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_finds_planted_fault(planted: Planted) -> None:
    """Rules with a fault are found out, with as few faults on the way to it as it takes."""
    with pytest.raises(Violation, match=planted.finding) as caught:
        complete(len(planted.faults), planted.faults, planted.make_store, planted.begin_token)
    assert caught.value.path[0] == "the session is opened"
    assert ("the copy is restored" in caught.value.path) == (RESTORE in planted.faults)


@pytest.mark.parametrize("planted", [planted for planted in PLANTED if len(planted.faults) < 2], ids=lambda p: p.name)
def test_plain_search_finds_the_same(planted: Planted) -> None:
    """Nothing that is found by looking at every state by itself is hidden by taking states together, or the reverse."""
    with pytest.raises(Violation, match=planted.finding):
        explore(len(planted.faults), planted.faults, planted.make_store, planted.begin_token)
