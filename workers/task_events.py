"""What Celery tells Flower of a worker's tasks, many events in one message.

Celery sends each event at once, on the thread of its main loop, which a turn then waits for: five events and phases of
a turn took a third of a front worker's time.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery import signals

PAUSE_SECONDS = 0.25
"""How late Flower may hear of something. Events carry the time at which they happened."""
MOST_EVENTS = 1_000
"""A message with more events is sent at once, by whoever adds the last."""

_consumer: Any = None
"""Celery's own consumer of this process, once it is ready."""


@signals.worker_ready.connect(weak=False)
def _start(sender: Any, **_: object) -> None:
    global _consumer
    _consumer = sender
    threading.Thread(target=_send_for_ever, name="events", daemon=True).start()


def buffering_dispatcher() -> Any:
    """The dispatcher that gathers the events of this process; None where events are sent singly: in a pool's child, and
    where no worker runs."""
    dispatcher: Any = getattr(_consumer, "event_dispatcher", None)  # another one after each reconnection
    if dispatcher is None or dispatcher.pid != os.getpid() or "task" not in dispatcher.buffer_group:
        return None
    return dispatcher


def _send_for_ever() -> None:
    while True:
        time.sleep(PAUSE_SECONDS)
        dispatcher = buffering_dispatcher()
        if dispatcher is not None:
            dispatcher.on_send_buffered, dispatcher.buffer_limit = None, MOST_EVENTS
            dispatcher.flush()  # never raises for a broker that is away: what it could not send, it keeps
