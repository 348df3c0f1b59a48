"""What a worker process does beside its tasks: the reaper from its start on, and an end within the grace time."""

from __future__ import annotations

import logging
import os
import threading
import time

from billiard import active_children
from celery import signals

from sessionlib.errors import InvalidInput
from workers.parts import parts
from workers.reaper import Reaper

log = logging.getLogger(__name__)

UNUSABLE = 78
"""Exit code of a worker that cannot work as it is configured (EX_CONFIG of sysexits.h)."""


@signals.worker_ready.connect(weak=False)
def _start_reaper(**_: object) -> None:
    """Sweep from now on. The pool's processes are forked already: this connection is nobody else's.

    A worker whose settings or agents are refused ends here: it would take hints and answer nothing.
    """
    try:
        own = parts()
    except InvalidInput as exc:
        log.critical("worker cannot work", extra={"field": exc.field, "rule": exc.rule})
        raise SystemExit(UNUSABLE) from exc
    for name, clamp in own.catalog.clamps().items():
        figures = {"agent": name, "asked_tokens": clamp.asked_tokens, "given_tokens": clamp.given_tokens}
        log.warning("work room raised to its floor", extra=figures)
    Reaper(own.store, own.dispatch, own.settings.sweep_seconds).start()


@signals.worker_shutting_down.connect(weak=False)
def _finish_in_time(**_: object) -> None:
    """Celery waits for running tasks as long as they take; after the grace time their lanes are given back instead.

    On a thread: this is called in a signal handler, which may have interrupted the very making of the parts.
    """
    threading.Thread(target=_give_back_in_time, name="grace", daemon=True).start()


def _give_back_in_time() -> None:
    """Release what this process still holds after the grace time, and end it with its pool.

    A prefork parent holds nothing itself: the leases of its children run out.
    """
    own = parts()
    time.sleep(own.settings.grace_seconds)
    count = own.leases.release_all()
    log.warning("grace time over", extra={"given_back": count})
    for child in active_children():
        child.terminate()
    os._exit(0)
