"""The fake provider as a process of its own, which survives the workers that a replay kills."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlparse

from sessionlib.errors import ProviderUnavailable
from workers import children

START_SECONDS = 60.0
"""It reads the tokenizer's ranks first: half a second, many times that on a loaded machine."""
STOP_SECONDS = 2.0
ANSWER_SECONDS = 30.0

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Goes to this machine itself, whatever proxy the environment names."""


def fetch(url: str, body: Any = None) -> bytes:
    """GET *url*, or POST *body* as JSON. Raises OSError (urllib's errors are)."""
    data = None if body is None else json.dumps(body).encode()
    with _OPENER.open(urllib.request.Request(url, data=data), timeout=ANSWER_SECONDS) as response:
        answer: bytes = response.read()
        return answer


class Results:
    """Recorded tool results, read from the fake provider over one connection a thread."""

    def __init__(self, url: str) -> None:
        self._host = urlparse(url).netloc
        self._own = threading.local()

    def recorded(self, session_id: str, call_id: str) -> str:
        """What a call gave when it was recorded. Raises LookupError if there is none, OSError, HTTPException."""
        connection: HTTPConnection = getattr(self._own, "connection", None) or HTTPConnection(
            self._host, timeout=ANSWER_SECONDS
        )
        self._own.connection = connection
        try:
            connection.request("GET", f"/recordings/{quote(session_id, safe='')}/results/{quote(call_id, safe='')}")
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException):
            connection.close()  # the next call opens another
            raise
        if response.status != HTTPStatus.OK:
            raise LookupError(f"no result of call {call_id} is recorded")
        return body.decode()


class FakeProviderProcess:
    """A context manager around `python -m sessionlib.testing.server`; its window and latencies are chosen once."""

    def __init__(self, directory: Path, **traits: float) -> None:
        self._directory, self._traits = directory, traits
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def base_url(self) -> str:
        """What a chat-completions provider is given."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        """Start, and return when it listens. Raises ProviderUnavailable."""
        port_file = self._directory / "provider.port"
        port_file.unlink(missing_ok=True)
        options = [word for name, value in self._traits.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "sessionlib.testing.server", "--port-file", str(port_file), *options]
        with (self._directory / "provider.log").open("ab") as log:
            self._process = children.start(command, output=log)
        try:
            self.url = f"http://127.0.0.1:{_awaited(port_file, self._process)}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            children.end(self._process, STOP_SECONDS)

    def record(self, session_id: str, recording: Mapping[str, Any]) -> None:
        """Answer the session from *recording* (see sessionlib.testing.server)."""
        fetch(f"{self.url}/recordings/{quote(session_id, safe='')}", recording)

    def hold(self, kind: str) -> None:
        """Keep calls open (`answers` or `summaries`) until they are released."""
        fetch(f"{self.url}/hold", {"kind": kind})

    def release(self, kind: str) -> None:
        fetch(f"{self.url}/release", {"kind": kind})

    def held_count(self, kind: str) -> int:
        """How many calls of that kind are held now."""
        about_no_session = fetch(f"{self.url}/report/-")
        return int(json.loads(about_no_session)["held"][kind])

    def report(self, session_id: str) -> dict[str, Any]:
        """What was seen of a session, and all consolidations."""
        report: dict[str, Any] = json.loads(fetch(f"{self.url}/report/{quote(session_id, safe='')}"))
        return report

    def trace(self, session_id: str) -> list[dict[str, Any]]:
        """When the session's calls came and were answered."""
        spans: list[dict[str, Any]] = json.loads(fetch(f"{self.url}/trace/{quote(session_id, safe='')}"))["spans"]
        return spans


def _awaited(port_file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if children.has_exited(process) or time.monotonic() >= deadline:
            raise ProviderUnavailable(f"the fake provider did not start; see {port_file.with_suffix('.log')}")
        time.sleep(0.01)
    return int(port_file.read_text())
