"""The bench of digests: each kind of failure is caught, and nothing but failures."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import bench.digest as bench
from bench.digest import (
    Failure,
    Found,
    ScriptedGenerator,
    bullets_by_heading,
    grade,
    graded,
    is_sound,
    main,
    scripted_rows,
)
from bench.digest_fixtures import FIXTURES, REBOOKED_FLIGHT, RETRIED_BUILD, UNVERIFIED_FIX, Fixture
from sessionlib.summaries.contract import Fault, Settlement


def spoiled(fixture: Fixture, old: str, new: str) -> tuple[Found, ...]:
    assert old in fixture.digest
    return grade(fixture, Settlement(text=fixture.digest.replace(old, new)))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_a_faultless_digest_passes(fixture: Fixture) -> None:
    """What a careful reader would write is not graded down."""
    assert grade(fixture, Settlement(text=fixture.digest)) == ()


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_each_failure_is_caught_by_its_kind_alone(fixture: Fixture, failure: Failure) -> None:
    """On every transcript, whatever the scripted summarizer does wrong."""
    found = grade(fixture, Settlement(text=bench.SPOILERS[failure](fixture)))
    assert {each.failure for each in found} == {failure}


@pytest.mark.parametrize(
    ("bullet", "is_instruction"),
    [
        ("- [model] T-3 was found unnecessary", False),
        ("- [model] rewrite the tokenizer (T-3)", True),
        ("- finish T-3", True),
        ("- [model] T-3 must be done", True),
        ("- [model] next is T-3", True),
    ],
)
def test_a_state_may_be_told_but_not_given_as_an_order(bullet: str, is_instruction: bool) -> None:
    """As what was; not in the imperative, nor with a word that assigns it."""
    found = spoiled(RETRIED_BUILD, "## Learned\n", f"## Learned\n{bullet}\n")
    assert found == ((Found(Failure.STATE, "T-3, under Learned"),) if is_instruction else ())


@pytest.mark.parametrize(
    ("bullet", "by"),
    [
        ("- [model] npm run e2e passed", "e2e passed"),
        ("- [model] not known whether npm run e2e passed", ""),
        ("- [observed] npm run e2e took 517 s", "517"),
        ("- [observed] see storage/download.ts", "storage/download.ts"),
    ],
)
def test_ends_and_values_that_nobody_observed_are_inventions(bullet: str, by: str) -> None:
    """Said as a fact; a doubt that is told is none."""
    found = spoiled(UNVERIFIED_FIX, "## Learned\n", f"## Learned\n{bullet}\n")
    assert found == ((Found(Failure.INVENTED, by),) if by else ())


def test_something_left_to_do_where_nothing_is_open_is_an_invention() -> None:
    """Work that was completed does not come back."""
    found = spoiled(RETRIED_BUILD, "## Unfinished\n- none", "## Unfinished\n- [model] the build")
    assert found == (Found(Failure.INVENTED, "something under Unfinished"),)


@pytest.mark.parametrize(
    ("fixture", "old", "new", "by"),
    [
        (RETRIED_BUILD, "4f1c9ab", "the last", "4f1c9ab"),
        (REBOOKED_FLIGHT, "ZX81QP confirmed", "ZX81QP moved", "ZX81QP confirmed"),
        (UNVERIFIED_FIX, "whether E1047 is gone", "whether it is gone", "E1047"),
    ],
)
def test_references_outcomes_and_open_items_are_looked_for(fixture: Fixture, old: str, new: str, by: str) -> None:
    """Each of them must be there."""
    found = spoiled(fixture, old, new)
    assert {each.failure for each in found} == {Failure.OMITTED}
    assert by in {each.by.split(",")[0] for each in found}


def test_a_digest_that_validation_refused_is_malformed() -> None:
    """Graded, since it is what the model made; any other fault means that there is nothing to grade."""
    refused = Settlement(fault=Fault.VALIDATION, reason="the answer is blank")
    assert grade(RETRIED_BUILD, refused) == (Found(Failure.MALFORMED, "the answer is blank"),)
    with pytest.raises(RuntimeError, match="provider"):
        grade(RETRIED_BUILD, Settlement(fault=Fault.PROVIDER, reason="unreachable"))


def test_bullets_with_their_continuation_lines() -> None:
    """What is indented belongs to the bullet above it; the empty bullet is none."""
    assert bullets_by_heading("## Done\n- a\n  b\n\n- c\n## Learned\n- none") == {
        "Done": ("- a\n  b", "- c"),
        "Learned": (),
    }


def test_the_bench_runs_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, the scripted summarizers as expected, the extractive generator sound."""
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.count("as expected") == 1 + len(Failure)
    assert "extractive: " in printed
    assert main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["expected"] for row in rows] == [None, *Failure, None]


def test_a_grading_that_misses_a_failure_is_seen() -> None:
    """The bench judges itself first: a spoiled digest that passes, or fails for another reason, is not as expected."""
    missed = scripted_rows({Failure.STATE: lambda fixture: fixture.digest})
    mistaken = scripted_rows({Failure.STATE: bench.SPOILERS[Failure.OMITTED]})
    assert [row.is_as_expected for row in [*missed, *mistaken]] == [True, False, True, False]


def test_wrong_usage_is_exit_code_2() -> None:
    """As every command has it."""
    with pytest.raises(SystemExit) as caught:
        main(["--none"])
    assert caught.value.code == 2


def test_inventions_and_malformed_digests_are_not_sound() -> None:
    """What the extractive generator promises; omissions and states are the price of having no model."""
    rows = {
        failure: graded("x", ScriptedGenerator({f.name: spoil(f) for f in FIXTURES}))
        for failure, spoil in bench.SPOILERS.items()
    }
    assert {failure: is_sound(row) for failure, row in rows.items()} == {
        Failure.STATE: True,
        Failure.OMITTED: True,
        Failure.INVENTED: False,
        Failure.MALFORMED: False,
    }
    assert not replace(rows[Failure.STATE], expected=None).is_as_expected
