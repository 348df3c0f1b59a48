"""A fake provider server: chat completions, Anthropic messages and OpenAI responses, every trait of them chosen.

It counts each request as it came, serialised, with the o200k tokenizer, and refuses what is above its window. It
survives the workers that a test kills, and tells afterwards what it was sent.

POST /v1/chat/completions, /v1/messages, /v1/responses
    Answers, streamed if asked to, with the reply recorded for the Idempotency-Key, if the X-Session-Id has a recording;
    with a record of the evidence, if the model is "summarizer"; else with an echo. Responses are held, and go on from
    the one that previous_response_id names; GET and DELETE /v1/responses/ID show one and let go of it. What was read
    before comes from a prompt cache by each vendor's rules; DELETE /cache empties it.
GET /v1/models, /v1/models/ID
    Lists one model, tells of any; Anthropic's way, if there is an anthropic-version. Its window is told if the traits
    say so.
POST /forget
    {"handles": [ID, ...]} loses held responses, {} all of them.
POST /recordings/SESSION
    {"answers": {KEY: REPLY}, "results": {CALL_ID: TEXT}} adds to what is recorded; KEY is SESSION/TURN/STEP, REPLY is
    any of {"text": TEXT, "calls": [{"call_id": ID, "name": NAME, "arguments": TEXT}], "refusal": TEXT,
    "reasoning": TEXT, "is_redacted": true}. DELETE forgets it.
GET /recordings/SESSION/results/CALL_ID
    The recorded result of a tool call, as plain text.
POST /settings
    Any of the traits, named as the options of this command are, with underscores.
POST /hold, POST /release
    Keeps calls open until they are released: {"kind": "all", "answers", "summaries" or "streams"}, all by default.
    "streams" are held after the first piece of the answer.
POST /failures
    {"failure": STATUS or FAULT, "count": N, "kind": KIND, "headers": {NAME: VALUE}, "retry_after_seconds": S} fails the
    next N calls; the kind "disposals" stands for deletions. FAULT is garbage, truncated or cut (half an answer, with an
    end or without), error_event, hang or stall (nothing more until released), trickle or trickle_head (a byte each
    "trickle_seconds", the head too).
GET /report, GET /report/SESSION
    What was seen (`FakeProvider.report` says what). DELETE /report forgets it.
GET /trace/SESSION
    When its calls came and were answered (`FakeProvider.trace`).

Ids in paths are percent-encoded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from sessionlib.errors import InvalidInput
from sessionlib.testing.fake_provider import FakeProvider, RequestCheck, Traits
from sessionlib.testing.models_api import models_response
from sessionlib.testing.wire import Cut, Response, WireApi

MAX_BODY_BYTES = 256 * 1024 * 1024
"""A larger request is refused unread."""

OPEN_REQUESTS = 4_096
"""Connections that may wait to be accepted, and file descriptors asked for: thousands of requests are held at once."""


class FakeProviderServer(FakeProvider):
    """The server in threads of this process: a context manager.

    ```python
    with FakeProviderServer(window_tokens=32_000) as server:
        provider = ChatCompletions(server.base_url)
        ...
        assert server.report()["sessions"]["s-1"]["break_count"] == 0
    ```
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, check: RequestCheck | None = None, **traits: Any
    ) -> None:
        super().__init__(check=check, **traits)
        self.connection_count = 0
        """Connections that were opened so far."""
        self._http = _Server((host, port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, name="fake-provider", daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{self._http.server_address[0]!s}:{self.port}"

    @property
    def base_url(self) -> str:
        """What a provider of chat completions or responses is given; one of Anthropic messages is given `url`."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what is held, and stop."""
        self.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def respond(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Answer any request; header names are in small letters."""
        try:
            parts = path.partition("?")[0].strip("/").split("/")
            return self._routed(method, [unquote(part) for part in parts], body, headers)
        except (InvalidInput, ValueError, TypeError, AttributeError) as exc:
            return Response.error(400, str(exc), "invalid_input")

    def _routed(self, method: str, parts: list[str], body: bytes, headers: Mapping[str, str]) -> Response:
        match method, parts:
            case "POST", ["v1", "chat", "completions"] | ["chat", "completions"]:
                return self._completed(self.chat, body, headers)
            case "POST", ["v1", "messages"] if "anthropic-version" not in headers:
                return self.messages.error(400, "anthropic-version: header is required", "")
            case "POST", ["v1", "messages"]:
                return self._completed(self.messages, body, headers)
            case "POST", ["v1", "responses"]:
                return self._completed(self.responses, body, headers)
            case "GET", ["v1", "responses", handle]:
                return self.responses.get(handle)
            case "DELETE", ["v1", "responses", handle]:
                return self.dispose(handle)
            case "GET", ["v1", "models", *names]:
                return models_response("/".join(names), self.traits, is_messages="anthropic-version" in headers)
            case "POST", ["forget"]:
                self.responses.forget(**_loaded(body))
            case "POST", ["recordings", session]:
                self.record(session, _loaded(body))
            case "DELETE", ["recordings", session]:
                self.forget_recording(session)
            case "GET", ["recordings", session, "results", call_id]:
                result = self.recorded_result(session, call_id)
                if result is None:
                    return Response.error(404, "no such result is recorded", "not_found")
                return Response(200, result.encode(), "text/plain; charset=utf-8")
            case "POST", ["settings"]:
                self.change(**_loaded(body))
            case "POST", ["hold"]:
                self.hold(**_loaded(body))
            case "POST", ["release"]:
                self.release(**_loaded(body))
            case "POST", ["failures"]:
                self.fail(**_loaded(body))
            case "GET", ["report"]:
                return Response.json(self.report())
            case "GET", ["report", session]:
                return Response.json(self.report([session]))
            case "GET", ["trace", session]:
                return Response.json({"spans": self.trace(session)})
            case "DELETE", ["report"]:
                self.observations.clear()
            case "DELETE", ["cache"]:
                self.cache.clear()
            case _:
                return Response.error(404, "there is nothing here", "not_found")
        return Response.json({"ok": True})

    def _completed(self, api: WireApi, body: bytes, headers: Mapping[str, str]) -> Response:
        session, key = (unquote(headers.get(name, "")) for name in ("x-session-id", "idempotency-key"))
        return self.complete(api, body, session=session, key=key)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = OPEN_REQUESTS

    def __init__(self, address: tuple[str, int], provider: FakeProviderServer) -> None:
        self.provider = provider
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.provider.connection_count += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is what this server is for; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    server: _Server
    _headers_buffer: list[bytes]

    def _handle(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self._send(Response.error(413, f"a body of at most {MAX_BODY_BYTES} bytes is read", "too_large"))
            self.close_connection = True
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.provider.respond(self.command, self.path, body, headers))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        if response.parts is None:
            self.send_header("Content-Length", str(len(response.body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        for name, value in (response.headers or {}).items():
            self.send_header(name, value)
        if response.trickle_seconds is not None:
            self._trickle_head(response.trickle_seconds)
        self.end_headers()
        if response.parts is None:
            self.wfile.write(response.body)
        else:
            self._send_parts(response.parts)

    def _send_parts(self, parts: Iterator[bytes]) -> None:
        """Each part at once, as it comes."""
        self.wfile.flush()
        try:
            for part in parts:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except Cut:
            self.close_connection = True

    def _trickle_head(self, pause_seconds: float) -> None:
        """A byte at a time."""
        head = b"".join(self._headers_buffer)
        self._headers_buffer.clear()
        for place in range(len(head)):
            self.wfile.write(head[place : place + 1])
            self.wfile.flush()
            time.sleep(pause_seconds)

    do_GET = do_POST = do_DELETE = _handle  # noqa: N815 - the names are http.server's

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: paths hold ids, and a report says more."""


def _loaded(body: bytes) -> dict[str, Any]:
    value = json.loads(body or b"{}")
    if not isinstance(value, dict):
        raise InvalidInput("body", value, "must be a JSON object")
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m sessionlib.testing.server", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--port-file", type=Path, help="file to write the port to, once the server listens")
    for trait in fields(Traits):
        option = f"--{trait.name.replace('_', '-')}"
        parser.add_argument(option, type=type(trait.default), default=trait.default, help=trait.metadata["told"])
    options = vars(parser.parse_args(arguments))
    port_file: Path | None = options.pop("port_file")
    _raise_file_limit()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with FakeProviderServer(**options) as server:
        if port_file is not None:
            _write_whole(port_file, str(server.port))
        sys.stdout.write(f"fake provider at {server.base_url}\n")
        sys.stdout.flush()
        stopped.wait()


def _write_whole(path: Path, text: str) -> None:
    """Write such that a reader sees nothing or all of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def _raise_file_limit() -> None:
    """Ask for enough file descriptors: the usual 1,024 are fewer than the requests that may be held."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * OPEN_REQUESTS if hard == resource.RLIM_INFINITY else min(2 * OPEN_REQUESTS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


if __name__ == "__main__":
    main()
