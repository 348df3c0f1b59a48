"""What a process remembers of the sessions that it served: read from the store only what is new since."""

from __future__ import annotations

import threading
from collections import OrderedDict

from sessionlib.stores.contract import Snapshot

CACHE_TOKENS = 20_000_000
"""What a process remembers at most, in tokens of live history and records: about 100 MB of text."""


class SnapshotCache:
    """The most recently used snapshots, up to a size. The store decides by their tokens whether they still hold."""

    def __init__(self, capacity_tokens: int = CACHE_TOKENS) -> None:
        self._capacity_tokens = capacity_tokens
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._tokens = 0
        self._lock = threading.Lock()

    def get(self, session_id: str) -> Snapshot | None:
        with self._lock:
            return self._snapshots.get(session_id)

    def put(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._drop(snapshot.session_id)
            self._snapshots[snapshot.session_id] = snapshot
            self._tokens += _size(snapshot)
            while self._tokens > self._capacity_tokens and len(self._snapshots) > 1:
                self._drop(next(iter(self._snapshots)))

    def _drop(self, session_id: str) -> None:
        old = self._snapshots.pop(session_id, None)
        if old is not None:
            self._tokens -= _size(old)


def _size(snapshot: Snapshot) -> int:
    return max(1, snapshot.layout.conversation_tokens)
