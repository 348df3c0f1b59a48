"""Bands: how far a window of the policy `work_room` may fill before the next begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

REMINDER_DIVISOR = 5
BUFFER_DIVISOR = 10
"""A reminder comes when a fifth of the work room is left; a tenth beyond it is tolerated (spec/work-room B2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Figures of one window, in tokens of conversation. All but the base are at least 1, or a fresh window would reset
    for ever."""

    base_tokens: int
    """What every fresh window begins with; nothing of it counts as used."""
    work_tokens: int
    """The work room: what may come on top before the window is used up."""
    reminder_tokens: int
    """The model is reminded when no more than this is left of it."""
    buffer_tokens: int
    """What is tolerated beyond it."""

    def __post_init__(self) -> None:
        for name in ("work_tokens", "reminder_tokens", "buffer_tokens"):
            object.__setattr__(self, name, max(1, getattr(self, name)))

    @classmethod
    def of(
        cls, base_tokens: int, work_tokens: int, reminder_tokens: int | None = None, buffer_tokens: int | None = None
    ) -> Bands:
        """Bands of a work room; a fifth and a tenth of it where nothing else is given."""
        return cls(
            base_tokens=base_tokens,
            work_tokens=work_tokens,
            reminder_tokens=work_tokens // REMINDER_DIVISOR if reminder_tokens is None else reminder_tokens,
            buffer_tokens=work_tokens // BUFFER_DIVISOR if buffer_tokens is None else buffer_tokens,
        )

    @property
    def reset_tokens(self) -> int:
        """The hard limit: from here on the window is replaced."""
        return self.base_tokens + self.work_tokens + self.buffer_tokens

    def used_tokens(self, total_tokens: int) -> int:
        """How much of a conversation of *total_tokens* is work."""
        return max(0, total_tokens - self.base_tokens)

    def remaining_tokens(self, total_tokens: int) -> int:
        """What is left of the work room."""
        return max(0, self.work_tokens - self.used_tokens(total_tokens))

    def within(self, reset_tokens: int) -> Bands:
        """The same shares of a smaller window: its hard limit at *reset_tokens*, its base as it is."""
        room_tokens = max(2, reset_tokens - self.base_tokens)
        share = room_tokens / (self.work_tokens + self.buffer_tokens)
        work_tokens = max(1, math.floor(self.work_tokens * share))
        return Bands(
            base_tokens=self.base_tokens,
            work_tokens=work_tokens,
            reminder_tokens=math.floor(self.reminder_tokens * share),
            buffer_tokens=room_tokens - work_tokens,
        )
