"""Rules with one fault each: stores that are handed to the checker, which must find every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sessionlib.steps import EffectResult
from sessionlib.stores.contract import (
    Adopted,
    Adoption,
    Committed,
    DueKind,
    Grant,
    Handle,
    Lane,
    Refusal,
    RoundCommit,
    Snapshot,
    SubmitRequest,
    Submitted,
)
from sessionlib.stores.memory import MemoryStore, World
from sessionlib.stores.rules.state import Head, Hold
from tests.checker.explore import memory_store
from tests.checker.model import (
    COUNTED,
    EXPIRY,
    LIMITS,
    NO_REPLY,
    NOW,
    OPENED,
    PURGE,
    RESTORE,
    SESSION,
)
from tests.checker.moves import BeginToken, fresh_token
from tests.checker.operations import MakeStore


class FaultyStore(MemoryStore):
    """The real rules; one method of a subclass goes wrong."""

    def __init__(self, world: World) -> None:
        super().__init__(LIMITS, lambda: NOW, world)

    def _head(self) -> Head | None:
        return self.world.box(SESSION).head

    def _put_head(self, head: Head) -> None:
        self.world = self.world.with_box(SESSION, replace(self.world.box(SESSION), head=head))


class CommitWithoutToken(FaultyStore):
    """Takes a round from whoever sends the next one of the running turn."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        head = self._head()
        return super().commit(replace(grant, token=head.hold.token) if head else grant, commit)


class CommitWithoutRound(FaultyStore):
    """Takes whatever round the holder sends."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        turn = dict(self.world.box(SESSION).turns).get(grant.work_id)
        return super().commit(grant, replace(commit, round=turn.rounds) if turn else commit)


class CommitForgetsItsToken(FaultyStore):
    """Does not see that it has done this commit before."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        turn = dict(self.world.box(SESSION).turns).get(grant.work_id)
        is_repeated = turn is not None and turn.commit_token == commit.commit_token
        again = replace(commit, commit_token=f"{commit.commit_token}-again", round=turn.rounds if turn else 0)
        return super().commit(grant, again if is_repeated else commit)


class BeginWithoutLease(FaultyStore):
    """Grants a lane that another worker holds."""

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        head = self._head()
        if head and lane is Lane.TURN and head.hold.token != token:
            self._put_head(replace(head, hold=Hold()))
        return super().begin(session_id, lane, token, known, own_turn_id)


class BeginDropsDue(FaultyStore):
    """Takes what it grants for finished."""

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        granted = super().begin(session_id, lane, token, known, own_turn_id)
        if isinstance(granted, Grant) and lane is Lane.TURN:
            left = tuple(member for member in self.world.due if member.work_id != granted.work_id)
            self.world = replace(self.world, due=left)
        return granted


class AdoptWithoutTail(FaultyStore):
    """Does not look whether the newest entry that the rotation saw is the one that is there."""

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        tokens = {item.seq: item.commit_token for item in self.world.box(SESSION).live}
        return super().adopt(grant, replace(adoption, tail_token=tokens.get(adoption.tail_seq, "")))


class AdoptDropsTail(FaultyStore):
    """Loses what was committed while the rotation ran."""

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        adopted = super().adopt(grant, adoption)
        if adopted.is_adopted:
            self.world = self.world.with_box(SESSION, replace(self.world.box(SESSION), live=()))
        return adopted


class StepWithoutPosition(FaultyStore):
    """Appends every step that it is sent."""

    def save_step(
        self, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None = None
    ) -> int:
        box = self.world.box(SESSION)
        turn = dict(box.turns).get(grant.work_id)
        if turn is not None and grant.lane is Lane.TURN:
            position = turn.tries.step_base + len(box.turn_steps)
        return super().save_step(grant, position, name, result, handle)


class SubmitForgetsIds(FaultyStore):
    """Takes a known turn for a new one."""

    def submit(self, request: SubmitRequest) -> Submitted:
        box = self.world.box(SESSION)
        if request.turn_id in box.inbox:
            hidden = replace(box, turns=tuple(pair for pair in box.turns if pair[0] != request.turn_id))
            self.world = self.world.with_box(SESSION, hidden)
        return super().submit(request)


