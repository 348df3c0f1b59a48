"""Contract of a store's end: what it took of its servers it gives back."""

from __future__ import annotations

import pytest
import redis

from tests.waiting import wait_for
from workers.connection import client_for
from workers.store import RedisStore


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
def test_closed_store_leaves_no_connection_behind(request: pytest.FixtureRequest, namespace: str, kind: str) -> None:
    """Its servers have as many clients as before it came, a cluster's each."""
    url = request.getfixturevalue(f"{kind}_url")
    with redis.Redis.from_url(url.replace("+cluster", "")) as watching:
        before = client_count(watching)
        store = RedisStore(client_for(url), namespace=namespace)
        store.check()
        assert client_count(watching) > before
        store.close_connections()
        wait_for(lambda: client_count(watching) == before, what="the server to notice")


def client_count(client: redis.Redis) -> int:
    return len(client.client_list())
