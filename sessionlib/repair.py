"""Keeps requests sound: providers refuse a result without its call, and a call without its result.

Stored history is sound already; this is for what came from elsewhere, and it changes only what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sessionlib.entries import OUTPUT_KINDS, Entry, EntryKind
from sessionlib.projection import Projection


@dataclass(frozen=True, slots=True)
class Item:
    """A live entry on its way into a request, with its size as sent in tokens."""

    seq: int
    entry: Entry
    tokens: int


def no_result(call: Entry, reason: str) -> Entry:
    """The mechanical result of a call that nothing will answer."""
    return Entry.tool_result(str(call.tool_call_id), f"No result: {reason}.", call.tool_name)


def paired(items: Sequence[Item], projection: Projection) -> Sequence[Item]:
    """*items* such that every call is answered before anything but model output follows, and every result has its call.

    A call left open gets a mechanical result, a result without its call is sent as text. Decided from left to right, so
    that what is appended later changes nothing before it.
    """
    if _is_paired(item.entry for item in items):
        return items
    made: list[Item] = []
    unanswered: dict[str, Entry] = {}

    def close() -> None:
        for call in unanswered.values():
            answer = no_result(call, "the call was never answered")
            made.append(Item(made[-1].seq, answer, projection.counter.entry(answer)))
        unanswered.clear()

    for item in items:
        entry = item.entry
        if entry.kind is EntryKind.TOOL_RESULT:
            answered = unanswered.pop(str(entry.tool_call_id), None)
            made.append(item if answered else _orphan(item, projection))
            continue
        if unanswered and _closes(entry, made[-1].entry):
            close()
        if entry.kind is EntryKind.TOOL_CALL:
            unanswered[str(entry.tool_call_id)] = entry
        made.append(item)
    close()
    return made


def _is_paired(entries: Iterable[Entry]) -> bool:
    unanswered: set[str | None] = set()
    previous: Entry | None = None
    for entry in entries:
        if entry.kind is EntryKind.TOOL_RESULT:
            if entry.tool_call_id not in unanswered:
                return False
            unanswered.remove(entry.tool_call_id)
        elif previous and unanswered and _closes(entry, previous):
            return False
        if entry.kind is EntryKind.TOOL_CALL:
            unanswered.add(entry.tool_call_id)
        previous = entry
    return not unanswered


def _closes(entry: Entry, previous: Entry) -> bool:
    """Whether calls still open before *entry* can no longer be answered: one message holds all calls of a round."""
    return entry.kind not in OUTPUT_KINDS or previous.kind not in OUTPUT_KINDS


def _orphan(item: Item, projection: Projection) -> Item:
    sent = projection.project(item.entry, item.seq)
    text = Entry.record(f"[Result of tool call {sent.tool_call_id}, whose call is not shown here]\n{sent.readable}")
    return Item(item.seq, text, projection.counter.entry(text))
