"""The ledger: what was done in a session, line by line, from its tool calls; no model is involved (spec/work-room B6).

    Done so far (12 older ones left out):
    - read lib/pump.py (lines 1-40)
    - edited lib/pump.py
    - ran pytest tests/test_pump.py -q
    Last said: The pump runs dry when the valve is shut.

The text is all that is kept: its own lines are read back, so that it is updated and never written anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from sessionlib.actions import action_of, collapsed, cut, one_line
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

ACTIONS_CHARACTERS = (
    LEDGER_CHARACTERS
    - len(f"{_TITLE} ({'9' * COUNT_DIGITS} older ones left out):")
    - len(f"\n{_SAID}")
    - NARRATION_CHARACTERS
)
"""The actions' share, with their bullets and line breaks. It does not depend on what else there is to say: what was
left out once would have been left out in any case."""


def updated_ledger(previous_text: str, leaving: Sequence[Entry]) -> str:
    """The ledger *previous_text* ("" for none) with what the entries *leaving* the window did; "" if nothing was done
    or said.

    At most LEDGER_CHARACTERS. Entries that leave at once or one after the other make the same ledger:
    `updated_ledger(updated_ledger(t, a), b) == updated_ledger(t, a + b)`.
    """
    return reduce(_Ledger.after, leaving, _Ledger.read(previous_text)).text()


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A ledger's parts."""

    actions: tuple[str, ...] = ()
    """Distinct, the one that was done last at the end."""
    omitted_count: int = 0
    """How often the oldest action made room. One that is done again later, and leaves again, counts twice."""
    narration: str = ""

    @classmethod
    def read(cls, text: str) -> Self:
        """The ledger that *text* shows. Lines that are none of a ledger are passed over."""
        ledger = cls()
        for line in text.split("\n"):
            if omitted := _OMITTED.fullmatch(line):
                ledger = replace(ledger, omitted_count=int(omitted[1]))
            elif line.startswith(_BULLET):
                ledger = ledger.with_action(cut(collapsed(line.removeprefix(_BULLET))))
            elif line.startswith(_SAID):
                ledger = ledger.with_narration(collapsed(line.removeprefix(_SAID)))
        return ledger

    def after(self, entry: Entry) -> Self:
        """With what one more entry did or said."""
        match entry.kind:
            case EntryKind.TOOL_CALL:
                return self.with_action(action_of(entry.tool_name or "", entry.text))
            case EntryKind.ASSISTANT:
                return self.with_narration(one_line(entry.text))
            case _:
                return self

    def with_action(self, action: str) -> Self:
        """With *action* as the last; one that was done before moves there. The oldest make room."""
        if not action:
            return self
        actions = (*(other for other in self.actions if other != action), action)
        excess = 0
        while len(actions) - excess > ACTIONS_LIMIT or _characters(actions[excess:]) > ACTIONS_CHARACTERS:
            excess += 1
        omitted_count = min(self.omitted_count + excess, 10**COUNT_DIGITS - 1)
        return replace(self, actions=actions[excess:], omitted_count=omitted_count)

    def with_narration(self, line: str) -> Self:
        """With what was said last, unless that was nothing."""
        return replace(self, narration=cut(line, NARRATION_CHARACTERS) or self.narration)

    def text(self) -> str:
        omitted = f" ({self.omitted_count} older ones left out)" if self.omitted_count else ""
        lines = [f"{_BULLET}{action}" for action in self.actions]
        if lines or omitted:
            lines.insert(0, f"{_TITLE}{omitted}:")
        if self.narration:
            lines.append(f"{_SAID}{self.narration}")
        return "\n".join(lines)


def _characters(actions: Sequence[str]) -> int:
    return sum(len(f"\n{_BULLET}{action}") for action in actions)
