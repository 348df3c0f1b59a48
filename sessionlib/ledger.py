"""The ledger: what was done in a session, line by line, from its tool calls; no model is involved (spec/work-room B6).

    Done so far (12 older ones left out):
    - read lib/pump.py (lines 1-40)
    - edited lib/pump.py
    - ran pytest tests/test_pump.py -q
    Last said: The pump runs dry when the valve is shut.

The text is all that is kept: its own lines are read back, so that it is updated and never written anew.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from sessionlib.actions import ELLIPSIS, action_of, collapsed, cut, one_line
from sessionlib.entries import Entry, EntryKind

ACTIONS_LIMIT = 30
"""Distinct actions that are listed; like the two that follow from spec/work-room B6."""
LEDGER_CHARACTERS = 1_200
"""The whole text."""
NARRATION_CHARACTERS = 200
"""What the assistant said last."""

COUNT_DIGITS = 9

_TITLE = "Done so far"
_SAID = "Last said: "
_BULLET = "- "

_OMITTED = re.compile(rf"{_TITLE} \(([0-9]{{1,{COUNT_DIGITS}}}) older ones left out\):")

LARGEST_HEADING = f"{_TITLE} ({'9' * COUNT_DIGITS} older ones left out):"
"""What stands above the actions, at most."""

ACTIONS_CHARACTERS = LEDGER_CHARACTERS - len(LARGEST_HEADING) - len(f"\n{_SAID}") - NARRATION_CHARACTERS
"""The actions' share, with their bullets and line breaks. It does not depend on what else there is to say: what was
left out once would have been left out in any case."""

_TYPICAL = "edited sessionlib/policies/module_17.py"
"""An action as most of a ledger is made of: what the shares in characters take in tokens is counted with it."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a ledger's lines may take in tokens, beside their characters.

    Each line is counted by itself, and either share is fixed, like those of the characters.
    """

    counted: Callable[[str], int]
    """Tokens of one line, with its break."""
    actions_tokens: int
    narration_tokens: int

    @classmethod
    def of(cls, counted: Callable[[str], int]) -> Self:
        """What the characters take in lines about files."""
        action, said = f"{_BULLET}{_TYPICAL}", f"{_SAID}{(_TYPICAL * NARRATION_CHARACTERS)[:NARRATION_CHARACTERS]}"
        return cls(
            counted=counted,
            actions_tokens=math.ceil(counted(action) * ACTIONS_CHARACTERS / _characters([_TYPICAL])),
            narration_tokens=counted(said),
        )

    def actions(self, actions: Sequence[str]) -> int:
        return sum(self.counted(f"{_BULLET}{action}") for action in actions)

    def narration(self, line: str) -> int:
        return self.counted(f"{_SAID}{line}")


def updated_ledger(previous_text: str, leaving: Sequence[Entry], quota: Quota | None = None) -> str:
    """The ledger *previous_text* ("" for none) with what the entries *leaving* the window did; "" if nothing was done
    or said.

    At most LEDGER_CHARACTERS, and within *quota*. Entries that leave at once or one after the other make the same
    ledger: `updated_ledger(updated_ledger(t, a), b) == updated_ledger(t, a + b)`, with the same quota.
    """
    ledger = reduce(_Ledger.after, leaving, _Ledger.read(previous_text, quota))
    said = (entry.text for entry in reversed(leaving) if entry.kind is EntryKind.ASSISTANT and entry.text.strip())
    return ledger.with_narration(one_line(next(said, ""))).text()


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A ledger's parts."""

    quota: Quota | None
    actions: tuple[str, ...] = ()
    """Distinct, the one that was done last at the end."""
    omitted_count: int = 0
    """How often the oldest action made room. One that is done again later, and leaves again, counts twice."""
    narration: str = ""

    @classmethod
    def read(cls, text: str, quota: Quota | None) -> Self:
        """The ledger that *text* shows. Lines that are none of a ledger are passed over."""
        ledger = cls(quota)
        for line in text.split("\n"):
            if omitted := _OMITTED.fullmatch(line):
                ledger = replace(ledger, omitted_count=int(omitted[1]))
            elif line.startswith(_BULLET):
                ledger = ledger.with_action(cut(collapsed(line.removeprefix(_BULLET))))
            elif line.startswith(_SAID):
                ledger = ledger.with_narration(collapsed(line.removeprefix(_SAID)))
        return ledger

    def after(self, entry: Entry) -> Self:
        """With what one more entry did."""
        if entry.kind is not EntryKind.TOOL_CALL:
            return self
        return self.with_action(action_of(entry.tool_name or "", entry.text))

    def with_action(self, action: str) -> Self:
        """With *action* as the last; one that was done before moves there. The oldest make room."""
        if not action:
            return self
        actions = (*(other for other in self.actions if other != action), action)
        excess = 0
        while self._is_beyond(actions[excess:]):
            excess += 1
        omitted_count = min(self.omitted_count + excess, 10**COUNT_DIGITS - 1)
        return replace(self, actions=actions[excess:], omitted_count=omitted_count)

    def with_narration(self, line: str) -> Self:
        """With what was said last, unless that was nothing."""
        line = cut(line, NARRATION_CHARACTERS)
        return replace(self, narration=_within(line, self.quota) if self.quota else line) if line else self

    def text(self) -> str:
        omitted = f" ({self.omitted_count} older ones left out)" if self.omitted_count else ""
        lines = [f"{_BULLET}{action}" for action in self.actions]
        if lines or omitted:
            lines.insert(0, f"{_TITLE}{omitted}:")
        if self.narration:
            lines.append(f"{_SAID}{self.narration}")
        return "\n".join(lines)

    def _is_beyond(self, actions: Sequence[str]) -> bool:
        """Whether *actions* are more than have room."""
        if len(actions) > ACTIONS_LIMIT or _characters(actions) > ACTIONS_CHARACTERS:
            return True
        return self.quota is not None and self.quota.actions(actions) > self.quota.actions_tokens


def _characters(actions: Sequence[str]) -> int:
    return sum(len(f"\n{_BULLET}{action}") for action in actions)


def _within(line: str, quota: Quota) -> str:
    """As much of *line* as its share of *quota* holds."""
    if quota.narration(line) <= quota.narration_tokens:
        return line
    limits = range(len(ELLIPSIS), len(line))
    fitting = bisect_right(limits, quota.narration_tokens, key=lambda limit: quota.narration(cut(line, limit)))
    return cut(line, limits[fitting - 1]) if fitting else ""
