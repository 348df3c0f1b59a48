"""What Celery tells Flower of a worker's tasks, many events in one message.

Celery sends each event at once, on the thread of its main loop, which a turn then waits for: the events and phases of a
turn took a third of a front worker's time.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery import signals
from celery.concurrency.thread import TaskPool as ThreadPool

PAUSE_SECONDS = 0.25
"""How late Flower may hear of something. Events carry the time at which they happened."""
MOST_EVENTS = 1_000
"""When so many wait they are sent at once, by whoever adds the last."""


class EventBatches:
    """The events of one worker process, gathered by Celery's own dispatcher and sent when `send` is called."""

    def __init__(self, consumer: Any) -> None:
        """*consumer*: Celery's own; it has another dispatcher after each reconnection."""
        self._consumer = consumer

    def dispatcher(self) -> Any:
        """What gathers events; None where they are sent singly: in a pool's child, and without an event loop."""
        dispatcher = self._consumer.event_dispatcher
        if dispatcher is None or dispatcher.pid != os.getpid() or "task" not in dispatcher.buffer_group:
            return None
        dispatcher.on_send_buffered, dispatcher.buffer_limit = None, MOST_EVENTS
        return dispatcher

    def send(self) -> None:
        """Send what was gathered. Never raises for a broker that is away: what could not be sent is kept."""
        dispatcher = self.dispatcher()
        if dispatcher is not None:
            dispatcher.flush()

    def send_for_ever(self) -> None:
        while True:
            time.sleep(PAUSE_SECONDS)
            self.send()


_batches: EventBatches | None = None


@signals.worker_ready.connect(weak=False)
def _start(sender: Any, **_: object) -> None:
    """Gather where tasks run in this very process. The children of a prefork pool send their phases singly: were the
    parent's own events of these tasks late, Flower would show the older arguments over the newer figures."""
    if not isinstance(sender.pool, ThreadPool):
        return
    global _batches
    _batches = EventBatches(sender)
    threading.Thread(target=_batches.send_for_ever, name="events", daemon=True).start()


def gathering_dispatcher() -> Any:
    """The dispatcher that gathers this process's events; None where they are sent singly, or no worker runs."""
    return _batches.dispatcher() if _batches else None
