"""A summarizer that answers nobody holds up no answer."""

from __future__ import annotations

import time

import pytest

from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills, echoed, require_answered_once, require_history
from tests.crash.cluster import Cluster
from tests.crash.conftest import Report
from tests.waiting import wait_for

pytestmark = pytest.mark.crash

FURTHER_TURNS = 200
SESSION = "unsummarized"


def test_blocked_summarizer_holds_up_no_answer(cluster: Cluster, kills: Kills, figure: Report) -> None:
    """Two hundred turns are answered while the consolidation hangs, past the limit too; then it is adopted."""
    session = cluster.sessions.open(SESSION, "talker")
    cluster.provider.hold(Kind.SUMMARIES)
    messages: list[str] = []
    turn_ids: list[str] = []

    def send() -> None:
        messages.append(f"message {len(messages)} " + "the pump is blue and stays so. " * 20)
        turn_ids.append(f"t{len(turn_ids)}")
        session.send(messages[-1], turn_id=turn_ids[-1], timeout_seconds=30.0)

    while session.view().rotation_id is None:
        send()
        assert len(messages) < FURTHER_TURNS, "no rotation was requested"
    wait_for(lambda: cluster.provider.held(Kind.SUMMARIES), what="its consolidation at the provider")
    begun = time.monotonic()
    for _ in range(FURTHER_TURNS):
        send()
    took_seconds = time.monotonic() - begun

    budgets = session.agent.budgets(session.agent.own_counter)
    assert session.view().conversation_tokens > 2 * budgets.limit_tokens
    assert session.view().epoch == 0
    assert cluster.provider.report()["sessions"][SESSION]["refused"] == 0
    cluster.provider.release(Kind.SUMMARIES)
    wait_for(lambda: session.view().epoch > 0, what="the rotation to be adopted")
    require_answered_once(cluster.store, SESSION, turn_ids, kills)
    require_history(cluster.store, SESSION, echoed(messages), kills)
    figure(f"{FURTHER_TURNS} turns in {took_seconds:.1f} s while the summarizer hung")
