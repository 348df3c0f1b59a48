"""Two hundred rotations under SIGKILLs of workers and server: archive and live entries are all that was ever said."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sessionlib.entries import Entry
from sessionlib.errors import StoreUnavailable
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest
from sessionlib.running.history import SessionHistory
from sessionlib.tools.declaration import ToolContext, run_tool
from sessionlib.tools.history import history_tools
from tests.crash import agents
from tests.crash.calling import PATIENCE_SECONDS, Caller
from tests.crash.checks import Kills, require_answered_once, require_history
from tests.crash.cluster import Cluster, Kill
from tests.crash.conftest import Report
from tests.waiting import wait_for

pytestmark = pytest.mark.crash

ROTATIONS = 200
LEAST_OF_A_POLICY = 20
SESSIONS_OF_A_POLICY = 2
VICTIMS = ("front", "background", "server")
KILLS = 12
TURNS = 600
"""What is written for a session beforehand: several times what it takes."""
NOTED_EVERY = 4
"""Turns from one that writes a note to the next."""
NOTE = "log.md"
SUMMARY_SECONDS = 0.05
"""So that a kill meets consolidations under way."""
ROTATED_SECONDS = 240.0
"""For all rotations, on a machine that does other things too."""
ODD = "\r\n\ttabs, \x07, \x1b[0m, \u2028, e\u0301, ẞ, 漢字, 👩🏽‍🚀,\u00a0and blanks at the end  \n "
"""What is not to be changed on the way to the archive and back."""


def code_of(session_id: str) -> str:
    return f"QX-{sum(map(ord, session_id)) * 7_919 % 1_000_003:06}"


def message_of(session_id: str, number: int) -> str:
    """What is said in a turn: some 450 tokens."""
    planted = f" The vault of {session_id} opens with {code_of(session_id)}." if number == 0 else ""
    return f"{number}{ODD}{planted}" + f" Fact {number} of {session_id} holds." * 35 + ODD


def answer_of(session_id: str, number: int) -> str:
    return f"{ODD}Acknowledged {number} of {session_id}.{ODD}"


def notes_line(number: int) -> str:
    return f"turn {number}\n"


def note_of(turn_count: int) -> str:
    """All that was written down in so many turns."""
    return "".join(notes_line(number) for number in range(0, turn_count, NOTED_EVERY))


def call_of(number: int) -> CallRequest:
    """How a turn writes its line."""
    arguments = json.dumps({"name": NOTE, "content": notes_line(number)})
    return CallRequest(call_id=f"c{number}", name="notes.append_to_file", arguments=arguments)


def recorded_answers(session_id: str) -> dict[str, object]:
    """What the model answers in each round of each turn."""
    answers: dict[str, object] = {}
    for number in range(TURNS):
        texts: list[object] = [{"text": answer_of(session_id, number)}]
        if number % NOTED_EVERY == 0:
            call = call_of(number)
            texts.insert(0, {"calls": [{"call_id": call.call_id, "name": call.name, "arguments": call.arguments}]})
        answers |= {f"{session_id}/t{number}/model:{round}": text for round, text in enumerate(texts)}
    return answers


def expected_history(session_id: str, messages: Sequence[str]) -> Iterator[Entry]:
    """What is to be recorded of so many turns."""
    for number, message in enumerate(messages):
        yield Entry.user(message)
        if number % NOTED_EVERY == 0:
            call, size = call_of(number), len(note_of(number + 1))
            yield Entry.tool_call(call.call_id, call.arguments, call.name)
            yield Entry.tool_result(call.call_id, f"Written: {NOTE} has {size:,} bytes now.", call.name)
        yield Entry.assistant(answer_of(session_id, number))


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose server may be killed: its writes are on the disk before they are acknowledged."""
    with Cluster(tmp_path, fronts=2, backgrounds=2, fsync="always") as running:
        running.provider.change(summary_latency_seconds=SUMMARY_SECONDS)
        yield running


