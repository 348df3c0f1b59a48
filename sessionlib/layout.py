"""Record and Layout: what a provider session must be seeded with, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.tokens import Counter
from sessionlib.transcript import Transcript


class Method(StrEnum):
    """How a record's text came to be accepted."""

    NORMAL = "normal"
    TERSE = "terse"
    EXTRACTIVE = "extractive"


class Level(StrEnum):
    """How hard the window presses, where a policy tells: the higher, the less is kept (spec/tiers A15)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class RecordKind(StrEnum):
    """What a record's text is."""

    SUMMARY = "summary"
    """Consolidated by a summarizer."""
    OPENING = "opening"
    """The opening of a fresh window: where it stands, and the notes that the model left itself (spec/work-room B3)."""
    LEDGER = "ledger"
    """What was done, line by line, without a model (B6). It has a quota of its own, and no policy ages it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Consolidated text that stands for the entries `first_seq … last_seq`."""

    first_seq: int
    last_seq: int
    text: str
    tokens: int
    """Tokens of the record as it is seeded, label and framing included."""
    kind: RecordKind = RecordKind.SUMMARY
    tier: int = 1
    rewrite_count: int = 1
    """How many summarizer calls the oldest of its content went through."""
    method: Method = Method.NORMAL
    source_tokens: int = 0
    """Tokens of what was consolidated into it."""
    unsupported_values: tuple[str, ...] = ()
    """Identifiers and numbers that occur in the text and nowhere in what it was made from."""
    level: Level | None = None
    """The level of the rotation that left it as the newest record; None where the policy has no levels."""
    rotated_seq: int = 0
    """The newest entry that this rotation saw; 0 where the policy has no levels."""

    def __post_init__(self) -> None:
        if self.level is not None and not isinstance(self.level, Level):
            raise InvalidInput("level", self.level, "must be one of Level")
        if not isinstance(self.kind, RecordKind):
            raise InvalidInput("kind", self.kind, "must be one of RecordKind")
        if self.tier < 1:
            raise InvalidInput("tier", self.tier, "must be at least 1")
        if not 1 <= self.first_seq <= self.last_seq:
            raise InvalidInput("first_seq", (self.first_seq, self.last_seq), "must be a span of entries, oldest first")
        if not self.text.strip():
            raise InvalidInput("text", self.text, "must not be blank")


@dataclass(frozen=True, slots=True)
class Carried:
    """The input of the running turn, kept in the window after its entry left it."""

    seq: int
    entry: Entry
    tokens: int


@dataclass(frozen=True)
class Layout:
    """Records oldest first, a carried input, live entries: the whole of a session's window."""

    records: tuple[Record, ...] = ()
    carried: Carried | None = None
    live: Transcript = field(default_factory=Transcript)

    @property
    def record_tokens(self) -> int:
        return sum(record.tokens for record in self.records)

    @property
    def conversation_tokens(self) -> int:
        """Tokens of the seed: everything but instructions and tool declarations."""
        return self.record_tokens + (self.carried.tokens if self.carried else 0) + self.live.tokens

    def with_live(self, live: Transcript) -> Layout:
        return replace(self, live=live)


def seed_label(tier: int, kind: RecordKind = RecordKind.SUMMARY) -> str:
    """The line that precedes a record in a seed: 91 characters for a summary of a one-digit tier (spec/tiers A5), fewer
    for the other kinds."""
    match kind:
        case RecordKind.OPENING:
            return "Opening of a fresh window; what it stands for is archived:\n"
        case RecordKind.LEDGER:
            return "Activity so far, noted down without a model:\n"
        case RecordKind.SUMMARY:
            return f"Consolidated record, detail level {tier} (a higher level is coarser and covers older material):\n"


def span_line(first_seq: int, last_seq: int) -> str:
    """Names the entries that a record stands for, for an agent that can read them again."""
    return f"[entries {first_seq}-{last_seq}]\n"


SEEDED_RECORDS = 4_096
"""Seeded records that a process remembers: a few megabytes of text, the windows of some hundred busy sessions."""

LARGEST_SPAN = (999_999_999, 999_999_999)
"""A span whose line is as long as any session's will be: nine digits are a billion entries."""


def framing_tokens(counter: Counter, *, show_span: bool) -> int:
    """Tokens that a seeded record takes beyond its text: 27 by the characters counter, without span (spec/tiers A5)."""
    key: Any = counter  # hashable as any object, which its protocol does not say
    return _framing_tokens(key, show_span)


@lru_cache(maxsize=64)
def _framing_tokens(counter: Counter, show_span: bool) -> int:
    span = span_line(*LARGEST_SPAN) if show_span else ""
    return counter.entry(Entry.record(f"{seed_label(1)}{span}"))


@lru_cache(maxsize=SEEDED_RECORDS)
def seeded_record(record: Record, *, show_span: bool) -> Entry:
    """The entry under which a record is sent. Remembered: a session has the more records the longer its history, and
    sends each of them in each of its requests."""
    span = span_line(record.first_seq, record.last_seq) if show_span else ""
    return Entry.record(f"{seed_label(record.tier, record.kind)}{span}{record.text}")


def make_record(
    counter: Counter,
    text: str,
    first_seq: int,
    last_seq: int,
    *,
    show_span: bool,
    kind: RecordKind = RecordKind.SUMMARY,
    tier: int = 1,
    rewrite_count: int = 1,
    method: Method = Method.NORMAL,
    source_tokens: int = 0,
    unsupported_values: tuple[str, ...] = (),
) -> Record:
    """A record with its seeded size counted."""
    span = span_line(first_seq, last_seq) if show_span else ""
    seeded = Entry.record(f"{seed_label(tier, kind)}{span}{text}")
    return Record(
        first_seq=first_seq,
        last_seq=last_seq,
        text=text,
        tokens=counter.entry(seeded),
        kind=kind,
        tier=tier,
        rewrite_count=rewrite_count,
        method=method,
        source_tokens=source_tokens,
        unsupported_values=unsupported_values,
    )
