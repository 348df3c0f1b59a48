"""Attempts: what bars the next grant of a piece of work, and how a grant counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sessionlib.errors import ProviderUnavailable, StoreUnavailable
from sessionlib.stores.contract import Refusal
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import Tries

LONGEST_RETRY_SECONDS = 300.0
"""The furthest that a retry may lie ahead: a worker that is told to wait longer looks again in between."""

ENDED_PER_BEGIN = 32
"""Pieces of work that one `begin` may end on its way to one that can start; the reaper comes again for the rest."""

UNCOUNTED_CODES = frozenset({ProviderUnavailable.code, StoreUnavailable.code})
"""Failures that are nobody's fault here: they are retried until the work's deadline, not by count."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a piece of work ends instead of being granted."""

    code: str
    reason: str


def obstacle(op: Operation, tries: Tries) -> Ending | Refusal | None:
    """What bars the next grant: past its deadline, not yet to be retried, too often without progress; or nothing."""
    if tries.deadline and op.now >= tries.deadline:
        return Ending("deadline", f"its deadline passed after {tries.attempts} attempts{_last_error(tries)}")
    if tries.not_before > op.now:
        return Refusal.NOTHING
    if tries.next_attempt > op.limits.max_attempts:
        return Ending("dead_lettered", f"{tries.attempts} attempts without progress{_last_error(tries)}")
    return None


def granted(tries: Tries, first_deadline: float) -> Tries:
    """As one more grant leaves it. *first_deadline* is kept from the first grant on."""
    return replace(tries, attempts=tries.next_attempt, progress=False, deadline=tries.deadline or first_deadline)


def uncounted(tries: Tries) -> Tries:
    """As if the last grant had not been: the next one counts no attempt for it."""
    return replace(tries, attempts=max(0, tries.attempts - 1))


def _last_error(tries: Tries) -> str:
    return f"; the last error: {tries.error_code}: {tries.error}" if tries.error_code else ""
