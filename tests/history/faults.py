"""Stores with one fault each, which the judge must find in the calls of a run."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.stores.contract import (
    Adopted,
    Adoption,
    Committed,
    Grant,
    RoundCommit,
    Snapshot,
    SubmitRequest,
    Submitted,
    TurnState,
)
from sessionlib.stores.memory import MemoryStore

EVERY = 20
"""How many calls go well before one goes wrong."""


class FaultyStore(MemoryStore):
    """The real rules; one method of a subclass goes wrong now and then."""

    _count = 0

    def _is_now(self) -> bool:
        self._count += 1
        return self._count % EVERY == 0


class DropsCommits(FaultyStore):
    """Acknowledges a round and does not record it."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        if self._is_now():
            return Committed(epoch=grant.snapshot.epoch, layout_token=grant.snapshot.layout_token)
        return super().commit(grant, commit)


class DoublesCommits(FaultyStore):
    """Records a round twice."""

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        if self._is_now():
            commit = replace(commit, entries=commit.entries * 2, sizes=commit.sizes * 2)
        return super().commit(grant, commit)


class SwapsTurns(FaultyStore):
    """Lets a turn overtake the one before it."""

    def submit(self, request: SubmitRequest) -> Submitted:
        submitted = super().submit(request)
        box = self.world.box(request.session_id)
        if len(box.inbox) > 1 and submitted.is_new:
            *others, before, last = box.inbox
            self.world = self.world.with_box(request.session_id, replace(box, inbox=(*others, last, before)))
        return submitted


class LosesTail(FaultyStore):
    """Adopts a layout and drops the entries that came later."""

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        adopted = super().adopt(grant, adoption)
        if adopted.is_adopted:
            box = self.world.box(grant.session_id)
            self.world = self.world.with_box(grant.session_id, replace(box, live=box.live[:1]))
        return adopted


class ForgetsCancels(FaultyStore):
    """Says that a turn is cancelled and lets it go on."""

    def cancel(self, session_id: str, turn_id: str) -> TurnState:
        return TurnState.CANCELLED


class ReadsOldSnapshots(FaultyStore):
    """Answers a reader with what another was told a while ago."""

    _old: dict[str, Snapshot]

    def snapshot(self, session_id: str, known: Snapshot | None = None) -> Snapshot:
        if not hasattr(self, "_old"):
            self._old = {}
        current = super().snapshot(session_id, known)
        return self._old.setdefault(session_id, current) if self._is_now() else current


FAULTY_STORES = (DropsCommits, DoublesCommits, SwapsTurns, LosesTail, ForgetsCancels, ReadsOldSnapshots)
