"""What a caller's process works with: the store, the broker, the hints, the agents that it knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessionlib.catalog import Catalog
from sessionlib.leases import Leases
from sessionlib.stores.contract import SessionStore
from workers.app import make_app
from workers.dispatch import CeleryDispatch, Dispatch, OneAtATime
from workers.hints import Hints
from workers.settings import Settings
from workers.store import RedisStore

CLIENT_CONNECTIONS = 8
"""Connections to the store of a process that calls, its subscription included, however many answers it awaits."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What a client is made of; tests hand in other parts."""

    store: SessionStore
    dispatch: Dispatch
    hints: Hints
    catalog: Catalog
    retention_seconds: float | None = None
    leases: Leases = field(init=False)
    """Of the turns that this process runs itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "leases", Leases(self.store))

    @classmethod
    def to(cls, settings: Settings) -> Connection:
        """Parts for *settings*; nothing is sent before the first call. Raises InvalidInput."""
        store = RedisStore.connect(settings, CLIENT_CONNECTIONS)
        dispatch = OneAtATime(CeleryDispatch(make_app(settings)))
        return cls(store, dispatch, Hints(store), settings.catalog(), settings.retention_seconds)

    def close(self) -> None:
        """End the subscription, the providers' connections and the store's."""
        self.hints.close()
        self.catalog.close()
        self.store.close_connections()
