"""The ledger as a record: taken out before a policy decides, updated from what leaves, put back as the last.

It has a quota of its own, so that no policy ages it and none makes room for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sessionlib.entries import Entry
from sessionlib.layout import LARGEST_SPAN, Layout, Record, RecordKind, make_record
from sessionlib.ledger import LEDGER_CHARACTERS, updated_ledger
from sessionlib.tokens import Counter

_TYPICAL = "- edited sessionlib/policies/module_17.py\n"
"""A line as most of a ledger is made of: what a quota in characters takes is counted with it."""


def ledger_tokens(counter: Counter, *, show_span: bool) -> int:
    """Tokens of the largest ledger as it is seeded."""
    key: Any = counter  # hashable as any object, which its protocol does not say
    return _ledger_tokens(key, show_span)


def without_ledger(layout: Layout) -> tuple[Layout, Record | None]:
    """*layout* as policies see it, and its ledger."""
    found = [record for record in layout.records if record.kind is RecordKind.LEDGER]
    if not found:
        return layout, None
    others = tuple(record for record in layout.records if record.kind is not RecordKind.LEDGER)
    return replace(layout, records=others), found[-1]


def ledger_after(
    ledger: Record | None,
    leaving: Sequence[Entry],
    first_seq: int,
    *,
    quota_tokens: int,
    counter: Counter,
    show_span: bool,
) -> Record | None:
    """The ledger when the entries *leaving*, from *first_seq* on, are out of the window; None if there is nothing in
    it. The very same if nothing leaves."""
    if not leaving:
        return ledger
    text = updated_ledger(ledger.text if ledger else "", leaving)
    span = ledger.first_seq if ledger else first_seq, first_seq + len(leaving) - 1
    while text:
        record = make_record(counter, text, *span, show_span=show_span, kind=RecordKind.LEDGER)
        if record.tokens <= quota_tokens:
            return record
        text = _without_oldest(text)
    return None


def _without_oldest(text: str) -> str:
    """A ledger without its oldest line, where its script takes more tokens than its characters promise."""
    heading, _, lines = text.partition("\n")
    rest = lines.partition("\n")[2]
    return f"{heading}\n{rest}" if rest else ""


@lru_cache(maxsize=64)
def _ledger_tokens(counter: Counter, show_span: bool) -> int:
    text = (_TYPICAL * LEDGER_CHARACTERS)[:LEDGER_CHARACTERS].strip()
    return make_record(counter, text, *LARGEST_SPAN, show_span=show_span, kind=RecordKind.LEDGER).tokens
