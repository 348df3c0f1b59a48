"""What a cluster is doing, for the report of a test that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from tests.crash.cluster import Cluster

RECENT = 4
"""Sessions that are shown though they have nothing to do: those that changed last."""
EVENTS = 6
LOG_LINES = 15
HEAD_FIELDS = ("state", "epoch", "turn:", "rotation", "handoff", "digest", "backoff", "no_gain", "live_", "record_")
"""What names of a session's fields begin with that are shown."""


def state_of(cluster: Cluster) -> str:
    """The provider's held calls, what is due, sessions with their newest phases and events, the ends of the logs."""
    parts = (_provider, _due, _sessions, _logs)
    return "\n".join(line for part in parts for line in _told(part, cluster))


def _told(part: Callable[[Cluster], Iterable[str]], cluster: Cluster) -> Iterator[str]:
    try:
        yield from part(cluster)
    except Exception as exc:  # noqa: BLE001 - the test failed because of something: the other parts may tell of what
        yield f"not to be had: {type(exc).__name__}: {exc}"


def _provider(cluster: Cluster) -> Iterator[str]:
    report = cluster.provider.report()
    yield f"held: {report['held']}; consolidations answered: {report['consolidation_count']}"


def _due(cluster: Cluster) -> Iterator[str]:
    now = time.time()
    for member, at in cluster.unfinished().items():
        yield f"unfinished: {member}, looked at in {at - now:.2f} s"


def _sessions(cluster: Cluster) -> Iterator[str]:
    views = [cluster.store.view(session_id) for session_id in cluster.sessions]
    busy = {member.split("|")[1] for member in cluster.unfinished()}
    newest_first = sorted(views, key=lambda view: -view.updated_at)
    recent = {view.session_id for view in newest_first[:RECENT]}
    for view in newest_first:
        if view.session_id in busy | recent:
            yield from _told(lambda cluster, session_id=view.session_id: _session(cluster, session_id), cluster)  # type: ignore[misc]


def _session(cluster: Cluster, session_id: str) -> Iterator[str]:
    fields = cluster.store.client.hgetall(cluster.store.keys.own("head", session_id))
    shown = {name.decode(): value.decode(errors="replace") for name, value in sorted(fields.items()) if value}
    yield f"{session_id}: " + ", ".join(
        f"{name}={value}" for name, value in shown.items() if name.startswith(HEAD_FIELDS)
    )
    for kind in ("turn_id", "rotation_id", "handoff_id", "digest_id"):
        if phase := cluster.watcher.phase(session_id, kind):
            yield f"    {phase.worker} showed {phase.name} {time.time() - phase.at:.2f} s ago: {phase.ids}"
    for event in list(cluster.store.audit(session_id))[-EVENTS:]:
        yield f"    {time.time() - event.at:.2f} s ago: {event.kind} {event.data}"


def _logs(cluster: Cluster) -> Iterator[str]:
    for name in (*cluster.fronts, *cluster.backgrounds):
        lines = cluster.log_path(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
        yield "\n    ".join([f"{name} (process {cluster.pid(name)}) logged last:", *lines])
