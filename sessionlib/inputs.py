"""What a caller may hand in: checked before anything is stored."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence

from sessionlib.agent import Agent
from sessionlib.codec import encode
from sessionlib.entries import Entry, EntryKind, require_encodable
from sessionlib.errors import InvalidInput
from sessionlib.handoffs import HandoffTask
from sessionlib.ids import require_id
from sessionlib.media import Media, require_media
from sessionlib.stores.contract import AgentRef, Busy, HandoffRequest, OpenRequest, SubmitRequest, TurnInput
from sessionlib.summaries.contract import GUIDANCE_LIMIT_CHARACTERS
from sessionlib.window import require_fits, sent_sizes

TASK_LIMIT_CHARACTERS = 16_000
"""The longest task of a handoff: it stands whole in the summarizer's request, beside the evidence."""


def message_input(message: object, media: Sequence[Media] = ()) -> TurnInput:
    """The input of a turn that starts from a message, with images and files beside it.

    Raises InvalidInput: not text, blank, NUL, a lone surrogate; media above MEDIA_LIMIT_BYTES.
    """
    return TurnInput(message=_require_text("message", message, may_be_blank=False), media=require_media(media))


def results_input(results: object) -> TurnInput:
    """The input of a turn that brings results for open calls, by call id. Raises InvalidInput. Results may be empty."""
    if not isinstance(results, Mapping) or not results:
        raise InvalidInput("results", results, "must map each open call's id to its result")
    pairs = tuple((_require_text("call id", key, may_be_blank=False), results[key]) for key in results)
    return TurnInput(results=tuple((key, _require_result(key, value)) for key, value in pairs))


def _require_result(call_id: str, value: object) -> str:
    """A caller's result is text: unlike a message it has no place for media in the store."""
    field = f"result of {call_id}"
    if not isinstance(value, str):
        rule = "must be a string: images and files go beside a message, or come from a tool that a worker runs"
        raise InvalidInput(field, value, rule)
    return _require_text(field, value)


def require_timeout(value: float | None) -> float | None:
    """*value* if it is a time to wait at most, or None (for ever). Raises InvalidInput."""
    return None if value is None else require_seconds("timeout_seconds", value)


def require_seconds(field: str, value: float) -> float:
    """*value* if it is a positive, finite number of seconds. Raises InvalidInput."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InvalidInput(field, value, "must be a positive number of seconds")
    return float(value)


def require_agent(agent: object) -> Agent:
    """*agent* if it is one. Raises InvalidInput."""
    if not isinstance(agent, Agent):
        raise InvalidInput("agent", agent, "must be an Agent, or the name of one in the catalog")
    return agent


def open_request(
    session_id: str, agent: Agent, history: Sequence[Entry], pin: bool, retention_seconds: float | None = None
) -> OpenRequest:
    """Check an agent and a history, and make the request that opens a session with them.

    Raises InvalidInput, and CannotConverge for a window that would rotate for ever.
    """
    require_id("session_id", session_id)
    require_agent(agent)
    for entry in history:
        if not isinstance(entry, Entry) or entry.kind is EntryKind.RECORD:
            raise InvalidInput("history", entry, "must hold entries only, and no records")
    counter = agent.own_counter
    budgets = agent.budgets(counter)
    return OpenRequest(
        session_id=session_id,
        agent=AgentRef(name=agent.name, digest=agent.digest, is_pinned=pin),
        agent_json=agent.description(),
        history=tuple(history),
        sizes=sent_sizes(history, budgets, counter),
        line_tokens=budgets.line_tokens,
        retention_seconds=retention_seconds,
        journal=agent.journal.rules,
    )


def handoff_request(session_id: str, task: str, guidance: str, handoff_id: str | None) -> HandoffRequest:
    """The checked request for a handoff, with a random id if none is given. Raises InvalidInput."""
    _require_text("task", task, may_be_blank=False)
    _require_text("guidance", guidance)
    for field, text, limit in (
        ("task", task, TASK_LIMIT_CHARACTERS),
        ("guidance", guidance, GUIDANCE_LIMIT_CHARACTERS),
    ):
        if len(text) > limit:
            raise InvalidInput(field, text[:40], f"must have at most {limit:,} characters, and has {len(text):,}")
    return HandoffRequest(
        session_id=require_id("session_id", session_id),
        job_id=uuid.uuid4().hex if handoff_id is None else require_id("handoff_id", handoff_id),
        request=encode(HandoffTask(task=task.strip(), guidance=guidance.strip())),
    )


def turn_input(
    agent: Agent, message: str | None, results: Mapping[str, str] | None, media: Sequence[Media] = ()
) -> TurnInput:
    """The checked input of a turn. Raises InvalidInput, InputTooLarge."""
    if (message is None) == (results is None):
        raise InvalidInput("message", message, "must be given, or `results`, and not both")
    if results is not None:
        if media:
            raise InvalidInput("media", len(media), "must stand beside a message")
        return results_input(results)
    made = message_input(message, media)
    require_fits(Entry.user(made.message, made.media), agent, agent.own_counter)
    return made


def submit_request(
    session_id: str,
    agent: Agent,
    message: str | None,
    results: Mapping[str, str] | None,
    *,
    turn_id: str | None,
    media: Sequence[Media] = (),
    busy: Busy | str = Busy.ENQUEUE,
    is_own: bool = False,
    is_streamed: bool = False,
) -> SubmitRequest:
    """The checked request that submits a turn, with a random id if none is given.

    Raises InvalidInput, InputTooLarge.
    """
    return SubmitRequest(
        session_id=session_id,
        turn_id=uuid.uuid4().hex if turn_id is None else require_id("turn_id", turn_id),
        input=turn_input(agent, message, results, media),
        busy=busy_policy(busy),
        timeout_seconds=agent.turn_timeout_seconds,
        open_calls_seconds=agent.open_calls_seconds,
        is_own=is_own,
        is_streamed=is_streamed,
    )


def busy_policy(value: Busy | str) -> Busy:
    """A busy policy by its name. Raises InvalidInput."""
    try:
        return Busy(value)
    except ValueError:
        raise InvalidInput("busy", value, f"must be one of {', '.join(Busy)}") from None


def _require_text(field: str, value: object, *, may_be_blank: bool = True) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, value, "must be a string")
    if not may_be_blank and not value.strip():
        raise InvalidInput(field, value, "must not be empty or blank")
    if "\0" in value:
        raise InvalidInput(field, value[:40], f"must not hold NUL (at character {value.index(chr(0))})")
    require_encodable(field, value)
    return value
