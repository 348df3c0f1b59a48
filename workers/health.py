"""Health: judged by work that was done, not by processes that are there. Values in, verdicts out.

A front or background worker is well if it finished a probe, or other work, while it was watched; a full one is busy.
It is ill if nobody takes messages, or if something has waited too long although messages are taken: then hints arrive
and the work is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Role = Literal["store", "front", "background"]
ROLES: tuple[Role, ...] = ("store", "front", "background")

QUEUES: Mapping[Role, str] = {"front": "turns", "background": "rotations"}
"""The queue that makes a worker one of that role."""

KINDS: Mapping[Role, str] = {"front": "turn", "background": "rotation"}
"""The due things that a role is judged by. Disposals and deletions are retried until they succeed; nobody waits."""

WAITING_SECONDS = 60.0
"""How long work may wait for a worker that takes messages: four leases, so a killed worker's work was begun again."""

FULL_FRACTION = 0.9
"""Share of its memory above which a server is soon full."""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at, and why it is judged so."""

    name: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All checks of a call."""

    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Warnings do not count."""
        return all(check.verdict is not Verdict.FAILED for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """What one server of the store says of itself."""

    maxmemory_policy: str
    is_append_only: bool
    used_bytes: int
    limit_bytes: int
    """0: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A turn or rotation that could begin, and that nobody has begun."""

    kind: str
    session_id: str
    seconds: float
    """Since its first hint, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen of the workers of one role while a probe was under way."""

    workers: tuple[str, ...] = ()
    """Names of those that answered."""
    probe_seconds: float | None = None
    """From sending a probe to its end; None: no end was seen."""
    finished_count: int = 0
    """Other tasks that ended in the meantime."""
    running_count: int = 0
    slot_count: int = 0

    @property
    def is_full(self) -> bool:
        return 0 < self.slot_count <= self.running_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was found out about a deployment."""

    servers: tuple[ServerFigures, ...]
    waiting: tuple[Waiting, ...] = ()
    braked_count: int = 0
    """Open sessions whose brake is on."""
    watched: Mapping[Role, Watched] = field(default_factory=dict)
    broker_error: str = ""
    """Why the workers could not be asked; "" if they could."""
    deadline_seconds: float


def judge(found: Observations, roles: Sequence[Role]) -> Health:
    """The verdict on each of *roles*."""
    checks: list[Check] = []
    for role in roles:
        checks += _store_checks(found) if role == "store" else [worker_check(found, role)]
    return Health(checks=tuple(checks))


def _store_checks(found: Observations) -> list[Check]:
    return [
        _check("store", Verdict.OK, "it answers"),
        *(check for server in found.servers for check in server_checks(server)),
        *braked_checks(found.braked_count),
    ]


def braked_checks(braked_count: int) -> list[Check]:
    """What waits for an operator and for no worker. That there is nothing is no check."""
    if braked_count < 1:
        return []
    said = "1 session is braked: its" if braked_count == 1 else f"{braked_count} sessions are braked: their"
    lists, lifts = "`sessionctl ls --braked` lists such", "`sessionctl brake SESSION --lift` releases one"
    return [_check("brakes", Verdict.WARNING, f"{said} requests are trimmed; {lists}, {lifts}")]


def server_checks(server: ServerFigures) -> list[Check]:
    """How a server is set up: what it may lose, and when it is full."""
    checks = []
    if server.maxmemory_policy == "noeviction":
        checks.append(_check("memory policy", Verdict.OK, "noeviction"))
    else:
        reason = f"{server.maxmemory_policy}: the server may delete sessions when it is full; set noeviction"
        checks.append(_check("memory policy", Verdict.WARNING, reason))
    if server.is_append_only:
        checks.append(_check("append-only file", Verdict.OK, "on"))
    else:
        reason = "off: what was acknowledged since the last snapshot is lost when the server ends; set appendonly yes"
        checks.append(_check("append-only file", Verdict.WARNING, reason))
    if server.limit_bytes and server.used_bytes >= FULL_FRACTION * server.limit_bytes:
        share = server.used_bytes / server.limit_bytes
        reason = f"{share:.0%} of maxmemory is used; new sessions and turns are refused when it is full"
        checks.append(_check("memory", Verdict.WARNING, reason))
    return checks


def worker_check(found: Observations, role: Role) -> Check:
    """Whether the work of *role* is done."""
    if found.broker_error:
        return _check(role, Verdict.FAILED, f"the broker cannot be used: {found.broker_error}")
    watched = found.watched.get(role, Watched())
    if not watched.workers:
        reason = f"no {role} worker answers; start one with `sessionctl worker {role}`"
        return _check(role, Verdict.FAILED, reason)
    late = _longest(found.waiting, role)
    if late is not None and not watched.is_full:
        reason = f"a {late.kind} of session {late.session_id} has waited {late.seconds:.0f} s and was not begun"
        return _check(role, Verdict.FAILED, f"{reason}, though workers answer; see their logs")
    return _by_work(found, role, watched, late)


def _by_work(found: Observations, role: Role, watched: Watched, late: Waiting | None) -> Check:
    names = ", ".join(watched.workers)
    if watched.is_full:
        waits = f"; a {late.kind} has waited {late.seconds:.0f} s" if late else ""
        reason = f"every slot is taken ({watched.running_count} of {watched.slot_count}){waits}: {names}"
        return _check(role, Verdict.WARNING, reason)
    if watched.probe_seconds is not None:
        return _check(role, Verdict.OK, f"finished a probe in {watched.probe_seconds:.2f} s: {names}")
    if watched.finished_count:
        return _check(role, Verdict.OK, f"finished {watched.finished_count} tasks while it was watched: {names}")
    return _check(role, Verdict.FAILED, f"{names} answered, but finished nothing within {found.deadline_seconds:g} s")


def _longest(waiting: Sequence[Waiting], role: Role) -> Waiting | None:
    """What of a role's work has waited longest, if that is too long."""
    late = [item for item in waiting if item.kind == KINDS[role] and item.seconds >= WAITING_SECONDS]
    return max(late, key=lambda item: item.seconds, default=None)


def _check(name: str, verdict: Verdict, reason: str) -> Check:
    return Check(name=name, verdict=verdict, reason=reason)


def waited_seconds(overdue_seconds: float, sweeps: int, first_seconds: float, last_seconds: float) -> float:
    """How long a due thing has waited at least: the pauses of its sweeps (doubling up to the last), and what it is
    overdue now (negative: the sweep's pause is not over yet)."""
    pauses = (min(first_seconds * 2.0 ** min(sweep, 32), last_seconds) for sweep in range(sweeps))
    return max(0.0, sum(pauses) + overdue_seconds)
