"""What can go wrong, whose fault it is, and what to do about it.

SessionError
├── CallerError            the call is wrong; nothing was changed; correct it
│   ├── InvalidInput           a field, its value, the rule it breaks
│   ├── InputTooLarge          an input that cannot fit the window by itself
│   ├── CannotConverge         a configuration whose rotated layout would rotate again
│   ├── TurnConflict           a turn id used again with another input
│   │   └── HandoffConflict        the same of a handoff
│   ├── UnknownSession         never opened, or purged
│   ├── SessionClosed          closed to new turns
│   └── SessionBusy            refused by busy policy `reject` or an admission limit; try later
├── ProviderError          the model's side failed
│   ├── ProviderUnavailable    worth another try (timeouts, 429, 5xx)
│   ├── ProviderRejected       not worth another try (4xx)
│   ├── WindowOverflow         the provider says that the request is above its window
│   └── HandleForgotten        a held provider session is unknown to the provider
├── StoreError             the store failed
│   ├── StoreUnavailable       cannot be reached; what was acknowledged is safe
│   ├── StoreFull              out of memory: only new work is refused
│   └── StoreCorrupt           what is stored cannot be read
├── LeaseLost              another worker holds the lane; stop quietly, it goes on
├── Cancelled              the work was cancelled; nothing of it was adopted
├── TurnFailed             a turn ended without an answer: its code and reason
├── AnswerUnreadable       an answer that is not in the form that was asked for; the turn itself is answered
├── SummaryFailed          a handoff ended without a summary: its code and reason; the session is as it was
└── AnswerTimeout          the caller's own deadline passed; the turn goes on
    └── HandoffTimeout         the same of a handoff
"""

from __future__ import annotations

from pathlib import PurePath


class SessionError(Exception):
    """Base of every error raised on purpose. `code` names the kind where content may not appear."""

    code = "session_error"


class CallerError(SessionError):
    """The call is wrong. Nothing was changed."""

    code = "caller_error"


class InvalidInput(CallerError, ValueError):
    """A value that breaks a rule. Names the field, the value (shortened) and the rule."""

    code = "invalid_input"

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(field, value, rule)
        self.field, self.value, self.rule = field, shorten(value), rule

    def __str__(self) -> str:
        return f"{self.field} {self.rule}; got {self.value}"


class InputTooLarge(CallerError):
    """An input that cannot fit the window even alone. All figures in tokens."""

    code = "input_too_large"

    def __init__(self, input_tokens: int, fixed_tokens: int, limit_tokens: int) -> None:
        super().__init__(input_tokens, fixed_tokens, limit_tokens)
        self.input_tokens, self.fixed_tokens, self.limit_tokens = input_tokens, fixed_tokens, limit_tokens

    def __str__(self) -> str:
        return (
            f"the input takes {self.input_tokens} tokens beside {self.fixed_tokens} that are always sent, "
            f"and a request may have {self.limit_tokens}; shorten it or give the agent a larger window"
        )


class CannotConverge(CallerError):
    """A rotated layout would land too near the rotation line and rotate again at once. Figures in tokens."""

    code = "cannot_converge"

    def __init__(self, window_tokens: int, minimum_tokens: int, arithmetic: str = "") -> None:
        super().__init__(window_tokens, minimum_tokens, arithmetic)
        self.window_tokens, self.minimum_tokens, self.arithmetic = window_tokens, minimum_tokens, arithmetic

    def __str__(self) -> str:
        tail = f" ({self.arithmetic})" if self.arithmetic else ""
        return f"a window of {self.window_tokens} tokens cannot converge; it takes {self.minimum_tokens}{tail}"


class TurnConflict(CallerError):
    """A turn id that is remembered with another input."""

    code = "turn_conflict"

    def __init__(self, session_id: str, turn_id: str) -> None:
        super().__init__(session_id, turn_id)
        self.session_id, self.turn_id = session_id, turn_id

    def __str__(self) -> str:
        return f"turn {self.turn_id} of session {self.session_id} was submitted before with another input; use a new id"


class HandoffConflict(TurnConflict):
    """A handoff's id that is remembered with another task or guidance."""

    def __str__(self) -> str:
        return f"handoff {self.turn_id} of session {self.session_id} was asked for before otherwise; use a new id"


class UnknownSession(CallerError):
    """A session that was never opened, or was purged."""

    code = "unknown_session"

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"there is no session {self.session_id}; open it first"


class SessionClosed(CallerError):
    """A session that takes no new turns."""

    code = "session_closed"

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"session {self.session_id} is closed to new turns"


class SessionBusy(CallerError):
    """Refused by busy policy `reject`, or because a queue is at its limit."""

    code = "session_busy"

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(session_id, reason)
        self.session_id, self.reason = session_id, reason

    def __str__(self) -> str:
        return f"session {self.session_id} takes no turn now: {self.reason}; try again later"


class ProviderError(SessionError):
    """The model's side failed."""

    code = "provider_error"


