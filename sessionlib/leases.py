"""Keeps the leases of a process's work alive: one thread renews them all, for as long as there are any."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sessionlib.errors import LeaseLost, StoreError, StoreUnavailable
from sessionlib.stores.contract import Grant, SessionStore

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3
"""Two renewals may fail before a lease runs out."""


class HeldLease:
    """A lease that this process holds, until it is told otherwise."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self._lost = threading.Event()

    @property
    def is_lost(self) -> bool:
        """Whether the store refused a renewal: the work is another's, ended, or past its deadline."""
        return self._lost.is_set()

    def lose(self) -> None:
        self._lost.set()


class Leases:
    """All leases of one process. `hold` is a `sessionlib.running.Hold`."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._held: set[HeldLease] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def hold(self, grant: Grant) -> Iterator[HeldLease]:
        """Renew *grant* inside the block."""
        held = HeldLease(grant)
        with self._lock:
            self._held.add(held)
            if self._thread is None or not self._thread.is_alive():  # a forked child has the object, not the thread
                self._thread = threading.Thread(target=self._renew_while_held, name="leases", daemon=True)
                self._thread.start()
        try:
            yield held
        finally:
            with self._lock:
                self._held.discard(held)

    def release_all(self) -> int:
        """Give every lane back, for another worker to go on at once; how many there were. For the end of a process."""
        held = self._snapshot()
        for lease in held:
            try:
                self._store.release(lease.grant)
            except StoreError:
                break  # the leases run out by themselves
        return len(held)

    def _snapshot(self) -> tuple[HeldLease, ...]:
        with self._lock:
            return tuple(self._held)

    def _renew_while_held(self) -> None:
        interval_seconds = self._store.limits.lease_seconds / RENEWALS_PER_LEASE
        while True:
            time.sleep(interval_seconds)
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
            self._renew_all()

    def _renew_all(self) -> None:
        for lease in self._snapshot():
            try:
                self._renew(lease)
            except StoreUnavailable as exc:
                log.warning("leases not renewed", extra={"error": exc.code})
                return  # the others would only wait as long for the same answer

    def _renew(self, lease: HeldLease) -> None:
        if lease.is_lost:
            return
        try:
            self._store.renew(lease.grant)
        except LeaseLost:
            lease.lose()
        except StoreUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 - whatever it was, all other leases need this thread
            error = getattr(exc, "code", type(exc).__name__)
            log.warning("lease not renewed", extra={"session_id": lease.grant.session_id, "error": error})
