"""What models endpoints say of windows: asked in the background, so that no turn waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from sessionlib.errors import SessionError

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 600.0
"""When a provider that could not be asked is asked again."""

Ask = Callable[[], int | None]
"""Asks an endpoint for a window, in tokens. Raises ProviderError."""


class WindowReports:
    """Windows by provider and model, each asked for once a process. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: dict[Hashable, int | None] = {}
        self._asked_at: dict[Hashable, float] = {}
        self._asking: dict[Hashable, threading.Thread] = {}

    def tokens(self, key: Hashable, ask: Ask, wait_seconds: float = 0.0) -> int | None:
        """What is known by now, or at most *wait_seconds* later, in tokens; None if nothing is, or not yet."""
        with self._lock:
            asked_at = self._asked_at.get(key)
            if asked_at is None or (key not in self._known and self._clock() - asked_at >= ASK_AGAIN_SECONDS):
                self._asked_at[key] = self._clock()
                asking = threading.Thread(target=self._learn, args=(key, ask), name="window-report", daemon=True)
                self._asking[key] = asking
                asking.start()
            asking = self._asking[key]
        if wait_seconds:
            asking.join(wait_seconds)
        return self._known.get(key)

    def _learn(self, key: Hashable, ask: Ask) -> None:
        try:
            tokens = ask()
        except SessionError as exc:
            log.info("a provider does not say how large its window is", extra={"code": exc.code})
            return
        except Exception as exc:  # noqa: BLE001 - providers are anybody's code, and nobody waits for this
            log.warning("a provider's window cannot be asked for", extra={"error": type(exc).__name__})
            return
        with self._lock:
            self._known[key] = tokens
