"""HTTP for providers: one client a process, one deadline a call, and foreign errors translated where they enter."""

from __future__ import annotations

import json
import math
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from httpx_sse import EventSource

from sessionlib.errors import ProviderRejected, ProviderUnavailable
from sessionlib.providers.deadlines import bounded, require_time, within
from sessionlib.providers.refusals import refusal
from sessionlib.providers.streams import told_apart

CONNECT_SECONDS = 10.0
"""How long a connection may take to stand, whatever the call's own deadline."""

SILENCE_SECONDS = 300.0
"""How long a stream may be silent: reasoning models say nothing for minutes, but a dead connection does so for ever."""

LINGER_SECONDS = 0.5
"""How long the end of a stream is waited for once its final event came: a connection that ended can be used again."""

KEPT_CONNECTIONS = 64
"""Idle connections kept open; there is no limit to those in use (a front worker holds 256 calls and more)."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""No answer of a model is longer: what is, is not one."""

DONE = "[DONE]"
"""The event that ends a stream of chat completions; it is no JSON."""

Assemble = Callable[[Iterator[Any]], Any]
"""Makes a stream's events (their data as JSON, and DONE) the JSON of a plain answer."""

_GONE = frozenset({404, 410})


class ProcessClient:
    """One client a process, built at its first use, and again in a forked child: connections do not survive a fork."""

    def __init__(self, build: Callable[[], httpx.Client]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._built: dict[int, httpx.Client] = {}

    def get(self) -> httpx.Client:
        process_id = os.getpid()
        with self._lock:
            if process_id not in self._built:
                client = bounded(self._build())
                weakref.finalize(self, _close, client, process_id)
                self._built[process_id] = client
            return self._built[process_id]

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        with self._lock:
            if client := self._built.pop(os.getpid(), None):
                client.close()


def _close(client: httpx.Client, process_id: int) -> None:
    if process_id == os.getpid():  # a child must not say goodbye on its parent's connections
        client.close()


def plain_client() -> httpx.Client:
    """A client without redirects (a redirected request would take its key elsewhere) and without a connection limit."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS)
    return httpx.Client(limits=limits, follow_redirects=False)


def post(
    client: httpx.Client,
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_seconds: float,
    is_sent: Callable[[str], bool],
    assemble: Assemble | None = None,
    silence_seconds: float = math.inf,
) -> Any:
    """Send JSON, receive JSON, all within *timeout_seconds* and never silent for longer than *silence_seconds*.

    *is_sent* tells whether a text is part of the request. An answer that comes as a stream of events, by its type or
    its first bytes, is made a plain one by *assemble*, event by event as they come. Raises ProviderUnavailable,
    ProviderRejected, WindowOverflow and HandleForgotten. An answer that is not JSON is Unavailable: a proxy spoke, or
    the connection was cut, and the next try may go better.
    """
    with _answered(client, "POST", url, headers, timeout_seconds, body, silence_seconds) as response:
        received = _received(response)
        if not response.is_success:
            raise refusal(response.status_code, _parsed(received), response.headers, is_sent)
        is_stream = "text/event-stream" in response.headers.get("content-type", "")
        if assemble and not is_stream:
            is_stream, received = told_apart(received)  # compatible servers forget to say so
        if assemble and is_stream:
            return _assembled(received, assemble)
        answer = _parsed(received)
        if answer is None:
            raise ProviderUnavailable(f"HTTP {response.status_code}, but the answer is not JSON")
        return answer


def get(
    client: httpx.Client,
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    is_sent: Callable[[str], bool],
) -> Any:
    """The JSON at *url*; None if nothing is there. Raises ProviderUnavailable and ProviderRejected."""
    with _answered(client, "GET", url, headers, timeout_seconds) as response:
        if response.status_code in _GONE:
            return None
        if not response.is_success:
            raise refusal(response.status_code, _parsed(_received(response)), response.headers, is_sent)
        return _parsed(_received(response))


def delete(
    client: httpx.Client,
    url: str,
    *,
    headers: Mapping[str, str],
    timeout_seconds: float,
    is_sent: Callable[[str], bool],
) -> None:
    """Delete what is at *url*; it is fine if nothing is there. Raises ProviderUnavailable and ProviderRejected."""
    with _answered(client, "DELETE", url, headers, timeout_seconds) as response:
        if not response.is_success and response.status_code not in _GONE:
            raise refusal(response.status_code, _parsed(_received(response)), response.headers, is_sent)


@contextmanager
def _answered(
    client: httpx.Client,
    method: str,
    url: str,
    headers: Mapping[str, str],
    timeout_seconds: float,
    body: bytes | None = None,
    silence_seconds: float = math.inf,
) -> Generator[httpx.Response]:
    """A response whose head has come, and whose body has to come within what is left of *timeout_seconds*."""
    connect_seconds, read_seconds = (min(least, timeout_seconds) for least in (CONNECT_SECONDS, silence_seconds))
    timeout = httpx.Timeout(timeout_seconds, connect=connect_seconds, read=read_seconds)
    with (
        within(timeout_seconds),
        provider_errors(timeout_seconds),
        client.stream(method, url, content=body, headers=dict(headers), timeout=timeout) as response,
    ):
        yield response


@contextmanager
def provider_errors(timeout_seconds: float) -> Generator[None]:
    """Turn httpx errors into ours. They are named by their kind: their texts may hold addresses and headers."""
    try:
        yield
    except httpx.TimeoutException as exc:
        raise ProviderUnavailable(f"no whole answer within {timeout_seconds:g} s ({type(exc).__name__})") from exc
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as exc:
        raise ProviderRejected(f"the request cannot be sent ({type(exc).__name__})") from exc
    except (httpx.RequestError, httpx.StreamError) as exc:
        raise ProviderUnavailable(f"the connection failed ({type(exc).__name__})") from exc


def _received(response: httpx.Response) -> Iterator[bytes]:
    """The body as it comes, as long as an answer may be, and before the deadline."""
    size_bytes = 0
    for chunk in response.iter_bytes():
        size_bytes += len(chunk)
        if size_bytes > MAX_BODY_BYTES:
            raise ProviderRejected(f"HTTP {response.status_code} with more than {MAX_BODY_BYTES} bytes")
        require_time()
        yield chunk


def _parsed(received: Iterable[bytes]) -> Any:
    """The answer's JSON; None if it is not JSON (an answer of `null` is as useless)."""
    try:
        return json.loads(b"".join(received))
    except (ValueError, RecursionError):
        return None


def _assembled(received: Iterator[bytes], assemble: Assemble) -> Any:
    events = _events(received)
    answer = assemble(events)
    with suppress(httpx.HTTPError, httpx.StreamError, ProviderRejected), within(LINGER_SECONDS):
        for _ in received:
            pass
    return answer


def _events(body: Iterator[bytes]) -> Iterator[Any]:
    """The data of a stream's events as they come; comments and empty events, which keep it alive, are left out."""
    decoded = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=body)
    for event in EventSource(decoded).iter_sse():
        if event.data == DONE:
            yield DONE
        elif event.data.strip():
            try:
                yield json.loads(event.data)
            except (ValueError, RecursionError):
                raise ProviderUnavailable("an event of the stream is not JSON") from None
