"""Everything that may happen next: what caller, workers, reaper and clock do, and each fault that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sessionlib.stores.contract import Lane
from sessionlib.stores.memory import World
from sessionlib.stores.rules.state import Head, Hold
from tests.checker.model import (
    DOUBLED,
    EXPIRY,
    FAULTS,
    FIRST_LIFE,
    FRESH,
    KILL,
    LANES,
    LOST,
    MOST_HINTS,
    NO_REPLY,
    NOW,
    PURGE,
    RESTORE,
    SECOND_LIFE,
    SESSION,
    STEPPING,
    SUBMITTED,
    Asking,
    Job,
    RotationJob,
    State,
    TurnJob,
    Worker,
)
from tests.checker.operations import Heard, Op, is_last_round
from tests.checker.renaming import distinct, renamed_worker, worker_tokens
from tests.checker.table import Rules


class Move(NamedTuple):
    """One thing that may happen next."""

    label: str
    state: State
    is_fault: bool = False


BeginToken = Callable[[World, Lane], str]


def fresh_token(_world: World, _lane: Lane) -> str:
    """What a worker sends with its begin: random, so unlike any other."""
    return FRESH


@dataclass
class Moves:
    """What follows a state. *faults_at_once* bounds how many different faults meet on one path."""

    rules: Rules
    faults_at_once: int
    begin_token: BeginToken = fresh_token

    def start(self) -> State:
        """A session just opened, nobody busy."""
        store, _ = self.rules.apply(self.rules.number(World()), Op("open", life=FIRST_LIFE))
        return State(store, -1, ((None, None), (None, None)), (0, 0), FAULTS)

    def after(self, state: State) -> Iterator[Move]:
        yield from self._caller(state)
        for lane in LANES:
            yield from self._messages(state, lane)
            yield from self._workers(state, lane)
            yield from self._clock(state, lane)
            yield from self._reaper(state, lane)
        yield from self._operator(state)

    def is_done(self, state: State) -> bool:
        """Everything that the caller submits has its answer, and nothing is unfinished."""
        world, head = self.rules.worlds[state.store], self._head(state)
        if head is None or head.purged or world.due or state.resend:
            return False
        return {key for key, _ in world.box(SESSION).turns} == set(SUBMITTED[head.agent.digest])

    def _caller(self, state: State) -> Iterator[Move]:
        """Submits in order, resends what was not answered, submits again what a restore has lost."""
        head = self._head(state)
        if head is None:
            yield self._moved("caller opens the session again", state, Op("open", life=SECOND_LIFE))
            return
        if head.purged:
            return
        known = {key for key, _ in self.rules.worlds[state.store].box(SESSION).turns}
        life = head.agent.digest
        turn_id = state.resend or next((key for key in SUBMITTED[life] if key not in known), "")
        if not turn_id:
            return
        op, label = Op("submit", turn_id=turn_id, life=life), f"caller submits {turn_id}"
        yield self._moved(label, state._replace(resend=""), op)
        if self._may(state, NO_REPLY):
            store, _ = self.rules.apply(state.store, op)
            yield self._fault(f"{label}, no reply", state._replace(store=store, resend=turn_id), NO_REPLY)

    def _messages(self, state: State, lane: Lane) -> Iterator[Move]:
        """An idle worker takes a hint and begins; or the hint gets lost, or doubled."""
        if not state.hints[LANES.index(lane)]:
            return
        taken = _with_hints(state, lane, -1)
        workers = state.workers[LANES.index(lane)]
        if None in workers:
            index = workers.index(None)
            token = self.begin_token(self.rules.worlds[state.store], lane)
            yield from self._sent(taken, lane, index, Op("begin", lane=lane, token=token))
        if self._may(state, LOST):
            yield self._fault(f"a hint for the {lane} lane is lost", taken, LOST)
        if self._may(state, DOUBLED):
            yield self._fault(f"a hint for the {lane} lane is doubled", _with_hints(state, lane, 1), DOUBLED)

    def _workers(self, state: State, lane: Lane) -> Iterator[Move]:
        """A busy worker goes on, or is killed."""
        workers = state.workers[LANES.index(lane)]
        for index, worker in enumerate(workers):
            if worker is None or worker in workers[:index]:
                continue
            yield from self._sent(state, lane, index, _next_op(worker, lane))
            if self._may(state, KILL):
                killed = _with_worker(state, lane, index, None)
                yield self._fault(f"{_name(lane, index)} is killed", killed, KILL)

    def _sent(self, state: State, lane: Lane, index: int, op: Op) -> Iterator[Move]:
        """A worker sends an operation, and hears the reply or does not."""
        store, heard = self.rules.apply(state.store, op)
        label = f"{_name(lane, index)}: {_told(op)}"
        worker = state.workers[LANES.index(lane)][index]
        done = _with_worker(state._replace(store=store), lane, index, _learned(worker, op, heard))
        yield Move(f"{label} → {_answered(heard)}", self._settled(_hinted(done, heard)))
        if self._may(state, NO_REPLY) and not heard.is_lost and (op.name != "begin" or heard.job):
            unheard = _with_worker(state._replace(store=store), lane, index, _unanswered(worker, op))
            yield self._fault(f"{label}, no reply", unheard, NO_REPLY)

    def _clock(self, state: State, lane: Lane) -> Iterator[Move]:
        """A lease passes: of a holder that is gone in any case, of one that is alive as a fault."""
        hold = self._hold(state, lane)
        if not hold.is_live(NOW):
            return
        store, _ = self.rules.apply(state.store, Op("lapse", lane=lane))
        lapsed = state._replace(store=store)
        if not any(hold.token in worker_tokens(worker) for workers in state.workers for worker in workers):
            yield Move(f"the dead holder's {lane} lease passes", self._settled(lapsed))
        elif self._may(state, EXPIRY):
            yield self._fault(f"the live holder's {lane} lease passes", lapsed, EXPIRY)

    def _reaper(self, state: State, lane: Lane) -> Iterator[Move]:
        """Sends a hint when none is in flight for work that nobody holds."""
        if state.hints[LANES.index(lane)] or self._hold(state, lane).is_live(NOW):
            return
        store, heard = self.rules.apply(state.store, Op("sweep", lane=lane))
        if heard.turn_hint or heard.rotation_hint:
            swept = _hinted(state._replace(store=store), heard)
            yield Move(f"the reaper sends a hint for the {lane} lane", self._settled(swept))

    def _operator(self, state: State) -> Iterator[Move]:
        """Purges (the reaper goes on with it), copies the store and puts the copy back."""
        head, purged = self._head(state), Op("purge")
        if head is not None and head.purged:
            yield self._moved("the purge goes on", state, purged)
        if head is not None and not head.purged and self._may(state, PURGE):
            store, _ = self.rules.apply(state.store, purged)
            yield self._fault("the session is purged", state._replace(store=store, resend=""), PURGE)
        if head is not None and not head.purged and self._may(state, RESTORE):
            yield self._fault("the store is copied", state._replace(backup=state.store), RESTORE)
        if state.backup not in (-1, state.store):
            restored = state._replace(store=state.backup, backup=-1, resend="")
            yield Move("the copy is restored", self._settled(restored), is_fault=True)

    def _moved(self, label: str, state: State, op: Op) -> Move:
        store, heard = self.rules.apply(state.store, op)
        return Move(label, self._settled(_hinted(state._replace(store=store), heard)))

    def _fault(self, label: str, state: State, fault: str) -> Move:
        left = tuple(other for other in state.faults_left if other != fault)
        return Move(label, self._settled(state._replace(faults_left=left)), is_fault=True)

    def _may(self, state: State, fault: str) -> bool:
        return fault in state.faults_left and len(FAULTS) - len(state.faults_left) < self.faults_at_once

    def _head(self, state: State) -> Head | None:
        return self.rules.worlds[state.store].box(SESSION).head

    def _hold(self, state: State, lane: Lane) -> Hold:
        head = self._head(state)
        if head is None or head.purged:
            return Hold()
        if lane is Lane.TURN:
            return head.hold
        return head.rotation.hold if head.rotation else Hold()

    def _settled(self, state: State) -> State:
        """The one state that stands for all that differ in the names of tokens and the order of workers only."""
        tokens = self.rules.tokens[state.store] + (self.rules.tokens[state.backup] if state.backup >= 0 else ())
        names = {token: f"k{number}" for number, token in enumerate(distinct(tokens))}
        lanes = [sorted(workers, key=lambda w: repr(renamed_worker(w, names))) for workers in state.workers]
        for token in distinct(token for workers in lanes for worker in workers for token in worker_tokens(worker)):
            names.setdefault(token, f"k{len(names)}")
        turn, rotation = (tuple(renamed_worker(worker, names) for worker in workers) for workers in lanes)
        return state._replace(
            store=self.rules.renamed(state.store, names),
            backup=self.rules.renamed(state.backup, names) if state.backup >= 0 else -1,
            workers=(turn, rotation),
        )


def _next_op(worker: Asking | Job, lane: Lane) -> Op:
    match worker:
        case Asking():
            return Op("begin", lane=lane, token=worker.token)
        case TurnJob():
            if worker.turn_id in STEPPING and not worker.is_saved:
                return Op("save", lane=lane, job=worker)
            return Op("commit", lane=lane, token=worker.pending or FRESH, job=worker._replace(pending=""))
        case RotationJob():
            if not worker.is_saved:
                return Op("save", lane=lane, job=worker)
            return Op("adopt", lane=lane, token=worker.pending or FRESH, job=worker._replace(pending=""))


def _learned(worker: Worker, op: Op, heard: Heard) -> Worker:
    """What a worker remembers after the reply. Whoever lost its lease stops quietly."""
    if op.name == "begin" or heard.is_lost:
        return heard.job
    if op.name == "save" and isinstance(worker, (TurnJob, RotationJob)):
        return worker._replace(position=worker.position + 1, is_saved=True)
    if op.name == "commit" and isinstance(worker, TurnJob) and not is_last_round(worker):
        return worker._replace(round=worker.round + 1, is_saved=False, pending="")
    return None


def _unanswered(worker: Worker, op: Op) -> Worker:
    """What a worker remembers that heard nothing: enough to send the same again."""
    if op.name == "begin":
        return Asking(op.token)
    if op.name == "save" or not isinstance(worker, (TurnJob, RotationJob)):
        return worker
    return worker._replace(pending=op.token)


def _with_worker(state: State, lane: Lane, index: int, worker: Worker) -> State:
    lanes = [list(workers) for workers in state.workers]
    lanes[LANES.index(lane)][index] = worker
    return state._replace(workers=(tuple(lanes[0]), tuple(lanes[1])))


def _with_hints(state: State, lane: Lane, change: int) -> State:
    turn, rotation = state.hints
    if lane is Lane.TURN:
        return state._replace(hints=(min(MOST_HINTS, turn + change), rotation))
    return state._replace(hints=(turn, min(MOST_HINTS, rotation + change)))


def _hinted(state: State, heard: Heard) -> State:
    """Whoever hears that work is due sends a hint."""
    if heard.turn_hint:
        state = _with_hints(state, Lane.TURN, 1)
    return _with_hints(state, Lane.ROTATION, 1) if heard.rotation_hint else state


def _name(lane: Lane, index: int) -> str:
    return f"{lane} worker {index + 1}"


def _told(op: Op) -> str:
    job = op.job
    if isinstance(job, TurnJob):
        return f"{op.name} {job.message} round {job.round}"
    if isinstance(job, RotationJob):
        return f"{op.name} {job.rotation_id}"
    return op.name


def _answered(heard: Heard) -> str:
    if heard.is_lost:
        return "lost"
    if isinstance(heard.job, TurnJob):
        return f"granted {heard.job.message}"
    return f"granted {heard.job.rotation_id}" if heard.job else "done"
