"""What a worker process works with, built on first use: after the fork, never at import."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from functools import cache, partial

from sessionlib.catalog import Catalog
from sessionlib.leases import Leases
from sessionlib.running import Engine, Observe, Streams
from sessionlib.stores.contract import SessionStore
from workers.app import app
from workers.dispatch import CeleryDispatch, Dispatch, send_hints
from workers.settings import Settings
from workers.snapshots import SnapshotCache
from workers.store import RedisStore

_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The collaborators of a worker's flows; tests hand in others."""

    settings: Settings
    store: SessionStore
    catalog: Catalog
    dispatch: Dispatch
    leases: Leases
    snapshots: SnapshotCache
    streams: Streams = field(default_factory=Streams)

    def engine(self, observe: Observe) -> Engine:
        """The flows of `sessionlib.running` with these parts; *observe* hears of their phases."""
        announce = partial(send_hints, self.dispatch)
        return Engine(self.store, self.catalog, self.leases.hold, observe, announce, self.streams)


def parts() -> Parts:
    """This process's parts, the same for all its threads. Raises InvalidInput for a bad setting or agents file."""
    with _lock:
        return _build()


@cache
def _build() -> Parts:
    settings = Settings.read()
    store = RedisStore.connect(settings)
    return Parts(
        settings=settings,
        store=store,
        catalog=settings.catalog(),
        dispatch=CeleryDispatch(app),
        leases=Leases(store),
        snapshots=SnapshotCache(),
        streams=Streams(settings.stream_milliseconds),
    )


def _forget() -> None:
    """A forked child builds its own: connections are not shared between processes."""
    global _lock
    _lock = threading.Lock()
    _build.cache_clear()


os.register_at_fork(after_in_child=_forget)
