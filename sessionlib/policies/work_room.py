"""work_room: no summaries at all; the model keeps notes, and goes on in a fresh window when one is used up.

The window is measured by its *work room*: conversation tokens above what every fresh window begins with
(spec/work-room B2). A reset asks no model: it archives all that was said and leaves an opening in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessionlib.bands import BUFFER_DIVISOR, Bands
from sessionlib.errors import CannotConverge
from sessionlib.layout import Layout, Record, RecordKind, make_record
from sessionlib.policies.contract import Consolidating, Opening, Rotated, RotationPlan
from sessionlib.policies.figures import LARGEST_WINDOW_TOKENS, RESULT_CAP_DIVISOR, Tokens, first_true
from sessionlib.policies.work_room_texts import (
    FALLBACK,
    GUIDANCE,
    HINT_BYTES,
    REMINDER,
    SEED,
    default_texts,
    fenced_hint,
    opening_text,
    reminder,
    trail_text,
)
from sessionlib.stores.contract import Nudge
from sessionlib.stores.contract import Room as StoredRoom
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.tokens import Counter
from sessionlib.transcript import Transcript
from sessionlib.window import TRIM_FRACTION, Budgets, Room

LEAST_RESULT_CAP_TOKENS = 512
"""A tool result is never cut shorter (spec/work-room B2)."""

FIRST_SEQ = 1
"""An opening stands for all that was ever said, whatever other policies let go of."""

LARGEST_WINDOW_NUMBER = 999_999_999
"""Windows are counted with no more digits than this has: the base allows for them."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """A work room that was asked for too small, in tokens."""

    asked_tokens: int
    given_tokens: int
    """The viability floor, with bands of its own."""

    def __str__(self) -> str:
        return (
            f"a work room of {self.asked_tokens:,} tokens is below what keeps a session going beside what every window "
            f"begins with; {self.given_tokens:,} are taken"
        )


class WorkRoom(BaseModel):
    """The policy of spec/work-room. A frozen configuration value; figures in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["work_room"] = "work_room"
    work_budget_tokens: Tokens | None = None
    """The work room of a window. None: as much as the window has, with base and buffer beside it."""
    reminder_tokens: Tokens | None = None
    """Remind when no more than this is left. None: a fifth of the work room."""
    buffer_tokens: Tokens | None = None
    """Tolerated beyond the work room before the window is replaced. None: a tenth of it."""
    least_work_multiple: Annotated[float, Field(ge=0)] = 2.0
    """The work room is at least this many times what every request carries, or it would be spent on beginnings."""
    least_work_tokens: Annotated[int, Field(ge=0)] = 4_096
    trail_tokens: Tokens = 2_000
    """How much of the user's last message a fresh window shows."""
    reminder_template: Annotated[str, Field(min_length=1)] = REMINDER
    """`{n_remaining}` stands for what is left."""
    fallback_prompt: Annotated[str, Field(min_length=1)] = FALLBACK
    guidance_message: Annotated[str, Field(min_length=1)] = GUIDANCE
    """What the agent's instructions end with."""
    seed_message: Annotated[str, Field(min_length=1)] = SEED

    def told(self, *, has_notes: bool, has_history: bool) -> WorkRoom:
        """This policy for an agent with these tools: its default texts name no others; texts that were given stay."""
        full = default_texts(has_notes=True, has_history=True)
        adapted = default_texts(has_notes=has_notes, has_history=has_history)
        return self.model_copy(update={name: adapted[name] for name in full if getattr(self, name) == full[name]})

    def budgets(self, room: Room, counter: Counter, *, show_span: bool, ledger_tokens: int = 0) -> Budgets:
        """The figures for a window. Raises CannotConverge if base, work room and buffer are more than its limit."""
        base_tokens = self.opening_tokens(counter, show_span=show_span) + ledger_tokens
        bands = self._bands(room, base_tokens)
        if bands.reset_tokens > room.limit_tokens or self._least_tokens(room, base_tokens) > bands.work_tokens:
            raise self._refusal(room, base_tokens)
        return Budgets(
            window_tokens=room.window_tokens,
            fixed_tokens=room.fixed_tokens,
            line_tokens=bands.reset_tokens,
            limit_tokens=room.limit_tokens,
            trim_tokens=math.floor(room.limit_tokens * TRIM_FRACTION),
            tail_tokens=0,
            stretched_tail_tokens=0,
            record_tokens=base_tokens - ledger_tokens + HINT_BYTES + self.trail_tokens,
            result_cap_tokens=max(LEAST_RESULT_CAP_TOKENS, bands.work_tokens // RESULT_CAP_DIVISOR),
            ledger_tokens=ledger_tokens,
            bands=bands,
        )

    def clamp(self, room: Room, counter: Counter, *, show_span: bool, ledger_tokens: int = 0) -> Clamp | None:
        """What becomes of a work room that was asked for below the viability floor; None if it was not."""
        base_tokens = self.opening_tokens(counter, show_span=show_span) + ledger_tokens
        least_tokens = self._least_tokens(room, base_tokens)
        asked_tokens = self.work_budget_tokens
        return Clamp(asked_tokens, least_tokens) if asked_tokens is not None and asked_tokens < least_tokens else None

    def opening_tokens(self, counter: Counter, *, show_span: bool) -> int:
        """Tokens of the barest opening: no hint, no user message."""
        key: Any = counter  # hashable as any object, which its protocol does not say
        return _opening_tokens(key, self.seed_message, show_span)

    def nudge_text(self, room: StoredRoom) -> str:
        """What the model is told at the end of a request."""
        if room.nudge is Nudge.REMINDER:
            return reminder(self.reminder_template, room.remaining_tokens)
        return self.fallback_prompt

    def accepted_ratio(self, request: ConsolidationRequest, plan: RotationPlan) -> float:  # noqa: ARG002 - every policy's
        """Nothing is ever asked for."""
        return 1.0

    def rotate(self, plan: RotationPlan) -> Consolidating:
        """Begin a fresh window: an opening in the place of all records and entries. Asks nobody.

        Without entries there is nothing to replace.
        """
        yield from ()
        layout, opening = plan.layout, plan.opening
        if not layout.live.entries:
            return Rotated(layout=layout)
        record = self._fitting(plan)
        live = Transcript(first_seq=layout.live.next_seq)
        return Rotated(layout=Layout(records=(record,), carried=opening.carried, live=live))

    def _bands(self, room: Room, base_tokens: int) -> Bands:
        """The bands of a window: as asked for, or at the floor if that is below it, or all that the limit allows."""
        least_tokens, asked_tokens = self._least_tokens(room, base_tokens), self.work_budget_tokens
        if asked_tokens is not None and asked_tokens < least_tokens:
            return Bands.of(base_tokens, least_tokens)
        work_tokens = asked_tokens or self._derived_tokens(room.limit_tokens - base_tokens)
        return Bands.of(base_tokens, work_tokens, self.reminder_tokens, self.buffer_tokens)

    def _derived_tokens(self, room_tokens: int) -> int:
        """The work room that takes *room_tokens* with its buffer."""
        if self.buffer_tokens is not None:
            return room_tokens - self.buffer_tokens
        return room_tokens * BUFFER_DIVISOR // (BUFFER_DIVISOR + 1)

    def _least_tokens(self, room: Room, base_tokens: int) -> int:
        """The viability floor."""
        always_tokens = room.fixed_tokens + base_tokens
        return max(1, math.ceil(self.least_work_multiple * always_tokens), self.least_work_tokens)

    def _refusal(self, room: Room, base_tokens: int) -> CannotConverge:
        work_tokens = max(self._least_tokens(room, base_tokens), self.work_budget_tokens or 0)
        bands = Bands.of(base_tokens, work_tokens, buffer_tokens=self.buffer_tokens)
        smallest = first_true(
            lambda window_tokens: replace(room, window_tokens=window_tokens).limit_tokens >= bands.reset_tokens,
            LARGEST_WINDOW_TOKENS,
        )
        return CannotConverge(
            room.window_tokens,
            smallest,
            f"a base of {base_tokens}, a work room of at least {work_tokens} and a buffer of {bands.buffer_tokens} "
            f"make {bands.reset_tokens}; beside {room.fixed_tokens} that are always sent a request may have "
            f"{room.limit_tokens}",
        )

    def _fitting(self, plan: RotationPlan) -> Record:
        """The opening record: without its hint, and with less of the user's message, if the window would be replaced
        at once."""
        opening, bands = plan.opening, plan.budgets.bands
        beside_tokens = plan.budgets.ledger_tokens + (opening.carried.tokens if opening.carried else 0)
        room_tokens = (bands.reset_tokens if bands else plan.budgets.line_tokens) - beside_tokens
        record = self._record(plan, opening, self.trail_tokens)
        if record.tokens >= room_tokens:
            record = self._record(plan, replace(opening, hint=""), self.trail_tokens)
        if record.tokens >= room_tokens:
            left_tokens = max(0, room_tokens - self.opening_tokens(plan.counter, show_span=plan.show_span))
            record = self._record(plan, replace(opening, hint=""), min(self.trail_tokens, left_tokens // 2))
        return record

    def _record(self, plan: RotationPlan, opening: Opening, trail_tokens: int) -> Record:
        layout = plan.layout
        text = opening_text(
            opening.previous_window,
            self.seed_message,
            hint=opening.hint,
            trail=trail_text(opening.trail, trail_tokens, plan.counter),
        )
        return make_record(
            plan.counter,
            text,
            FIRST_SEQ,
            layout.live.next_seq - 1,
            show_span=plan.show_span,
            kind=RecordKind.OPENING,
            source_tokens=layout.record_tokens + layout.live.tokens,
        )


def shows_hint(layout: Layout, hint: str) -> bool:
    """Whether a fresh window shows the thread hint: one that would bring it to its limit is left out."""
    return any(fenced_hint(hint) in record.text for record in layout.records)


@lru_cache(maxsize=64)
def _opening_tokens(counter: Counter, seed: str, show_span: bool) -> int:
    text = opening_text(LARGEST_WINDOW_NUMBER - 1, seed)
    span = (LARGEST_WINDOW_NUMBER, LARGEST_WINDOW_NUMBER)
    return make_record(counter, text, *span, show_span=show_span, kind=RecordKind.OPENING).tokens
