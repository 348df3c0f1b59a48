"""The Celery app. Its messages are hints that carry ids; what they are about is in the store.

    celery -A workers.app worker -Q turns -P threads -c 256
    celery -A workers.app worker -Q rotations,summaries,upkeep -P prefork

Importing this module opens no connection.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from celery import Celery, signals
from kombu.entity import Exchange, Queue

from sessionlib.counters import counter_named
from workers import logs, transport
from workers.dispatch import RUN_ROTATION, RUN_TURN
from workers.settings import DAY_SECONDS, Settings
from workers.tracing import ReticentTask

TURNS, ROTATIONS, SUMMARIES, UPKEEP = "turns", "rotations", "summaries", "upkeep"
BACKGROUND_NICENESS = 10
"""Background processes yield to answers: added answer latency p99 5 to 13 ms beside a busy summarizer
(docs/platform.md)."""


def make_app(settings: Settings) -> Celery:
    """A Celery app on the settings' broker, for a worker or for a caller who sends."""
    transport.install()
    made = Celery("workers", amqp="workers.transport:Messaging", task_cls=ReticentTask, set_as_current=False)
    made.conf.update(configuration(settings))
    return made


def configuration(settings: Settings) -> dict[str, Any]:
    """Celery's settings. The reasons are in docs/platform.md, "What the Celery Redis transport does to messages"."""
    return {
        "broker_url": settings.celery_broker_url,
        "broker_transport_options": transport_options(settings),
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # for ever
        "include": ["workers.tasks", "workers.lifecycle"],
        "task_queues": [queue(name) for name in (TURNS, ROTATIONS, SUMMARIES, UPKEEP)],
        "task_default_queue": UPKEEP,
        "task_routes": {
            RUN_TURN: {"queue": TURNS},
            RUN_ROTATION: {"queue": ROTATIONS},
            "summaries.*": {"queue": SUMMARIES},
            "upkeep.*": {"queue": UPKEEP},
        },
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        # Hints may be lost, so nothing is gained by acknowledging late, and a late one is run twice after a reset.
        "task_acks_late": False,
        "worker_disable_prefetch": True,
        "worker_prefetch_multiplier": 1,
        # Answers come from the store; a result backend would only lose and leak them.
        "result_backend": None,
        "task_ignore_result": True,
        "result_extended": False,
        # What Flower shows.
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "task_track_started": True,
    }


def queue(name: str) -> Any:
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


def transport_options(settings: Settings) -> dict[str, Any]:
    """Options of the broker's transport: plain JSON, since workers tell them to Flower. Seconds."""
    # A caller's send fails fast while the broker is away: the reaper sends again.
    options: dict[str, Any] = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
    if settings.celery_broker_url.startswith("amqp"):
        return options
    return options | {
        "global_keyprefix": f"{settings.namespace}:",
        "master_name": settings.sentinel_name,
        # Nothing is redelivered for being slow: work that takes long is under a lease of ours.
        "visibility_timeout": DAY_SECONDS,
        "socket_keepalive": True,
        "socket_connect_timeout": transport.CONNECT_SECONDS,
        "socket_timeout": transport.ANSWER_SECONDS,
        "health_check_interval": transport.HEALTH_CHECK_SECONDS,
    }


app = make_app(Settings())
app.set_current()
app.set_default()


@signals.worker_init.connect(weak=False)
def _load_the_counter(**_: object) -> None:
    """Read the ranks before the pool forks: the first turn does not wait for them, and all children share one copy
    (234 instead of 460 MB with four; docs/platform.md)."""
    counter_named("auto")


@signals.worker_process_init.connect(weak=False)
def _yield_to_answers(**_: object) -> None:
    """Lower the priority of a prefork child."""
    os.nice(BACKGROUND_NICENESS)


@signals.after_setup_logger.connect(weak=False)
@signals.after_setup_task_logger.connect(weak=False)
def _show_fields(logger: Any, **_: object) -> None:
    """Print the fields of a log line, not only its phrase; and no line of httpx for every model call."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for handler in logger.handlers:
        handler.setFormatter(logs.FieldsFormatter())