class ProviderUnavailable(ProviderError):
    """Worth another try. `retry_after_seconds` is the provider's own wish, if it gave one."""

    code = "provider_unavailable"

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason, retry_after_seconds)
        self.reason, self.retry_after_seconds = reason, retry_after_seconds

    def __str__(self) -> str:
        return self.reason


class ProviderRejected(ProviderError):
    """The provider refuses the request; the same request will be refused again."""

    code = "provider_rejected"


class WindowOverflow(ProviderError):
    """The provider counts more tokens than its window holds. `limit_tokens` and `sent_tokens` as far as it said so."""

    code = "window_overflow"

    def __init__(self, reason: str, limit_tokens: int | None = None, sent_tokens: int | None = None) -> None:
        super().__init__(reason, limit_tokens, sent_tokens)
        self.reason, self.limit_tokens, self.sent_tokens = reason, limit_tokens, sent_tokens

    def __str__(self) -> str:
        return self.reason


class HandleForgotten(ProviderError):
    """A provider session that the provider no longer knows; it is seeded again from our layout."""

    code = "handle_forgotten"


class StoreError(SessionError):
    """The store failed."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store cannot be reached. What it acknowledged is safe; try again."""

    code = "store_unavailable"


class StoreFull(StoreError):
    """The store is out of memory: new sessions and turns are refused, running work goes on."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """Something stored cannot be read: written by a newer version, or damaged."""

    code = "store_corrupt"


class LeaseLost(SessionError):
    """Another worker holds the lane, the work ended, or its deadline passed. What this one did not save is void."""

    code = "lease_lost"

    def __init__(self, session_id: str, lane: str) -> None:
        super().__init__(session_id, lane)
        self.session_id, self.lane = session_id, lane

    def __str__(self) -> str:
        return f"the {self.lane} lane of session {self.session_id} is no longer held by this worker"


class Cancelled(SessionError):
    """The work was cancelled before it was adopted."""

    code = "cancelled"


class TurnFailed(SessionError):
    """A turn that ended without an answer. `reason_code` is an error code of this tree or a state."""

    code = "turn_failed"

    def __init__(self, turn_id: str, reason_code: str, reason: str) -> None:
        super().__init__(turn_id, reason_code, reason)
        self.turn_id, self.reason_code, self.reason = turn_id, reason_code, reason

    def __str__(self) -> str:
        return f"turn {self.turn_id} ended without an answer ({self.reason_code}): {self.reason}"


class AnswerUnreadable(SessionError):
    """The model answered in another form than it was asked for. The turn is answered and recorded all the same.

    *faults* name the fields and what is wrong with them; what the model said is in no error text.
    """

    code = "answer_unreadable"

    def __init__(self, turn_id: str, wanted: str, faults: str) -> None:
        super().__init__(turn_id, wanted, faults)
        self.turn_id, self.wanted, self.faults = turn_id, wanted, faults

    def __str__(self) -> str:
        return f"the model's answer to turn {self.turn_id} is no {self.wanted}: {self.faults}"


class SummaryFailed(SessionError):
    """A handoff ended without a summary. Nothing of the session was changed; ask again under another id."""

    code = "summary_failed"

    def __init__(self, job_id: str, reason_code: str, reason: str) -> None:
        super().__init__(job_id, reason_code, reason)
        self.job_id, self.reason_code, self.reason = job_id, reason_code, reason

    def __str__(self) -> str:
        return f"handoff {self.job_id} failed ({self.reason_code}): {self.reason}"


class AnswerTimeout(SessionError, TimeoutError):
    """The caller stopped waiting; the turn itself goes on and can be asked for again by its id."""

    code = "answer_timeout"

    def __init__(self, turn_id: str, waited_seconds: float) -> None:
        super().__init__(turn_id, waited_seconds)
        self.turn_id, self.waited_seconds = turn_id, waited_seconds

    def __str__(self) -> str:
        return f"turn {self.turn_id} had no answer after {self.waited_seconds:g} s; it goes on, ask again by its id"


class HandoffTimeout(AnswerTimeout):
    """The caller stopped waiting; the handoff goes on and can be asked for again by its id."""

    code = "handoff_timeout"

    def __str__(self) -> str:
        return f"handoff {self.turn_id} was not done after {self.waited_seconds:g} s; it goes on, ask again by its id"


def place_of(error: BaseException) -> str:
    """Where an error was raised, as `turn.py:88`: for logs and reasons, where its own text may quote content."""
    traceback = error.__traceback__
    if traceback is None:
        return "?"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{PurePath(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}"


def shorten(value: object, limit: int = 80) -> str:
    """A value as it may stand in an error text: its repr, cut to *limit* characters with the length named."""
    text = repr(value[: limit + 1] if isinstance(value, str | bytes) else value)
    if isinstance(value, str | bytes) and len(value) > limit:
        return f"{text[:limit]}… ({len(value)} long)"
    return text if len(text) <= limit else f"{text[:limit]}…"
