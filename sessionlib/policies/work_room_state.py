"""The state machine of the policy `work_room` (spec/work-room B4): what a window that fills up calls for.

A window says nothing while there is room, reminds once when little is left, asks for a handoff when it is used up, and
is replaced when it goes beyond that. Pure: a `Room` and a fill in, the next `Room` and an action out.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from sessionlib.bands import Bands
from sessionlib.stores.contract import Nudge, Room

FUTILITY_LIMIT = 3
"""Windows running without room to breathe after which no more are begun: they would bring nothing (spec/work-room B4).
"""


class Action(StrEnum):
    """What a round's end calls for."""

    NONE = "none"
    REMINDER = "reminder"
    FALLBACK = "fallback"
    RESET = "reset"


def evaluate(room: Room, total_tokens: int, bands: Bands) -> tuple[Room, Action]:
    """Judge a window by its conversation of *total_tokens*, at the end of each round.

    A window that jumped over every band is held for one more round, so that the model can save its state. A reset
    changes nothing here: until its window is replaced (`opened`) it is called for again, however often, and counts
    once.
    """
    room, used_tokens = replace(room, nudge=None, remaining_tokens=0), bands.used_tokens(total_tokens)
    if room.is_braked:
        return room, Action.NONE
    if used_tokens >= bands.work_tokens + bands.buffer_tokens:
        if not room.is_reminded:
            return _nudged(room, Nudge.FALLBACK), Action.FALLBACK
        if _breathless_count(room) >= FUTILITY_LIMIT:
            return replace(room, breathless_count=FUTILITY_LIMIT, is_braked=True), Action.NONE
        return room, Action.RESET
    if room.is_reminded:
        return replace(room, had_breath=True), Action.NONE
    if used_tokens >= bands.work_tokens:
        return _nudged(room, Nudge.FALLBACK), Action.FALLBACK
    remaining_tokens = bands.remaining_tokens(total_tokens)
    if remaining_tokens <= bands.reminder_tokens:
        return _nudged(room, Nudge.REMINDER, remaining_tokens), Action.REMINDER
    return replace(room, had_breath=True), Action.NONE


def opened(room: Room) -> Room:
    """The state of the window after the one of *room*."""
    return Room(is_braked=room.is_braked, breathless_count=_breathless_count(room))


def untold(room: Room) -> Room:
    """*room*, if its nudge reached no request: the model was told nothing yet, and it is still due."""
    return replace(room, is_reminded=False, nudge=None, remaining_tokens=0) if room.nudge else room


def _breathless_count(room: Room) -> int:
    """Windows running without room to breathe, *room*'s own included if it was used up."""
    if room.had_breath:
        return 0
    return room.breathless_count + room.is_reminded


def _nudged(room: Room, nudge: Nudge, remaining_tokens: int = 0) -> Room:
    return replace(room, is_reminded=True, nudge=nudge, remaining_tokens=remaining_tokens)
