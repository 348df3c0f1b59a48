"""The background worker: rotations, disposal of provider sessions, deletions; all that no caller waits for."""

from __future__ import annotations

from sessionlib.running import Observe, Ran, run_disposals, run_rotation
from workers.dispatch import PURGE, send_hints
from workers.parts import Parts

PURGE_BATCH = 1_000
"""Keys that one purge task deletes: a few milliseconds of the server's time."""


def rotate(parts: Parts, session_id: str, observe: Observe) -> Ran:
    """Run the session's pending rotation, if there is one that nobody runs."""
    ran = run_rotation(parts.engine(observe), session_id)
    send_hints(parts.dispatch, session_id, ran)
    return ran


def dispose(parts: Parts, session_id: str, observe: Observe) -> int:
    """Let the provider forget what nobody uses; how many. Raises ProviderUnavailable: it stays due."""
    return run_disposals(parts.engine(observe), session_id)


def purge(parts: Parts, session_id: str) -> None:
    """Delete one batch of a purged session; what is left is more work."""
    if not parts.store.purge(session_id, PURGE_BATCH):
        parts.dispatch.send(PURGE, session_id=session_id)
