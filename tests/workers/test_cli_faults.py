"""Errors as commands report them: whose fault, what to do, which exit code."""

from __future__ import annotations

import pytest

from sessionlib import errors
from workers.cli.faults import ADVICE, ExitCode, RotationTimeout, Whose, WorkersNotReady, report_of, whose_code
from workers.shadow import PackageShadowed


@pytest.mark.parametrize(
    ("exc", "whose", "exit_code"),
    [
        (errors.InvalidInput("busy", "x", "is refused"), Whose.CALLER, ExitCode.USAGE),
        (errors.UnknownSession("s"), Whose.CALLER, ExitCode.USAGE),
        (errors.TurnConflict("s", "t"), Whose.CALLER, ExitCode.USAGE),
        (PackageShadowed("/a", "/b"), Whose.CALLER, ExitCode.USAGE),
        (errors.StoreUnavailable("gone"), Whose.STORE, ExitCode.STORE),
        (errors.StoreFull("full"), Whose.STORE, ExitCode.STORE),
        (errors.StoreCorrupt("torn"), Whose.STORE, ExitCode.STORE),
        (errors.AnswerTimeout("t", 3.0), Whose.CALLER, ExitCode.TIMEOUT),
        (RotationTimeout("r1", 3.0), Whose.CALLER, ExitCode.TIMEOUT),
        (errors.ProviderRejected("no"), Whose.PROVIDER, ExitCode.FAILED),
        (errors.TurnFailed("t", "provider_rejected", "no"), Whose.PROVIDER, ExitCode.FAILED),
        (errors.TurnFailed("t", "window_overflow", "no"), Whose.PROVIDER, ExitCode.FAILED),
        (errors.TurnFailed("t", "cancelled", "it was cancelled"), Whose.CALLER, ExitCode.FAILED),
        (errors.TurnFailed("t", "dead_lettered", "5 attempts"), Whose.US, ExitCode.FAILED),
        (WorkersNotReady(60.0), Whose.US, ExitCode.FAILED),
        (ZeroDivisionError("division"), Whose.US, ExitCode.FAILED),
    ],
)
def test_whose_fault_and_exit_code(exc: Exception, whose: Whose, exit_code: ExitCode) -> None:
    """By the error's place in the tree, a failed turn by its reason."""
    report = report_of(exc)
    assert (report.whose, report.exit_code) == (whose, exit_code)
    assert str(exc) in report.message


def test_every_error_has_advice() -> None:
    """By its nearest class; some fields have their own."""
    assert report_of(errors.StoreUnavailable("gone")).advice == ADVICE[errors.StoreUnavailable]
    assert report_of(errors.HandleForgotten("h")).advice == ADVICE[errors.ProviderError]
    assert "--agents" in report_of(errors.InvalidInput("agent", "x", "is unknown")).advice
    assert "SESSIONLIB_PARTITIONS" in report_of(errors.InvalidInput("partitions", 64, "must be 1")).advice


def test_failed_turn_is_named_by_its_reason() -> None:
    """`turn_failed` alone would say nothing."""
    assert report_of(errors.TurnFailed("t", "deadline", "late")).code == "deadline"
    assert whose_code("deadline") is Whose.CALLER
