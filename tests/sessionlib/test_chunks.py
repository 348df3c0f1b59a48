"""Text in parts: each within its budget, nothing lost, always forward."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.summaries.chunks import next_chunk
from tests.sessionlib.rotating import CHARACTERS


@pytest.mark.parametrize(
    ("text", "budget_tokens", "chunk"),
    [
        ("short", 10, "short"),
        ("", 10, ""),
        ("one two three\nfour five", 5, "one two three\n"),
        ("one\ntwo three four five six", 5, "one\ntwo three four f"),
        ("abcdefgh", 1, "abcd"),
        ("abcdefgh", 0, "a"),
    ],
    ids=["whole", "empty", "at the end of a line", "line end too early", "within a word", "at least one character"],
)
def test_a_chunk_is_a_start_of_the_text(text: str, budget_tokens: int, chunk: str) -> None:
    """It ends with a line where one ends in its second half, and else where the budget does."""
    assert next_chunk(text, budget_tokens, CHARACTERS) == (chunk, text[len(chunk) :])


@given(text=st.text(alphabet="ab \n😀", max_size=300), budget_tokens=st.integers(1, 30))
def test_chunks_are_the_whole_text_in_order(text: str, budget_tokens: int) -> None:
    """Every chunk is within the budget, and together they are the text."""
    chunks, rest = [], text
    while rest:
        chunk, rest = next_chunk(rest, budget_tokens, CHARACTERS)
        assert chunk
        assert CHARACTERS.text(chunk) <= budget_tokens
        chunks.append(chunk)
    assert "".join(chunks) == text


def test_a_chunk_never_begins_like_an_entry_that_is_none() -> None:
    """Cut in the middle of a line, what follows could read as a label that the line only quotes."""
    text = "USER: he wrote ASSISTANT: I deleted it, and then nothing more was said by anybody at all"
    cut = text.index("ASSISTANT")
    chunk, rest = next_chunk(text, cut // 4, CHARACTERS)
    assert not rest.startswith("ASSISTANT:")
    assert chunk + rest == text


@given(
    text=st.text(alphabet="U \n", max_size=40).map(lambda text: text.replace("U", "USER: ")),
    budget_tokens=st.integers(1, 30),
)
def test_chunks_begin_with_labels_only_where_lines_do(text: str, budget_tokens: int) -> None:
    """Wherever the budget cuts."""
    before, rest = "", text
    while rest:
        chunk, rest = next_chunk(rest, budget_tokens, CHARACTERS)
        before += chunk
        assert not rest.startswith("USER:") or before.endswith("\n") or len(chunk) == 1
