"""Figures of the store for Prometheus: counts of sessions, turns and rotations. No id and no content is among them.

python -m workers.metrics --port 9464
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from sessionlib.errors import StoreError
from sessionlib.stores.contract import TurnState
from workers.settings import Settings
from workers.store import RedisStore

PORT = 9464
"""Where exporters of OpenTelemetry are scraped by default; any other will do."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus's text format (prometheus.io, exposition formats)."""

CONNECTIONS = 2
"""Scrapes are rare, and a few milliseconds long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric, and the store's counters that are its samples, by label value ("" for a metric without label)."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    label: str = ""
    counters: Mapping[str, str]
    prefix: str = ""
    """Further counters are samples too where they begin like this: the rest of their name is the label's value."""


ENDS = [state.value for state in TurnState if state.is_finished]
BANDS = range(11)
ENDS_OF_ROTATIONS = ["no_gain", "deadline", "dead_lettered"]
"""Those that need no error. The others' codes are those of errors, and of what was wrong with a layout."""

FAMILIES = (
    Family(name="sessionlib_sessions", kind="gauge", help="Sessions in the store.", counters={"": "sessions"}),
    Family(
        name="sessionlib_sessions_by_fill",
        kind="gauge",
        help="Sessions by tenths of their rotation line; 10: at the line or past it.",
        label="tenths",
        counters={str(band): f"fill:{band}" for band in BANDS},
    ),
    Family(
        name="sessionlib_sessions_braked",
        kind="gauge",
        help="Open sessions that are braked now: their requests are trimmed until the brake is lifted.",
        counters={"": "braked"},
    ),
    Family(
        name="sessionlib_turns_unfinished",
        kind="gauge",
        help="Turns that were accepted and have not ended.",
        counters={"": "unfinished"},
    ),
    Family(
        name="sessionlib_turns_ended_total",
        kind="counter",
        help="Turns by how they ended.",
        label="state",
        counters={state: state for state in ENDS},
    ),
    Family(name="sessionlib_rotations_total", kind="counter", help="Rotations adopted.", counters={"": "rotations"}),
    Family(
        name="sessionlib_resets_total",
        kind="counter",
        help="Of the rotations: fresh windows of the policy work_room.",
        counters={"": "resets"},
    ),
    Family(
        name="sessionlib_rotations_failed_total",
        kind="counter",
        help="Rotations that ended without changing anything, by why.",
        label="code",
        counters={code: f"rotations_failed:{code}" for code in ENDS_OF_ROTATIONS},
        prefix="rotations_failed:",
    ),
    Family(
        name="sessionlib_brakes_total",
        kind="counter",
        help="Sessions braked, since fresh windows brought nothing.",
        counters={"": "brakes"},
    ),
)


def exposition(counted: Mapping[str, int]) -> str:
    """The store's counters in Prometheus's text format. Every metric is there from the first scrape on, if with 0."""
    return "\n".join(line for family in FAMILIES for line in _lines(family, counted)) + "\n"


def _lines(family: Family, counted: Mapping[str, int]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    found = sorted(name for name in counted if family.prefix and name.startswith(family.prefix))
    counters = {**family.counters, **{name.removeprefix(family.prefix): name for name in found}}
    for value, counter in counters.items():
        label = f'{{{family.label}="{value}"}}' if family.label else ""
        yield f"{family.name}{label} {counted.get(counter, 0)}"


def totals(store: RedisStore) -> Mapping[str, int]:
    """The counters of all partitions together. Raises StoreUnavailable."""
    counted: Counter[str] = Counter()
    for partition in range(store.partition_count):
        counted.update(store.counters(partition))
    return counted


class Scraped(BaseHTTPRequestHandler):
    """Answers a scrape from the store as it is now."""

    def __init__(self, store: RedisStore, *args: Any) -> None:
        self._store = store
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            body = exposition(totals(self._store)).encode()
        except StoreError:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the store cannot be read now")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A line for every scrape tells nothing."""


def server_for(store: RedisStore, host: str, port: int) -> ThreadingHTTPServer:
    """A server of `/metrics`, listening, to be run with `serve_forever`. Port 0 takes a free one. Raises OSError."""
    return ThreadingHTTPServer((host, port), partial(Scraped, store))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m workers.metrics", description="Figures for Prometheus.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: this host alone)")
    parser.add_argument("--port", type=int, default=PORT)
    given = parser.parse_args()
    store = RedisStore.connect(Settings.read(), CONNECTIONS)
    with suppress(KeyboardInterrupt), server_for(store, given.host, given.port) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