class Rotating:
    """Sessions of every policy, talked to all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.policies = [policy.kind for policy, _ in agents.SMALL_WINDOWS]
        self.callers: dict[str, Caller] = {}
        for policy, number in itertools.product(self.policies, range(SESSIONS_OF_A_POLICY)):
            session_id = f"{policy}-{number}"
            cluster.provider.record(session_id, recorded_answers(session_id))
            session = cluster.sessions.open(session_id, f"ageing-{policy}")
            self.callers[session_id] = Caller(session, partial(message_of, session_id))
        self._rotations = dict.fromkeys(self.callers, 0)

    def start(self) -> None:
        for caller in self.callers.values():
            caller.start()

    def rotations(self, policy: str = "") -> int:
        """How many there were, of one policy or of all. Fails if a caller cannot go on."""
        assert not (faults := [caller.fault for caller in self.callers.values() if caller.fault]), faults
        with suppress(StoreUnavailable):  # a server that was killed a moment ago
            self._rotations |= {name: self.cluster.store.view(name).epoch for name in self.callers}
        return sum(count for name, count in self._rotations.items() if name.startswith(policy))

    def await_rotations(self, count: int, deadline: float) -> None:
        """Wait until there were so many."""
        left_seconds = max(0.1, deadline - time.monotonic())
        wait_for(lambda: self.rotations() >= count, left_seconds, f"{count} rotations")

    def is_done(self) -> bool:
        least = min(self.rotations(policy) for policy in self.policies)
        return self.rotations() >= ROTATIONS and least >= LEAST_OF_A_POLICY

    def stop(self) -> None:
        """Let every caller have the answer that it waits for."""
        for caller in self.callers.values():
            caller.stopped.set()
        for caller in self.callers.values():
            caller.join(PATIENCE_SECONDS)
            assert not caller.is_alive(), f"{caller.name} waits for its turn {len(caller.answered)}"
            assert caller.fault is None, caller.fault
        self.cluster.wait_idle()

    def kill(self, victim: str, number: int) -> Kill:
        """Kill the server, or the worker of a role whose turn it is, when it has something in flight."""
        ids = list(self.callers)
        if victim == "server":
            self._await_work("")
            return self.cluster.kill_server(ids)
        names = self.cluster.fronts if victim == "front" else self.cluster.backgrounds
        name = names[number % len(names)]
        self.cluster.wait_ready(name)
        self._await_work(name)
        return self.cluster.kill(name, ids)

    def _await_work(self, worker: str) -> None:
        """Wait until a worker ("" for any) has begun something that is not saved."""
        wait_for(lambda: any(self.cluster.in_flight(self.callers, worker)), what=f"work of {worker or 'anybody'}")


def searched(cluster: Cluster, session_id: str, query: str) -> str:
    """What the agent's own search of its history finds."""
    store, agent = cluster.store, cluster.sessions.get(session_id).agent
    counter = agent.own_counter
    projection = Projection(counter, agent.budgets(counter).result_cap_tokens)
    tools = history_tools(SessionHistory(store, projection, lambda: store.snapshot(session_id)), projection)
    call = CallRequest(call_id="c", name="history.search", arguments=json.dumps({"query": query}))
    return run_tool(tools, call, ToolContext(session_id=session_id, turn_id="t", call_id="c")).text


def test_two_hundred_rotations_under_kills_keep_every_byte(own_cluster: Cluster, kills: Kills, figure: Report) -> None:
    """Workers and server are killed on the way: nothing is lost, doubled, out of order or changed, whatever the policy;
    notes are written once; and what was said in the first window is found."""
    cluster, rotating = own_cluster, Rotating(own_cluster)
    begun = time.monotonic()
    rotating.start()
    for number in range(KILLS):
        rotating.await_rotations((number + 1) * ROTATIONS // (KILLS + 1), begun + ROTATED_SECONDS)
        kills.add(rotating.kill(VICTIMS[number % len(VICTIMS)], number // len(VICTIMS)))
    wait_for(rotating.is_done, max(0.1, begun + ROTATED_SECONDS - time.monotonic()), f"{ROTATIONS} rotations")
    rotating.stop()
    took_seconds = time.monotonic() - begun

    for session_id, caller in rotating.callers.items():
        require_answered_once(cluster.store, session_id, caller.turn_ids, kills)
        require_history(cluster.store, session_id, expected_history(session_id, caller.answered), kills)
        assert cluster.store.note(session_id, NOTE) == note_of(len(caller.answered)), session_id
        first_chunk = cluster.store.chunks(session_id, 1, 1)[0]
        assert first_chunk.epoch == 1
        found = searched(cluster, session_id, f"Which code opens the vault of {session_id}?")
        assert code_of(session_id) in found, found
    assert all(any(kill.in_flight for kill in kills.kills if kill.name.startswith(victim)) for victim in VICTIMS), kills
    turns = sum(len(caller.answered) for caller in rotating.callers.values())
    counts = ", ".join(f"{rotating.rotations(policy)} of {policy}" for policy in rotating.policies)
    figure(f"{rotating.rotations()} rotations ({counts}) in {took_seconds:.1f} s, {turns} turns, {KILLS} kills")
