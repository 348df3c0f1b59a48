"""Grounding: what counts as a value, when the source supports it, and what is named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionlib.summaries.grounding import NAMED_COUNT, still_in, unsupported_values

SOURCE = """\
Decided: retry_limit is 1,234 in src/app/config.py at port 8080, ~/notes and .env as well.
See https://example.com/a?b=1, commit 3fa9c2e81b77d04e, ticket K-77 of 2026-11-30T10:00, and sha256.
Read or write within 5 s; it costs $1.50 or 12.0 %. At 10:30 run `git push -f`. Ports 80 443. FooBar v1.2.3.
sessionlib.entries.render, file.py:88, C:\\Users\\ada, user@host.example, 2 500 000 lines, 1'000 more, 0x1F.
"""


@pytest.mark.parametrize(
    "text",
    [
        "retry_limit 1234; 1,234; 1_234; (1234).",
        "2500000, 2,500,000 and 1000",
        "src/app/config.py, config.py, app/config.py: *config.py*, **retry_limit**",
        "~/notes, .env, ./src/app",
        "https://example.com/a?b=1.",
        "3fa9c2e, 3fa9c2e81b77d04e and '3fa9c2e81b'",
        "K-77 (2026-11-30), 2026-11-30T10:00",
        "5s, 5 seconds, 5-second, ~5, -5, +5",
        "$1.5, 1.50 €, 12%, 12.00",
        "10:30; ports 80,443",
        "`git push -f` and `git  push`",
        "FooBar, v1.2.3, 1.2.3, sessionlib.entries, entries.render",
        "file.py:88, file.py, user@host.example, C:\\Users\\ada",
        "read/write, and/or",
        "e.g. this, i.e. that, U.S. too, a well-known fact... really?",
        "## Heading 77 of FooBaz\n1. first\n2) second\n- [user] \"8080\", '8080', (8080), 8080!",
        "80日に8080を使用する。FooBarは",
        "x" * 300 + "_9",
    ],
)
def test_what_the_source_says_is_supported(text: str) -> None:
    """Whatever separates thousands, whatever surrounds a value, whichever part of a path or name is told."""
    assert unsupported_values(text, SOURCE + " or and") == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("port 8081", ("8081",)),
        ("port 80800 and 808", ("80800", "808")),
        ("1,235 and 12,34", ("1,235", "12,34")),
        ("retry_limi, retry_limits, Retry_Limit", ("retry_limi", "retry_limits", "Retry_Limit")),
        ("/etc/passwd", ("/etc/passwd",)),
        ("src/none.py", ("src/none.py",)),
        ("app/conf", ("app/conf",)),
        ("https://example.com/b.", ("https://example.com/b",)),
        ("3fa9c2f81b77d04e", ("3fa9c2f81b77d04e",)),
        ("a9c2e81b77", ("a9c2e81b77",)),
        ("K-78 and 2026-12-01", ("K-78", "2026-12-01")),
        ("6s, 1.51, 13%", ("6", "1.51", "13")),
        ("10:45", ("10:45",)),
        ("`git pull`, `FooBaz`, ``x y``", ("git pull", "FooBaz", "x y")),
        ("FooBaz, fooBar", ("FooBaz", "fooBar")),
        ("v1.2.4 and sessionlib.exits", ("v1.2.4", "sessionlib.exits")),
        ("file.py:89", ("89",)),
        ("other@host.example", ("other@host.example",)),
        ("delete/everything", ("delete/everything",)),
        ("gpt-4o, UTF-8, sha512", ("gpt-4o", "UTF-8", "sha512")),
        ("FooBaz then 7 then FooBaz, 7", ("FooBaz", "7")),
        ("7 then `x_y` then http://a.b/c then 9", ("7", "x_y", "http://a.b/c", "9")),
        ("```x y`` then `a b` and `c d``e f`` ``g h\n`", ("x y", "a b", "c d", "e f")),
        ("17http://a.b/c and +z://d", ("17", "http://a.b/c", "z://d")),
        ("\n \n 1. 6\n\n2)\n3.\n  9. 7\n87.", ("6", "7", "87")),
    ],
)
def test_what_the_source_does_not_say_is_named(text: str, values: tuple[str, ...]) -> None:
    """Numbers, paths, names, hashes, addresses and quoted code, in order of appearance and once each."""
    assert unsupported_values(text, SOURCE) == values


def test_at_most_twenty_are_named() -> None:
    """More say no more."""
    assert len(unsupported_values(" ".join(map(str, range(100, 200))), "")) == NAMED_COUNT == 20


@given(st.text(max_size=300))
@example("\u31000 \u3400 7")
@example("\u34000")
def test_a_text_supports_itself(text: str) -> None:
    """Whatever is in it."""
    assert unsupported_values(text, text) == ()


@given(st.lists(st.sampled_from(SOURCE.split()), max_size=30))
def test_words_of_the_source_are_supported_in_any_order(words: list[str]) -> None:
    """Each on a line of its own: moved words are nothing new."""
    assert unsupported_values("\n".join(word.strip("`") for word in words), SOURCE) == ()


def test_what_still_stands_in_a_text() -> None:
    """Of values that were unsupported before, those that a later text repeats, as it counts values."""
    assert still_in(("8081", "FooBaz", "1,500"), "FooBaz at 80811 and 1500") == ("FooBaz", "1,500")


@pytest.mark.parametrize("name", ["claude_code_4d5611e5.json", "tau_airline_gpt4o.json", "locomo5.json"])
def test_parts_of_real_transcripts_are_supported_by_the_whole(name: str, data_dir: Path) -> None:
    """Whole lines of real sessions hold nothing that the session does not."""
    text = (data_dir / name).read_text(encoding="utf-8")[:300_000]
    lines = text.replace("\\n", "\n").split("\n")
    assert unsupported_values("\n".join(lines[::7]), text.replace("\\n", "\n")) == ()


ENDLESS = [
    *("`", "`a", "``a", "`\n", "a`", "\n", " ", "\n ", "\n\t", "1.\n", "\n1", "a", "1a", "+a.-", "a:", "a://", "a://)"),
    *("1", "1.", "111,", "1 111 ", "/", "a/", "a@", "_", "a_", "-", "#", "#\n", "漢1", "aB ", "x_1 ", "K-7 ", "7 "),
]


@pytest.mark.parametrize("unit", ENDLESS)
@pytest.mark.parametrize("is_source", [False, True], ids=["of nothing", "of itself"])
def test_values_take_time_as_their_text_is_long(unit: str, *, is_source: bool) -> None:
    """Nothing in a summarizer's answer is tried again and again, and no value looked for twice."""
    text = unit * (100_000 // len(unit))
    begun = time.process_time()
    unsupported_values(text, text if is_source else "")
    assert time.process_time() - begun < 2


def test_a_value_is_looked_for_once() -> None:
    """However often a text repeats it: here the source has it last, after much that only looks like it."""
    begun = time.process_time()
    assert unsupported_values("aB " * 1_000, "aB" * 20_000 + " aB") == ()
    assert time.process_time() - begun < 2
