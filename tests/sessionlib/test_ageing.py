"""What policies keep of a text that is above its budget: its newest part, and no halves of values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.policies.ageing import newest_text
from sessionlib.summaries.grounding import unsupported_values
from tests.sessionlib.rotating import CHARACTERS

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
