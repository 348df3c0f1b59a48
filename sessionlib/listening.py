"""Hands the text of a streamed turn to whoever sent it, in the thread that waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessionlib.deltas import Delta, Shown
from sessionlib.stores.contract import SessionStore

OnDelta = Callable[[Delta], object]


class Listener:
    """One caller's. It hears of each piece at once if its own thread runs the turn, and else reads the turn's events;
    both tell it of the same text, which it hands on once."""

    def __init__(self, turn_id: str, on_delta: OnDelta) -> None:
        self.turn_id, self._on_delta = turn_id, on_delta
        self._shown, self._after = Shown(), ""
        self._error: Exception | None = None

    def hear(self, kind: str, data: Mapping[str, Any]) -> None:
        """Hand on what an event adds. Never raises: the turn is not to blame for what becomes of its text."""
        if self._error is not None:
            return
        try:
            for delta in self._shown.take(kind, data):
                self._on_delta(delta)
        except Exception as exc:  # noqa: BLE001 - the caller's own, raised again by `finish`
            self._error = exc

    def read(self, store: SessionStore, session_id: str) -> None:
        """Hear of the turn's new events."""
        for event in store.events(session_id, self.turn_id, self._after):
            self._after = event.id
            self.hear(event.kind, event.data)

    def finish(self) -> None:
        """Raise what the caller's function raised; it was not called after that."""
        if self._error is not None:
            raise self._error
