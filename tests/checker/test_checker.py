"""The store's state machine, explored: the rules as they are hold, and rules with a fault are found out."""

from __future__ import annotations

import pytest

from tests.checker.explore import Violation, explore
from tests.checker.faults import PLANTED, Planted
from tests.checker.model import FAULTS


@pytest.mark.timeout(600)
def test_every_pair_of_faults_is_harmless() -> None:
    """Whatever two of the faults meet, at whatever moments, nothing is violated and everything can be finished."""
    explored = explore(faults_at_once=2)
    assert explored.done_count > 0
    assert explored.state_count > 100_000, "much of what should have been explored was not"


def test_without_faults_everything_ends() -> None:
    """With no fault at all there is little to explore, and it ends in the one history."""
    explored = explore(faults_at_once=0)
    assert 0 < explored.done_count < explored.state_count


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_adds_states(fault: str) -> None:
    """Every fault does happen: it reaches states that are not reached without it."""
    assert explore(1, faults=(fault,)).state_count > explore(0).state_count


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_finds_planted_fault(planted: Planted) -> None:
    """Rules with a fault are found out, with the shortest way to it."""
    with pytest.raises(Violation, match=planted.finding) as caught:
        explore(2, make_store=planted.make_store, begin_token=planted.begin_token)
    assert caught.value.path[0] == "the session is opened"
