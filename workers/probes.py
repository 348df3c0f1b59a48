"""Finds out what health is judged from: asks the store's servers, and has each kind of worker finish a probe."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from celery import Celery
from kombu.exceptions import OperationalError

from sessionlib.errors import UnknownSession
from workers.app import make_app
from workers.connection import store_errors
from workers.health import KINDS, QUEUES, Observations, Role, ServerFigures, Waiting, Watched, waited_seconds
from workers.settings import Settings
from workers.store import RedisStore

PROBE = "upkeep.ping"
ASK_SECONDS = 1.0
"""How long answers to one question to all workers are collected."""
ASKING_FRACTION = 0.5
"""Share of the deadline for workers to answer; the rest is for those that did, to finish a probe."""
PROBE_AGAIN_SECONDS = 0.5
"""A probe that ended before events were listened to is not seen: it is sent again."""
LOOK_SECONDS = 0.1
MEMBERS_LOOKED_AT = 1_000
"""Due things looked at in a partition: enough to find what waits, few enough for a server with a million."""
SESSIONS_LOOKED_AT = 50
"""Sessions of which it is asked whether what waits could begin, those with the longest wait first."""

BROKER_ERRORS = (OperationalError, ConnectionError, TimeoutError, OSError)


def observe(settings: Settings, roles: Sequence[Role], deadline_seconds: float) -> Observations:
    """Look at the store, and at the workers of *roles* for at most *deadline_seconds*. Raises StoreUnavailable.

    Nothing of any session is changed, and no message is left where no worker takes it.
    """
    worker_roles = [role for role in roles if role in QUEUES]
    store = RedisStore.connect(settings)
    try:
        servers = server_figures(store)
        waiting = tuple(waiting_work(store)) if worker_roles else ()
        braked = braked_count(store) if "store" in roles else 0
    finally:
        store.close_connections()
    watched: Mapping[Role, Watched] = {}
    broker_error = ""
    try:
        if worker_roles:
            watched = watch(make_app(settings), worker_roles, deadline_seconds)
    except BROKER_ERRORS as exc:
        broker_error = type(exc).__name__
    return Observations(
        servers=servers,
        waiting=waiting,
        braked_count=braked,
        watched=watched,
        broker_error=broker_error,
        deadline_seconds=deadline_seconds,
    )


def server_figures(store: RedisStore) -> tuple[ServerFigures, ...]:
    """What the store's servers say of themselves. INFO only: managed servers refuse CONFIG."""
    with store_errors():
        memory, persistence = _nodes(store.client.info("memory")), _nodes(store.client.info("persistence"))
    return tuple(
        ServerFigures(
            maxmemory_policy=str(memory[node].get("maxmemory_policy", "unknown")),
            is_append_only=bool(persistence.get(node, {}).get("aof_enabled")),
            used_bytes=int(memory[node].get("used_memory", 0)),
            limit_bytes=int(memory[node].get("maxmemory", 0)),
        )
        for node in memory
    )


def braked_count(store: RedisStore) -> int:
    """Open sessions whose brake is on, by the counters of all partitions: one exchange, however many there are."""
    with store_errors(), store.client.pipeline(transaction=False) as pipeline:
        for partition in range(store.partition_count):
            pipeline.hget(store.keys.shared("counters", partition), "braked")
        return sum(int(counted or 0) for counted in pipeline.execute())


