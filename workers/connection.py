"""How a process reaches the store: one client, one bounded pool, errors translated once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import ParseResult, unquote, urlparse

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from sessionlib.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable

Client = redis.Redis | redis.RedisCluster

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""The largest script takes milliseconds; a server that is silent for so long is gone or stopped."""
POOL_WAIT_SECONDS = 20.0
"""How long a thread waits for a free connection: longer than all retries of the one that holds it."""
HEALTH_CHECK_SECONDS = 30
"""A connection unused for so long is tried before it is used: firewalls drop silent ones."""
RETRIES = 3
RETRY_FIRST_SECONDS, RETRY_LAST_SECONDS = 0.05, 1.0
SENTINEL_PORT = 26_379
SENTINEL_OPTIONS = {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": 2.0, "socket_timeout": 2.0}
"""A Sentinel that is down or hangs is passed over: one of the others will do. Seconds."""

OLDEST_SERVER = (7, 0)
"""Script flags (`#!lua`) came with it. Valkey tells which Redis it is compatible with."""

UNAVAILABLE_PREFIXES = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY")
"""Error codes of a server that is there but takes no writes now (redis.io, protocol errors)."""


class PrimaryConnection(SentinelManagedConnection):
    """Asks the Sentinels whenever it connects. redis-py's own (8.1) goes back to the old primary when it sends again
    after a lost reply, and times out there as often as it may try."""

    def _connect(self) -> Any:
        self.host, self.port = self.connection_pool.get_master_address()
        return super()._connect()  # type: ignore[no-untyped-call]


class BlockingSentinelPool(SentinelConnectionPool, redis.BlockingConnectionPool):
    """Asks the Sentinels for the primary, and makes a thread wait for a free connection instead of failing."""


def client_for(url: str, *, sentinel_name: str = "mymaster", connections: int = 64) -> Client:
    """A client for a store's URL with at most *connections* connections (to each node of a cluster).

    Only a cluster is asked at once: for its nodes. redis-py opens a pool anew in a forked child, so a client may be
    made before the fork. Raises InvalidInput, and StoreUnavailable for a cluster.
    """
    scheme = urlparse(url.partition(";")[0]).scheme
    options = {"retry": _retry(), "socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
    if scheme in ("sentinel", "redis+sentinel"):
        return _sentinel_client(url, sentinel_name, connections, options)
    if scheme in ("redis+cluster", "rediss+cluster"):
        return _cluster_client(url.replace("+cluster", "", 1), connections, options)
    if scheme not in ("redis", "rediss", "unix"):
        raise InvalidInput("store_url", scheme, "must be redis, rediss, unix, sentinel or redis+cluster")
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=POOL_WAIT_SECONDS,
        health_check_interval=HEALTH_CHECK_SECONDS,
        **(options if scheme != "unix" else {"retry": _retry(), "socket_timeout": ANSWER_SECONDS}),
    )
    return redis.Redis.from_pool(pool)


def _retry() -> Retry:
    """Every script sent twice is done once, so that a lost reply may always be asked for again."""
    return Retry(ExponentialWithJitterBackoff(base=RETRY_FIRST_SECONDS, cap=RETRY_LAST_SECONDS), RETRIES)


def _cluster_client(url: str, connections: int, options: dict[str, Any]) -> redis.RedisCluster:
    """The pools wait POOL_WAIT_SECONDS by their own default: a cluster client hands them no such option."""
    with store_errors():
        return redis.RedisCluster.from_url(
            url, max_connections=connections, connection_pool_class=redis.BlockingConnectionPool, **options
        )


def _sentinel_client(url: str, name: str, connections: int, options: dict[str, Any]) -> redis.Redis:
    """`sentinel://:password@host:26379/0;sentinel://other:26379`: user, password and database are the primary's."""
    places = [urlparse(part) for part in url.split(";") if part]
    sentinels = [(place.hostname or "localhost", place.port or SENTINEL_PORT) for place in places]
    pool = BlockingSentinelPool(  # type: ignore[no-untyped-call]
        name,
        Sentinel(sentinels, sentinel_kwargs=SENTINEL_OPTIONS),  # type: ignore[no-untyped-call]
        connection_class=PrimaryConnection,
        max_connections=connections,
        timeout=POOL_WAIT_SECONDS,
        health_check_interval=HEALTH_CHECK_SECONDS,
        **_primary_options(places[0]),
        **options,
    )
    return redis.Redis.from_pool(pool)


def _primary_options(place: ParseResult) -> dict[str, Any]:
    database = place.path.strip("/").rpartition("/")[2] or "0"
    return {
        "username": unquote(place.username) if place.username else None,
        "password": unquote(place.password) if place.password else None,
        "db": int(database) if database.isdigit() else 0,
    }


def close_client(client: Any) -> None:
    """Give a client's connections back to the system. A cluster's client (redis-py 8.1) closes none of those in pools
    of a given class: they would stay open until the garbage collector finds them."""
    client.close()
    if isinstance(client, redis.RedisCluster):
        for node in client.get_nodes():  # type: ignore[no-untyped-call]
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect()


@contextmanager
def store_errors() -> Generator[None]:
    """Turn redis-py's errors into ours: worth another try, full, or neither."""
    try:
        yield
    except redis.OutOfMemoryError as exc:
        raise StoreFull(f"the store is out of memory and takes no new sessions or turns: {exc}") from exc
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException) as exc:
        raise StoreUnavailable(
            f"the store cannot be reached: {exc}; see that its server runs and that SESSIONLIB_STORE_URL names it, "
            "then try again: a turn sent again under its id is the same turn"
        ) from exc
    except redis.RedisError as exc:
        if is_passing(exc):
            raise StoreUnavailable(f"the store takes no writes now: {exc}") from exc
        raise StoreError(f"the store refused: {exc}") from exc


def require_version(client: Any) -> None:
    """Raise StoreError if the server is older than OLDEST_SERVER. One that does not tell its version is taken."""
    try:
        version = str(client.info("server")["redis_version"])
    except redis.ResponseError:  # a user without the right to ask
        return
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise StoreError(f"the store's server is Redis {version}; it takes Redis 7.0 or newer, or Valkey")


def is_passing(exc: redis.RedisError) -> bool:
    """Whether the server will answer again by itself. redis-py cuts some codes from the text and names the class."""
    passing = (redis.ReadOnlyError, redis.exceptions.MasterDownError, redis.exceptions.ClusterError)
    return isinstance(exc, passing) or str(exc).startswith(UNAVAILABLE_PREFIXES)
