"""The fake provider as a process of its own: it holds requests open and counts them, whoever is killed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from sessionlib.testing.fake_provider import Kind
from tests.waiting import wait_for
from workers import children

START_SECONDS = 30.0


class ProviderProcess:
    """A context manager, and the server's control calls."""

    def __init__(self, directory: Path) -> None:
        self._port_file, self._log = directory / "provider.port", directory / "provider.log"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "sessionlib.testing.server", "--port-file", str(self._port_file)]
        with self._log.open("ab") as log:
            self._process = children.start(command, output=log)
        wait_for(self._port_file.exists, START_SECONDS, "the provider's port")
        self.url = f"http://127.0.0.1:{self._port_file.read_text()}"
        self._http = httpx.Client(base_url=self.url, timeout=30.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()
        children.end(self._process, 2.0)

    @property
    def base_url(self) -> str:
        """What a chat-completions provider is given."""
        return f"{self.url}/v1"

    def hold(self, kind: Kind = Kind.ALL) -> None:
        self._post("/hold", kind=kind)

    def release(self, kind: Kind = Kind.ALL) -> None:
        """Answer what is held; returns when it is, calls of killed workers included: what is held later is alive."""
        self._post("/release", kind=kind)
        released = [kind] if kind is not Kind.ALL else [Kind.ANSWERS, Kind.SUMMARIES]
        wait_for(lambda: not any(map(self.held, released)), START_SECONDS, "held calls to go on")

    def change(self, **traits: float) -> None:
        self._post("/settings", **traits)

    def fail(self, failure: int | str, count: int = 1, kind: Kind = Kind.ALL) -> None:
        self._post("/failures", failure=failure, count=count, kind=kind)

    def record(self, session_id: str, answers: Mapping[str, Any]) -> None:
        """Answer the session's calls by their keys, SESSION/TURN/STEP."""
        self._post(f"/recordings/{quote(session_id, safe='')}", answers=dict(answers))

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = self._http.get("/report").raise_for_status().json()
        return report

    def trace(self, session_id: str) -> list[dict[str, Any]]:
        """When the session's calls came, said their first word and were answered, oldest first."""
        traced = self._http.get(f"/trace/{quote(session_id, safe='')}").raise_for_status().json()
        return list(traced["spans"])

    def calls(self, session_id: str) -> int:
        """How often the session's agent was asked."""
        return int(self.report()["sessions"].get(session_id, {}).get("calls", 0))

    def asked_again(self, session_id: str) -> dict[str, int]:
        """Keys of the session that were asked more than once, and how often."""
        return dict(self.report()["sessions"].get(session_id, {}).get("asked_again", {}))

    def held(self, kind: Kind) -> int:
        """How many calls wait for `release` now, those of killed callers included."""
        return int(self.report()["held"][kind])

    def _post(self, path: str, **body: object) -> None:
        self._http.post(path, json=body).raise_for_status()
