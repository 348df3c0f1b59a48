"""What a fresh window opens with, as a store has it: the note that the model left, and what the user said last."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from sessionlib.archive import unpack
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import StoreCorrupt
from sessionlib.layout import Carried
from sessionlib.policies.contract import Opening
from sessionlib.policies.work_room_texts import usable_hint
from sessionlib.stores.contract import THREAD_HINT, SessionStore, Snapshot

log = logging.getLogger(__name__)

NO_SEQ = 2**53
"""Beyond the number of any entry: the largest that JSON and Lua keep exact."""


def opening_of(store: SessionStore, snapshot: Snapshot, boundary_seq: int) -> Opening:
    """The opening of the window after *snapshot*'s, whose entries leave up to *boundary_seq*.

    Windows are counted by epochs, so that their numbers go on where the archive ends. Raises StoreError.
    """
    session_id = snapshot.session_id
    opening = Opening(previous_window=snapshot.epoch + 1, hint=_hint(store, session_id))
    asked = _last_asked(store, snapshot)
    if asked is None or asked.seq > boundary_seq >= snapshot.layout.live.first_seq:
        return opening
    if asked.seq >= _running_from(store, session_id):
        return replace(opening, carried=asked)
    return replace(opening, trail=asked.entry.readable)


def _hint(store: SessionStore, session_id: str) -> str:
    """The note that fresh windows begin with."""
    note = store.note(session_id, THREAD_HINT) or ""
    hint = usable_hint(note)
    if note.strip() and not hint:
        figures = {"session_id": session_id, "hint_bytes": len(note.encode())}
        log.warning("thread hint left out of a fresh window: it is too long", extra=figures)
    return hint


def _last_asked(store: SessionStore, snapshot: Snapshot) -> Carried | None:
    """The user's last message of the whole history, with its number; None if there is none that can be read."""
    live = snapshot.layout.live
    for position in range(len(live) - 1, -1, -1):
        if live.entries[position].kind is EntryKind.USER:
            return Carried(live.first_seq + position, live.entries[position], live.sizes[position])
    if snapshot.layout.carried is not None:
        return snapshot.layout.carried
    try:
        said = ((seq, entry) for seq, entry in _archived(store, snapshot) if entry.kind is EntryKind.USER)
        return next((Carried(seq, entry, 0) for seq, entry in said), None)
    except StoreCorrupt:  # an older message than what cannot be read would be taken for the task
        log.warning("fresh window without its trail: the archive is damaged", extra={"session_id": snapshot.session_id})
        return None


def _archived(store: SessionStore, snapshot: Snapshot) -> Iterator[tuple[int, Entry]]:
    """Archived entries, the newest first, chunk by chunk."""
    before_seq = snapshot.layout.live.first_seq
    while newest := store.chunks(snapshot.session_id, before_seq - 1, before_seq - 1) if before_seq > 1 else ():
        chunk = newest[-1]
        yield from reversed(list(enumerate(unpack(chunk.data), chunk.first_seq)))
        before_seq = chunk.first_seq


def _running_from(store: SessionStore, session_id: str) -> int:
    """The first entry of the turn that runs; beyond all entries if none does, or none of its is recorded yet."""
    running = store.view(session_id).running
    turn = store.turn(session_id, running) if running else None
    return turn.first_seq if turn and turn.first_seq else NO_SEQ