class EndLeavesNext(FaultyStore):
    """Ends a turn and leaves the next one to a sweep."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        before = {(member.kind, member.work_id): member.at for member in self.world.due}
        committed = super().commit(grant, commit)
        due = tuple(
            replace(member, at=before.get((member.kind, member.work_id), member.at))
            if member.kind is DueKind.TURN
            else member
            for member in self.world.due
        )
        self.world = replace(self.world, due=due)
        return committed


class TokenOfNoOpening(FaultyStore):
    """Keeps the token of a begin as it came: it stands for the work of any session that was ever opened so."""

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        head = self._head()
        if head is None:
            return super().begin(session_id, lane, token, known, own_turn_id)
        self._rename(lambda held: f"{held}{OPENED}{head.created:.6f}" if held else "")
        granted = super().begin(session_id, lane, token, known, own_turn_id)
        self._rename(lambda held: held.partition(OPENED)[0])
        return replace(granted, token=token) if isinstance(granted, Grant) else granted

    def _rename(self, name: Callable[[str], str]) -> None:
        head = self._head()
        assert head is not None
        rotation = head.rotation
        if rotation is not None:
            rotation = replace(rotation, hold=replace(rotation.hold, token=name(rotation.hold.token)))
        self._put_head(replace(head, hold=replace(head.hold, token=name(head.hold.token)), rotation=rotation))


class NoteForgetsItsKey(FaultyStore):
    """Does not see that it has done this write before."""

    def write_note(self, grant: Grant, name: str, text: str, *, key: str, append: bool = False) -> int:
        before = dict(self.world.box(SESSION).notes).get(name)
        return super().write_note(grant, name, text, key=f"{key}/{before.size if before else 0}", append=append)


class AdoptKeepsRecords(FaultyStore):
    """Leaves records in a fresh window."""

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        records = adoption.records or self.world.box(SESSION).records
        return super().adopt(grant, replace(adoption, records=records))


class StepAfterGap(FaultyStore):
    """Takes a step whatever its position, if it has none there."""

    def save_step(
        self, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None = None
    ) -> int:
        turn = dict(self.world.box(SESSION).turns).get(grant.work_id)
        if turn is not None:
            position = min(position, turn.tries.step_base + len(self.world.box(SESSION).turn_steps))
        return super().save_step(grant, position, name, result, handle)


def counted_token(world: World, lane: Lane) -> str:
    """A counter in the place of a random token: it starts again with every piece of work, and so after a purge."""
    head = world.box(SESSION).head
    hold = Hold()
    if head is not None and lane is Lane.TURN:
        hold = head.hold
    elif head is not None and head.rotation is not None:
        hold = head.rotation.hold
    return f"{COUNTED}{int(hold.token.partition(OPENED)[0].removeprefix(COUNTED) or 0) + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault, and what the checker says when it finds it."""

    name: str
    finding: str
    make_store: MakeStore = memory_store
    begin_token: BeginToken = fresh_token
    faults: tuple[str, ...] = ()
    """What must go wrong for it to be found."""


PLANTED = (
    Planted(name="commit without token", finding="stale token", make_store=CommitWithoutToken, faults=(EXPIRY,)),
    Planted(name="commit without round", finding="history is", make_store=CommitWithoutRound, faults=(RESTORE,)),
    Planted(name="commit not recognised", finding="commit sent twice", make_store=CommitForgetsItsToken),
    Planted(name="begin without lease", finding="while another holds it", make_store=BeginWithoutLease),
    Planted(name="begin drops the due member", finding="unfinished is", make_store=BeginDropsDue),
    Planted(name="adopt without tail", finding="does not fit", make_store=AdoptWithoutTail),
    Planted(name="adopt drops the tail", finding="history was", make_store=AdoptDropsTail),
    Planted(name="step without position", finding="save sent twice", make_store=StepWithoutPosition),
    Planted(name="submit not recognised", finding="submit sent twice", make_store=SubmitForgetsIds),
    Planted(name="end leaves the next turn", finding="may start now and is due in", make_store=EndLeavesNext),
    Planted(
        name="counter as token",
        finding="stale token",
        make_store=TokenOfNoOpening,
        begin_token=counted_token,
        faults=(PURGE,),
    ),
    Planted(name="note not recognised", finding="save sent twice", make_store=NoteForgetsItsKey),
    Planted(name="fresh window with records", finding="records span", make_store=AdoptKeepsRecords),
    Planted(name="step after a gap", finding="save sent twice", make_store=StepAfterGap, faults=(RESTORE,)),
    Planted(
        name="token of no opening",
        finding="stale token",
        make_store=TokenOfNoOpening,
        faults=(NO_REPLY, PURGE, RESTORE),
    ),
)
