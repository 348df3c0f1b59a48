"""What a round means for a window of the policy `work_room`; for sessions of other policies, nothing."""

from __future__ import annotations

from dataclasses import dataclass

from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.policies.work_room import WorkRoom
from sessionlib.policies.work_room_state import Action, evaluate, untold
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


def judged(
    agent: Agent, room: Room, total_tokens: int, budgets: Budgets, *, is_nudged: bool = True, is_cut: bool = False
) -> Judged:
    """Judge a conversation of *total_tokens* by the figures that the next request will be cut with.

    A window is replaced only when its policy says so: then at once, and else not, whatever the fill. So the line is at
    zero, or just above what is there. *is_nudged*: the nudge that was due, if one was, reached the model. *is_cut*: the
    provider refused what there was, and got less of it; what was cut is in no record yet, and is to be at once.
    """
    if not isinstance(agent.policy, WorkRoom) or budgets.bands is None:
        line_tokens = min(budgets.line_tokens, total_tokens) if is_cut else budgets.line_tokens
        return Judged(room=Room(), line_tokens=line_tokens)
    after, action = evaluate(room if is_nudged else untold(room), total_tokens, budgets.bands)
    is_reset = action is Action.RESET
    line_tokens = 0 if is_reset else max(budgets.line_tokens, total_tokens + 1)
    return Judged(room=after, line_tokens=line_tokens, is_reset=is_reset)


def is_used_up(agent: Agent, snapshot: Snapshot, budgets: Budgets) -> bool:
    """Whether a window is to be replaced now: it is used up, and the model was told so in a request."""
    total_tokens = snapshot.layout.conversation_tokens
    return judged(agent, snapshot.room, total_tokens, budgets, is_nudged=False).is_reset


def nudge_of(agent: Agent, snapshot: Snapshot) -> Entry | None:
    """What is put at the end of the next request, and nowhere else; None in most."""
    if snapshot.room.nudge is None:
        return None
    policy = agent.told_policy
    return Entry.record(policy.nudge_text(snapshot.room)) if isinstance(policy, WorkRoom) else None
