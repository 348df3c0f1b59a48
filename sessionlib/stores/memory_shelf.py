"""The shelf of a MemoryStore: it reads a world, and replaces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sessionlib.layout import Carried, Record
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import (
    Chunk,
    ChunkRef,
    DueKind,
    JobState,
    Lane,
    Postings,
    PostingsRef,
    TurnInput,
)
from sessionlib.stores.memory_due import by_time
from sessionlib.stores.memory_world import DueMember, MemoryJournal, SessionBox, Step, World, with_pair
from sessionlib.stores.rules.state import Head, Job, LiveEntry, StoredDigest, StoredEvent, StoredNote, Turn

BULK = (
    *("turns", "inputs", "inbox", "live", "chunks", "postings", "notes", "events", "audit", "jobs", "journal"),
    *(f"{lane}_steps" for lane in Lane),
)
"""What a purge deletes in batches."""


@dataclass
class MemoryShelf:
    """One session of a world inside one transaction: `world` is replaced, never changed."""

    session_id: str
    world: World
    box: SessionBox = field(init=False)

    def __post_init__(self) -> None:
        self.box = self.world.box(self.session_id)

    def result(self) -> World:
        return self.world.with_box(self.session_id, self.box)

    def head(self) -> Head | None:
        return self.box.head

    def put_head(self, head: Head) -> None:
        self.box = replace(self.box, head=head)

    def drop_head(self) -> None:
        self.box = replace(self.box, head=None)

    def turn(self, turn_id: str) -> Turn | None:
        return dict(self.box.turns).get(turn_id)

    def put_turn(self, turn: Turn) -> None:
        self.box = replace(self.box, turns=with_pair(self.box.turns, turn.turn_id, turn))

    def input(self, turn_id: str) -> TurnInput | None:
        return dict(self.box.inputs).get(turn_id)

    def put_input(self, turn_id: str, value: TurnInput) -> None:
        self.box = replace(self.box, inputs=with_pair(self.box.inputs, turn_id, value))

    def drop_input(self, turn_id: str) -> None:
        self.box = replace(self.box, inputs=tuple(pair for pair in self.box.inputs if pair[0] != turn_id))

    def forget_turns(self, finished_before: float, limit: int) -> None:
        old = [key for key, turn in self.box.turns if turn.state.is_finished and turn.finished <= finished_before]
        forgotten = set(old[:limit])
        self.box = replace(
            self.box,
            turns=tuple(pair for pair in self.box.turns if pair[0] not in forgotten),
            inputs=tuple(pair for pair in self.box.inputs if pair[0] not in forgotten),
            events=tuple(event for event in self.box.events if event[0] not in forgotten),
        )

    def inbox(self) -> Sequence[str]:
        return self.box.inbox

    def inbox_front(self) -> str | None:
        return self.box.inbox[0] if self.box.inbox else None

    def inbox_count(self) -> int:
        return len(self.box.inbox)

    def push(self, turn_id: str, *, front: bool) -> None:
        inbox = (turn_id, *self.box.inbox) if front else (*self.box.inbox, turn_id)
        self.box = replace(self.box, inbox=inbox)

    def pull(self, turn_id: str) -> None:
        self.box = replace(self.box, inbox=tuple(queued for queued in self.box.inbox if queued != turn_id))

    def steps(self, lane: Lane) -> Sequence[Step]:
        steps: tuple[Step, ...] = getattr(self.box, f"{lane}_steps")
        return steps

    def step_count(self, lane: Lane) -> int:
        return len(self.steps(lane))

    def append_step(self, lane: Lane, name: str, result: EffectResult) -> None:
        self._put_steps(lane, (*self.steps(lane), (name, result)))

    def drop_steps(self, lane: Lane) -> None:
        self._put_steps(lane, ())

    def _put_steps(self, lane: Lane, steps: tuple[Step, ...]) -> None:
        changed: dict[str, Any] = {f"{lane}_steps": steps}
        self.box = replace(self.box, **changed)

    def job(self, lane: Lane, job_id: str) -> Job | None:
        return dict(self.box.jobs).get((lane, job_id))

    def put_job(self, job: Job) -> None:
        self.box = replace(self.box, jobs=with_pair(self.box.jobs, (job.lane, job.job_id), job))

    def drop_job(self, lane: Lane, job_id: str) -> None:
        self._drop_jobs({(lane, job_id)})

    def _drop_jobs(self, keys: set[tuple[Lane, str]]) -> None:
        self.box = replace(self.box, jobs=tuple(pair for pair in self.box.jobs if pair[0] not in keys))

    def _queued_jobs(self, lane: Lane) -> list[str]:
        return [job.job_id for _, job in self.box.jobs if job.lane is lane and job.state is JobState.QUEUED]

    def next_job_id(self, lane: Lane) -> str | None:
        return next(iter(self._queued_jobs(lane)), None)

    def queued_job_count(self, lane: Lane) -> int:
        return len(self._queued_jobs(lane))

    def forget_jobs(self, finished_before: float, limit: int) -> None:
        old = [key for key, job in self.box.jobs if job.state.is_finished and job.finished <= finished_before]
        self._drop_jobs(set(old[:limit]))

    @property
    def journal(self) -> MemoryJournal:
        return MemoryJournal(lambda: self.box.journal, self._put_journal)

    def _put_journal(self, digests: tuple[StoredDigest, ...]) -> None:
        self.box = replace(self.box, journal=digests)

    def live(self, first_seq: int) -> Sequence[LiveEntry]:
        return tuple(item for item in self.box.live if item.seq >= first_seq)

    def live_entry(self, seq: int) -> LiveEntry | None:
        return next((item for item in self.box.live if item.seq == seq), None)

    def live_token(self, seq: int) -> str | None:
        item = self.live_entry(seq)
        return item.commit_token if item else None

    def append_live(self, entries: Sequence[LiveEntry]) -> None:
        self.box = replace(self.box, live=(*self.box.live, *entries))

    def drop_live(self, before_seq: int) -> int:
        dropped_tokens = sum(item.tokens for item in self.box.live if item.seq < before_seq)
        self.box = replace(self.box, live=tuple(item for item in self.box.live if item.seq >= before_seq))
        return dropped_tokens

    def layout(self) -> tuple[tuple[Record, ...], Carried | None]:
        return self.box.records, self.box.carried

    def put_layout(self, records: tuple[Record, ...], carried: Carried | None) -> None:
        self.box = replace(self.box, records=records, carried=carried)

    def append_chunk(self, chunk: Chunk) -> None:
        self.box = replace(self.box, chunks=(*self.box.chunks, chunk))

    def chunks(self, first_seq: int, last_seq: int | None) -> Sequence[Chunk]:
        return [
            chunk
            for chunk in self.box.chunks
            if chunk.last_seq >= first_seq and (last_seq is None or chunk.first_seq <= last_seq)
        ]

    def archived_bytes(self) -> int:
        return sum(len(chunk.data) for chunk in self.box.chunks)

    def chunk_index(self, limit: int) -> Sequence[ChunkRef]:
        newest = self.box.chunks[max(0, len(self.box.chunks) - limit) :]
        return [ChunkRef(first_seq=one.first_seq, last_seq=one.last_seq, epoch=one.epoch) for one in newest]

    def put_postings(self, postings: Postings, merged_count: int) -> None:
        kept = self.box.postings[: len(self.box.postings) - merged_count]
        self.box = replace(self.box, postings=(*kept, postings))

    def postings_index(self) -> Sequence[PostingsRef]:
        return [
            PostingsRef(first_seq=one.first_seq, last_seq=one.last_seq, level=one.level, part_count=len(one.parts))
            for one in self.box.postings
        ]

    def postings_part(self, last_seq: int, part: int) -> bytes | None:
        parts = next((one.parts for one in self.box.postings if one.last_seq == last_seq), ())
        return parts[part] if part < len(parts) else None

    def note(self, name: str) -> StoredNote | None:
        return dict(self.box.notes).get(name)

    def put_note(self, name: str, note: StoredNote) -> None:
        self.box = replace(self.box, notes=with_pair(self.box.notes, name, note))

    def note_sizes(self) -> Mapping[str, int]:
        return {name: note.size for name, note in self.box.notes}

    def append_event(self, turn_id: str, event: StoredEvent) -> None:
        last_number = max((number for owner, number, _ in self.box.events if owner == turn_id), default=0)
        self.box = replace(self.box, events=(*self.box.events, (turn_id, last_number + 1, event)))

    def append_audit(self, event: StoredEvent, limit: int) -> None:
        audit = (*self.box.audit, event)
        over = max(0, len(audit) - limit)
        self.box = replace(self.box, audit=audit[over:], audit_dropped=self.box.audit_dropped + over)

    def events(self, turn_id: str, after: int, limit: int) -> Sequence[tuple[int, StoredEvent]]:
        mine = [(number, event) for owner, number, event in self.box.events if owner == turn_id and number > after]
        return mine[:limit]

    def newest_event(self, turn_id: str, kind: str) -> StoredEvent | None:
        mine = (event for owner, _, event in reversed(self.box.events) if owner == turn_id and event.kind == kind)
        return next(mine, None)

    def drop_events(self, turn_id: str, kind: str) -> None:
        kept = tuple(one for one in self.box.events if not (one[0] == turn_id and one[2].kind == kind))
        self.box = replace(self.box, events=kept)

    def audit(self, after: int, limit: int) -> Sequence[tuple[int, StoredEvent]]:
        numbered = enumerate(self.box.audit, start=self.box.audit_dropped + 1)
        return [(number, event) for number, event in numbered if number > after][:limit]

    def has_due(self, *kinds: DueKind) -> bool:
        return any(member.session_id == self.session_id and member.kind in kinds for member in self.world.due)

    def is_overdue(self, kind: DueKind, now: float) -> bool:
        mine = [member for member in self.world.due if member.session_id == self.session_id and member.kind is kind]
        return any(member.at <= now or member.sweeps for member in mine)

    def put_due(self, kind: DueKind, work_id: str, at: float) -> None:
        self.drop_due(kind, work_id)
        self.world = replace(self.world, due=by_time(*self.world.due, DueMember(self.session_id, kind, work_id, at)))

    def drop_due(self, kind: DueKind, work_id: str) -> None:
        mine = (self.session_id, kind, work_id)
        left = tuple(member for member in self.world.due if (member.session_id, member.kind, member.work_id) != mine)
        self.world = replace(self.world, due=left)

    def drop_all_due(self) -> None:
        left = tuple(
            member for member in self.world.due if member.session_id != self.session_id or member.kind is DueKind.ORPHAN
        )
        self.world = replace(self.world, due=left)

    def agent(self, digest: str) -> str | None:
        return dict(self.world.agents).get(digest)

    def put_agent(self, digest: str, description: str) -> None:
        self.world = replace(self.world, agents=with_pair(self.world.agents, digest, description))

    def unfinished(self) -> int:
        return self.world.unfinished

    def count_unfinished(self, change: int) -> None:
        self.world = replace(self.world, unfinished=self.world.unfinished + change)

    def erase(self, limit: int) -> bool:
        for name, rows in self._bulk().items():
            if limit <= 0:
                return False
            self.box = replace(self.box, **{name: rows[limit:]})
            limit -= min(limit, len(rows))
        if any(self._bulk().values()):
            return False
        self.box = SessionBox(head=self.box.head)
        return True

    def _bulk(self) -> dict[str, Any]:
        """What is deleted in batches."""
        return {name: getattr(self.box, name) for name in BULK if getattr(self.box, name)}
