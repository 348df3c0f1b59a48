"""World: a whole store as one frozen, hashable value. Pairs and rows stand in the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sessionlib.layout import Carried, Record
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import Chunk, DueKind, Lane, Postings, TurnInput
from sessionlib.stores.rules.state import Head, Job, LiveEntry, StoredDigest, StoredEvent, StoredNote, Turn

Step = tuple[str, EffectResult]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBox:
    """All that is kept of one session. Pairs stand in the order in which they were made."""

    head: Head | None = None
    turns: tuple[tuple[str, Turn], ...] = ()
    inputs: tuple[tuple[str, TurnInput], ...] = ()
    inbox: tuple[str, ...] = ()
    turn_steps: tuple[Step, ...] = ()
    rotation_steps: tuple[Step, ...] = ()
    handoff_steps: tuple[Step, ...] = ()
    digest_steps: tuple[Step, ...] = ()
    jobs: tuple[tuple[tuple[Lane, str], Job], ...] = ()
    journal: tuple[StoredDigest, ...] = ()
    live: tuple[LiveEntry, ...] = ()
    records: tuple[Record, ...] = ()
    carried: Carried | None = None
    chunks: tuple[Chunk, ...] = ()
    postings: tuple[Postings, ...] = ()
    notes: tuple[tuple[str, StoredNote], ...] = ()
    events: tuple[tuple[str, int, StoredEvent], ...] = ()
    """Each with its turn, and its number there."""
    audit: tuple[StoredEvent, ...] = ()
    audit_dropped: int = 0
    """Audit lines that its limit pushed out: the ids of the others go on."""


@dataclass(frozen=True, slots=True)
class DueMember:
    """One unfinished thing: when it is looked at again, and how often it was swept since it was last set."""

    session_id: str
    kind: DueKind
    work_id: str
    at: float
    sweeps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A whole store."""

    sessions: tuple[tuple[str, SessionBox], ...] = ()
    due: tuple[DueMember, ...] = ()
    agents: tuple[tuple[str, str], ...] = ()
    published: tuple[tuple[str, tuple[StoredDigest, ...]], ...] = ()
    """Digests of each agent's sessions, by the agent's name."""
    unfinished: int = 0

    def box(self, session_id: str) -> SessionBox:
        return dict(self.sessions).get(session_id, SessionBox())

    def digests_of(self, agent_name: str) -> tuple[StoredDigest, ...]:
        return dict(self.published).get(agent_name, ())

    def with_digests_of(self, agent_name: str, digests: tuple[StoredDigest, ...]) -> World:
        return replace(self, published=with_pair(self.published, agent_name, digests))

    def with_box(self, session_id: str, box: SessionBox) -> World:
        """The same store with one session changed; an empty box is none."""
        others = {key: value for key, value in self.sessions if key != session_id}
        if box != SessionBox():
            others[session_id] = box
        return replace(self, sessions=tuple(sorted(others.items(), key=lambda pair: pair[0])))


@dataclass(frozen=True, slots=True)
class MemoryJournal:
    """Digests in the order in which they were added. They are read each time, and put back whole."""

    stored: Callable[[], tuple[StoredDigest, ...]]
    put_back: Callable[[tuple[StoredDigest, ...]], None]

    def digests(self, after: float, limit: int) -> Sequence[StoredDigest]:
        return self._newest(after, limit)

    def _newest(self, after: float, limit: int) -> tuple[StoredDigest, ...]:
        kept = sorted((digest for digest in self.stored() if digest.at > after), key=lambda digest: digest.at)
        return tuple(kept[max(0, len(kept) - limit) :])

    def unpublished(self, after: float) -> Sequence[StoredDigest]:
        return [digest for digest in self._newest(after, len(self.stored())) if not digest.is_published]

    def digest(self, session_id: str, digest_id: str) -> StoredDigest | None:
        return self._by_ids().get((session_id, digest_id))

    def put(self, digest: StoredDigest) -> None:
        self.put_back(tuple({**self._by_ids(), (digest.session_id, digest.digest_id): digest}.values()))

    def _by_ids(self) -> dict[tuple[str, str], StoredDigest]:
        return {(digest.session_id, digest.digest_id): digest for digest in self.stored()}

    def cut(self, after: float, limit: int) -> None:
        self.put_back(self._newest(after, limit))


def with_pair(pairs: tuple[tuple[Key, Value], ...], key: Key, value: Value) -> tuple[tuple[Key, Value], ...]:
    """The pairs with that one added at the end, or put in the place of the one with its key."""
    return tuple({**dict(pairs), key: value}.items())
