"""The front worker: runs the next turn of a session, and sends the hints for what became due by it."""

from __future__ import annotations

from sessionlib.running import Observe, Ran, run_turn
from workers.dispatch import send_hints
from workers.parts import Parts


def run(parts: Parts, session_id: str, observe: Observe) -> Ran:
    """Run the session's next turn, if there is one that nobody runs."""
    ran = run_turn(parts.engine(observe), session_id, parts.snapshots.get(session_id))
    if ran.snapshot is not None:
        parts.snapshots.put(ran.snapshot)
    send_hints(parts.dispatch, session_id, ran)
    return ran
