"""One operation of the real rules on one store, as the participants of the model send it, and what they learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from sessionlib.errors import LeaseLost, SessionBusy, UnknownSession
from sessionlib.layout import Layout, Record
from sessionlib.providers.contract import ModelReply
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import (
    Adoption,
    AgentRef,
    Answer,
    DueKind,
    Grant,
    Lane,
    OpenRequest,
    Refusal,
    Room,
    RoundCommit,
    Snapshot,
    SubmitRequest,
    TurnInput,
)
from sessionlib.stores.memory import MemoryStore, World
from sessionlib.stores.rules.operation import due_kind
from sessionlib.stores.rules.state import Hold, StoredEvent, Turn
from sessionlib.summaries.contract import Consolidated
from tests.checker.model import (
    ENTRY_TOKENS,
    FIRST_LIFE,
    LINE_TOKENS,
    NOTE,
    NOW,
    RECORD_TOKENS,
    ROUND_COUNT,
    SECOND_LIFE,
    SESSION,
    Job,
    RotationJob,
    TurnJob,
    message,
    note_text,
    round_entries,
    step_name,
)

MakeStore = Callable[[World], MemoryStore]
AHEAD = NOW + 1_000_000.0
"""Where a due member stands that is not to be looked at now."""
LAPSED = NOW - 1.0
OPENED_AT = {FIRST_LIFE: NOW, SECOND_LIFE: NOW + 1.0}
"""The one time that does go on: no session is opened twice at one moment."""
ENDINGS = frozenset({"answered", "failed", "cancelled"})
_AGENT = AgentRef(name="agent", digest="d")


class Op(NamedTuple):
    """An operation as it is sent: sent again, it is equal."""

    name: str
    lane: Lane = Lane.TURN
    token: str = ""
    """Of the begin, the commit or the layout."""
    job: Job | None = None
    turn_id: str = ""
    life: str = ""


class Heard(NamedTuple):
    """What the sender learns."""

    job: Job | None = None
    """What begin granted."""
    is_lost: bool = False
    """LeaseLost, or there is no such session."""
    turn_hint: bool = False
    rotation_hint: bool = False


def perform(store: MemoryStore, op: Op) -> Heard:
    """Send *op* to the store. What a caller or worker is refused is an answer; anything else is raised."""
    try:
        return _SENDERS[op.name](store, op)
    except (LeaseLost, UnknownSession, SessionBusy):
        return Heard(is_lost=True)


def _open(store: MemoryStore, op: Op) -> Heard:
    agent = replace(_AGENT, digest=op.life)
    store.open(OpenRequest(session_id=SESSION, agent=agent, agent_json="{}"))
    box = store.world.box(SESSION)
    if box.head is not None:
        store.world = store.world.with_box(SESSION, replace(box, head=replace(box.head, created=OPENED_AT[op.life])))
    return Heard()


def _submit(store: MemoryStore, op: Op) -> Heard:
    turn_input = TurnInput(message=message(op.life, op.turn_id))
    submitted = store.submit(SubmitRequest(session_id=SESSION, turn_id=op.turn_id, input=turn_input))
    return Heard(turn_hint=submitted.is_dispatched)


def _begin(store: MemoryStore, op: Op) -> Heard:
    granted = store.begin(SESSION, op.lane, op.token)
    if isinstance(granted, Refusal):
        return Heard()
    return Heard(job=_turn_job(granted) if op.lane is Lane.TURN else _rotation_job(granted))


def _turn_job(grant: Grant) -> TurnJob:
    assert grant.input is not None
    return TurnJob(
        token=grant.token,
        turn_id=grant.work_id,
        message=grant.input.message,
        round=grant.first_round,
        position=grant.step_base + len(grant.steps),
        is_saved=step_name(grant.first_round) in dict(grant.steps),
    )


def _rotation_job(grant: Grant) -> RotationJob:
    """A rotation of everything up to its boundary: what came later is the tail that it leaves."""
    live = grant.snapshot.layout.live
    leaving = grant.boundary_seq - live.first_seq + 1
    assert leaving > 0, "a rotation with nothing to rotate"
    return RotationJob(
        token=grant.token,
        rotation_id=grant.work_id,
        first_seq=live.first_seq,
        texts=tuple(entry.text for entry in live.entries[:leaving]),
        records=tuple((record.first_seq, record.last_seq) for record in grant.snapshot.layout.records),
        old_layout_token=grant.snapshot.layout_token,
        tail_seq=live.next_seq - 1,
        tail_token=grant.snapshot.tail_token,
        position=grant.step_base + len(grant.steps),
        is_saved=bool(grant.steps),
    )


def _save(store: MemoryStore, op: Op) -> Heard:
    assert op.job is not None
    (name, result), grant, position = _step_of(op.job), grant_of(op.job), op.job.position
    store.save_step(grant, position, name, result)
    if isinstance(op.job, TurnJob):
        text = note_text(position + 1).removeprefix(note_text(position))
        store.write_note(grant, NOTE, text, key=f"{op.job.turn_id}/{position}", append=True)
    return Heard()


def _step_of(job: Job) -> tuple[str, EffectResult]:
    if isinstance(job, TurnJob):
        return step_name(job.round), ModelReply(text=job.message)
    return "consolidation", Consolidated(text="record")


def _commit(store: MemoryStore, op: Op) -> Heard:
    assert isinstance(op.job, TurnJob)
    entries = round_entries(op.job.message, op.job.round)
    committed = store.commit(
        grant_of(op.job),
        RoundCommit(
            round=op.job.round,
            commit_token=op.token,
            epoch=0,
            entries=entries,
            sizes=(ENTRY_TOKENS,) * len(entries),
            calibration=1.0,
            line_tokens=LINE_TOKENS,
            input_index=0 if op.job.round == 0 else -1,
            answer=Answer(text=op.job.message) if is_last_round(op.job) else None,
        ),
    )
    return Heard(turn_hint=committed.next_turn_id is not None, rotation_hint=committed.rotation_id is not None)


def _adopt(store: MemoryStore, op: Op) -> Heard:
    assert isinstance(op.job, RotationJob)
    adopted = store.adopt(grant_of(op.job), adoption_of(op.job, op.token))
    return Heard(is_lost=not adopted.is_adopted, rotation_hint=adopted.rotation_id is not None)


def adoption_of(job: RotationJob, layout_token: str) -> Adoption:
    spans = () if job.records else ((job.first_seq, job.first_seq + len(job.texts) - 1),)
    return Adoption(
        layout_token=layout_token,
        first_seq=job.first_seq,
        dropped_count=len(job.texts),
        dropped_tokens=ENTRY_TOKENS * len(job.texts),
        old_layout_token=job.old_layout_token,
        tail_seq=job.tail_seq,
        tail_token=job.tail_token,
        records=tuple(Record(first_seq=a, last_seq=b, text="record", tokens=RECORD_TOKENS) for a, b in spans),
        chunk="\n".join(job.texts).encode(),
        room=Room(had_breath=not spans),
        line_tokens=LINE_TOKENS,
        figures={},
    )


def _purge(store: MemoryStore, op: Op) -> Heard:
    """One bounded deletion: the first leaves a tombstone when there is more than it may delete."""
    store.purge(SESSION, batch=4)
    return Heard()


def _sweep(store: MemoryStore, op: Op) -> Heard:
    """The reaper looks when the lane's due members have come up, however far ahead they stood."""
    kind = due_kind(op.lane)
    due = tuple(replace(member, at=NOW) if member.kind is kind else member for member in store.world.due)
    store.world = replace(store.world, due=due)
    kinds = {item.kind for item in store.due(0)}
    return Heard(turn_hint=DueKind.TURN in kinds, rotation_hint=DueKind.ROTATION in kinds)


