"""What every kill must leave true: judged from the store, and from the provider's own counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sessionlib.archive import unpack
from sessionlib.codec import encode_entries
from sessionlib.entries import Entry
from sessionlib.stores.contract import Chunk, SessionStore, TurnState
from sessionlib.testing.answers import ECHO_CHARACTERS
from sessionlib.transcript import Transcript
from tests.crash.cluster import LEASE_SECONDS, Cluster, Kill

CLOCK_SECONDS = 0.002
"""Events are stamped in whole milliseconds."""
ALL_EVENTS = 100_000


@dataclass(slots=True)
class Kills:
    """The kills of one test, for its report."""

    report: Callable[[str], None] = print
    kills: list[Kill] = field(default_factory=list)

    def add(self, kill: Kill) -> Kill:
        self.kills.append(kill)
        self.report(str(kill))
        return kill

    def times_in_flight(self, key: str) -> int:
        """At how many kills the call with that key was open."""
        return sum(key in kill.in_flight for kill in self.kills)

    def hits(self, work: str) -> int:
        """At how many kills something of that work, SESSION/TURN, was open."""
        return sum(1 for kill in self.kills if any(key.startswith(f"{work}/") for key in kill.in_flight))

    def __str__(self) -> str:
        return "\n".join(f"{number:3} {kill}" for number, kill in enumerate(self.kills, 1))


def history(store: SessionStore, session_id: str) -> tuple[Entry, ...]:
    """All that was ever recorded: the archive, then the live entries. Fails if a sequence number is missing."""
    entries: list[Entry] = []
    chunks, live = _at_one_epoch(store, session_id)
    for chunk in chunks:
        assert chunk.first_seq == len(entries) + 1, f"{session_id}: the archive jumps to {chunk.first_seq}"
        entries.extend(unpack(chunk.data))
        assert chunk.last_seq == len(entries), f"{session_id}: a chunk ends at {len(entries)}, not {chunk.last_seq}"
    gap = f"{session_id}: the archive ends at {len(entries)}, live entries begin at {live.first_seq}"
    assert live.first_seq == len(entries) + 1, gap
    return (*entries, *live.entries)


def _at_one_epoch(store: SessionStore, session_id: str) -> tuple[Sequence[Chunk], Transcript]:
    """Archive and live entries as they were together: a rotation may be adopted between the two reads."""
    while True:
        epoch = store.view(session_id).epoch
        chunks, snapshot = store.chunks(session_id), store.snapshot(session_id)
        if snapshot.epoch == epoch:
            return chunks, snapshot.layout.live


def require_history(store: SessionStore, session_id: str, expected: Iterable[Entry], kills: Kills) -> None:
    """Archive and live entries are exactly *expected*, byte for byte: nothing lost, doubled or out of order."""
    recorded = history(store, session_id)
    assert encode_entries(recorded) == encode_entries(expected), f"{session_id} after these kills:\n{kills}"


def echoed(messages: Iterable[str]) -> list[Entry]:
    """What a session records of messages that the provider echoes."""
    pairs = [(Entry.user(text), Entry.assistant(f"Acknowledged: {text[:ECHO_CHARACTERS]}")) for text in messages]
    return [entry for pair in pairs for entry in pair]


def require_answered_once(store: SessionStore, session_id: str, turn_ids: Sequence[str], kills: Kills) -> None:
    """Each turn ended with exactly one answer, and they ended in the order in which they were handed in."""
    ends = []
    for turn_id in turn_ids:
        view = store.turn(session_id, turn_id)
        assert view is not None, f"{session_id}/{turn_id} is unknown after these kills:\n{kills}"
        assert view.state is TurnState.ANSWERED, f"{session_id}/{turn_id} is {view.state}: {view.error}\n{kills}"
        answers = [event for event in store.events(session_id, turn_id) if event.kind == "answered"]
        assert len(answers) == 1, f"{session_id}/{turn_id} was answered {len(answers)} times:\n{kills}"
        ends.append((view.first_seq, view.last_seq))
    assert ends == sorted(ends), f"{session_id}: answers are out of order:\n{kills}"


def starts(store: SessionStore, session_id: str, turn_id: str) -> list[float]:
    """When a turn was granted, in seconds since the epoch. Fails if it was while an earlier grant's lease lived.

    For turns that no worker gives back.
    """
    events = store.events(session_id, turn_id, limit=ALL_EVENTS)
    times = [event.at for event in events if event.kind == "started"]
    for earlier, later in pairwise(times):
        paused = later - earlier
        assert paused >= LEASE_SECONDS - CLOCK_SECONDS, (
            f"{session_id}/{turn_id} ran twice at once: {paused:.3f} s apart"
        )
    return times


def lapses(store: SessionStore, session_id: str, turn_id: str, kills: Kills) -> int:
    """How often a turn was granted again without a kill: something stood still for longer than its lease."""
    return max(0, len(starts(store, session_id, turn_id)) - 1 - kills.hits(f"{session_id}/{turn_id}"))


def require_asked_once(cluster: Cluster, session_id: str, turn_ids: Sequence[str]) -> None:
    """Each turn, of one model call, was asked for once; a further time only after its lease had lapsed."""
    calls = cluster.provider.calls(session_id)
    grants = sum(len(starts(cluster.store, session_id, turn_id)) for turn_id in turn_ids)
    assert len(turn_ids) <= calls <= grants, f"{session_id}: {calls} calls for {len(turn_ids)} turns, {grants} grants"


def require_not_paid_again(store: SessionStore, asked_again: Mapping[str, int], kills: Kills) -> None:
    """A key is asked once, and once more for each kill at which it was in flight, or lapse of its turn's lease: saved
    replies are not paid again."""
    for key, count in asked_again.items():
        session_id, turn_id, _ = key.split("/")
        allowed = 1 + kills.times_in_flight(key) + lapses(store, session_id, turn_id, kills)
        assert count <= allowed, f"{key} was asked {count} times, {allowed} are explained by these kills:\n{kills}"
