"""The output contract: what a rotated layout must be, whatever policy made it (spec/work-room B5).

A provider refuses a request without messages, a result without its call, and a call without its result. A layout that
would lead to one is discarded, and the session stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from sessionlib.entries import OUTPUT_KINDS, Entry, EntryKind
from sessionlib.layout import Layout


def layout_fault(layout: Layout) -> str:
    """What is wrong with *layout* as it would be sent, without content; "" if nothing is.

    `layout.live` ends where a rotation's does: at no open call.
    """
    if not layout.live.entries and not layout.carried and not any(record.text.strip() for record in layout.records):
        return "no message is left"
    return _sequence_fault(layout.live.entries)


def _sequence_fault(entries: Iterable[Entry]) -> str:
    """What is wrong with a sequence of calls and results."""
    pending: set[str | None] = set()
    answered: set[str | None] = set()
    previous: EntryKind | None = None
    for entry in entries:
        match entry.kind:
            case EntryKind.TOOL_RESULT if entry.tool_call_id in answered:
                return "a call is answered twice"
            case EntryKind.TOOL_RESULT if entry.tool_call_id not in pending:
                return "a result has no call"
            case EntryKind.TOOL_RESULT:
                pending.discard(entry.tool_call_id)
                answered.add(entry.tool_call_id)
            case _ if pending and not (entry.kind in OUTPUT_KINDS and previous in OUTPUT_KINDS):
                return "a call is not answered before what follows it"
            case EntryKind.TOOL_CALL:
                pending.add(entry.tool_call_id)
                answered.discard(entry.tool_call_id)
        previous = entry.kind
    return "a call is not answered" if pending else ""
