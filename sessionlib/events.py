"""What a caller gets back: the reply to a turn, and how a finished turn becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessionlib.errors import TurnFailed
from sessionlib.providers.contract import CallRequest
from sessionlib.stores.contract import Answer, TurnState, TurnView
from sessionlib.structured import Parsed, parsed_answer

FINAL_KINDS = frozenset({"answered", "failed", "cancelled"})
"""Kinds of a turn's last event."""

EVENTS_PAGE = 1_000
"""Events of a turn that are read at once; whoever finds fewer has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a turn."""

    turn_id: str
    text: str
    answer: Answer
    rotations: tuple[Mapping[str, Any], ...] = ()
    """Outcomes of the rotations since the answer before: figures in tokens, saturations, reason."""

    @property
    def open_calls(self) -> tuple[CallRequest, ...]:
        """Calls that the caller must run: send their results as the next turn."""
        return self.answer.open_calls

    def parsed(self, model: type[Parsed]) -> Parsed:
        """The answer as a pydantic model, where the agent asks for it in that form (`answer_format`).

        Raises AnswerUnreadable, which names what is wrong and quotes nothing.
        """
        return parsed_answer(self.text, model, self.turn_id)

    @property
    def is_saturated(self) -> bool:
        """Whether any of the rotations had a consolidation that stopped shortening."""
        return any(rotation.get("saturations") for rotation in self.rotations)


def reply_of(view: TurnView) -> Reply:
    """The reply of a finished turn. Raises TurnFailed if it ended without an answer."""
    if view.state is TurnState.ANSWERED and view.answer is not None:
        return Reply(turn_id=view.turn_id, text=view.answer.text, answer=view.answer, rotations=view.rotations)
    code = view.error_code or str(view.state)
    raise TurnFailed(view.turn_id, code, view.error or f"the turn was {view.state}")
