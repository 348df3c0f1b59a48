"""A worker killed while it streams an answer: its reader is told that the text begins anew, and ends with all of it."""

from __future__ import annotations

import threading

import pytest

from sessionlib.deltas import DELTA, RESTARTED, Shown
from sessionlib.stores.contract import Event
from sessionlib.testing.fake_provider import Kind
from tests.crash.checks import Kills, require_answered_once
from tests.crash.cluster import Cluster
from tests.waiting import wait_for
from workers.client import Turn

pytestmark = pytest.mark.crash

TEXT = "The pump is blue, and has been since the spring of last year."


class Reader:
    """Reads a turn's events on a thread, to their end."""

    def __init__(self, turn: Turn) -> None:
        self.events: list[Event] = []
        self._turn = turn
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def kinds(self) -> list[str]:
        return [event.kind for event in list(self.events)]

    def join(self) -> None:
        self._thread.join(30.0)

    def _read(self) -> None:
        for event in self._turn.events():
            self.events.append(event)


def test_stream_goes_on_in_another_worker(cluster: Cluster, kills: Kills) -> None:
    """The next attempt's first event declares void what was shown; each event comes once; the answer is whole."""
    session_id = "streamed"
    cluster.provider.record(session_id, {f"{session_id}/t/model:0": {"text": TEXT}})
    cluster.provider.hold(Kind.STREAMS)
    session = cluster.sessions.open(session_id, "talker")
    reader = Reader(session.submit("What colour is the pump?", turn_id="t", stream=True))
    wait_for(lambda: DELTA in reader.kinds(), what="the first piece")
    kills.add(cluster.kill(cluster.worker_of(session_id), [session_id]))
    wait_for(lambda: reader.kinds()[-2:] == [RESTARTED, DELTA], what="the first piece of another attempt")
    cluster.provider.release(Kind.STREAMS)
    reader.join()

    assert session.get_turn("t").answer(30.0).text == TEXT
    require_answered_once(cluster.store, session_id, ["t"], kills)
    kinds = reader.kinds()
    assert kinds[:6] == ["queued", "started", DELTA, "started", RESTARTED, DELTA], str(kills)
    assert kinds.count(RESTARTED) == 1, str(kills)
    ids = [tuple(map(int, event.id.split("-"))) for event in reader.events]
    assert ids == sorted(set(ids))
    attempts = [event.data["attempt"] for event in reader.events if event.kind == DELTA]
    assert attempts == sorted(attempts)
    assert set(attempts) == {1, 2}
    assert shown(reader.events) == TEXT


def shown(events: list[Event]) -> str:
    """What stands on the reader's screen in the end."""
    screen, text = Shown(), ""
    for event in events:
        for delta in screen.take(event.kind, event.data):
            text = "" if delta.is_restart else text + delta.text
    return text
