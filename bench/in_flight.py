"""A thousand turns in flight, awaited in one process: what waiting adds, and what it takes.

    python -m bench.in_flight [--turns 1000] [--latency-seconds 10] [--fronts 2] [--threads 512]

Real workers on an embedded server; the model is a process that answers each call after the latency. Added time is what
a turn takes above the latency, from the call of `submit` to the answer in the caller's hands; all turns are handed in
at once, so it holds the way of each through the queue. Memory is that of the front workers at the height, less what
they had before.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tests.crash.cluster import Cluster, memory_bytes
from workers.client import AsyncSession, AsyncSessions, Connection

LEASE_SECONDS, SWEEP_SECONDS = 15.0, 2.0
"""As by default: what is measured is how it runs, not how it recovers."""
TURN_ID = "t"
PATIENCE_SECONDS = 240.0
LOOK_SECONDS = 0.5
TCP_ESTABLISHED = "01"
"""Linux, include/net/tcp_states.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The figures of one run."""

    turns: int
    answered: int
    most_in_flight: int
    """Turns that were begun and not answered yet, at the most."""
    added_p50_seconds: float
    added_p99_seconds: float
    run_p50_seconds: float
    run_p99_seconds: float
    """What a turn takes above the latency from its grant to its recorded answer, by the server's clock."""
    memory_bytes_per_turn: float
    worker_connections: int
    """Of all workers to the server, broker included, at the height."""
    caller_connections: int
    """Of the awaiting process to the server, broker included, at the most."""

    def __str__(self) -> str:
        return (
            f"{self.answered} of {self.turns} turns answered, {self.most_in_flight} in flight at once: "
            f"added p50 {self.added_p50_seconds:.2f} s, p99 {self.added_p99_seconds:.2f} s, of which after its start "
            f"p50 {self.run_p50_seconds:.2f} s, p99 {self.run_p99_seconds:.2f} s; "
            f"{self.memory_bytes_per_turn / 1024:.0f} KiB and {self.worker_connections / self.turns:.3f} connections "
            f"per turn in flight; {self.caller_connections} connections of the awaiting process"
        )


def measure(directory: Path, *, turns: int, latency_seconds: float, fronts: int, threads: int) -> InFlight:
    """Run *turns* turns at once and wait for all of them in this process."""
    cluster = Cluster(
        directory,
        fronts=fronts,
        backgrounds=1,
        over_tcp=True,
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=SWEEP_SECONDS,
        turns_concurrency=threads,
    )
    with cluster:
        cluster.provider.change(latency_seconds=latency_seconds)
        return asyncio.run(_measured(cluster, turns, latency_seconds))


async def _measured(cluster: Cluster, turns: int, latency_seconds: float) -> InFlight:
    cluster.store.client.client_list()  # the measuring itself takes a connection
    own_before = own_connections(cluster)
    memory_before = _fronts_memory_bytes(cluster)
    async with AsyncSessions(Connection.to(cluster.settings)) as sessions:
        opened = [await sessions.open(f"s{number}", "talker") for number in range(turns)]
        watching = asyncio.create_task(_heights(cluster, turns))
        took = await asyncio.gather(*(_timed(session) for session in opened))
        heights = await watching
    added = [seconds - latency_seconds for seconds in took]
    spans = [_span(cluster, session.session_id) for session in opened]
    runs = [answered_at - started_at for started_at, answered_at in spans]
    return InFlight(
        turns=turns,
        answered=len(took),
        most_in_flight=_most_at_once(spans),
        added_p50_seconds=_share(added, 0.50),
        added_p99_seconds=_share(added, 0.99),
        run_p50_seconds=_share(runs, 0.50) - latency_seconds,
        run_p99_seconds=_share(runs, 0.99) - latency_seconds,
        memory_bytes_per_turn=(heights.memory_bytes - memory_before) / turns,
        worker_connections=heights.connections - heights.own_connections,
        caller_connections=heights.own_connections - own_before,
    )


async def _timed(session: AsyncSession) -> float:
    """Seconds from handing a turn in to its answer."""
    begun = time.monotonic()
    await session.send("hello", turn_id=TURN_ID, timeout_seconds=PATIENCE_SECONDS)
    return time.monotonic() - begun


@dataclass(slots=True)
class _Heights:
    memory_bytes: int = 0
    connections: int = 0
    own_connections: int = 0


async def _heights(cluster: Cluster, turns: int) -> _Heights:
    """The most of everything, until the provider has answered every turn."""
    heights = _Heights()
    while not await asyncio.to_thread(_look, cluster, turns, heights):
        await asyncio.sleep(LOOK_SECONDS)
    return heights


def _look(cluster: Cluster, turns: int, heights: _Heights) -> bool:
    heights.memory_bytes = max(heights.memory_bytes, _fronts_memory_bytes(cluster))
    heights.connections = max(heights.connections, len(cluster.store.client.client_list()))
    heights.own_connections = max(heights.own_connections, own_connections(cluster))
    return cluster.store.counters(0).get("answered", 0) >= turns


def _span(cluster: Cluster, session_id: str) -> tuple[float, float]:
    """When the session's turn was granted first, and when it was answered."""
    times = {event.kind: event.at for event in reversed(cluster.store.events(session_id, TURN_ID))}
    return times["started"], times["answered"]


def _most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """The most turns between their start and their answer."""
    changes = [(started_at, 1) for started_at, _ in spans] + [(answered_at, -1) for _, answered_at in spans]
    return max(accumulate(change for _, change in sorted(changes)))


def _share(seconds: Sequence[float], fraction: float) -> float:
    """What that share of the turns stays within."""
    return sorted(seconds)[int(len(seconds) * fraction)]


def _fronts_memory_bytes(cluster: Cluster) -> int:
    pids = [pid for name in cluster.fronts if (pid := cluster.pid(name))]
    return sum(memory_bytes(pid) for pid in pids)


def own_connections(cluster: Cluster) -> int:
    """TCP connections of this process to the cluster's server."""
    port = cluster.server.url.rpartition(":")[2].partition("/")[0]
    remote = f"0100007F:{int(port):04X}"  # 127.0.0.1 as /proc/net/tcp writes it
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {fields[9] for fields in lines if fields[2] == remote and fields[3] == TCP_ESTABLISHED}
    return sum(_inode(number) in inodes for number in os.listdir("/proc/self/fd"))


def _inode(number: str) -> str:
    """The inode of a file descriptor that is a socket, else ""."""
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:  # closed meanwhile
        return ""
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:[") else ""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.in_flight", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=1_000, help="handed in at once, a session each")
    parser.add_argument("--latency-seconds", type=float, default=10.0, help="how long the model takes")
    parser.add_argument("--fronts", type=int, default=2, help="front workers")
    parser.add_argument("--threads", type=int, default=512, help="turns in flight a front worker")
    options = vars(parser.parse_args(arguments))
    with tempfile.TemporaryDirectory() as directory:
        print(measure(Path(directory), **options))


if __name__ == "__main__":
    main()
