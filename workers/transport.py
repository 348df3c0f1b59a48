"""Redis as Celery's broker, without the fault that ends a worker when the server restarts.

kombu closes a channel after it let go of the channel's connection. A channel that still holds an unacknowledged message
then opens a new client to give the message back, and fails with "'NoneType' object has no attribute 'hostname'", which
nobody expects: the worker exits (celery 5.7.0, kombu 5.7.0; docs/platform.md). The same happens to an acknowledgement
that comes late. Here both fail as what they are, a lost connection, which every caller handles. The message is not
given back at once; messages are hints, and what it was about is found by the reaper.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import kombu.connection
import redis
from celery.app import amqp
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as stock
from kombu.utils.url import maybe_sanitize_url
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS = 2.0
"""How long a server may take to accept a connection."""
ANSWER_SECONDS = 5.0
"""How long a server may be silent that owes a reply. One whose host is gone does not hang up: without this, a sender
waits for ever."""
HEALTH_CHECK_SECONDS = 5
"""How often kombu looks for a consumer that such a server left waiting; it is back after about twice as long."""


class _Detachable:
    """A channel that says so when its connection is gone, and keeps its client: kombu makes one for each thing that it
    sends, and redis-py copies a table of 169 commands into each, 0.07 ms."""

    connection: Any
    pool: Any
    _kept_client: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]
        if self._kept_client is None or self._kept_client.connection_pool is not self.pool:
            self._kept_client = super()._create_client()  # type: ignore[misc]
        return self._kept_client

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise redis.ConnectionError("the broker connection of this channel is closed")
        parameters: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]
        return parameters


class Channel(_Detachable, stock.Channel):
    """A channel to one Redis server, over TCP, TLS or a Unix socket."""


class SentinelChannel(_Detachable, stock.SentinelChannel):
    """A channel to the primary that a Redis Sentinel names."""

    # A Sentinel that is down or hangs is passed over; redis-py would try it ten times, for eight seconds or for ever.
    sentinel_kwargs: ClassVar[dict[str, Any]] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": CONNECT_SECONDS,
    }


class Transport(stock.Transport):
    """`redis://`, `rediss://`, `redis+socket://`."""

    Channel = Channel


class SentinelTransport(stock.SentinelTransport):
    """`sentinel://`."""

    Channel = SentinelChannel


class Connection(kombu.connection.Connection):
    """A connection that is sought again soon: a worker is back seconds after its broker, not half a minute."""

    def ensure_connection(
        self,
        *args: Any,
        interval_start: float = 0.2,
        interval_step: float = 0.2,
        interval_max: float = 2.0,
        **kwargs: Any,
    ) -> Connection:
        """As kombu's, with shorter pauses (its own: 2, 4, … 30 s). All in seconds."""
        intervals = {"interval_start": interval_start, "interval_step": interval_step, "interval_max": interval_max}
        super().ensure_connection(*args, **intervals, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def info(self) -> dict[str, Any]:
        """What workers tell Flower of their broker: without the passwords that URLs hold."""
        told: dict[str, Any] = super().info()  # type: ignore[no-untyped-call]
        alternates = [maybe_sanitize_url(url) for url in told["alternates"]]
        return told | {"hostname": maybe_sanitize_url(told["hostname"]), "alternates": alternates}


class Messaging(amqp.AMQP):
    """What the Celery app makes its connections with."""

    Connection = BrokerConnection = Connection


def install() -> None:
    """Make these the transports of their URL schemes in this process.

    By scheme, because `broker_transport` is not asked for a Unix socket or for the second of several Sentinels, and
    because Flower reads the scheme to know how to measure queues.
    """
    TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = f"{__name__}:Transport"
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:SentinelTransport"


def broker_url_for(store_url: str) -> str:
    """The URL under which Celery finds the server that redis-py finds under *store_url*.

    They differ for Unix sockets: `unix:///path?db=1` is `redis+socket:///path?virtual_host=1` to Celery.
    """
    parts = urlsplit(store_url)
    if parts.scheme != "unix":
        return store_url
    db = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={db}"
