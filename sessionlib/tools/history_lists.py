"""What the history tools list and read: windows, items, one item word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sessionlib.entries import Entry, EntryKind
from sessionlib.layout import LARGEST_SPAN
from sessionlib.recall.passages import whole_character
from sessionlib.stores.contract import ChunkRef
from sessionlib.tools.history_room import ResultRoom

LIST_TOKENS = 3_500
"""What a list takes at most (spec/work-room B6)."""

PREVIEW_CHARACTERS = 200
"""Of an item in a list (spec/work-room B6)."""

MOST_WINDOWS = 50
"""Windows that one list of items looks through: a filter may fit none of their entries."""

LARGEST_LIMIT_CHARS = 16_000
"""What one reading may return at most, however much is asked for (spec/work-room B6)."""


class Entries(Protocol):
    """A session's entries, in the window and archived."""

    def windows(self) -> Sequence[ChunkRef]:
        """What left the window, one chunk a rotation, oldest first, and the window that is now."""
        ...

    def last_seq(self) -> int:
        """The newest entry; 0 if there is none."""
        ...

    def entries(self, first_seq: int, last_seq: int) -> Sequence[Entry]:
        """Those of a span, as far as there are any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which items are listed."""

    first_seq: int
    last_seq: int
    roles: frozenset[EntryKind]
    tool_name: str | None
    is_recent_first: bool

    def takes(self, entry: Entry) -> bool:
        return entry.kind in self.roles and self.tool_name in (None, entry.tool_name)


def window_list(windows: Sequence[ChunkRef], limit: int, is_recent_first: bool, room: ResultRoom) -> str:
    """A line for each window, the newest *limit* or the oldest. The last of *windows* is the one that is now."""
    ordered = list(reversed(windows)) if is_recent_first else list(windows)
    rows = [_window_row(window, is_now=window is windows[-1]) for window in ordered[:limit]]

    def text_of(count: int) -> str:
        left = len(windows) - count
        more = [f"{left} {'older' if is_recent_first else 'newer'} not shown"] if left else []
        return "\n".join([*rows[:count], *more])

    return text_of(room.most(len(rows), text_of, LIST_TOKENS))


def _window_row(window: ChunkRef, *, is_now: bool) -> str:
    name = f"window {window.epoch}{' (now)' if is_now else ''}"
    count = window.last_seq - window.first_seq + 1
    return f"{name}: entries {window.first_seq}-{window.last_seq} ({count})" if count else f"{name}: no entries"


def item_list(history: Entries, wanted: ItemFilter, limit: int, room: ResultRoom) -> str:
    """A line for each item, with its number, what it is and how it begins."""
    walk = _Walk(history, wanted)
    items = list(islice(walk.items(), limit + 1))
    rows = [f"[{seq} {what(entry)}] {preview(entry.readable)}" for seq, entry in items[:limit]]
    longest = _more(LARGEST_SPAN[1], wanted)
    count = room.most(len(rows), lambda number: "\n".join([*rows[:number], longest]), LIST_TOKENS)
    if count < len(items):
        return "\n".join([*rows[:count], _more(items[count][0], wanted)])
    if walk.next_seq:
        return "\n".join([*rows, _more(walk.next_seq, wanted)])
    return "\n".join(rows) or "No items fit."


def _more(seq: int, wanted: ItemFilter) -> str:
    return f"More: go on with {'last' if wanted.is_recent_first else 'first'}={seq}."


class _Walk:
    """A walk over the entries of a span, window by window, in the order that is asked for."""

    def __init__(self, history: Entries, wanted: ItemFilter) -> None:
        self._history, self._wanted = history, wanted
        self.next_seq = 0
        """Where to go on, if the walk ended at its bound; 0 if it saw everything."""

    def items(self) -> Iterator[tuple[int, Entry]]:
        wanted = self._wanted
        windows = [
            window
            for window in self._history.windows()
            if window.first_seq <= wanted.last_seq and window.last_seq >= wanted.first_seq
        ]
        for number, window in enumerate(reversed(windows) if wanted.is_recent_first else windows):
            first, last = max(window.first_seq, wanted.first_seq), min(window.last_seq, wanted.last_seq)
            if number == MOST_WINDOWS:
                self.next_seq = last if wanted.is_recent_first else first
                return
            numbered = list(enumerate(self._history.entries(first, last), first))
            for seq, entry in reversed(numbered) if wanted.is_recent_first else numbered:
                if wanted.takes(entry):
                    yield seq, entry


def item_part(seq: int, entry: Entry, offset_chars: int, limit_chars: int, room: ResultRoom) -> str:
    """A part of an item under a line that names it. A part that does not fit is halved until it does."""
    text = entry.readable
    if entry.kind is EntryKind.OPAQUE:
        return f"Nothing was read: entry {seq} is the model's own reasoning, which only its provider can read."
    if offset_chars and offset_chars >= len(text):
        return f"Nothing was read: entry {seq} ends at character {len(text)}."
    limit_chars = min(limit_chars, LARGEST_LIMIT_CHARS)
    while not room.fits(part := _part(seq, entry, offset_chars, limit_chars)) and limit_chars > 1:
        limit_chars //= 2
    return part


def _part(seq: int, entry: Entry, offset_chars: int, limit_chars: int) -> str:
    text = entry.readable
    end = whole_character(text, offset_chars, min(offset_chars + limit_chars, len(text)))
    more = f"; go on with offset_chars={end}" if end < len(text) else ""
    kind = what(entry).replace("_", " ", 1)
    return f"[entry {seq}, {kind}, characters {offset_chars}-{end} of {len(text)}{more}]\n{text[offset_chars:end]}"


def what(entry: Entry) -> str:
    """An entry's role, and its tool's name."""
    return f"{entry.kind} {entry.tool_name}" if entry.tool_name else str(entry.kind)


def preview(text: str) -> str:
    """How a text begins, in one line; a longer one with its length."""
    line = " ".join(text[: 4 * PREVIEW_CHARACTERS].split())
    if len(line) <= PREVIEW_CHARACTERS and len(text) <= 4 * PREVIEW_CHARACTERS:
        return line
    return f"{line[: whole_character(line, 0, PREVIEW_CHARACTERS)]}… ({len(text):,} characters)"
