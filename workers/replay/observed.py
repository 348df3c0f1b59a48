"""What was seen of a replay, as values. Times are seconds since the epoch, all of one machine's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sessionlib.entries import Entry
from sessionlib.layout import Layout
from sessionlib.stores.contract import Trim

TURN_DIGITS = 4


class Place(NamedTuple):
    """A round of the session."""

    turn_id: str
    round: int


def turn_id_of(index: int) -> str:
    """The id of the turn at *index* (0 first): `turn-0001`, …"""
    return f"turn-{index + 1:0{TURN_DIGITS}d}"


def place_of(key: str) -> Place:
    """The round that a model call's idempotency key belongs to: `SESSION/TURN/model:ROUND`, or `…:ROUND:ATTEMPT`."""
    _, turn_id, step = key.rsplit("/", 2)
    return Place(turn_id, int(step.split(":")[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A call as the provider saw it: from its arrival to its answer."""

    kind: str
    """model, tool or consolidation."""
    key: str
    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @classmethod
    def read(cls, document: Mapping[str, Any], kind: str = "") -> Span:
        """From the provider's own words."""
        return cls(
            kind=kind or document["kind"], key=document["key"], started=document["started"], ended=document["ended"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRound:
    """A committed round, and what its request was built on."""

    place: Place
    epoch: int
    trim: Trim
    at: float
    """When it was committed."""
    is_nudged: bool = False
    """Its request ended with a nudge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTurn:
    """A turn as its caller saw it."""

    turn_id: str
    submitted_at: float
    answered_at: float
    answer: str | None
    """None if it ended without one."""
    started_at: tuple[float, ...] = ()
    """When workers took it up: more than once if one was killed."""
    rounds: tuple[PlayedRound, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL to a worker."""

    worker: str
    """front or background."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A request that did not extend the one before it, as the provider noticed."""

    key: str
    previous_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that a report is made of. Tokens are the provider's own count of the serialised requests."""

    window_tokens: int
    turns: tuple[PlayedTurn, ...]
    kills: tuple[Kill, ...] = ()
    spans: tuple[Span, ...] = ()
    """Model calls and tool runs of the session."""
    consolidations: tuple[Span, ...] = ()
    breaks: tuple[Break, ...] = ()
    break_count: int = 0
    """All breaks, also those that the provider no longer lists."""
    asked_again: Mapping[str, int]
    """How often a model call was asked for, by its key, where that was more than once."""
    largest_request_tokens: int = 0
    refused_count: int = 0
    """Requests above the window."""
    summarizer_tokens: int = 0
    archived: tuple[Entry, ...] = ()
    layout: Layout
    """The session's at its end."""
    rotations: tuple[Mapping[str, Any], ...] = ()
    """Figures of each adopted rotation."""
    version_changes: Sequence[float] = ()
    """When the session went over to another version of its agent."""

    @property
    def history(self) -> tuple[Entry, ...]:
        """What the store has of the session, oldest first: archive, then live entries."""
        return (*self.archived, *self.layout.live.entries)

    @property
    def rounds(self) -> tuple[PlayedRound, ...]:
        """All committed rounds, in order."""
        return tuple(played for turn in self.turns for played in turn.rounds)
