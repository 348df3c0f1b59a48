"""What a worker process does beside its tasks: the reaper from its start on, and an end within the grace time."""

from __future__ import annotations

import logging
import os
import threading

from billiard import active_children
from celery import signals

from workers.parts import parts
from workers.reaper import Reaper

log = logging.getLogger(__name__)


@signals.worker_ready.connect(weak=False)
def _start_reaper(**_: object) -> None:
    """Sweep from now on. The pool's processes are forked already: this connection is nobody else's."""
    own = parts()
    Reaper(own.store, own.dispatch, own.settings.sweep_seconds).start()


@signals.worker_shutting_down.connect(weak=False)
def _finish_in_time(**_: object) -> None:
    """Celery waits for running tasks as long as they take; after the grace time their lanes are given back instead."""
    timer = threading.Timer(parts().settings.grace_seconds, _give_back)
    timer.daemon = True
    timer.start()


def _give_back() -> None:
    """Release what this process holds, and end it with its pool; leases of prefork children run out by themselves."""
    count = parts().leases.release_all()
    log.warning("grace time over", extra={"given_back": count})
    for child in active_children():
        child.terminate()
    os._exit(0)