def _nodes(info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Sections by node: a cluster answers with one a node."""
    if info and all(isinstance(section, Mapping) for section in info.values()):
        return dict(info)
    return {"": info}


def waiting_work(store: RedisStore) -> list[Waiting]:
    """Turns and rotations that could begin, were hinted at and did not. Reads only: nothing is swept by it."""
    with store_errors():
        now = _server_seconds(store)
        members = [member for partition in range(store.partition_count) for member in _overdue(store, partition, now)]
    by_session: dict[str, list[_Member]] = {}
    for member in sorted(members, key=lambda member: member.seconds, reverse=True):
        by_session.setdefault(member.session_id, []).append(member)
    waiting: list[Waiting] = []
    for session_id in islice(by_session, SESSIONS_LOOKED_AT):
        ready = ready_work(store, session_id)
        waiting += [
            Waiting(kind=member.kind, session_id=session_id, seconds=member.seconds)
            for member in by_session[session_id]
            if member.work_id in ready
        ]
    return waiting


def _server_seconds(store: RedisStore) -> float:
    answer = store.client.time()
    seconds, microseconds = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return float(seconds) + float(microseconds) / 1e6


class _Member(NamedTuple):
    """A due thing, and how long it has been due."""

    kind: str
    session_id: str
    work_id: str
    seconds: float


def _overdue(store: RedisStore, partition: int, now: float) -> Iterator[_Member]:
    """Turns and rotations that were swept, or should have been, since somebody last worked on them."""
    due, _timers, sweeps_key, *_ = store.keys.of_partition(partition)
    overdue = store.client.zrange(due, "-inf", now, byscore=True, offset=0, num=MEMBERS_LOOKED_AT, withscores=True)
    scores: dict[bytes, float] = dict(overdue)
    swept: dict[bytes, bytes] = dict(islice(store.client.hscan_iter(sweeps_key), MEMBERS_LOOKED_AT))
    for member in scores.keys() | swept.keys():
        kind, session_id, work_id = member.decode().split("|", 2)
        score = scores[member] if member in scores else store.client.zscore(due, member)
        if score is None or kind not in KINDS.values():
            continue
        sweeps = sweep_count(swept.get(member, b""), score)
        if sweeps or score < now:
            pauses = store.limits.sweep_first_seconds, store.limits.sweep_last_seconds
            yield _Member(kind, session_id, work_id, waited_seconds(now - score, sweeps, *pauses))


def sweep_count(value: bytes, score: float) -> int:
    """How often a member was swept, from the "<times> <score>" that workers/lua/due.lua keeps: a member that stands
    elsewhere was moved by somebody who works on it."""
    times, _, at = value.partition(b" ")
    return int(times) if at and float(at) == score else 0


def ready_work(store: RedisStore, session_id: str) -> frozenset[str]:
    """Ids of what a worker could begin or go on with: the rotation, and the turn that runs or else the next.

    Turns wait behind others, for the results of open calls, or for a caller who runs them; that is no worker's fault.
    """
    try:
        view = store.view(session_id)
    except UnknownSession:
        return frozenset()
    next_turn = None if view.open_calls else next(iter(view.queued), None)
    with store_errors():
        ready = {
            work_id for work_id in (view.running or next_turn,) if work_id and not _is_own(store, session_id, work_id)
        }
    return frozenset(ready | ({view.rotation_id} if view.rotation_id else set()))


def _is_own(store: RedisStore, session_id: str, turn_id: str) -> bool:
    """Whether its caller runs the turn."""
    return bool(store.client.hget(store.keys.turn(session_id, turn_id), "is_own") == b"1")


def listening(app: Celery, roles: Iterable[Role], seconds: float = ASK_SECONDS) -> dict[Role, tuple[str, ...]]:
    """The workers that answer, by role: those that take messages from its queue."""
    answers: dict[str, list[dict[str, Any]]] = app.control.inspect(timeout=seconds).active_queues() or {}
    return {
        role: tuple(
            sorted(
                name for name, queues in answers.items() if QUEUES[role] in {queue["name"] for queue in queues or []}
            )
        )
        for role in roles
    }


@dataclass
class _Seen:
    """Ends of tasks, as workers report them."""

    probes: dict[str, tuple[Role, float]] = field(default_factory=dict)
    """Probes on their way: role and when it was sent, by task id."""
    probe_seconds: dict[Role, float] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    """Other tasks that ended, by worker."""

    def end(self, event: Mapping[str, Any]) -> None:
        """Note a `task-succeeded` or `task-failed` event."""
        role, sent_at = self.probes.get(str(event.get("uuid")), (None, 0.0))
        if role is None:
            name = str(event.get("hostname"))
            self.finished[name] = self.finished.get(name, 0) + 1
        elif event.get("type") == "task-succeeded":
            self.probe_seconds.setdefault(role, time.monotonic() - sent_at)


def watch(app: Celery, roles: Sequence[Role], deadline_seconds: float) -> dict[Role, Watched]:
    """Have the workers of each role finish a probe. Raises what the broker's transport raises."""
    begun = time.monotonic()
    workers = listening(app, roles, min(ASK_SECONDS, deadline_seconds * ASKING_FRACTION))
    while not all(workers.values()) and time.monotonic() < begun + deadline_seconds * ASKING_FRACTION:
        workers = listening(app, roles)
    seen = _Seen()
    _probe(app, [role for role in roles if workers[role]], seen, begun + deadline_seconds)
    loads = _loads(app, [name for role in roles if role not in seen.probe_seconds for name in workers[role]])
    return {
        role: Watched(
            workers=workers[role],
            probe_seconds=seen.probe_seconds.get(role),
            finished_count=sum(seen.finished.get(name, 0) for name in workers[role]),
            running_count=sum(loads[name][0] for name in workers[role] if name in loads),
            slot_count=sum(loads[name][1] for name in workers[role] if name in loads),
        )
        for role in roles
    }


def _probe(app: Celery, roles: Sequence[Role], seen: _Seen, deadline: float) -> None:
    """Send probes, and listen, until each role has finished one or the time is up."""
    with app.connection_for_read() as connection:
        handlers = {"task-succeeded": seen.end, "task-failed": seen.end}
        receiver = app.events.Receiver(connection, handlers=handlers)
        with receiver.Consumer() as (listened, _channel, _consumers):
            send_at = 0.0
            while (missing := [role for role in roles if role not in seen.probe_seconds]) and (
                (now := time.monotonic()) < deadline
            ):
                if now >= send_at:
                    send_at = now + PROBE_AGAIN_SECONDS
                    _send(app, missing, seen, deadline - now)
                try:
                    listened.drain_events(timeout=LOOK_SECONDS)
                except TimeoutError:
                    continue


def _send(app: Celery, roles: Sequence[Role], seen: _Seen, left_seconds: float) -> None:
    """A probe into each role's queue; one that nobody takes in time is dropped by whoever takes it later."""
    for role in roles:
        queue = QUEUES[role]
        sent = app.send_task(PROBE, queue=queue, routing_key=queue, expires=left_seconds + 1.0, retry=False)
        seen.probes[str(sent.id)] = (role, time.monotonic())


def _loads(app: Celery, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Running tasks and slots of workers that finished no probe."""
    if not names:
        return {}
    inspect = app.control.inspect(destination=list(names), timeout=ASK_SECONDS)
    active, stats = inspect.active() or {}, inspect.stats() or {}
    return {
        name: (len(active.get(name) or ()), int(stats[name].get("pool", {}).get("max-concurrency", 0)))
        for name in names
        if name in stats
    }
