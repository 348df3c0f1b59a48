"""Every public fault report, and every regression of spec/tiers A18, is a test that carries its number or has a reason.

A name may carry several: `test_t41_t50_…`, `test_a18_15_16_…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

REPORTS = frozenset(
    {*range(1, 9), *range(10, 14), *range(15, 19), *range(20, 25), 26, *range(30, 34), *range(35, 39)}
    | {*range(40, 43), 44, *range(50, 54), *range(55, 58), 59, 65, 66, *range(68, 74), 75, 80, *range(82, 87)}
    | {*range(90, 93), 96, 97, *range(100, 104), *range(105, 110), 115, *range(117, 122)}
)
"""Numbers of the public fault reports."""

REGRESSIONS = frozenset(range(1, 60))
"""Numbers of spec/tiers A18."""

REPORTS_WITHOUT_TEST = {
    118: "an optional way of asking for a summary: ours are asked out of session (T51) and continue no cached prefix",
}

REGRESSIONS_WITHOUT_TEST = {
    59: "the package has no coverage list beside its tests",
}

NUMBERED = re.compile(r"def test_((?:a18_(?:\d+_)+|t\d+_)+)")


@cache
def carried() -> tuple[frozenset[int], frozenset[int]]:
    """Numbers in the names of tests: of reports, and of regressions."""
    reports: set[int] = set()
    regressions: set[int] = set()
    for path in TESTS.rglob("test_*.py"):
        for name in NUMBERED.findall(path.read_text()):
            reports |= {int(number) for number in re.findall(r"t(\d+)_", name)}
            regressions |= set(regression_numbers(name))
    return frozenset(reports), frozenset(regressions)


def regression_numbers(name: str) -> Iterator[int]:
    """The numbers of `a18_15_16_`."""
    for run in re.findall(r"a18_((?:\d+_)+)", name):
        yield from map(int, run.split("_")[:-1])


def test_the_lists_are_whole() -> None:
    """77 reports, 59 regressions."""
    assert (len(REPORTS), len(REGRESSIONS)) == (77, 59)


@pytest.mark.parametrize("number", sorted(REPORTS))
def test_report_is_a_test_or_has_its_reason(number: int) -> None:
    """One of the two: a reason that is left over beside a test is no reason."""
    assert (number in carried()[0]) != (number in REPORTS_WITHOUT_TEST)


@pytest.mark.parametrize("number", sorted(REGRESSIONS))
def test_regression_is_a_test_or_has_its_reason(number: int) -> None:
    """One of the two: a reason that is left over beside a test is no reason."""
    assert (number in carried()[1]) != (number in REGRESSIONS_WITHOUT_TEST)


def test_no_test_carries_a_number_that_is_not_there() -> None:
    """A number that is mistyped accounts for nothing."""
    reports, regressions = carried()
    assert reports <= REPORTS
    assert regressions <= REGRESSIONS
