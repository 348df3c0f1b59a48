"""How a caller's hints reach the broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import redis
from kombu import pools

from sessionlib.agent import Agent
from workers.client import Sessions
from workers.embedded import EmbeddedServer
from workers.settings import Settings

THREADS = 20


def test_callers_threads_send_their_first_hints_at_once(valkey: EmbeddedServer, namespace: str) -> None:
    """Many threads submit their first turns at once: every hint is sent, and the limit of the pools that other Celery
    apps of the process use is left alone."""
    limit = pools.get_limit()  # type: ignore[no-untyped-call]
    settings = Settings(store_url=valkey.url, namespace=namespace, partitions=1)
    with Sessions.connect(settings=settings) as sessions, ThreadPoolExecutor(THREADS) as threads:
        agent = Agent(name="a", model="m", window_tokens=8_000)
        opened = [sessions.open(f"s{number}", agent) for number in range(THREADS)]
        list(threads.map(lambda session: session.submit("hello"), opened))
        with redis.Redis.from_url(valkey.url) as client:
            assert client.llen(f"{namespace}:turns") == THREADS
    assert pools.get_limit() == limit  # type: ignore[no-untyped-call]
