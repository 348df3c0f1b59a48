"""Callers who go on whatever happens to the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sessionlib.errors import AnswerTimeout, StoreUnavailable
from workers.client import ClientSession

PATIENCE_SECONDS = 60.0


class Caller(threading.Thread):
    """Sends one turn after the other; asks again with the same turn id when the store was away."""

    def __init__(self, session: ClientSession, message: Callable[[int], str]) -> None:
        """*message*: what to say in a turn, by its number."""
        super().__init__(name=session.session_id, daemon=True)
        self.session, self._message = session, message
        self.stopped = threading.Event()
        self.answered: list[str] = []
        """Messages of the turns whose answer this caller has in hand."""
        self.retry_count = 0
        self.fault: Exception | None = None

    @property
    def turn_ids(self) -> list[str]:
        return [f"t{number}" for number in range(len(self.answered))]

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                number = len(self.answered)
                message = self._message(number)
                self.send(message, f"t{number}")
                self.answered.append(message)
        except Exception as exc:  # noqa: BLE001 - shown by the test
            self.fault = exc

    def send(self, message: str, turn_id: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.session.send(message, turn_id=turn_id, timeout_seconds=PATIENCE_SECONDS)
                return
            except (StoreUnavailable, AnswerTimeout):
                self.retry_count += 1
                if time.monotonic() > deadline:
                    raise
