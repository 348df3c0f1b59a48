"""Tasks: addresses of the work, not places for logic. Any of them may be lost, late, or delivered twice.

The ids beside `session_id` are for the operator's eyes in Flower: what runs is what the store grants.
"""

from __future__ import annotations

from functools import partial

from celery import Task

from sessionlib.running import Observe, unobserved
from workers import background, front
from workers.app import app
from workers.dispatch import (
    CAPTURE,
    CLOSE_CALLS,
    DISPOSE,
    LET_GO,
    PING,
    PUBLISH,
    PURGE,
    RUN_DIGEST,
    RUN_HANDOFF,
    RUN_ROTATION,
    RUN_TURN,
)
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


@app.task(name=RUN_HANDOFF, bind=True)
def run_handoff(self: Task, session_id: str, job_id: str) -> None:
    """Run the session's next handoff."""
    ran = background.hand_off(parts(), session_id, _shown(self, session_id=session_id, handoff_id=job_id))
    send_phase(self, "settled", session_id=session_id, handoff_id=ran.work_id or job_id, status=ran.status)


@app.task(name=RUN_DIGEST, bind=True)
def run_digest(self: Task, session_id: str, job_id: str) -> None:
    """Run the session's digest."""
    ran = background.digest(parts(), session_id, _shown(self, session_id=session_id, digest_id=job_id))
    send_phase(self, "settled", session_id=session_id, digest_id=ran.work_id or job_id, status=ran.status)


@app.task(name=CAPTURE)
def capture(session_id: str) -> None:
    """A stretch of the session is finished: request a digest of it."""
    background.capture(parts(), session_id, "finished")


@app.task(name=PUBLISH)
def publish(session_id: str) -> None:
    """Put new digests into the agent's journal."""
    background.publish(parts(), session_id)


@app.task(name=DISPOSE)
def dispose(session_id: str) -> None:
    """Let the provider forget sessions that nobody uses any more."""
    background.dispose(parts(), session_id, unobserved)


@app.task(name=LET_GO)
def let_go(session_id: str, orphan_id: str) -> None:
    """Let the provider forget what it held for a session that was purged."""
    background.let_go(parts(), session_id, orphan_id)


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
