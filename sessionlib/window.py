"""The window: its figures, and what of a layout is sent within them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from typing import Protocol

from sessionlib.bands import Bands
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InputTooLarge
from sessionlib.layout import Layout, seeded_record
from sessionlib.projection import Projection, is_surely_within, sent_size
from sessionlib.repair import Item, paired
from sessionlib.stores.contract import Trim
from sessionlib.tokens import Counter
from sessionlib.transcript import round_starts

LIMIT_FRACTION = 0.90
"""Share of the effective window that a request may take before the output reserve is taken off (DESIGN 5)."""

TRIM_FRACTION = 0.8
"""Share of the limit that a trim shortens a request to (DESIGN 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A window and what is always in it, in tokens of the agent's counter."""

    window_tokens: int
    fixed_tokens: int
    output_reserve_tokens: int

    @property
    def effective_tokens(self) -> int:
        return self.window_tokens - self.fixed_tokens

    @property
    def limit_tokens(self) -> int:
        """What the conversation part of a request may take at most."""
        return math.floor(self.effective_tokens * LIMIT_FRACTION) - self.output_reserve_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The figures of one agent's window, in tokens of its counter. Made by `Agent.budgets(calibration)`.

    A provider's window is in its own tokens; dividing it by the calibration gives these.
    """

    window_tokens: int
    fixed_tokens: int
    """Instructions and tool declarations."""
    line_tokens: int
    """Conversation tokens from which a rotation is requested."""
    limit_tokens: int
    """What the conversation part of a request may take at most."""
    trim_tokens: int
    """What a trim shortens it to."""
    tail_tokens: int
    """What a rotation leaves verbatim."""
    stretched_tail_tokens: int
    """What the tail may take to hold the last two rounds."""
    record_tokens: int
    """All records as seeded."""
    result_cap_tokens: int
    """A tool result above this is sent as head, tail and pointer."""
    tier_tokens: tuple[int, ...] = ()
    """Budgets by tier, tier 0 first, where the policy has tiers."""
    ledger_tokens: int = 0
    """The ledger as it is seeded, beside all other records; 0: the agent has none."""
    bands: Bands | None = None
    """Where the policy begins fresh windows: its line is their hard limit."""

    @property
    def effective_tokens(self) -> int:
        return self.window_tokens - self.fixed_tokens

    def without(self, tokens: int) -> Budgets:
        """With *tokens* of a request kept free for something else."""
        return replace(self, limit_tokens=self.limit_tokens - tokens, trim_tokens=self.trim_tokens - tokens)


def rotation_line(effective_tokens: int, fraction: float) -> int:
    """Conversation tokens from which a rotation is due: rounded down, at least one (spec/tiers A9)."""
    return max(1, math.floor(effective_tokens * fraction))


class Budgeted(Protocol):
    """An agent, as far as its window is concerned."""

    def budgets(self, counter: Counter, calibration: float = 1.0) -> Budgets: ...


def sent_sizes(entries: Iterable[Entry], budgets: Budgets, counter: Counter) -> tuple[int, ...]:
    """The size of each entry as it is sent, in tokens."""
    return tuple(sent_size(entry, budgets.result_cap_tokens, counter) for entry in entries)


def require_fits(entry: Entry, agent: Budgeted, counter: Counter) -> None:
    """Refuse an input that fits no request, not even alone with the markers of a trim. Raises InputTooLarge."""
    budgets = agent.budgets(counter)
    markers_tokens = 2 * Projection(counter, budgets.result_cap_tokens).largest_marker_tokens()
    if is_surely_within(entry, budgets.limit_tokens - markers_tokens):
        return
    input_tokens = counter.entry(entry)
    if input_tokens + markers_tokens > budgets.limit_tokens:
        raise _too_large(input_tokens, budgets)


def narrowed(budgets: Budgets, ratio: float) -> Budgets:
    """The limits where the provider counts *ratio* times as many tokens as *budgets* were made for."""
    reserve_tokens = math.floor(budgets.effective_tokens * LIMIT_FRACTION) - budgets.limit_tokens
    room = Room(
        window_tokens=math.floor(budgets.window_tokens / ratio),
        fixed_tokens=budgets.fixed_tokens,
        output_reserve_tokens=reserve_tokens,
    )
    limit_tokens = max(1, room.limit_tokens)
    line_tokens = max(1, min(math.floor(budgets.line_tokens / ratio), limit_tokens))
    return replace(
        budgets,
        window_tokens=room.window_tokens,
        line_tokens=line_tokens,
        bands=budgets.bands.within(line_tokens) if budgets.bands else None,
        limit_tokens=limit_tokens,
        trim_tokens=math.floor(limit_tokens * TRIM_FRACTION),
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """The conversation part of a request, in wire order."""

    entries: tuple[Entry, ...]
    seqs: tuple[int, ...]
    """For each entry its sequence number; 0 for records and markers."""
    tokens: int

    def ending_with(self, entry: Entry, seq: int, tokens: int) -> Sent:
        """With one more entry at the end; *seq* is that of the next entry, which no provider session has."""
        return Sent((*self.entries, entry), (*self.seqs, seq), self.tokens + tokens)

    def held_count(self, next_seq: int) -> int:
        """How many leading entries a provider session has that holds all before *next_seq*."""
        return sum(1 for seq in self.seqs if seq < next_seq)


def build_entries(layout: Layout, trim: Trim, projection: Projection) -> Sent:
    """What is sent of *layout* under *trim*: records oldest first, carried input, live entries.

    Depends on nothing else, so that a request extends the one before it until layout or trim change.
    """
    return _Seed(layout, projection).sent(trim)


def fit(layout: Layout, trim: Trim, budgets: Budgets, projection: Projection) -> tuple[Sent, Trim]:
    """What is sent of *layout* (the entries of this request at its end) within the limit, and the trim it took.

    *trim* stays as it is unless the limit is crossed; then it grows until the request is down to `trim_tokens`.
    Raises InputTooLarge if even the input alone is above the limit.
    """
    seed = _Seed(layout, projection)
    if seed.tokens(trim) > budgets.limit_tokens:
        trim = _grown(seed, trim, budgets)
    return seed.sent(trim), trim


def _grown(seed: _Seed, trim: Trim, budgets: Budgets) -> Trim:
    """The gentlest trim beyond *trim* that is enough.

    What the model has seen already goes first, with room to spare; what it has not seen only as far as it must.
    """
    gentle, harsh = (seed.older_pointers, seed.older_drops), (seed.newest_pointers, seed.no_records, seed.no_newest)
    for steps, enough_tokens in ((gentle, budgets.trim_tokens), (harsh, budgets.limit_tokens)):
        for step in steps:
            for harsher in step(trim):
                trim = harsher
                if seed.tokens(trim) <= enough_tokens:
                    return trim
        if seed.tokens(trim) <= budgets.limit_tokens:
            return trim
    raise _too_large(seed.tokens(trim), budgets)


@lru_cache(maxsize=10_000)
def _small_size(projection: Projection, entry: Entry) -> int:
    """Size of a pointer or marker. Remembered, since each is sent again in each request of its session."""
    return projection.counter.entry(entry)


def _too_large(input_tokens: int, budgets: Budgets) -> InputTooLarge:
    return InputTooLarge(input_tokens, budgets.fixed_tokens, budgets.limit_tokens + budgets.fixed_tokens)


class _Seed:
    """A layout, weighed: what any trim of it sends, and which trims there are. Positions count live entries from 0."""

    def __init__(self, layout: Layout, projection: Projection) -> None:
        self._layout, self._projection = layout, projection
        live = layout.live
        raw = [Item(live.first_seq + i, *pair) for i, pair in enumerate(zip(live.entries, live.sizes, strict=True))]
        self._items = paired([item for item in raw if projection.sends(item.entry)], projection)
        self._seqs = [item.seq for item in self._items]
        self._sums = list(accumulate((item.tokens for item in self._items), initial=0))

    @cached_property
    def _pointers(self) -> list[Item]:
        """Each item as it is sent when pointers reach it; itself where a pointer would save nothing."""
        return [self._pointer(item) for item in self._items]

    @cached_property
    def _pointer_sums(self) -> list[int]:
        return list(accumulate((item.tokens for item in self._pointers), initial=0))

    @cached_property
    def _cuts(self) -> list[int]:
        """Positions before which everything may be dropped: where a round begins, so between no call and its result."""
        return [position for position in round_starts([item.entry for item in self._items]) if position > 0]

    @property
    def _newest(self) -> int:
        """Where the newest round begins: the model has not seen its results, or its input, yet."""
        return self._cuts[-1] if self._cuts else 0

    def _pointer(self, item: Item) -> Item:
        if item.entry.kind is not EntryKind.TOOL_RESULT and not item.entry.media:
            return item
        entry = self._projection.pointer(item.entry, item.seq)
        is_small = entry.kind is EntryKind.TOOL_RESULT
        tokens = _small_size(self._projection, entry) if is_small else self._projection.counter.entry(entry)
        return Item(item.seq, entry, tokens) if tokens < item.tokens else item

    def tokens(self, trim: Trim) -> int:
        """Tokens of the conversation under *trim*."""
        dropped, pointed = self._frontiers(trim)
        head = self._records(trim) + self._carried() + self._instead(dropped)
        tokens = sum(item.tokens for item in head) + self._sums[-1] - self._sums[pointed]
        return tokens + (self._pointer_sums[pointed] - self._pointer_sums[dropped] if pointed > dropped else 0)

    def sent(self, trim: Trim) -> Sent:
        """The conversation under *trim*."""
        dropped, pointed = self._frontiers(trim)
        head = [*self._records(trim), *self._carried(), *self._instead(dropped)]
        short = self._pointers[dropped:pointed] if pointed > dropped else []
        items = [*head, *short, *self._items[pointed:]]
        return Sent(
            entries=tuple(self._projection.project(item.entry, item.seq) for item in items),
            seqs=tuple(item.seq for item in items),
            tokens=sum(item.tokens for item in items),
        )

    def _frontiers(self, trim: Trim) -> tuple[int, int]:
        """Position of the first entry that is not dropped, and of the first after it that is sent whole."""
        dropped = bisect_left(self._seqs, trim.dropped_before_seq)
        return dropped, max(dropped, bisect_left(self._seqs, trim.pointers_before_seq))

    def _records(self, trim: Trim) -> list[Item]:
        records = self._layout.records
        if trim.records_dropped and records:
            return [self._marker(records[0].first_seq, records[-1].last_seq)]
        show_span = self._projection.history_tool
        return [Item(0, seeded_record(record, show_span=show_span), record.tokens) for record in records]

    def _carried(self) -> list[Item]:
        carried = self._layout.carried
        return [Item(carried.seq, carried.entry, carried.tokens)] if carried else []

    def _instead(self, dropped: int) -> list[Item]:
        """What stands for the entries before position *dropped*: a marker, and the message that began the turn which
        the cut runs through, if it does: what the agent was asked is always in its window."""
        if not dropped:
            return []
        marker = self._marker(self._seqs[0], self._seqs[dropped - 1])
        if dropped < len(self._items) and self._items[dropped].entry.kind is EntryKind.USER:
            return [marker]
        asked = (item for item in reversed(self._items[:dropped]) if item.entry.kind is EntryKind.USER)
        return [marker, *islice(asked, 1)]

    def _marker(self, first_seq: int, last_seq: int) -> Item:
        entry = self._projection.marker(first_seq, last_seq)
        return Item(0, entry, _small_size(self._projection, entry))

    def older_pointers(self, trim: Trim) -> Iterator[Trim]:
        return self._pointer_trims(trim, 0, self._newest)

    def newest_pointers(self, trim: Trim) -> Iterator[Trim]:
        return self._pointer_trims(trim, self._newest, len(self._items))

    def _pointer_trims(self, trim: Trim, first: int, end: int) -> Iterator[Trim]:
        """Trims that turn one more result of a stretch, or the media of a message that was answered, into its pointer,
        the oldest first."""
        dropped, pointed = self._frontiers(trim)
        for position in range(max(first, dropped, pointed), end):
            is_unanswered = position >= self._newest and self._items[position].entry.kind is EntryKind.USER
            if self._pointers[position] is not self._items[position] and not is_unanswered:
                yield replace(trim, pointers_before_seq=self._seqs[position] + 1)

    def older_drops(self, trim: Trim) -> Iterator[Trim]:
        """Trims that drop one more exchange, the oldest first, up to the newest round."""
        dropped, _ = self._frontiers(trim)
        for cut in self._cuts:
            if cut > dropped:
                yield replace(trim, dropped_before_seq=self._seqs[cut])

    def no_records(self, trim: Trim) -> Iterator[Trim]:
        if self._layout.records and not trim.records_dropped:
            yield replace(trim, records_dropped=True)

    def no_newest(self, trim: Trim) -> Iterator[Trim]:
        """Even the newest round leaves, all of it, unless it is the input itself."""
        if self._items and self._items[-1].entry.kind is not EntryKind.USER:
            yield replace(trim, dropped_before_seq=self._seqs[-1] + 1)
