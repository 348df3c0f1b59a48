"""Tasks that only benches send: a bare round trip, and a turn that waits for its session's rotation."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import Any

from celery import Celery, Task

from sessionlib.errors import AnswerTimeout
from sessionlib.running import unobserved
from workers import background, front
from workers.app import TURNS, app
from workers.blocking import Connection
from workers.dispatch import RUN_ROTATION, RUN_TURN, CeleryDispatch
from workers.keys import TURN_SEPARATOR
from workers.parts import parts
from workers.reads import StoreReads
from workers.tracing import send_phase

NOOP = "bench.noop"
RUN_TURN_INLINE = "bench.run_turn_inline"

REPLY_SECONDS = 30.0
"""How long a bare round trip is waited for."""


@app.task(name=NOOP)
def noop(reply_id: str) -> None:
    """Do nothing but tell the sender, by the same kind of hint that ends a turn."""
    store = parts().store
    assert isinstance(store, StoreReads)
    store.client.publish(store.keys.hints, f"{reply_id}{TURN_SEPARATOR}")


@app.task(name=RUN_TURN_INLINE, bind=True)
def run_turn_inline(self: Task, session_id: str, turn_id: str) -> None:
    """Run the session's pending rotation, then its next turn: what the background worker is there to avoid."""
    own = replace(parts(), dispatch=InlineDispatch(app))
    background.rotate(own, session_id, unobserved)
    front.run(own, session_id, partial(send_phase, self, session_id=session_id, turn_id=turn_id))


class InlineDispatch:
    """Hints for turns that rotate inline: nobody else is told of a rotation."""

    def __init__(self, app: Celery) -> None:
        self._app, self._other = app, CeleryDispatch(app)

    def send(self, task: str, **ids: Any) -> None:
        if task == RUN_TURN:
            self._app.send_task(RUN_TURN_INLINE, kwargs=ids, queue=TURNS, retry=False)
        elif task != RUN_ROTATION:
            self._other.send(task, **ids)


def bare_round_trip(sender: Celery, connection: Connection) -> None:
    """Send a task that does nothing to the front worker, and wait until it did. Raises AnswerTimeout."""
    reply_id = uuid.uuid4().hex
    sender.send_task(NOOP, kwargs={"reply_id": reply_id}, queue=TURNS, retry=False)
    if not connection.hints.wait(reply_id, "", REPLY_SECONDS):
        raise AnswerTimeout(reply_id, REPLY_SECONDS)
