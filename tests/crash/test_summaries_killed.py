"""Handoffs and digests of a long session while their workers are killed: one result each, no saved call paid again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sessionlib.stores.contract import Event, Lane
from sessionlib.summaries.purposes import Purpose
from sessionlib.summaries.validation import complaint
from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills
from tests.crash.cluster import Cluster
from tests.waiting import wait_for
from workers.client import ClientSession
from workers.demo import demo_session
from workers.replay.history import recorded_entries

pytestmark = pytest.mark.crash

SESSIONCTL = [sys.executable, "-c", "from workers.cli import main; main()"]
SESSION = "the-demo"
TASK = "write the release notes"


@pytest.fixture(scope="module")
def session(shared_cluster: Cluster) -> Iterator[ClientSession]:
    """The session that ships as example, taken over whole: its history is consolidated first."""
    history = tuple(recorded_entries(demo_session().recording))
    opened = shared_cluster.sessions.open(SESSION, "journalist", history=history)
    wait_for(lambda: opened.view().epoch > 0 and not opened.view().rotation_id, 120.0, "the history to be consolidated")
    yield opened
    opened.purge()


def test_handoff_survives_the_kill_of_its_worker(cluster: Cluster, session: ClientSession, kills: Kills) -> None:
    """Its request was open at the provider: it is asked again, and there is one handoff, also for who asks twice."""
    before = session.view()
    cluster.provider.hold(Kind.SUMMARIES)
    command = [*SESSIONCTL, "handoff", SESSION, TASK, "--id", "notes", "--json"]
    asking = subprocess.Popen(command, env=cluster.environment(), stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: cluster.provider.held(Kind.SUMMARIES) >= 1, what="the handoff to be asked for")
        kills.add(cluster.kill(summarizing(cluster, "handoff_id", "notes"), [SESSION]))
        cluster.provider.release(Kind.SUMMARIES)
        output, _ = asking.communicate(timeout=60.0)
    finally:
        asking.kill()
    assert asking.returncode == 0
    made = json.loads(output)
    assert complaint(made["text"], Purpose.HANDOFF, source="") == ""
    assert session.handoff(TASK, handoff_id="notes").text == made["text"]
    assert len(audited(cluster, session, "handed_off")) == 1
    assert session.view().next_seq == before.next_seq
    assert cluster.saved_count(SESSION, Lane.HANDOFF) == 0


def test_digests_survive_the_kill_of_their_workers(cluster: Cluster, session: ClientSession, kills: Kills) -> None:
    """Killed at the first digest and at the next: together they cover every entry once, and each is published."""
    last_seq = session.view().next_seq - 1
    cluster.provider.hold(Kind.SUMMARIES)
    assert session.digest() == "d1"
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES) >= 1, what="the digest to be asked for")
    kills.add(cluster.kill(summarizing(cluster, "digest_id", "d1"), [SESSION]))
    cluster.provider.change(summary_latency_seconds=1.0)
    cluster.provider.release(Kind.SUMMARIES)
    kills.add(cluster.kill(summarizing(cluster, "digest_id", "d2"), [SESSION]))  # what did not fit the first
    wait_for(lambda: session.journal() and session.journal()[-1].last_seq == last_seq, 60.0, "the last digest")
    spans = [(entry.first_seq, entry.last_seq) for entry in session.journal()]
    assert [first for first, _ in spans] == [1, *(last + 1 for _, last in spans[:-1])]
    assert len(audited(cluster, session, "digested")) == len(spans)
    wait_for(lambda: not cluster.store.unpublished(SESSION), what="the digests to be published")
    published = cluster.store.recent_digests("journalist", len(spans) + 1)
    assert [entry.digest_id for entry in published if entry.session_id == SESSION] == [
        entry.digest_id for entry in session.journal()
    ]


def summarizing(cluster: Cluster, kind: str, job_id: str) -> str:
    """The worker that asks for that handoff or digest; waits until it shows that it does."""

    def worker() -> str:
        phase = cluster.watcher.phase(SESSION, kind)
        return phase.worker if phase and phase.ids[kind] == job_id else ""

    return wait_for(worker, what=f"a worker of {job_id}")


def audited(cluster: Cluster, session: ClientSession, kind: str) -> list[Event]:
    return [event for event in cluster.store.audit(session.session_id) if event.kind == kind]
