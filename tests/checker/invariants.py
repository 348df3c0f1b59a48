"""What must hold of every store that is reached, and of every operation on the way. Each finding is a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from sessionlib.stores.contract import DueKind, Lane, TurnState
from sessionlib.stores.memory import SessionBox, World
from sessionlib.stores.rules.state import Head, Hold, Turn
from tests.checker.model import (
    ENTRY_TOKENS,
    NOW,
    RECORD_TOKENS,
    ROUND_COUNT,
    SESSION,
    RotationJob,
    TurnJob,
    message,
    note_text,
    round_texts,
    step_name,
)
from tests.checker.operations import Heard, Op, normalised
from tests.checker.renaming import distinct

Findings = Iterator[str]


def store_findings(world: World) -> Findings:
    """What is wrong with a store by itself."""
    yield from _due_findings(world)
    box = world.box(SESSION)
    if box.head is None or box.head.purged:
        if world.unfinished:
            yield f"{world.unfinished} turns are counted as unfinished without a session"
        return
    yield from _history_findings(box, box.head)
    yield from _turn_findings(world, box, box.head)
    yield from _layout_findings(box, box.head)


def _due_findings(world: World) -> Findings:
    members = sorted((str(member.kind), member.work_id) for member in world.due)
    expected = sorted(_unfinished(world.box(SESSION)))
    if members != expected:
        yield f"due has {members}, unfinished is {expected}"


def _unfinished(box: SessionBox) -> Iterator[tuple[str, str]]:
    if box.head is None:
        return
    if box.head.purged:
        yield str(DueKind.RETENTION), ""
        return
    for turn_id, turn in box.turns:
        if not turn.state.is_finished:
            yield str(DueKind.TURN), turn_id
    if box.head.rotation:
        yield str(DueKind.ROTATION), box.head.rotation.rotation_id


def history(box: SessionBox) -> list[str]:
    """Texts of the archive and of the live entries, in order."""
    archived = [text for chunk in box.chunks for text in chunk.data.decode().split("\n")]
    return archived + [item.entry.text for item in box.live]


def _history_findings(box: SessionBox, head: Head) -> Findings:
    """Every round that a turn committed is recorded once, turns in the order of submit, nothing else."""
    expected = [
        text
        for turn_id, turn in box.turns
        for number in range(turn.rounds)
        for text in round_texts(message(head.agent.digest, turn_id), number)
    ]
    recorded = history(box)
    if recorded != expected:
        yield f"history is {recorded}, committed was {expected}"
    if head.next_seq != len(recorded) + 1 or head.live_from != head.next_seq - len(box.live):
        yield f"numbers run to {head.next_seq}, live from {head.live_from}, with {len(recorded)} entries recorded"
    if [item.seq for item in box.live] != list(range(head.live_from, head.next_seq)):
        yield f"live entries are numbered {[item.seq for item in box.live]} from {head.live_from}"


def _turn_findings(world: World, box: SessionBox, head: Head) -> Findings:
    ends = [turn_id for turn_id, _, _ in box.events]
    running = [turn_id for turn_id, turn in box.turns if turn.state is TurnState.RUNNING]
    if running != ([head.work] if head.work else []):
        yield f"running are {running}, the lane has {head.work!r}"
    if head.hold.token and not head.work:
        yield "the turn lane is held without work"
    if [turn_id for turn_id, turn in box.turns if turn.state is TurnState.QUEUED] != list(box.inbox):
        yield f"the inbox is {box.inbox}"
    if world.unfinished != len(box.inbox) + len(running):
        yield f"{world.unfinished} turns are counted as unfinished"
    for turn_id, turn in box.turns:
        if ends.count(turn_id) != turn.state.is_finished:
            yield f"{turn_id} is {turn.state} and was ended {ends.count(turn_id)} times"
        if turn.state is TurnState.ANSWERED and turn.rounds != ROUND_COUNT[turn_id]:
            yield f"{turn_id} was answered after {turn.rounds} rounds"
        if turn.state in (TurnState.FAILED, TurnState.CANCELLED):
            yield f"{turn_id} is {turn.state} ({turn.error_code}): nothing here may end it so"
    yield from _step_findings(box, head)


def _step_findings(box: SessionBox, head: Head) -> Findings:
    """Saved steps are those of the first uncommitted round and on, each once.

    More than one round's can be there: a copy may hold all steps of a round that was committed after it was taken, and
    the holder, who goes on under the same token, then saves the next round's. They fit: the round that they follow
    will be committed from those very steps.
    """
    turn = dict(box.turns).get(head.work)
    first = turn.rounds if turn else 0
    names = [name for name, _ in box.turn_steps]
    if names != [step_name(first + index) for index in range(len(names))]:
        yield f"round {first} is the first that is not committed, its saved steps are {names}"
    noted = sum(turn.tries.step_base for _, turn in box.turns) + len(names)
    if "".join(note.text for _, note in box.notes) != note_text(noted):
        yield f"{noted} steps were saved, the notes are {box.notes}"
    if len(box.rotation_steps) > 1:
        yield f"the rotation's step was saved {len(box.rotation_steps)} times"


def _layout_findings(box: SessionBox, head: Head) -> Findings:
    """Records stand for what left since the last fresh window, without gap or overlap, and the archive has all."""
    archived = [(chunk.first_seq, chunk.last_seq) for chunk in box.chunks]
    of_window = archived[2 * (len(archived) // 2) :]  # every second rotation begins a fresh one
    records = [(record.first_seq, record.last_seq) for record in box.records]
    for name, spans, first_seq in (
        ("records", records, of_window[0][0] if of_window else head.live_from),
        ("archive", archived, 1),
    ):
        edges = [first_seq, *(last + 1 for _, last in spans)]
        if [first for first, _ in spans] != edges[:-1] or edges[-1] != head.live_from:
            yield f"{name} span {spans}, live from {head.live_from}"
    tokens = (ENTRY_TOKENS * len(box.live), RECORD_TOKENS * len(box.records), ENTRY_TOKENS * bool(box.carried))
    if tokens != (head.live_tokens, head.record_tokens, head.carried_tokens):
        yield f"tokens are {tokens}, counted {(head.live_tokens, head.record_tokens, head.carried_tokens)}"
    turn = dict(box.turns).get(head.work)
    if turn is not None and 0 < turn.input_seq < head.live_from:
        text = message(head.agent.digest, turn.turn_id)
        if box.carried is None or (box.carried.seq, box.carried.entry.text) != (turn.input_seq, text):
            yield f"the running turn's input left the window; carried is {box.carried}"


def operation_findings(before: World, op: Op, heard: Heard, raw: World) -> Findings:
    """What is wrong with one operation. *raw* is the store after it with its times, *before* and *after* are not."""
    after = normalised(raw)
    if op.name in ("save", "commit", "adopt"):
        yield from _write_findings(before, op, heard, after)
    if op.name == "begin":
        yield from _begin_findings(before, op, heard, after)
    if op.name not in ("purge", "open"):
        yield from _only_grows(before.box(SESSION), after.box(SESSION))
    yield from _due_now_findings(before, raw)


def _write_findings(before: World, op: Op, heard: Heard, after: World) -> Findings:
    """A write without right changes nothing."""
    if not _has_right(before, op) and before != after:
        yield f"{op.name} under a stale token changed the store"
    if not _has_right(before, op) and not heard.is_lost and not _is_repeated(before, op):
        yield f"{op.name} under a stale token was acknowledged"
    if heard.is_lost and op.name != "adopt" and before != after:
        yield f"{op.name} was refused and changed the store"


def _has_right(world: World, op: Op) -> bool:
    """Whether the lane is the sender's, and the work the very one that it was granted."""
    box, job = world.box(SESSION), op.job
    if box.head is None or box.head.purged:
        return False
    if isinstance(job, TurnJob):
        given = dict(box.inputs).get(job.turn_id)
        is_same = box.head.work == job.turn_id and given is not None and given.message == job.message
        return is_same and box.head.hold.token == job.token
    assert isinstance(job, RotationJob)
    rotation = box.head.rotation
    return rotation is not None and (rotation.rotation_id, rotation.hold.token) == (job.rotation_id, job.token)