def _lapse(store: MemoryStore, op: Op) -> Heard:
    """A lane's lease passes. Not an operation of the store: its clock goes on."""
    box = store.world.box(SESSION)
    assert box.head is not None
    if op.lane is Lane.TURN:
        head = replace(box.head, hold=_lapsed(box.head.hold))
    else:
        assert box.head.rotation is not None
        head = replace(box.head, rotation=replace(box.head.rotation, hold=_lapsed(box.head.rotation.hold)))
    store.world = store.world.with_box(SESSION, replace(box, head=head))
    return Heard()


def _lapsed(hold: Hold) -> Hold:
    return replace(hold, lease=LAPSED)


def is_last_round(job: TurnJob) -> bool:
    return job.round + 1 == ROUND_COUNT[job.turn_id]


_EMPTY = Snapshot(session_id=SESSION, agent=_AGENT, epoch=0, layout=Layout(), layout_token="", tail_token="")


def grant_of(job: Job) -> Grant:
    """The grant as far as the rules look at it when work is sent under it."""
    is_turn = isinstance(job, TurnJob)
    return Grant(
        session_id=SESSION,
        lane=Lane.TURN if is_turn else Lane.ROTATION,
        token=job.token,
        work_id=job.turn_id if isinstance(job, TurnJob) else job.rotation_id,
        deadline=NOW,
        now=NOW,
        attempt=1,
        snapshot=_EMPTY,
    )


_SENDERS: dict[str, Callable[[MemoryStore, Op], Heard]] = {
    "open": _open,
    "submit": _submit,
    "begin": _begin,
    "save": _save,
    "commit": _commit,
    "adopt": _adopt,
    "purge": _purge,
    "sweep": _sweep,
    "lapse": _lapse,
}


def normalised(world: World) -> World:
    """The store without what no rule compares here: times of due members, counts of attempts, figures, events that end
    nothing."""
    box = world.box(SESSION)
    due = tuple(sorted((replace(m, at=AHEAD, sweeps=0) for m in world.due), key=lambda m: (m.kind, m.work_id)))
    if box.head is not None:
        rotation = box.head.rotation
        if rotation is not None:
            rotation = replace(rotation, tries=_uncounted(rotation.tries))
        box = replace(
            box,
            head=replace(box.head, outcomes=(), rotation=rotation),
            turns=tuple((key, _plain(turn)) for key, turn in box.turns),
            events=tuple(
                (key, 0, StoredEvent(event.kind, "", NOW)) for key, _, event in box.events if event.kind in ENDINGS
            ),
            audit=(),
        )
    return replace(world, due=due, agents=()).with_box(SESSION, box)


def _plain(turn: Turn) -> Turn:
    return replace(turn, rotations=(), tries=_uncounted(turn.tries))


def _uncounted(tries: Any) -> Any:
    """Attempts are given up after `max_attempts`, more than the faults here can take."""
    return replace(tries, attempts=min(1, tries.attempts))
