"""What a rotation leaves verbatim."""

from __future__ import annotations

from sessionlib.entries import EntryKind
from sessionlib.policies.contract import RotationPlan
from sessionlib.transcript import Split, Transcript, paired_boundary, round_starts

ROUNDS_KEPT = 2
"""Rounds that stay verbatim as far as they fit (DESIGN 6)."""


def choose_tail(plan: RotationPlan) -> Split:
    """The newest entries within the tail's budget, stretched to the last rounds where these fit.

    A carried input takes its room from the tail. If the newest user message leaves, it may be the input of a turn that
    still runs and then stays as a copy: its room is kept free.
    """
    live = plan.layout.live
    carried_tokens = plan.layout.carried.tokens if plan.layout.carried else 0
    split = _split_beside(carried_tokens, live, plan)
    inputs = [size for entry, size in zip(live.entries, live.sizes, strict=True) if entry.kind is EntryKind.USER]
    if inputs and all(entry.kind is not EntryKind.USER for entry in split.retained.entries):
        return _split_beside(max(carried_tokens, inputs[-1]), live, plan)
    return split


def _split_beside(carried_tokens: int, live: Transcript, plan: RotationPlan) -> Split:
    room_tokens = max(0, plan.budgets.stretched_tail_tokens - carried_tokens)
    split = live.split_at_budget(min(plan.budgets.tail_tokens, room_tokens))
    for start in round_starts(live.entries)[-ROUNDS_KEPT:]:
        overflow, retained = live.split_at(paired_boundary(live.entries, start))
        if len(retained) > len(split.retained) and retained.tokens <= room_tokens:
            return Split(retained, overflow)
    return split
