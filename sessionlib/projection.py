"""How single entries are sent: over-long results as head and tail, trimmed results as pointers, spans as markers.

Deterministic: an entry is sent in the same words in each request, or the prompt's prefix would change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from sessionlib.entries import Entry, EntryKind
from sessionlib.layout import LARGEST_SPAN
from sessionlib.tokens import Counter, message_json

READ_ITEM = "history.read_item"
"""The private tool that reads one entry again."""

HEAD_FRACTION = 0.6
"""Share of a shortened result that its beginning gets: that is where commands say what they did."""

STRIDES = 64
"""In how many steps, about, a shortened result is filled up; the last step may leave that share of it unused."""

ENOUGH_CHARACTERS_PER_TOKEN = 16
"""A result with more characters for each token of the cap is judged by its beginning first: five megabytes need not be
counted to see that they are too many."""

FRAME_BYTES = 100
"""What `message_json` writes around a result's text and call id takes 55 bytes."""

WIDEST_CHARACTER_BYTES = 6
"""A control character is escaped as six (`\\u0007`); everything else takes at most four in UTF-8."""


@dataclass(frozen=True, slots=True)
class Projection:
    """From stored entries to sent ones. Sizes in tokens of *counter*."""

    counter: Counter
    cap_tokens: int
    """A tool result above this is shortened from the start (`Budgets.result_cap_tokens` at calibration 1: what was
    sent once is sent again in the same words, whatever a provider has reported since)."""
    history_tool: bool = True
    """Whether texts may tell the agent to read again, and records name their span."""
    origin: str = ""
    """Whose opaque items are sent: those of others nobody there can read."""

    def sends(self, entry: Entry) -> bool:
        """Whether *entry* is sent at all."""
        return entry.kind is not EntryKind.OPAQUE or entry.origin == self.origin

    def project(self, entry: Entry, seq: int) -> Entry:
        """*entry* as it is sent: itself, or a tool result above the cap as head, pointer and tail within the cap."""
        if entry.kind is not EntryKind.TOOL_RESULT or is_surely_within(entry, self.cap_tokens):
            return entry
        return _projected(self, entry, seq) if not entry.media else self.capped(entry, seq)

    def capped(self, entry: Entry, seq: int) -> Entry:
        """A tool result as it is sent."""
        if not exceeds(entry, self.cap_tokens, self.counter):
            return entry
        entry = with_room_for_text(entry, self.cap_tokens, self.counter)
        return self.shortened(entry, seq) if exceeds(entry, self.cap_tokens, self.counter) else entry

    def shortened(self, entry: Entry, seq: int) -> Entry:
        """Head, pointer and tail of a tool result, within the cap."""
        text, stride = entry.text, max(1, self.cap_tokens * 4 // STRIDES)
        room_tokens = self.cap_tokens - self.counter.entry(replace(entry, text=self._gap(len(text), seq)))
        head_tokens = int(room_tokens * HEAD_FRACTION)
        head = self._fitting(text, range(0, len(text), stride), stride, head_tokens)
        tail = self._fitting(text, range(len(text) - stride, -stride, -stride), stride, room_tokens - head_tokens)
        tail = min(tail, len(text) - head)
        while True:
            shortened = replace(entry, text=self._around_gap(text, seq, head, tail))
            # Strides are counted singly; should they take more together than apart, an eighth goes.
            if head + tail == 0 or self.counter.entry(shortened) <= self.cap_tokens:
                return shortened
            head, tail = head * 7 // 8, tail * 7 // 8

    def pointer(self, entry: Entry, seq: int) -> Entry:
        """What stands for a trimmed entry: for a tool result the place of its text, for media their names."""
        if entry.kind is not EntryKind.TOOL_RESULT:
            return replace(entry, text=entry.readable, media=())
        short = replace(entry, text=f"[{len(entry.text)} characters left out to save room{self._where(seq)}]")
        return replace(short, text=short.readable, media=())

    def marker(self, first_seq: int, last_seq: int) -> Entry:
        """What stands for the entries *first_seq* … *last_seq* that a trim leaves out."""
        how = f" Read them again, one by one, with {READ_ITEM}." if self.history_tool else ""
        return Entry.record(
            f"[Entries {first_seq}-{last_seq} of this conversation are not shown here, to save room.{how}]"
        )

    def largest_marker_tokens(self) -> int:
        """Tokens of the longest marker of any session."""
        return _largest_marker_tokens(self)

    def _around_gap(self, text: str, seq: int, head: int, tail: int) -> str:
        return text[:head] + self._gap(len(text) - head - tail, seq) + text[len(text) - tail :]

    def _gap(self, left_out: int, seq: int) -> str:
        return f"\n[… {left_out} characters left out{self._where(seq)} …]\n"

    def _where(self, seq: int) -> str:
        return f"; the whole is entry {seq}, read it with {READ_ITEM}" if self.history_tool else ""

    def _fitting(self, text: str, starts: Iterable[int], stride: int, room_tokens: int) -> int:
        """How many characters the strides of *text* from *starts* on take that fit *room_tokens* together."""
        taken = 0
        for start in starts:
            piece = text[max(0, start) : start + stride]
            room_tokens -= self.counter.text(_escaped(piece))
            if room_tokens < 0:
                break
            taken += len(piece)
        return taken


@lru_cache(maxsize=256)
def _projected(projection: Projection, entry: Entry, seq: int) -> Entry:
    """Remembered, since a long result is sent again in each request of its session. Media are not: they are large, and
    soon counted."""
    return projection.capped(entry, seq)


@lru_cache(maxsize=64)
def _largest_marker_tokens(projection: Projection) -> int:
    """Remembered, since it is asked for each message that is accepted."""
    return projection.counter.entry(projection.marker(*LARGEST_SPAN))


def sent_size(entry: Entry, cap_tokens: int, counter: Counter) -> int:
    """Tokens of an entry as it is sent, at most: a result above *cap_tokens* counts for the cap."""
    if entry.kind is not EntryKind.TOOL_RESULT or not exceeds(entry, cap_tokens, counter):
        return counter.entry(entry)
    # A call id may be longer than a cap by itself; it is sent all the same.
    barest, entry = Projection(counter, 0), with_room_for_text(entry, cap_tokens, counter)
    return max(cap_tokens, counter.entry(replace(entry, text=barest._gap(len(entry.text), LARGEST_SPAN[1]))))


def with_room_for_text(entry: Entry, cap_tokens: int, counter: Counter) -> Entry:
    """A result above the cap before its text is shortened: media that leave it less than half are only named in it."""
    if not entry.media or counter.media(entry.media) <= cap_tokens // 2:
        return entry
    return replace(entry, text=entry.readable, media=())


def exceeds(entry: Entry, cap_tokens: int, counter: Counter) -> bool:
    """Whether a whole entry takes more than *cap_tokens*, without counting more of it than that takes."""
    if is_surely_within(entry, cap_tokens):
        return False
    if entry.media and counter.media(entry.media) > cap_tokens:
        return True
    enough = cap_tokens * ENOUGH_CHARACTERS_PER_TOKEN
    if len(entry.text) > enough and counter.text(_escaped(entry.text[:enough])) > cap_tokens:
        return True
    return counter.entry(entry) > cap_tokens


def is_surely_within(entry: Entry, cap_tokens: int) -> bool:
    """Whether a look at its length is enough: no token is shorter than a byte. Asked for each result in each request,
    so most are judged without being serialised."""
    if entry.media or len(entry.text) > cap_tokens:
        return False
    written_characters = len(entry.text) + len(entry.tool_call_id or "")
    if FRAME_BYTES + WIDEST_CHARACTER_BYTES * written_characters <= cap_tokens:
        return True
    return len(message_json(entry).encode()) <= cap_tokens


def _escaped(text: str) -> str:
    """*text* as it stands in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
