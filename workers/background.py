"""The background worker: rotations, summaries, disposal of provider sessions, deletions."""

from __future__ import annotations

from sessionlib.errors import UnknownSession
from sessionlib.running import (
    Observe,
    Ran,
    publish_digests,
    run_digest,
    run_disposals,
    run_handoff,
    run_orphan,
    run_rotation,
    unobserved,
)
from workers.dispatch import CAPTURE, PUBLISH, PURGE, RUN_DIGEST, RUN_HANDOFF, send_hints
from workers.parts import Parts

PURGE_BATCH = 1_000
"""Keys that one purge task deletes: a few milliseconds of the server's time."""


def rotate(parts: Parts, session_id: str, observe: Observe) -> Ran:
    """Run the session's pending rotation, if there is one that nobody runs."""
    ran = run_rotation(parts.engine(observe), session_id)
    send_hints(parts.dispatch, session_id, ran)
    return ran


def hand_off(parts: Parts, session_id: str, observe: Observe) -> Ran:
    """Run the session's next handoff, if there is one that nobody runs."""
    ran = run_handoff(parts.engine(observe), session_id)
    if ran.settled and ran.settled.next_job_id:
        parts.dispatch.send(RUN_HANDOFF, session_id=session_id, job_id=ran.settled.next_job_id)
    return ran


def capture(parts: Parts, session_id: str, reason: str) -> None:
    """Request a digest of what is finished, if anything is."""
    try:
        digest_id = parts.store.capture(session_id, reason)
    except UnknownSession:
        return  # purged since the hint was sent
    if digest_id is not None:
        parts.dispatch.send(RUN_DIGEST, session_id=session_id, job_id=digest_id)


def digest(parts: Parts, session_id: str, observe: Observe) -> Ran:
    """Run the session's digest, if there is one that nobody runs."""
    ran = run_digest(parts.engine(observe), session_id)
    if ran.settled and ran.settled.publication:
        parts.dispatch.send(PUBLISH, session_id=session_id)
    if ran.settled and ran.settled.capture:
        parts.dispatch.send(CAPTURE, session_id=session_id)
    return ran


def publish(parts: Parts, session_id: str) -> int:
    """Put the session's new digests into its agent's journal; how many."""
    return publish_digests(parts.store, session_id)


def dispose(parts: Parts, session_id: str, observe: Observe) -> int:
    """Let the provider forget what nobody uses; how many. Raises ProviderUnavailable: it stays due."""
    return run_disposals(parts.engine(observe), session_id)


def let_go(parts: Parts, session_id: str, orphan_id: str) -> None:
    """Let the provider forget what it held for a purged session. Raises ProviderUnavailable: it stays due."""
    run_orphan(parts.engine(unobserved), session_id, orphan_id)


def purge(parts: Parts, session_id: str) -> None:
    """Delete one batch of a purged session; what is left is more work."""
    if not parts.store.purge(session_id, PURGE_BATCH):
        parts.dispatch.send(PURGE, session_id=session_id)
