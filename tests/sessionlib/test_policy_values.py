"""What policies are asked with and answer with: values that cannot be are refused by field, value and rule."""

from __future__ import annotations

from typing import Any

import pytest

from sessionlib.errors import InvalidInput
from sessionlib.layout import Layout
from sessionlib.policies.contract import Origin, Rotated, RotationPlan, Saturation, SaturationReason
from sessionlib.policies.log_merge import LogMerge
from tests.sessionlib.rotating import CHARACTERS, budgets_of

SOUND: dict[str, Any] = {
    "reason": SaturationReason.NO_REDUNDANCY,
    "tier": 1,
    "input_tokens": 0,
    "output_tokens": 0,
}


@pytest.mark.parametrize(
    ("changes", "field", "value", "rule"),
    [
        ({"reason": "no_redundancy"}, "reason", "'no_redundancy'", "must be one of SaturationReason"),
        ({"tier": 0}, "tier", "0", "must be at least 1"),
        ({"input_tokens": -1}, "input_tokens", "-1", "must not be negative"),
        ({"output_tokens": -1}, "output_tokens", "-1", "must not be negative"),
    ],
)
def test_a_saturation_that_cannot_be_is_refused(changes: dict[str, Any], field: str, value: str, rule: str) -> None:
    """Zero tokens are a figure like any."""
    assert Saturation(**SOUND).tier == 1
    with pytest.raises(InvalidInput) as refused:
        Saturation(**(SOUND | changes))
    assert str(refused.value) == f"{field} {rule}; got {value}"


def test_a_decision_holds_saturations_only_and_counts_from_zero() -> None:
    """Whatever else is in the list, or below zero, is a fault of the policy."""
    assert Rotated(layout=Layout(), saturations=(Saturation(**SOUND),)).consolidation_count == 0
    saturations: Any = ("full",)
    with pytest.raises(InvalidInput) as foreign:
        Rotated(layout=Layout(), saturations=saturations)
    assert str(foreign.value) == "saturations must hold saturations only; got 'full'"
    with pytest.raises(InvalidInput) as negative:
        Rotated(layout=Layout(), consolidation_count=-1)
    assert str(negative.value) == "consolidation_count must not be negative; got -1"


def test_a_plan_says_whose_figure_passed_the_line() -> None:
    """An undefined origin is refused (spec/tiers A18.41)."""
    origin: Any = "estimated"
    fields: dict[str, Any] = {
        "layout": Layout(),
        "budgets": budgets_of(LogMerge(), 8_000),
        "counter": CHARACTERS,
        "show_span": False,
    }
    assert RotationPlan(**fields).origin is Origin.ESTIMATED
    with pytest.raises(InvalidInput) as refused:
        RotationPlan(**fields, origin=origin)
    assert str(refused.value) == "origin must be one of Origin; got 'estimated'"
