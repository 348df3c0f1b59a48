"""Events of tasks go out in batches."""

from __future__ import annotations

from types import SimpleNamespace

import redis

from tests.waiting import wait_for
from workers.app import make_app
from workers.settings import Settings
from workers.task_events import EventBatches, gathering_dispatcher


def published(subscription: redis.client.PubSub) -> int:
    """How many messages came since the last look."""
    count = 0
    while message := subscription.get_message(timeout=0.05):
        count += message["type"] == "pmessage"
    return count


def test_events_wait_for_one_message(valkey_url: str, namespace: str) -> None:
    """Three events of a task are one message, sent when it is time."""
    app = make_app(Settings(store_url=valkey_url, namespace=namespace))
    woken: list[str] = []
    with (
        app.connection_for_write() as connection,
        redis.Redis.from_url(valkey_url) as client,
        client.pubsub() as subscription,
    ):
        subscription.psubscribe(f"*{namespace}*")
        wait_for(lambda: client.pubsub_numpat() > 0)
        dispatcher = app.events.Dispatcher(
            connection, buffer_group=["task"], on_send_buffered=lambda: woken.append("main loop")
        )
        batches = EventBatches(SimpleNamespace(event_dispatcher=dispatcher))
        for phase in ("model", "round", "settled"):
            batches.dispatcher().send(f"task-{phase}", uuid="t")
        assert published(subscription) == 0
        batches.send()
        wait_for(lambda: published(subscription) == 1)
        assert not woken


def test_events_are_sent_singly_without_a_loop(valkey_url: str, namespace: str) -> None:
    """A dispatcher that gathers nothing, one of a lost connection, and one of the parent process are left alone."""
    app = make_app(Settings(store_url=valkey_url, namespace=namespace))
    with app.connection_for_write() as connection:
        single = app.events.Dispatcher(connection)
        inherited = app.events.Dispatcher(connection, buffer_group=["task"])
        inherited.pid = 1
        for dispatcher in (None, single, inherited):
            assert EventBatches(SimpleNamespace(event_dispatcher=dispatcher)).dispatcher() is None


def test_no_worker_gathers_here() -> None:
    """A process that only sends tasks has no dispatcher of its own."""
    assert gathering_dispatcher() is None
