"""Held provider sessions: which one the session goes on with, and which are to be let go of.

A handle may continue another, its parent. The chain of those that were committed ends as one, by its newest; a handle
that no round took over goes by itself, and its disposal stops at its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sessionlib.stores.contract import DueKind, Handle, RoundCommit
from sessionlib.stores.orphans import orphan_id
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import Disposal, Turn


def remember(op: Operation, turn_id: str, handle: Handle) -> None:
    """A step brought it: until a round takes it over, it is the turn's."""
    turn = op.require_turn(turn_id)
    op.shelf.put_turn(replace(turn, handles=(*turn.handles, handle)))


def disown(op: Operation, turn_id: str, handle: Handle) -> None:
    """A step brought it that is refused: whoever was given it has gone on without, or is gone. It is due by itself."""
    turn = op.shelf.turn(turn_id)
    names = [one.handle for one in (*_known(op), *(turn.handles if turn else ()))]
    if handle.handle not in names:
        op.due(DueKind.ORPHAN, orphan_id(handle, handle.parent))


def keep_handle(op: Operation, turn: Turn, commit: RoundCommit) -> None:
    """Go on with the handle of a commit of the current epoch; what nobody will use again is due for disposal."""
    before = op.head.handle
    if commit.epoch == op.head.epoch:
        op.update(handle=commit.handle)
        if before is not None and not _goes_on(before, commit.handle):
            _dispose(op, Disposal(handle=before, is_chain=True))
    elif commit.handle is not None:
        _dispose_unless_known(op, commit.handle)
    let_go_of_untaken(op, turn)


def let_go_of_untaken(op: Operation, turn: Turn) -> None:
    """What a turn's steps brought, but for what the session has; the turn forgets all of it."""
    for handle in turn.handles:
        _dispose_unless_known(op, handle)


def retire_handle(op: Operation) -> None:
    """The held provider session has the old layout: it goes when the turn that runs on it has ended."""
    handle = op.head.handle
    if handle is not None:
        op.update(handle=None)
        _dispose(op, Disposal(handle=handle, is_chain=True, waits_for=op.head.work))


def free_disposals(op: Operation, turn_id: str) -> None:
    """What waited for the end of that turn is due."""
    disposals = op.head.disposals
    if any(disposal.waits_for == turn_id for disposal in disposals):
        op.update(disposals=tuple(replace(d, waits_for="") if d.waits_for == turn_id else d for d in disposals))
        op.due(DueKind.DISPOSAL)


def disposed(op: Operation, handle: str) -> None:
    if op.is_gone:
        return
    left = tuple(disposal for disposal in op.head.disposals if disposal.handle.handle != handle)
    if len(left) < len(op.head.disposals):
        op.update(disposals=left)
    if not op.head.has_due_disposal:
        op.shelf.drop_due(DueKind.DISPOSAL, "")


def leave_orphans(op: Operation) -> None:
    """The session is purged: what it holds, or its running turn remembers, is due without it, each handle once."""
    head = op.head
    turn = op.shelf.turn(head.work) if head.work else None
    held = [Disposal(handle=head.handle, is_chain=True)] if head.handle else []
    held += [*head.disposals, *(Disposal(handle=handle) for handle in (turn.handles if turn else ()))]
    names: set[str] = set()
    for disposal in held:
        if disposal.handle.handle not in names:
            names.add(disposal.handle.handle)
            op.due(DueKind.ORPHAN, orphan_id(disposal.handle, disposal.until))


def _goes_on(before: Handle, after: Handle | None) -> bool:
    return after is not None and before.handle in (after.handle, after.parent)


def _dispose_unless_known(op: Operation, handle: Handle) -> None:
    if handle.handle not in [one.handle for one in _known(op)]:
        _dispose(op, Disposal(handle=handle))


def _known(op: Operation) -> Sequence[Handle]:
    """What the session goes on with, or is to let go of already."""
    if op.is_gone:
        return ()
    held = (op.head.handle,) if op.head.handle else ()
    return (*held, *(disposal.handle for disposal in op.head.disposals))


def _dispose(op: Operation, disposal: Disposal) -> None:
    op.update(disposals=(*op.head.disposals, disposal))
    if not disposal.waits_for:
        op.due(DueKind.DISPOSAL)
