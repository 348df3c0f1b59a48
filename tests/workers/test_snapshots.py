"""The snapshot cache keeps the most recently used, up to a size."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.entries import Entry
from sessionlib.layout import Layout
from sessionlib.stores.contract import AgentRef, Snapshot
from sessionlib.transcript import Transcript
from workers.snapshots import SnapshotCache


def snapshot(session_id: str, tokens: int) -> Snapshot:
    layout = Layout(live=Transcript((Entry.user("x"),), (tokens,)))
    agent = AgentRef(name="a", digest="d")
    return Snapshot(session_id=session_id, agent=agent, epoch=0, layout=layout, layout_token="", tail_token="")


def test_newest_snapshot_of_a_session_is_kept() -> None:
    """One a session; another one takes its place, and its size with it."""
    cache = SnapshotCache(capacity_tokens=100)
    cache.put(snapshot("a", 60))
    newer = replace(snapshot("a", 70), epoch=1)
    cache.put(newer)
    cache.put(snapshot("b", 30))
    assert cache.get("a") is newer
    assert cache.get("b") is not None


def test_least_recently_put_snapshots_leave_first() -> None:
    """What is above the capacity leaves, from the one that was not put for longest."""
    cache = SnapshotCache(capacity_tokens=100)
    for session_id in ("a", "b", "a", "c"):
        cache.put(snapshot(session_id, 40))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.get("c") is not None


def test_snapshot_above_the_capacity_is_kept_alone() -> None:
    """The session at work is worth more than the others."""
    cache = SnapshotCache(capacity_tokens=100)
    cache.put(snapshot("a", 40))
    cache.put(snapshot("large", 500))
    assert cache.get("a") is None
    assert cache.get("large") is not None


def test_session_that_was_never_put_is_unknown() -> None:
    """The store is asked for all of it."""
    assert SnapshotCache().get("a") is None