def _is_repeated(world: World, op: Op) -> bool:
    """The store has this commit or adoption already."""
    box = world.box(SESSION)
    if box.head is None or box.head.purged:
        return False
    if op.name == "commit" and isinstance(op.job, TurnJob):
        turn = dict(box.turns).get(op.job.turn_id)
        return turn is not None and turn.commit_token == op.token
    return op.name == "adopt" and box.head.layout_token == op.token


def _begin_findings(before: World, op: Op, heard: Heard, after: World) -> Findings:
    if heard.job is None:
        if before != after:
            yield "begin granted nothing and changed the store"
        return
    hold = _hold(before, op.lane)
    if hold.is_live(NOW) and distinct([hold.token]) != (op.token,):
        yield f"begin granted the {op.lane} lane while another holds it"
    if isinstance(heard.job, TurnJob):
        box = before.box(SESSION)
        assert box.head is not None
        if heard.job.turn_id != (box.head.work or box.inbox[0]):
            yield f"begin granted {heard.job.turn_id} out of turn"


def _hold(world: World, lane: Lane) -> Hold:
    head = world.box(SESSION).head
    if head is None:
        return Hold()
    if lane is Lane.TURN:
        return head.hold
    return head.rotation.hold if head.rotation else Hold()


def _only_grows(before: SessionBox, after: SessionBox) -> Findings:
    """What was recorded stays, and a turn ends once and for all."""
    if history(after)[: len(history(before))] != history(before):
        yield f"history was {history(before)} and is {history(after)}"
    turns: dict[str, Turn] = dict(after.turns)
    for turn_id, turn in before.turns:
        if turn.state.is_finished and turns.get(turn_id) != turn:
            yield f"{turn_id} had ended and was changed"


def _due_now_findings(before: World, raw: World) -> Findings:
    """What may start from now on is due now: whoever was to send its hint may be gone."""
    startable = _startable(raw) - _startable(before)
    for member in raw.due:
        if (member.kind, member.work_id) in startable and member.at > NOW:
            yield f"{member.kind} {member.work_id} may start now and is due in {member.at - NOW:g} s"


def _startable(world: World) -> set[tuple[DueKind, str]]:
    box = world.box(SESSION)
    if box.head is None or box.head.purged:
        return set()
    found = {(DueKind.TURN, box.inbox[0])} if box.inbox and not box.head.work else set()
    rotation = box.head.rotation
    return found | {(DueKind.ROTATION, rotation.rotation_id)} if rotation and not rotation.is_claimed else found
