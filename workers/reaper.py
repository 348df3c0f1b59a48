"""Looks for what is due and was not done: lost hints, dead workers, retries, expired waits. Lives in every worker."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping

from sessionlib.stores.contract import DueItem, DueKind, SessionStore
from workers.dispatch import (
    CAPTURE,
    CLOSE_CALLS,
    DISPOSE,
    LET_GO,
    PUBLISH,
    PURGE,
    RUN_DIGEST,
    RUN_HANDOFF,
    RUN_ROTATION,
    RUN_TURN,
    Dispatch,
)

log = logging.getLogger(__name__)

HINTS: Mapping[DueKind, Callable[[DueItem], tuple[str, dict[str, str]]]] = {
    DueKind.TURN: lambda item: (RUN_TURN, {"session_id": item.session_id, "turn_id": item.id}),
    DueKind.ROTATION: lambda item: (RUN_ROTATION, {"session_id": item.session_id, "rotation_id": item.id}),
    DueKind.HANDOFF: lambda item: (RUN_HANDOFF, {"session_id": item.session_id, "job_id": item.id}),
    DueKind.DIGEST: lambda item: (RUN_DIGEST, {"session_id": item.session_id, "job_id": item.id}),
    DueKind.CAPTURE: lambda item: (CAPTURE, {"session_id": item.session_id}),
    DueKind.PUBLICATION: lambda item: (PUBLISH, {"session_id": item.session_id}),
    DueKind.DISPOSAL: lambda item: (DISPOSE, {"session_id": item.session_id}),
    DueKind.ORPHAN: lambda item: (LET_GO, {"session_id": item.session_id, "orphan_id": item.id}),
    DueKind.OPEN_CALLS: lambda item: (CLOSE_CALLS, {"session_id": item.session_id}),
    DueKind.RETENTION: lambda item: (PURGE, {"session_id": item.session_id}),
}
"""What is sent for a due thing: ids only."""


def sweep(store: SessionStore, dispatch: Dispatch) -> int:
    """Send a hint for every overdue thing; how many. A swept thing is not due for a while: workers may all sweep."""
    partitions = list(range(store.partition_count))
    random.shuffle(partitions)  # so that the sweeps of many workers do not march in step
    count = 0
    for partition in partitions:
        for item in store.due(partition):
            task, ids = HINTS[item.kind](item)
            dispatch.send(task, **ids)
            count += 1
    return count


class Reaper:
    """Sweeps every *interval_seconds* on a thread of its own, for as long as the process lives."""

    def __init__(self, store: SessionStore, dispatch: Dispatch, interval_seconds: float) -> None:
        self._store, self._dispatch, self._interval_seconds = store, dispatch, interval_seconds
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="reaper", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                count = sweep(self._store, self._dispatch)
            except Exception as exc:  # noqa: BLE001 - recovery must not end with one sweep
                log.warning("sweep failed", extra={"error": getattr(exc, "code", type(exc).__name__)})
                continue
            if count:
                log.info("overdue work sent again", extra={"count": count})
