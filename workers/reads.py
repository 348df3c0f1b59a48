"""What can be asked of the Redis store; nothing here writes to a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessionlib.errors import StoreCorrupt, UnknownSession
from sessionlib.ids import require_id
from sessionlib.stores import checks
from sessionlib.stores.contract import (
    Chunk,
    ChunkRef,
    Event,
    Handle,
    PostingsRef,
    SessionView,
    Snapshot,
    TurnView,
)
from workers import wire
from workers.connection import store_errors
from workers.scripted import ScriptedStore


class StoreReads(ScriptedStore):
    """The reading half of SessionStore, but for what the lanes of jobs leave."""

    def snapshot(self, session_id: str, known: Snapshot | None = None) -> Snapshot:
        reply = self._known("snapshot", session_id, *wire.known_arguments(session_id, known))
        return wire.read_snapshot(session_id, wire.fields_of(reply[0]), reply[1:], known)

    def turn(self, session_id: str, turn_id: str) -> TurnView | None:
        fields = wire.fields_of(self._run("turn", session_id, require_id("turn_id", turn_id)))
        return wire.read_turn(turn_id, fields) if fields else None

    def view(self, session_id: str) -> SessionView:
        return wire.read_view(session_id, self._known("view", session_id))

    def handles_to_dispose(self, session_id: str) -> Sequence[Handle]:
        try:
            return wire.read_handles(wire.fields_of(self._known("view", session_id)[1]))
        except UnknownSession:
            return ()

    def agent_json(self, session_id: str) -> str:
        """Two reads: a description never changes under its digest, and is never deleted."""
        digest = self.view(session_id).agent.digest
        with store_errors():
            description = self.client.hget(self.keys.shared("agents", self.keys.partition(session_id)), digest)
        if description is None:
            raise StoreCorrupt(f"session {session_id} follows agent version {digest}, which is not stored")
        return str(description.decode())

    def events(self, session_id: str, turn_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        require_id("session_id", session_id)
        require_id("turn_id", turn_id)
        checks.check_event_id("after", after)
        self._check_once()
        keys = [self.keys.events(session_id, turn_id), self.keys.deltas(session_id, turn_id)]
        return wire.read_turn_events(self.scripts.run("events", keys, _after(after), limit), limit)

    def audit(self, session_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        key = self.keys.own("audit", require_id("session_id", session_id))
        checks.check_event_id("after", after)
        self._check_once()
        with store_errors():
            return wire.read_events(self.client.xrange(key, min=_after(after), count=limit))

    def sessions(self, partition: int, cursor: str = "", limit: int = 100) -> tuple[Sequence[str], str]:
        """Ids in the order of their bytes; the cursor is the last id of a page."""
        self._require_partition(partition)
        start = f"({cursor}" if cursor else "-"
        with store_errors():
            found = self.client.zrangebylex(self.keys.shared("index", partition), start, "+", start=0, num=limit + 1)
        ids = [raw.decode() for raw in found]
        return ids[:limit], ids[limit - 1] if len(ids) > limit else ""

    def chunks(self, session_id: str, first_seq: int = 1, last_seq: int | None = None) -> Sequence[Chunk]:
        """Chunks lie in order and never overlap, by their last sequence number: the span ends in one more at most."""
        key = self.keys.own("archive", require_id("session_id", session_id))
        self._check_once()
        with store_errors():
            if last_seq is None:
                return [wire.read_chunk(raw) for raw in self.client.zrangebyscore(key, first_seq, "+inf")]
            inside = self.client.zrangebyscore(key, first_seq, last_seq)
            beyond = self.client.zrangebyscore(key, f"({last_seq}", "+inf", start=0, num=1)
        chunks = [wire.read_chunk(raw) for raw in (*inside, *beyond)]
        return [chunk for chunk in chunks if chunk.last_seq >= first_seq and chunk.first_seq <= last_seq]

    def archive_index(self, session_id: str, limit: int = 1_000) -> Sequence[ChunkRef]:
        checks.check_count("limit", limit)
        return [wire.read_chunk_ref(raw) for raw in reversed(self._run("archive_index", session_id, limit))]

    def postings_index(self, session_id: str) -> Sequence[PostingsRef]:
        return [wire.read_postings_ref(raw) for raw in self._run("postings_index", session_id)]

    def postings(self, session_id: str, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        checks.check_wanted(wanted)
        parts: list[bytes] = self._run("postings", session_id, *(f"{last_seq}:{part}" for last_seq, part in wanted))
        return parts

    def notes(self, session_id: str) -> Mapping[str, int]:
        flat = self._run("notes", session_id)
        return dict(sorted((name.decode(), int(size)) for name, size in zip(flat[::2], flat[1::2], strict=True)))

    def note(self, session_id: str, name: str) -> str | None:
        checks.check_note_name(name)
        text = self._run("note", session_id, name)
        return None if text is None else str(text.decode())

    def counters(self, partition: int) -> dict[str, int]:
        """Figures of a partition: `unfinished` turns, `sessions`, turns by end state, `rotations`, `resets` among them,
        `rotations_failed:<code>`, `brakes`, `braked`, `fill:<tenths>`.

        `fill:7` counts sessions whose conversation takes seven tenths of their rotation line, `fill:10` those past it.
        `brakes` counts how often a brake engaged, `braked` the open sessions whose brake is on now.
        """
        self._require_partition(partition)
        with store_errors():
            counted = self.client.hgetall(self.keys.shared("counters", partition))
        return {name.decode(): int(value) for name, value in counted.items()}


def _after(event_id: str) -> str:
    """From where on a stream is read."""
    return f"({event_id}" if event_id else "-"
