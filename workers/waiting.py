"""How one who waits for news bears with a store that is away for a while: it looks again until its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from sessionlib.errors import StoreUnavailable

LOOK_SECONDS = 5.0
"""How long a waiting caller relies on hints before it looks for itself: a hint may be lost."""
OUTAGE_SECONDS = 30.0
"""How long an outage is borne by one who waits without a timeout: a restart or a failover takes seconds."""
OUTAGE_LOOK_SECONDS = 1.0
"""How soon the store is looked for again while it is away. Hints that come back wake at once."""


class Waiting:
    """One wait: how long it has lasted, and whether the store is away meanwhile."""

    def __init__(self, timeout_seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """*timeout_seconds*: when the caller will wait no longer; None: only an outage ends the wait."""
        self._clock, self._begun = clock, clock()
        self._timeout_seconds = timeout_seconds
        self._away_since: float | None = None

    @property
    def waited_seconds(self) -> float:
        return self._clock() - self._begun

    @property
    def is_over(self) -> bool:
        """Whether the caller's timeout has passed."""
        return self._timeout_seconds is not None and self.waited_seconds >= self._timeout_seconds

    @property
    def pause_seconds(self) -> float:
        """How long to rely on hints now before looking again."""
        pause_seconds = LOOK_SECONDS if self._away_since is None else OUTAGE_LOOK_SECONDS
        if self._timeout_seconds is None:
            return pause_seconds
        return max(0.0, min(pause_seconds, self._timeout_seconds - self.waited_seconds))

    @contextmanager
    def through_outages(self) -> Generator[None]:
        """Swallow StoreUnavailable of a look inside the block, and raise it when there is no time for another look:
        the timeout has passed, or without one the outage has lasted OUTAGE_SECONDS."""
        try:
            yield
        except StoreUnavailable:
            now = self._clock()
            self._away_since = now if self._away_since is None else self._away_since
            is_too_long = self._timeout_seconds is None and now - self._away_since >= OUTAGE_SECONDS
            if self.is_over or is_too_long:
                raise
        else:
            self._away_since = None
