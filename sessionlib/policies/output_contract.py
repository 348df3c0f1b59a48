"""The output contract: what a rotated layout must be, whatever policy made it (spec/work-room B5).

A provider refuses a request without messages, a result without its call, and a call without its result. A layout that
would lead to one is discarded, and the session stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from sessionlib.entries import OUTPUT_KINDS, EntryKind
from sessionlib.layout import Layout
from sessionlib.transcript import Transcript


def layout_fault(layout: Layout) -> str:
    """What is wrong with *layout* as it would be sent, without content; "" if nothing is.

    `layout.live` ends where a rotation's does: at no open call.
    """
    return _missing_message(layout) or next((fault for _, fault in _sequence_faults(layout.live)), "")


def new_fault(before: Layout, after: Layout) -> str:
    """What is wrong with *after* and was not with *before*, of which it has the newest live entries; "" if nothing is.

    Where a sequence was unsound before, it came from elsewhere, and is repaired when it is sent. Nothing repairs a
    layout in which no message is left.
    """
    known = {seq for seq, _ in _sequence_faults(before.live)}
    made = (fault for seq, fault in _sequence_faults(after.live) if seq not in known)
    return _missing_message(after) or next(made, "")


def _missing_message(layout: Layout) -> str:
    """An opaque item is no message: a provider that did not make it is not sent it."""
    is_said = any(entry.kind is not EntryKind.OPAQUE for entry in layout.live.entries)
    is_told = layout.carried or any(record.text.strip() for record in layout.records)
    return "" if is_said or is_told else "no message is left"


def _sequence_faults(live: Transcript) -> Iterator[tuple[int, str]]:
    """What is wrong with the sequence of calls and results, each with the number of the entry where it shows.

    A call that is not answered in time counts as given up: what comes after it is judged without it.
    """
    pending: set[str | None] = set()
    answered: set[str | None] = set()
    previous: EntryKind | None = None
    for seq, entry in enumerate(live.entries, live.first_seq):
        if entry.kind is EntryKind.TOOL_RESULT:
            if entry.tool_call_id not in pending:
                yield seq, "a call is answered twice" if entry.tool_call_id in answered else "a result has no call"
            pending.discard(entry.tool_call_id)
            answered.add(entry.tool_call_id)
        elif pending and not (entry.kind in OUTPUT_KINDS and previous in OUTPUT_KINDS):
            yield seq, "a call is not answered before what follows it"
            pending.clear()
        if entry.kind is EntryKind.TOOL_CALL:
            pending.add(entry.tool_call_id)
            answered.discard(entry.tool_call_id)
        previous = entry.kind
    if pending:
        yield live.next_seq, "a call is not answered"
