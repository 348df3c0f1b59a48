"""The session's notes: what its model writes for itself. They are no entries, and stay through every rotation."""

from __future__ import annotations

from collections.abc import Mapping

from sessionlib.stores.checks import note_refusal
from sessionlib.stores.contract import THREAD_HINT, Grant
from sessionlib.stores.rules import lanes
from sessionlib.stores.rules.operation import Operation
from sessionlib.stores.rules.state import StoredNote


def notes(op: Operation) -> Mapping[str, int]:
    return {} if op.is_gone else dict(sorted(op.shelf.note_sizes().items()))


def note(op: Operation, name: str) -> str | None:
    found = None if op.is_gone else op.shelf.note(name)
    return found.text if found else None


def write_note(op: Operation, grant: Grant, name: str, text: str, key: str, *, append: bool) -> int:
    """Not progress: a turn that writes the same again and again comes nowhere."""
    lanes.require_held(op, grant)
    before = op.shelf.note(name)
    if before is not None and before.key == key:
        return before.size
    note = StoredNote(key=key, text=before.text + text if before and append else text)
    exceeded = _exceeded_limit(op, name, note.size)
    if exceeded:
        raise note_refusal(exceeded, op.limits, note.size)
    op.shelf.put_note(name, note)
    lanes.extend_lease(op, grant.lane, grant.token)
    return note.size


def _exceeded_limit(op: Operation, name: str, size: int) -> str:
    """Which of the limits a note of that size would break; "" for none."""
    sizes, limits = op.shelf.note_sizes(), op.limits
    if name == THREAD_HINT and size > limits.hint_bytes:
        return "hint_bytes"
    if size > limits.note_bytes:
        return "note_bytes"
    if name not in sizes and len(sizes) >= limits.notes_limit:
        return "notes_limit"
    return "notes_bytes" if sum(sizes.values()) - sizes.get(name, 0) + size > limits.notes_bytes else ""
