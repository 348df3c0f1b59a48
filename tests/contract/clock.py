"""Time passes for a Redis store when a test says so: a server's clock cannot be set, what its scripts read of it can.

Nothing is waited for, so the times of a test may be so long that no pause of the machine uses them up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from redis.commands.core import Script

from workers.connection import Client
from workers.scripts import Scripts
from workers.store import RedisStore

CLOCK = "local NOW = tonumber(clock[1]) + tonumber(clock[2]) / 1e6"
"""The line of `workers/lua/_lib.lua` by which every script knows the time."""
AHEAD = ' + tonumber(call("GET", KEYS[1] .. ":ahead") or 0)'
"""What is added to it: KEYS[1] names the partition's due members, so that in a cluster both are on one server."""


@dataclass
class ServerClock:
    """A store's clock, ahead of its server's by what a test let pass."""

    store: RedisStore
    ahead_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        store = self.store
        store.scripts = Scripts(_Registrar(store.client), store.keys.hints, store.limits)  # type: ignore[arg-type]

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.ahead_seconds

    def advance(self, seconds: float) -> None:
        """Let that many seconds pass: for the scripts, and for the keys that the server itself lets go."""
        self.ahead_seconds += seconds
        for partition in range(self.store.partition_count):
            self.store.client.set(f"{self.store.keys.shared('due', partition)}:ahead", repr(self.ahead_seconds))
        self._age(seconds)

    def _age(self, seconds: float) -> None:
        client = self.store.client
        for key in client.scan_iter(match=f"{{{self.store.keys.namespace}:p*", count=1_000):
            left_ms = client.pttl(key)
            if left_ms >= 0:
                client.pexpire(key, max(0, left_ms - round(seconds * 1_000)))


@dataclass(frozen=True, slots=True)
class _Registrar:
    """Makes scripts whose clock may be ahead."""

    client: Client

    def register_script(self, source: str) -> Script:
        if CLOCK + AHEAD not in source:
            assert source.count(CLOCK) == 1 or "NOW" not in source, (
                "the scripts tell the time by another line: see CLOCK"
            )
            source = source.replace(CLOCK, CLOCK + AHEAD)
        return self.client.register_script(source)
