"""What policies keep of a text that is above its budget: its newest part, and no halves of values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.layout import Layout, Record, RecordKind, framing_tokens, make_record, seeded_record
from sessionlib.policies.ageing import cut_record, newest_text
from sessionlib.policies.contract import RotationPlan
from sessionlib.policies.log_merge import LogMerge
from sessionlib.summaries.grounding import unsupported_values
from tests.sessionlib.rotating import CHARACTERS, budgets_of, planned

VALUES = (
    "/srv/app/releases/2026-11-30T07:15/current.tar.gz",
    "3fa9c2e17b08d54e6c1a90f2b7d3384c",
    "payment_id=pi_8830412",
    '"https://example.org/a/b?page=2"',
    "(1,234,567)",
    "K-7731",
    "港口八零八零。",
    "plainly",
    "said",
)


@given(
    words=st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from((" ", "\n", ", "))), min_size=1, max_size=40),
    budget_tokens=st.integers(15, 120),
)
def test_what_is_kept_is_an_end_without_halves_of_values(words: list[tuple[str, str]], budget_tokens: int) -> None:
    """Within the budget; whatever looks like a value in it stands so in the text."""
    text = "".join(f"{word}{blank}" for word, blank in words).strip()
    kept = newest_text(text, budget_tokens, CHARACTERS)
    assert kept
    assert text.endswith(kept)
    assert CHARACTERS.text(kept) <= budget_tokens
    assert unsupported_values(kept, text) == ()


@pytest.mark.parametrize(
    ("text", "budget_tokens", "kept"),
    [
        ("it fits as it is", 4, "it fits as it is"),
        ("it lies in /srv/app/current since Monday", 5, "since Monday"),
        ("it lies in `/srv/app/current` since Monday", 5, "since Monday"),
        ("the port is 8080 now", 2, "8080 now"),
        ("the port is 8080 now", 1, "now"),
        ("港口八零八零。" * 9, 2, "零八零。港口八零八零。"[-8:]),
        ("x" * 900 + " done", 100, "x" * 395 + " done"),
        ("it lies in /srv/app/current", 3, "/app/current"),
        ("it lies in (/srv/app/current)", 3, "app/current)"),
    ],
    ids=[
        "all of it",
        "from the word after a path",
        "from the word after quoted code",
        "a value that just fits",
        "no half of a value",
        "a script without blanks is cut anywhere",
        "data longer than a name is cut",
        "a value above the budget is cut",
        "a bracket alone is nothing to keep",
    ],
)
def test_the_newest_text_begins_between_values(text: str, budget_tokens: int, kept: str) -> None:
    """A half of a path or number would be a value that nobody said."""
    assert newest_text(text, budget_tokens, CHARACTERS) == kept


def test_nothing_is_kept_where_no_character_fits() -> None:
    """A caller is told so by a blank text."""
    assert newest_text("anything", 0, CHARACTERS) == ""


def plan(*, show_span: bool = False) -> RotationPlan:
    return planned(Layout(), budgets_of(LogMerge(), 8_000), show_span=show_span)


def record_of(text: str, *, kind: RecordKind = RecordKind.SUMMARY, tier: int = 3) -> Record:
    return make_record(CHARACTERS, text, 1_000, 2_000, show_span=False, kind=kind, tier=tier)


@given(
    text_tokens=st.integers(5, 200),
    seeded_tokens=st.integers(60, 200),
    show_span=st.booleans(),
    kind=st.sampled_from(RecordKind),
    tier=st.sampled_from((1, 12)),
)
def test_a_cut_record_fits_as_it_is_seeded(
    text_tokens: int, seeded_tokens: int, show_span: bool, kind: RecordKind, tier: int
) -> None:
    """Its label, of its kind and tier, and its span included; of the rest as much is kept as fits, but for rounding."""
    record = record_of(" ".join("abcdefghij" * 40), kind=kind, tier=tier)
    cut = cut_record(record, text_tokens, seeded_tokens, plan(show_span=show_span))
    assert cut is not None
    assert record.text.endswith(cut.text)
    assert cut.tokens == CHARACTERS.entry(seeded_record(cut, show_span=show_span))
    cut_text_tokens = CHARACTERS.text(cut.text)
    assert (cut_text_tokens <= text_tokens, cut.tokens <= seeded_tokens) == (True, True)
    assert cut_text_tokens >= text_tokens - 1 or cut.tokens >= seeded_tokens - 2
    assert (cut.kind, cut.tier, cut.first_seq, cut.last_seq) == (kind, tier, 1_000, 2_000)


def test_a_record_of_which_nothing_fits_is_none() -> None:
    """Its label alone takes all that there is; or no text was allowed."""
    record = record_of("some of what was said")
    assert cut_record(record, 50, framing_tokens(CHARACTERS, show_span=False), plan()) is None
    assert cut_record(record, 0, 1_000, plan()) is None
