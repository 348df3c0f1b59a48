"""Tasks: addresses of the work, not places for logic. Any of them may be lost, late, or delivered twice.

The ids beside `session_id` are for the operator's eyes in Flower: what runs is what the store grants.
"""

from __future__ import annotations

from functools import partial

from celery import Task

from sessionlib.running import Observe, unobserved
from workers import background, front
from workers.app import app
from workers.dispatch import CLOSE_CALLS, DISPOSE, PING, PURGE, RUN_ROTATION, RUN_TURN
from workers.parts import parts
from workers.tracing import send_phase


@app.task(name=RUN_TURN, bind=True)
def run_turn(self: Task, session_id: str, turn_id: str) -> None:
    """Run the session's next turn."""
    ran = front.run(parts(), session_id, _shown(self, session_id=session_id, turn_id=turn_id))
    send_phase(self, "settled", session_id=session_id, turn_id=ran.work_id or turn_id, status=ran.status)


@app.task(name=RUN_ROTATION, bind=True)
def run_rotation(self: Task, session_id: str, rotation_id: str) -> None:
    """Run the session's pending rotation."""
    ran = background.rotate(parts(), session_id, _shown(self, session_id=session_id, rotation_id=rotation_id))
    send_phase(self, "settled", session_id=session_id, rotation_id=ran.work_id or rotation_id, status=ran.status)


@app.task(name=DISPOSE)
def dispose(session_id: str) -> None:
    """Let the provider forget sessions that nobody uses any more."""
    background.dispose(parts(), session_id, unobserved)


@app.task(name=CLOSE_CALLS)
def close_calls(session_id: str) -> None:
    """Calls of tools waited long enough for their results."""
    parts().store.close_open_calls(session_id)


@app.task(name=PURGE)
def purge(session_id: str) -> None:
    """Delete a batch of a session that was purged, or whose retention time is over."""
    background.purge(parts(), session_id)


@app.task(name=PING)
def ping() -> None:
    """Do nothing: shows that a worker takes messages, and what a bare one costs."""


def _shown(task: Task, **ids: str) -> Observe:
    """Shows phases in Flower, under the ids of the task."""
    return partial(send_phase, task, **ids)
