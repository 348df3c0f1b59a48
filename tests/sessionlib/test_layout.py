"""Records and layouts: what they refuse, how a record is seeded, and what that costs (spec/tiers A5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.layout import (
    Carried,
    Layout,
    Record,
    framing_tokens,
    make_record,
    seed_label,
    seeded_record,
)
from sessionlib.transcript import Transcript
from tests.sessionlib.rotating import CHARACTERS, message, transcript, words


def test_the_label_of_a_record_is_91_characters() -> None:
    """With the entry's own four tokens that makes 27 for each seeded record."""
    label = seed_label(1)
    assert len(label) == 91
    assert label.endswith("\n")
    assert "detail level 1" in label
    assert framing_tokens(CHARACTERS, show_span=False) == 27


def test_a_record_names_its_entries_where_they_can_be_read() -> None:
    """With the history tool the seed carries the span; without it, only label and text."""
    record = make_record(CHARACTERS, "Fixed the build.", 3, 17, show_span=True)
    assert seeded_record(record, show_span=True).text == f"{seed_label(1)}[entries 3-17]\nFixed the build."
    assert seeded_record(record, show_span=False).text == f"{seed_label(1)}Fixed the build."


@pytest.mark.parametrize(
    "fields",
    [
        {"tier": 0},
        {"first_seq": 0},
        {"first_seq": 5, "last_seq": 4},
        {"text": ""},
        {"text": " \n\t "},
    ],
)
def test_a18_36_a_record_without_sense_is_refused(fields: dict[str, Any]) -> None:
    """No tier below 1, no span that runs backwards, no blank text: what is blank is no record."""
    with pytest.raises(InvalidInput):
        Record(**{"first_seq": 1, "last_seq": 2, "text": "x", "tokens": 28, **fields})


def test_a18_08_conversation_tokens_count_the_framing_of_each_record() -> None:
    """Records as they are seeded, a carried input, live entries: the whole seed."""
    records = tuple(make_record(CHARACTERS, words(50), seq, seq, show_span=False) for seq in (1, 2))
    layout = Layout(records, Carried(3, message(40), 40), transcript([message(20)] * 3, first_seq=4))
    assert layout.record_tokens == 2 * (50 + 27)
    assert layout.conversation_tokens == 2 * 77 + 40 + 60


@given(
    text=st.text(min_size=1, max_size=400).filter(lambda text: bool(text.strip())),
    span=st.tuples(st.integers(1, 999_999), st.integers(0, 999_999)),
    tier=st.integers(1, 9),
    show_span=st.booleans(),
)
def test_framing_and_text_together_are_never_less_than_the_seeded_record(
    text: str, span: tuple[int, int], tier: int, show_span: bool
) -> None:
    """Label and text counted apart can only overstate what a record takes, which is the safe direction."""
    record = make_record(CHARACTERS, text, span[0], sum(span), show_span=show_span, tier=tier)
    assert record.tokens == CHARACTERS.entry(seeded_record(record, show_span=show_span))
    assert record.tokens <= CHARACTERS.text(text) + framing_tokens(CHARACTERS, show_span=show_span)


@pytest.mark.parametrize(
    ("changes", "field", "value", "rule"),
    [
        ({"level": "low"}, "level", "'low'", "must be one of Level"),
        ({"kind": "summary"}, "kind", "'summary'", "must be one of RecordKind"),
        ({"tier": 0}, "tier", "0", "must be at least 1"),
        ({"first_seq": 0}, "first_seq", "(0, 9)", "must be a span of entries, oldest first"),
        ({"first_seq": 10}, "first_seq", "(10, 9)", "must be a span of entries, oldest first"),
        ({"text": " \n"}, "text", "' \\n'", "must not be blank"),
    ],
)
def test_a_record_that_cannot_be_is_refused(changes: dict[str, Any], field: str, value: str, rule: str) -> None:
    """The error names the field, its value and the rule."""
    fields: dict[str, Any] = {"first_seq": 1, "last_seq": 9, "text": "said", "tokens": 3}
    with pytest.raises(InvalidInput) as refused:
        Record(**(fields | changes))
    assert str(refused.value) == f"{field} {rule}; got {value}"


def test_a_record_may_stand_for_one_entry_of_any_tier() -> None:
    """The narrowest span and the highest tier are as good as others."""
    assert Record(first_seq=1, last_seq=1, text="said", tokens=3, tier=1).last_seq == 1
    assert Record(first_seq=7, last_seq=7, text="said", tokens=3, tier=99).tier == 99


def test_conversation_tokens_are_those_of_all_parts() -> None:
    """Records, carried input, live entries; what is not there counts nothing."""
    record = Record(first_seq=1, last_seq=9, text="said", tokens=30)
    live = Transcript((Entry.user("hi"),), (4,), 10)
    carried = Carried(9, Entry.user("asked"), 5)
    assert Layout((record, record), carried, live).conversation_tokens == 69
    assert Layout((record,), None, live).conversation_tokens == 34
    assert Layout().conversation_tokens == 0
