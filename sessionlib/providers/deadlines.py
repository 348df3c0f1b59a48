"""A deadline for a whole call: httpx limits each single read, so a server that sends a byte a second never ends.

Within `within` no read, write or handshake of a client that was `bounded` outlasts the deadline.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
"""When the call that this thread is in has to be over, on the monotonic clock."""


@contextmanager
def within(seconds: float) -> Generator[None]:
    """End what is done inside after *seconds*, or earlier if an outer deadline is."""
    token = _deadline.set(min(_deadline.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def require_time() -> None:
    """Raises httpx.ReadTimeout once the deadline has passed."""
    if time.monotonic() > _deadline.get():
        raise httpx.ReadTimeout("the deadline has passed")


def bounded(client: httpx.Client) -> httpx.Client:
    """*client*, with the deadline in force on each of its connections. Transports without a network stay as they are.

    httpx has no public place for this: what it reads from is a private matter of its transports.
    """
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool = transport._pool
            pool._network_backend = _BoundedBackend(pool._network_backend)
    return client


def _seconds_left(timeout: float | None) -> float:
    left = min(math.inf if timeout is None else timeout, _deadline.get() - time.monotonic())
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left


def _or_none(seconds: float) -> float | None:
    return seconds if seconds < math.inf else None


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _or_none(_seconds_left(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _or_none(_seconds_left(timeout)))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, _or_none(_seconds_left(timeout))))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _BoundedBackend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _or_none(_seconds_left(timeout))
        return _BoundedStream(self._backend.connect_tcp(host, port, seconds, local_address, socket_options))

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _or_none(_seconds_left(timeout))
        return _BoundedStream(self._backend.connect_unix_socket(path, seconds, socket_options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)
