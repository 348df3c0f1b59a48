"""The ways in which a session may start from others: with nothing, a handoff, a whole conversation, its last turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessionlib.archive import entries_of
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import InvalidInput, UnknownSession
from sessionlib.handoffs import RECALLED_DIGESTS, Handoff, handoff_entry, journal_entry
from sessionlib.ids import require_id
from sessionlib.stores.contract import SessionStore, Snapshot
from sessionlib.transcript import closed_boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a new session begins with, beside what it is told next. Raises InvalidInput for two beginnings at once."""

    history: Sequence[Entry] = ()
    """A conversation that was held elsewhere."""
    from_handoff: Handoff | None = None
    from_session: str | None = None
    """Another session, whose conversation is copied: all of it, or its last turns."""
    last_turns: int | None = None
    """With `from_session`: how many turns of it, counted from the end."""
    recent_digests: bool = False
    """Begin with the newest digests of the agent's other sessions."""

    def __post_init__(self) -> None:
        given = [bool(self.history), self.from_handoff is not None, self.from_session is not None]
        if sum(given) > 1:
            raise InvalidInput("history", "…", "must be given alone: it, from_handoff and from_session exclude another")
        if self.history and self.recent_digests:
            raise InvalidInput("recent_digests", True, "must be absent with history, which is taken over as it is")
        if self.from_handoff is not None and not isinstance(self.from_handoff, Handoff):
            raise InvalidInput("from_handoff", self.from_handoff, "must be a Handoff")
        if self.from_session is not None:
            require_id("from_session", self.from_session)
        if self.last_turns is not None:
            if self.from_session is None:
                raise InvalidInput("last_turns", self.last_turns, "must come with from_session")
            if isinstance(self.last_turns, bool) or not isinstance(self.last_turns, int) or self.last_turns < 1:
                raise InvalidInput("last_turns", self.last_turns, "must be a number of turns, at least 1")


def starting_history(store: SessionStore, session_id: str, agent_name: str, start: Start) -> tuple[Entry, ...]:
    """The entries with which a session is opened. What is taken from other sessions only begins a new one: for a
    session that is there, only `history` is left, as what it was opened with. Raises UnknownSession for a source."""
    if start.history or not (start.from_handoff or start.from_session or start.recent_digests):
        return tuple(start.history)
    if is_there(store, session_id):
        return ()
    recalled = journal_entry(store.recent_digests(agent_name, RECALLED_DIGESTS)) if start.recent_digests else None
    opening = (recalled,) if recalled else ()
    if start.from_handoff is not None:
        return (*opening, handoff_entry(start.from_handoff))
    if start.from_session is not None:
        return (*opening, *_conversation(store, start.from_session, start.last_turns))
    return opening


def is_there(store: SessionStore, session_id: str) -> bool:
    """Whether a session was opened and is not purged."""
    try:
        store.view(session_id)
    except UnknownSession:
        return False
    return True


def _conversation(store: SessionStore, session_id: str, last_turns: int | None) -> tuple[Entry, ...]:
    """A session's entries from the first on, or its last turns; without calls that are still open."""
    snapshot = store.snapshot(session_id)
    entries = all_entries(store, snapshot, 1, snapshot.layout.live.next_seq - 1)
    entries = entries[: closed_boundary(entries, len(entries))]
    if last_turns is None:
        return entries
    starts = [position for position, entry in enumerate(entries) if entry.kind is EntryKind.USER]
    return entries[starts[-last_turns] :] if len(starts) > last_turns else entries


def all_entries(store: SessionStore, snapshot: Snapshot, first_seq: int, last_seq: int) -> tuple[Entry, ...]:
    """The entries `first_seq … last_seq` of a session, archived and live."""
    live = snapshot.layout.live
    archived = min(last_seq, live.first_seq - 1)
    older = entries_of(store.chunks(snapshot.session_id, first_seq, archived), first_seq, archived)
    start, end = max(first_seq, live.first_seq) - live.first_seq, last_seq + 1 - live.first_seq
    return (*older, *live.entries[start : max(start, end)])
