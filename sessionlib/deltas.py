"""An answer as it comes: what a streamed turn's events say of its text, and what a reader should show of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DELTA = "delta"
"""Kind of the event with a piece of text: `round`, `attempt`, `at` (characters of the attempt before it), `text`. Those
of a turn go when it ends: its last event has the whole answer."""

RESTARTED = "restarted"
"""Kind of the event that declares void what was shown of a round: `round`, `attempt` (the one that begins)."""

STREAM_MILLISECONDS = 50.0
"""Pause between two events with text of one stream: twenty a second read as a flow, and cost a store less than one for
each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer's text. As text it is that piece."""

    text: str
    round: int
    """Which of the turn's model calls says it, from 0: text beside tool calls comes before the answer."""
    is_restart: bool = False
    """The round's text begins anew: what was shown of it is void. Without text."""

    def __str__(self) -> str:
        return self.text


class Shown:
    """What a reader has shown of a streamed turn: whatever events it is told of, each piece comes once and in order,
    and in the end all of the answer is there.

    One that reads on after an event (*is_resumed*) has shown what nobody here knows. Pieces that come next go on from
    it, since events have no gap. If the answer comes first, its pieces are gone: what was shown of it is void.
    """

    def __init__(self, *, is_resumed: bool = False) -> None:
        self._is_unknown = is_resumed
        """How much is shown: something may be, and no event has said yet where it ends."""
        self._round, self._attempt = -1, 0
        self._begins_at, self._ends_at = 0, 0
        self._pieces: list[str] = []
        """Characters `begins_at … ends_at` of the attempt: who begins to read in the middle has not all of it."""

    def take(self, kind: str, data: Mapping[str, Any]) -> Sequence[Delta]:
        """What an event adds; nothing for events that bring no text."""
        match kind:
            case "delta":
                return self._piece(data["round"], data["attempt"], data["at"], data["text"])
            case "restarted":
                return self._restarted(data["round"], data["attempt"])
            case "answered":
                return self._answered(data["answer"]["round_count"] - 1, data["answer"]["text"])
            case _:
                return ()

    def _piece(self, round: int, attempt: int, at: int, text: str) -> Sequence[Delta]:
        if (round, attempt) < (self._round, self._attempt):
            return ()
        void: Sequence[Delta] = ()
        if (round, attempt) != (self._round, self._attempt):
            void = (self._void(round),) if round == self._round and self._pieces else ()
            self._begin(round, attempt, at)
        if at > self._ends_at:  # there is a gap: the rest comes with the answer
            return void
        return (*void, *self._said(text[self._ends_at - at :]))

    def _restarted(self, round: int, attempt: int) -> Sequence[Delta]:
        if (round, attempt) <= (self._round, self._attempt):
            return ()
        self._begin(round, attempt, 0)
        return (self._void(round),)

    def _answered(self, round: int, text: str) -> Sequence[Delta]:
        void: Sequence[Delta] = (self._void(round),) if self._is_unknown else ()
        if round != self._round:
            self._begin(round, 1, 0)
        elif text[self._begins_at : self._ends_at] != "".join(self._pieces):
            void = (self._void(round),)
            self._begin(round, self._attempt + 1, 0)
        return (*void, *self._said(text[self._ends_at :]))

    def _begin(self, round: int, attempt: int, at: int) -> None:
        self._round, self._attempt = round, attempt
        self._begins_at = self._ends_at = at
        self._pieces = []
        self._is_unknown = False

    def _said(self, text: str) -> Sequence[Delta]:
        if not text:
            return ()
        self._pieces.append(text)
        self._ends_at += len(text)
        return (Delta(text=text, round=self._round),)

    def _void(self, round: int) -> Delta:
        return Delta(text="", round=round, is_restart=True)
