"""Judges a run by its calls alone: is there one order of commits and adoptions that explains every answer?

The last look at a session (its archive and live entries when all work is done) gives the order; everything else that
anybody was told must fit it. Calls that overlapped may have happened either way.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sessionlib.stores.contract import Grant, Lane, SessionView, Snapshot, TurnState
from tests.history.recording import Call

Findings = Iterator[str]
ENDINGS = frozenset({"answered", "failed", "cancelled"})


def findings(calls: Sequence[Call], sessions: Sequence[str]) -> list[str]:
    """Everything that does not fit, a sentence each."""
    return [
        f"{session_id}: {finding}"
        for session_id in sessions
        for finding in _Session(sorted(_of(session_id, calls), key=lambda call: call.asked)).findings()
    ]


def _of(session_id: str, calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        subject: Any = call.args[0]
        if session_id == (subject if isinstance(subject, str) else getattr(subject, "session_id", None)):
            yield call


@dataclass(frozen=True, slots=True)
class _Fact:
    """What somebody was told of how far the session is: neither ever goes back."""

    call: Call
    epoch: int
    next_seq: int


@dataclass(frozen=True, slots=True)
class _Session:
    """The calls of one session in the order in which they were asked."""

    calls: list[Call]

    def findings(self) -> Findings:
        yield from self._archive_findings()
        yield from self._commit_findings()
        yield from self._order_findings()
        yield from self._turn_findings()
        yield from self._cancel_findings()
        yield from self._epoch_findings()
        for call, snapshot in self._snapshots():
            yield from self._snapshot_findings(call, snapshot)
        yield from self._progress_findings()

    def _answered(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method and call.error is None]

    def _last(self, method: str) -> Any:
        return self._answered(method)[-1].answer

    def _history(self) -> list[str]:
        """Texts of the archive and of the live entries at the end."""
        archived = [text for chunk in self._last("chunks") for text in chunk.data.decode().split("\n")]
        return archived + [entry.text for entry in self._last("snapshot").layout.live.entries]

    def _commits(self) -> list[Call]:
        """Acknowledged commits; one that was sent twice stands for the first time."""
        firsts: dict[str, Call] = {}
        for call in self._answered("commit"):
            firsts.setdefault(call.args[1].commit_token, call)
        return list(firsts.values())

    def _submits(self) -> list[Call]:
        """Accepted turns, by the call that made them."""
        return [call for call in self._answered("submit") if call.answer.is_new]

    def _archive_findings(self) -> Findings:
        next_seq = 1
        for chunk in self._last("chunks"):
            count = len(chunk.data.decode().split("\n"))
            if (chunk.first_seq, chunk.last_seq) != (next_seq, next_seq + count - 1):
                yield f"a chunk of {count} entries is for {chunk.first_seq}-{chunk.last_seq}, {next_seq} was next"
            next_seq = chunk.last_seq + 1
        live = self._last("snapshot").layout.live
        if live.first_seq != next_seq:
            yield f"the archive ends before {next_seq}, live entries begin at {live.first_seq}"

    def _commit_findings(self) -> Findings:
        """What was acknowledged is there once, and nothing else is."""
        history, committed = self._history(), [text for call in self._commits() for text in _texts(call)]
        for text in sorted({*history, *committed}):
            if history.count(text) != committed.count(text):
                yield f"{text!r} was committed {committed.count(text)} times, recorded {history.count(text)} times"

    def _order_findings(self) -> Findings:
        """Commits in the order in which they were acknowledged, turns in that of their submits, none interleaved."""
        places = {text: place for place, text in enumerate(self._history())}
        yield from self._misplaced("committed", self._commits(), lambda call: places.get(_texts(call)[0]))
        turns = [_turn_of(text) for text in places]
        yield from self._misplaced("submitted", self._submits(), lambda call: places.get(call.args[0].input.message))
        blocks = [turn_id for turn_id, _ in itertools.groupby(turns)]
        if len(blocks) != len(set(blocks)):
            yield f"turns are interleaved: {blocks}"
        for turn_id, texts in itertools.groupby(places, key=_turn_of):
            numbers = [text.partition(".")[2] for text in texts]
            if numbers != ["", *map(str, range(len(numbers) - 1))]:
                yield f"rounds of {turn_id} are recorded as {numbers}"

    def _misplaced(self, done: str, calls: list[Call], place_of: Any) -> Findings:
        placed = [(call, place_of(call)) for call in calls]
        known = [(call, place) for call, place in placed if place is not None]
        for (first, early), (second, late) in itertools.permutations(known, 2):
            if first.is_before(second) and early > late:
                yield f"what was {done} at {first.asked} stands after what was {done} at {second.asked}"

    def _turn_findings(self) -> Findings:
        """Every accepted turn ended, once, and what was read of its events is how they began."""
        for submit in self._submits():
            turn_id = submit.args[0].turn_id
            view = next(call.answer for call in reversed(self._answered("turn")) if call.args[1] == turn_id)
            reads = [call.answer for call in self._answered("events") if call.args[1] == turn_id]
            kinds = [event.kind for event in reads[-1]]
            if view is None or not view.state.is_finished:
                yield f"{turn_id} was accepted and is not finished: {view}"
            elif [kind for kind in kinds if kind in ENDINGS] != [str(view.state)] or kinds[-1] != view.state:
                yield f"{turn_id} is {view.state}, its events are {kinds}"
            elif view.state is TurnState.ANSWERED and view.answer.text != submit.args[0].input.message:
                yield f"{turn_id} has the answer of another: {view.answer.text}"
            for read in reads:
                if list(read) != list(reads[-1][: len(read)]):
                    yield f"events of {turn_id} were read that are gone"

    def _cancel_findings(self) -> Findings:
        for cancel in self._answered("cancel"):
            if cancel.answer is not TurnState.CANCELLED:
                continue
            turn_id = cancel.args[1]
            for commit in self._commits():
                if commit.args[0].work_id == turn_id and cancel.is_before(commit):
                    yield f"{turn_id} was cancelled at {cancel.answered} and committed at {commit.asked}"
            view = next(call.answer for call in reversed(self._answered("turn")) if call.args[1] == turn_id)
            if view.state is not TurnState.CANCELLED:
                yield f"{turn_id} was cancelled and is {view.state}"

    def _epoch_findings(self) -> Findings:
        """Every adoption that was acknowledged began one epoch, and nothing else did."""
        tokens = {call.args[1].layout_token for call in self._answered("adopt") if call.answer.is_adopted}
        if len(tokens) != self._last("snapshot").epoch:
            yield f"{len(tokens)} layouts were adopted, the epoch is {self._last('snapshot').epoch}"
        names: dict[int, str] = {0: ""}
        for _, snapshot in self._snapshots():
            if names.setdefault(snapshot.epoch, snapshot.layout_token) != snapshot.layout_token:
                yield f"epoch {snapshot.epoch} was seen with two layouts"

    def _snapshots(self) -> Iterator[tuple[Call, Snapshot]]:
        """Every snapshot that a reader or worker was given."""
        for call in self.calls:
            if isinstance(call.answer, Snapshot):
                yield call, call.answer
            elif isinstance(call.answer, Grant):
                yield call, call.answer.snapshot

    def _snapshot_findings(self, call: Call, snapshot: Snapshot) -> Findings:
        """It is what the history was when it was that long."""
        live, history = snapshot.layout.live, self._history()
        seen = [entry.text for entry in live.entries]
        if seen != history[live.first_seq - 1 : live.next_seq - 1]:
            yield f"the snapshot at {call.asked} shows {seen} from {live.first_seq}, which never was"
        spans = [(record.first_seq, record.last_seq) for record in snapshot.layout.records]
        edges = [1, *(last + 1 for _, last in spans)]
        if [first for first, _ in spans] != edges[:-1] or edges[-1] != live.first_seq:
            yield f"the snapshot at {call.asked} has records for {spans}, live from {live.first_seq}"
        grant = call.answer
        if isinstance(grant, Grant) and grant.lane is Lane.TURN and 0 < grant.input_seq < live.first_seq:
            carried = snapshot.layout.carried
            if carried is None or grant.input is None or carried.entry.text != grant.input.message:
                yield f"the grant at {call.asked} has lost the turn's input; carried is {carried}"

    def _progress_findings(self) -> Findings:
        """Nobody is told of less than what was known before."""
        facts = sorted(self._facts(), key=lambda fact: fact.call.asked)
        answered = deque(sorted(facts, key=lambda fact: fact.call.answered))
        epoch, next_seq = 0, 0
        for fact in facts:
            while answered[0].call.is_before(fact.call):
                known = answered.popleft()
                epoch, next_seq = max(epoch, known.epoch), max(next_seq, known.next_seq)
            if fact.epoch < epoch or fact.next_seq < next_seq:
                told = f"epoch {fact.epoch}, next {fact.next_seq}"
                yield f"{fact.call.method} at {fact.call.asked} tells of {told}; known was {epoch}, {next_seq}"

    def _facts(self) -> Iterator[_Fact]:
        for call, snapshot in self._snapshots():
            yield _Fact(call, snapshot.epoch, snapshot.layout.live.next_seq)
        for call in self._answered("view"):
            view: SessionView = call.answer
            yield _Fact(call, view.epoch, view.next_seq)
        ends = {text: seq for seq, text in enumerate(self._history(), start=2)}
        for call in self._commits():
            if _texts(call)[-1] in ends:
                yield _Fact(call, call.answer.epoch, ends[_texts(call)[-1]])


def _texts(commit: Call) -> list[str]:
    return [entry.text for entry in commit.args[1].entries]


def _turn_of(text: str) -> str:
    return text.partition(".")[0]
