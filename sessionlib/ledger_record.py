"""The ledger as a record: taken out before a policy decides, updated from what leaves, put back as the last.

It has a quota of its own, so that no policy ages it and none makes room for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from sessionlib.entries import Entry
from sessionlib.layout import LARGEST_SPAN, Layout, Record, RecordKind, make_record
from sessionlib.ledger import LARGEST_HEADING, Quota, updated_ledger
from sessionlib.tokens import Counter

COUNTED_LINES = 4_096
"""Lines whose tokens a process remembers: each is counted again whenever an action follows it."""


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
    ledger: Record | None, leaving: Sequence[Entry], first_seq: int, *, counter: Counter, show_span: bool
) -> Record | None:
    """The ledger when the entries *leaving*, from *first_seq* on, are out of the window; None if there is nothing in
    it. The very same if nothing leaves; else at most `ledger_tokens`."""
    if not leaving:
        return ledger
    text = updated_ledger(ledger.text if ledger else "", leaving, _quota_of(counter))
    span = ledger.first_seq if ledger else first_seq, first_seq + len(leaving) - 1
    return make_record(counter, text, *span, show_span=show_span, kind=RecordKind.LEDGER) if text else None


@lru_cache(maxsize=64)
def _ledger_tokens(counter: Counter, show_span: bool) -> int:
    quota = _quota_of(counter)
    frame = make_record(counter, LARGEST_HEADING, *LARGEST_SPAN, show_span=show_span, kind=RecordKind.LEDGER)
    return frame.tokens + quota.actions_tokens + quota.narration_tokens


def _quota_of(counter: Counter) -> Quota:
    """The characters of a ledger in the counter's tokens. A script that takes more loses its oldest lines sooner."""
    key: Any = counter
    return _quota(key)


@lru_cache(maxsize=64)
def _quota(counter: Any) -> Quota:
    return Quota.of(partial(_line_tokens, counter))


@lru_cache(maxsize=COUNTED_LINES)
def _line_tokens(counter: Counter, line: str) -> int:
    """Tokens of a line as it is sent, its break at the end: behind that a new token begins in any case."""
    return counter.text(json.dumps(f"{line}\n", ensure_ascii=False)[1:-1])
