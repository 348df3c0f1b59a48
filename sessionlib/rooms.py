"""What a round means for a window of the policy `work_room`; for sessions of other policies, nothing."""

from __future__ import annotations

from dataclasses import dataclass

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.policies.work_room import WorkRoom
from sessionlib.policies.work_room_state import Action, evaluate
from sessionlib.stores.contract import Room, Snapshot
from sessionlib.window import Budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A window at the end of a round."""

    room: Room
    line_tokens: int
    """From which conversation tokens on the store is to request a rotation."""
    is_reset: bool = False
    """The window is to be replaced before the next round."""


def judged(agent: Agent, room: Room, total_tokens: int, budgets: Budgets) -> Judged:
    """Judge a conversation of *total_tokens* by the figures that the next request will be cut with.

    A window is replaced only when its policy says so: then at once, and else not, whatever the fill. So the line is at
    zero, or just above what is there.
    """
    if not isinstance(agent.policy, WorkRoom) or budgets.bands is None:
        return Judged(room=Room(), line_tokens=budgets.line_tokens)
    after, action = evaluate(room, total_tokens, budgets.bands)
    is_reset = action is Action.RESET
    line_tokens = 0 if is_reset else max(budgets.line_tokens, total_tokens + 1)
    return Judged(room=after, line_tokens=line_tokens, is_reset=is_reset)


def nudge_of(agent: Agent, snapshot: Snapshot) -> Entry | None:
    """What is put at the end of the next request, and nowhere else; None in most."""
    if snapshot.room.nudge is None or not isinstance(agent.policy, WorkRoom):
        return None
    return Entry.record(agent.policy.nudge_text(snapshot.room))
