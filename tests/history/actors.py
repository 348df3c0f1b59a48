"""Who works on a store in a run: callers, workers of both lanes, each a thread with its own seeded dice.

They do what real ones do, and what can happen to real ones: send twice, stop in the middle, go on after their lease.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessionlib.entries import Entry
from sessionlib.errors import LeaseLost
from sessionlib.layout import Record
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import (
    Adoption,
    AgentRef,
    Answer,
    Grant,
    Lane,
    OpenRequest,
    RoundCommit,
    Snapshot,
    SubmitRequest,
    TurnInput,
)
from sessionlib.summaries.contract import Consolidated

ENTRY_TOKENS, RECORD_TOKENS = 10, 1
LINE_TOKENS = 60
"""A handful of rounds: rotations all the time."""
MOST_ROUNDS = 3


@dataclass
class Run:
    """One run: the store that everybody uses, its sessions, and when to stop."""

    store: Any
    """A recorder of a SessionStore."""
    sessions: tuple[str, ...]
    seed: int
    operation_count: int
    let_leases_pass: Callable[[], None]
    """Makes leases of now lapse: at once where the clock is ours."""
    errors: list[BaseException] = field(default_factory=list)
    _tokens: itertools.count[int] = field(default_factory=itertools.count)

    def play(self) -> None:
        """Open the sessions, let everybody work until enough was called, then finish what is left."""
        for session_id in self.sessions:
            agent = AgentRef(name="agent", digest="d")
            self.store.open(OpenRequest(session_id=session_id, agent=agent, agent_json="{}"))
        bodies = [_call, _call, _call, _read, _take_turn, _take_turn, _take_turn, _rotate, _rotate, _disturb]
        threads = [
            threading.Thread(target=self._repeat, args=(body, random.Random(f"{self.seed}:{number}")))
            for number, body in enumerate(bodies)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        self._finish()

    def token(self) -> str:
        return f"k{next(self._tokens)}"

    def _repeat(self, body: Callable[[Run, random.Random], None], dice: random.Random) -> None:
        try:
            while self.store.operation_count < self.operation_count and not self.errors:
                body(self, dice)
        except BaseException as exc:  # noqa: BLE001 - reported by the thread that waits
            self.errors.append(exc)

    def _finish(self) -> None:
        """Without further mishap: every turn to its end, then one last look at everything."""
        self.let_leases_pass()
        for session_id in self.sessions:
            while isinstance(grant := self.store.begin(session_id, Lane.TURN, self.token()), Grant):
                work_turn(self, grant, None)
            if isinstance(grant := self.store.begin(session_id, Lane.ROTATION, self.token()), Grant):
                work_rotation(self, grant, None)
            self.store.snapshot(session_id)
            self.store.view(session_id)
            self.store.chunks(session_id)
            for turn_id in sorted({c.args[0].turn_id for c in self.store.calls if _is_submit(c, session_id)}):
                self.store.turn(session_id, turn_id)
                self.store.events(session_id, turn_id)


def _is_submit(call: Any, session_id: str) -> bool:
    return bool(call.method == "submit" and call.args[0].session_id == session_id)


def _call(run: Run, dice: random.Random) -> None:
    """Submit a turn, now and then twice, and now and then cancel it."""
    session_id, turn_id = dice.choice(run.sessions), run.token()
    request = SubmitRequest(session_id=session_id, turn_id=turn_id, input=TurnInput(message=turn_id))
    for _ in range(dice.choice((1, 1, 2))):
        run.store.submit(request)
    if dice.random() < 0.15:
        run.store.cancel(session_id, turn_id)
    while run.store.view(session_id).queued[4:] and run.store.operation_count < run.operation_count:
        _take_turn(run, dice)  # a caller that is ahead of the workers lends a hand


def _read(run: Run, dice: random.Random) -> None:
    session_id = dice.choice(run.sessions)
    run.store.snapshot(session_id)
    view = run.store.view(session_id)
    if view.running:
        run.store.turn(session_id, view.running)
        run.store.events(session_id, view.running)


def _take_turn(run: Run, dice: random.Random) -> None:
    grant = run.store.begin(dice.choice(run.sessions), Lane.TURN, run.token())
    if isinstance(grant, Grant):
        work_turn(run, grant, dice)


def _rotate(run: Run, dice: random.Random) -> None:
    grant = run.store.begin(dice.choice(run.sessions), Lane.ROTATION, run.token())
    if isinstance(grant, Grant):
        work_rotation(run, grant, dice)


def _disturb(run: Run, dice: random.Random) -> None:
    """Leases pass while their holders go on; a rotation is asked for, or called off."""
    session_id = dice.choice(run.sessions)
    match dice.randrange(8):
        case 0:
            run.let_leases_pass()
        case 1:
            run.store.cancel_rotation(session_id)
        case 2:
            run.store.request_rotation(session_id, "manual")
        case _:
            run.store.due(0, 20)


def work_turn(run: Run, grant: Grant, dice: random.Random | None) -> None:
    """Run the rounds that are left, saving a step in each. With *dice*: perhaps killed on the way."""
    assert grant.input is not None
    text, saved = grant.input.message, dict(grant.steps)
    position, snapshot = grant.step_base + len(saved), grant.snapshot
    round_count = 1 + sum(map(ord, text)) % MOST_ROUNDS
    try:
        for number in range(grant.first_round, round_count):
            if _is_killed(dice):
                return
            if f"model:{number}" not in saved:
                reply = ModelReply(text=f"{text}.{number}")
                position = run.store.save_step(grant, position, f"model:{number}", reply)
            if _is_killed(dice):
                return
            commit = _round(run, text, number, snapshot, is_last=number + 1 == round_count)
            for _ in range(_times(dice)):
                run.store.commit(grant, commit)
            if commit.answer is None:
                snapshot = run.store.snapshot(grant.session_id, snapshot)
    except LeaseLost:
        return


def _round(run: Run, text: str, number: int, snapshot: Snapshot, *, is_last: bool) -> RoundCommit:
    entries = [Entry.user(text)] if number == 0 else []
    entries.append(Entry.assistant(f"{text}.{number}"))
    return RoundCommit(
        round=number,
        commit_token=run.token(),
        epoch=snapshot.epoch,
        entries=tuple(entries),
        sizes=(ENTRY_TOKENS,) * len(entries),
        calibration=1.0,
        line_tokens=LINE_TOKENS,
        input_index=0 if number == 0 else -1,
        answer=Answer(text=text) if is_last else None,
    )


def work_rotation(run: Run, grant: Grant, dice: random.Random | None) -> None:
    """Consolidate all but the newest two entries up to the boundary into one more record, and adopt that."""
    live, layout = grant.snapshot.layout.live, grant.snapshot.layout
    leaving = live.entries[: max(0, grant.boundary_seq - live.first_seq - 1)]
    try:
        if not leaving:
            run.store.fail(grant, "no_gain", "there is nothing to consolidate")
            return
        if not grant.steps:
            run.store.save_step(grant, grant.step_base, "consolidation", Consolidated(text="record"))
        if _is_killed(dice):
            return
        last_seq = live.first_seq + len(leaving) - 1
        record = Record(first_seq=live.first_seq, last_seq=last_seq, text="record", tokens=RECORD_TOKENS)
        adoption = Adoption(
            layout_token=run.token(),
            first_seq=live.first_seq,
            dropped_count=len(leaving),
            dropped_tokens=ENTRY_TOKENS * len(leaving),
            old_layout_token=grant.snapshot.layout_token,
            tail_seq=live.next_seq - 1,
            tail_token=grant.snapshot.tail_token,
            records=(*layout.records, record),
            chunk="\n".join(entry.text for entry in leaving).encode(),
            line_tokens=LINE_TOKENS,
            figures={"leaving": len(leaving)},
        )
        for _ in range(_times(dice)):
            if not run.store.adopt(grant, adoption).is_adopted:
                return
    except LeaseLost:
        return


def _is_killed(dice: random.Random | None) -> bool:
    return dice is not None and dice.random() < 0.05


def _times(dice: random.Random | None) -> int:
    """How often a write is sent: twice if the reply was lost."""
    return 2 if dice is not None and dice.random() < 0.1 else 1
