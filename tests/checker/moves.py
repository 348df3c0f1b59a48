"""Everything that may happen next: what caller, workers, reaper and clock do, and each fault that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sessionlib.stores.contract import Lane
from sessionlib.stores.memory import World
from sessionlib.stores.rules.state import Head, Hold
from tests.checker.model import (
    COUNTED,
    DOUBLED,
    EXPIRY,
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
    Crew,
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
    is_fault: bool


class Change(NamedTuple):
    """What one thing that may happen does to store, workers and hints, whatever else there is."""

    label: str
    store: int
    crew: int
    hints: tuple[int, int] = (0, 0)
    """How many more of each lane are in flight."""
    fault: str = ""
    takes_hint: tuple[int, int] = (0, 0)
    """How many of each lane must be in flight."""
    most_hints: tuple[int, int] = (MOST_HINTS, MOST_HINTS)
    """How many of each lane may be."""
    resend: str = ""
    is_sweep: bool = False


BeginToken = Callable[[World, Lane], str]


def fresh_token(_world: World, _lane: Lane) -> str:
    """What a worker sends with its begin: random, so unlike any other."""
    return FRESH


@dataclass
class Moves:
    """What follows a state. *faults_at_once* bounds how many of *faults* meet on one path."""

    rules: Rules
    faults: tuple[str, ...]
    faults_at_once: int
    begin_token: BeginToken = fresh_token
    crews: list[Crew] = field(default_factory=list)
    _crew_numbers: dict[Crew, int] = field(default_factory=dict)
    _known_changes: dict[tuple[int, int, str], list[Change]] = field(default_factory=dict)
    _settled: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)

    def start(self) -> State:
        """A session just opened, nobody busy."""
        store, _ = self.rules.apply(self.rules.number(World()), Op("open", life=FIRST_LIFE))
        return State(store, -1, self.crew(((None, None), (None, None))), (0, 0), self.faults)

    def after(self, state: State) -> Iterator[Move]:
        """Raises Found."""
        key = (state.store, state.crew, state.resend)
        changes = self._known_changes.get(key)
        if changes is None:
            changes = self._known_changes[key] = list(self.changes(*key))
        may_fail = len(self.faults) - len(state.faults_left) < self.faults_at_once
        for change in changes:
            if self._is_possible(change, state, may_fail):
                yield Move(change.label, self._changed(state, change), bool(change.fault))
        if state.backup not in (-1, state.store):
            store, backup, crew = self._settle(state.backup, -1, state.crew)
            restored = State(store, backup, crew, state.hints, state.faults_left, state.resend)
            yield Move("the copy is restored", restored, is_fault=True)

    def is_done(self, store: int, resend: str) -> bool:
        """Everything that the caller submits has its answer, and nothing is unfinished."""
        world, head = self.rules.worlds[store], self.head(store)
        if head is None or head.purged or world.due or resend:
            return False
        return {key for key, _ in world.box(SESSION).turns} == set(SUBMITTED[head.agent.digest])

    def settle(self, store: int, crew: int) -> tuple[int, int, dict[str, str]]:
        """The store and workers that stand for these, and what each token is called there."""
        names: dict[str, str] = {}
        _give_names(names, self.rules.tokens[store])
        crew = self._named(crew, names)
        return self.rules.renamed(store, names), crew, names

    def _is_possible(self, change: Change, state: State, may_fail: bool) -> bool:
        if change.fault and not (may_fail and change.fault in state.faults_left):
            return False
        (turn, rotation), least, most = state.hints, change.takes_hint, change.most_hints
        return least[0] <= turn <= most[0] and least[1] <= rotation <= most[1]

    def _changed(self, state: State, change: Change) -> State:
        copied = state.store if change.fault == RESTORE else state.backup
        store, backup, crew = self._settle(change.store, copied, change.crew)
        turn = min(MOST_HINTS, state.hints[0] + change.hints[0])
        rotation = min(MOST_HINTS, state.hints[1] + change.hints[1])
        left = state.faults_left
        if change.fault:
            left = tuple(fault for fault in left if fault != change.fault)
        return State(store, backup, crew, (turn, rotation), left, change.resend)

    def _settle(self, store: int, backup: int, crew: int) -> tuple[int, int, int]:
        """The one that stands for all that differ in the names of tokens and the order of workers only."""
        key = (store, backup, crew)
        known = self._settled.get(key)
        if known is None:
            known = self._settled[key] = self._stand_in(*key)
        return known

    def _stand_in(self, store: int, backup: int, crew: int) -> tuple[int, int, int]:
        tokens = self.rules.tokens[store] + (self.rules.tokens[backup] if backup >= 0 else ())
        names: dict[str, str] = {}
        _give_names(names, tokens)
        crew = self._named(crew, names)
        copied = self.rules.renamed(backup, names) if backup >= 0 else -1
        return self.rules.renamed(store, names), copied, crew

    def _named(self, crew: int, names: dict[str, str]) -> int:
        """The workers in their fixed order, under these names; tokens that have none yet get one."""
        lanes = [sorted(lane, key=lambda worker: repr(renamed_worker(worker, names))) for lane in self.crews[crew]]
        _give_names(names, (token for lane in lanes for worker in lane for token in worker_tokens(worker)))
        return self.crew(tuple(tuple(renamed_worker(worker, names) for worker in lane) for lane in lanes))

    def crew(self, crew: Crew) -> int:
        """Its number."""
        number = self._crew_numbers.setdefault(crew, len(self.crews))
        if number == len(self.crews):
            self.crews.append(crew)
        return number

    def changes(self, store: int, crew: int, resend: str) -> Iterator[Change]:
        """Whatever hints are in flight and faults are left. Raises Found."""
        yield from self._caller(store, crew, resend)
        others = [*self._operator(store, crew)]
        for lane in LANES:
            others += self._messages(store, crew, lane)
            others += self._workers(store, crew, lane)
            others += self._clock(store, crew, lane)
            others += self._reaper(store, crew, lane)
        for change in others:
            yield change if change.fault == PURGE else change._replace(resend=resend)

    def _caller(self, store: int, crew: int, resend: str) -> Iterator[Change]:
        """Submits in order, resends what was not answered, submits again what a restore has lost."""
        head = self.head(store)
        if head is None:
            yield self._done("the caller opens the session again", store, crew, Op("open", life=SECOND_LIFE))
            return
        known = {key for key, _ in self.rules.worlds[store].box(SESSION).turns}
        life = head.agent.digest
        turn_id = resend or next((key for key in SUBMITTED[life] if key not in known), "")
        if head.purged or not turn_id:
            return
        submitted = self._done(f"the caller submits {turn_id}", store, crew, Op("submit", turn_id=turn_id, life=life))
        yield submitted
        yield Change(f"{submitted.label}, no reply", submitted.store, crew, fault=NO_REPLY, resend=turn_id)

    def _messages(self, store: int, crew: int, lane: Lane) -> Iterator[Change]:
        """An idle worker takes a hint and begins; or the hint gets lost, or doubled."""
        workers = self.crews[crew][LANES.index(lane)]
        one = (1, 0) if lane is Lane.TURN else (0, 1)
        less = (-one[0], -one[1])
        if None in workers:
            op = Op("begin", lane=lane, token=self.begin_token(self.rules.worlds[store], lane))
            for change in self._sent(store, crew, lane, workers.index(None), op):
                yield change._replace(hints=less, takes_hint=one)
        yield Change(f"a hint for the {lane} lane is lost", store, crew, less, LOST, one)
        yield Change(f"a hint for the {lane} lane is doubled", store, crew, one, DOUBLED, one)

    def _workers(self, store: int, crew: int, lane: Lane) -> Iterator[Change]:
        """A busy worker goes on, or is killed."""
        workers = self.crews[crew][LANES.index(lane)]
        for index, worker in enumerate(workers):
            if worker is not None and worker not in workers[:index]:
                yield from self._sent(store, crew, lane, index, next_op(worker, lane))
                killed = self.with_worker(crew, lane, index, None)
                yield Change(f"{_name(lane, index)} is killed", store, killed, fault=KILL)

    def _sent(self, store: int, crew: int, lane: Lane, index: int, op: Op) -> Iterator[Change]:
        """A worker sends an operation, and hears the reply or does not."""
        after, heard = self.rules.apply(store, op)
        label = f"{_name(lane, index)}: {_told(op)}"
        worker = self.crews[crew][LANES.index(lane)][index]
        told = self.with_worker(crew, lane, index, _learned(worker, op, heard))
        yield Change(f"{label} → {_answered(heard)}", after, told, _hints(heard))
        if not heard.is_lost and (op.name != "begin" or heard.job):
            untold = self.with_worker(crew, lane, index, _unanswered(worker, op))
            yield Change(f"{label}, no reply", after, untold, fault=NO_REPLY)

    def _clock(self, store: int, crew: int, lane: Lane) -> Iterator[Change]:
        """A lease passes: of a holder that is gone in any case, of one that is alive as a fault."""
        token = self._live_token(store, lane)
        if token:
            lapsed, _ = self.rules.apply(store, Op("lapse", lane=lane))
            workers = [worker for workers in self.crews[crew] for worker in workers]
            known = distinct(token for worker in workers for token in worker_tokens(worker))
            is_known = set(distinct([token])) <= set(known)
            whose, fault = ("live", EXPIRY) if is_known else ("dead", "")
            yield Change(f"the {whose} holder's {lane} lease passes", lapsed, crew, fault=fault)

    def _reaper(self, store: int, crew: int, lane: Lane) -> Iterator[Change]:
        """Sends a hint when none is in flight for work that nobody holds."""
        if not self._live_token(store, lane):
            swept = self._done(f"the reaper sends a hint for the {lane} lane", store, crew, Op("sweep", lane=lane))
            if any(swept.hints):
                most = (0, MOST_HINTS) if lane is Lane.TURN else (MOST_HINTS, 0)
                yield swept._replace(most_hints=most, is_sweep=True)

    def _operator(self, store: int, crew: int) -> Iterator[Change]:
        """Purges (the reaper goes on with it), and copies the store."""
        head = self.head(store)
        if head is None:
            return
        purged = self._done("the purge goes on", store, crew, Op("purge"))
        if head.purged:
            yield purged
        else:
            yield purged._replace(label="the session is purged", fault=PURGE)
            yield Change("the store is copied", store, crew, fault=RESTORE)

    def _done(self, label: str, store: int, crew: int, op: Op) -> Change:
        after, heard = self.rules.apply(store, op)
        return Change(label, after, crew, _hints(heard))

    def with_worker(self, crew: int, lane: Lane, index: int, worker: Worker) -> int:
        """The crew in which one worker remembers something else."""
        lanes = [list(workers) for workers in self.crews[crew]]
        lanes[LANES.index(lane)][index] = worker
        return self.crew(tuple(map(tuple, lanes)))

    def head(self, store: int) -> Head | None:
        """Of the session in this store."""
        return self.rules.worlds[store].box(SESSION).head

    def _live_token(self, store: int, lane: Lane) -> str:
        """The lane's token, if its lease is live."""
        head = self.head(store)
        if head is None or head.purged:
            return ""
        hold = head.hold if lane is Lane.TURN else head.rotation.hold if head.rotation else Hold()
        return hold.token if hold.is_live(NOW) else ""


def next_op(worker: Asking | Job, lane: Lane) -> Op:
    """What a busy worker sends next."""
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


def _give_names(names: dict[str, str], tokens: Iterable[str]) -> None:
    """Name tokens in the order of first appearance."""
    for token in distinct(tokens):
        names.setdefault(token, token if token.startswith(COUNTED) else f"k{len(names)}")


def _hints(heard: Heard) -> tuple[int, int]:
    """Whoever hears that work is due sends a hint."""
    return int(heard.turn_hint), int(heard.rotation_hint)


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
