"""What went wrong as a command reports it: whose fault, what to do, and the exit code. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from sessionlib import errors

EXIT_CODES = """Exit codes: 0 fine; 1 a check, a promise or the turn failed; 2 bad usage or input; 3 the store cannot be
reached or used; 4 the time was up; 130 Ctrl-C."""


class ExitCode(IntEnum):
    """What a command returns to its shell."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    STORE = 3
    TIMEOUT = 4
    INTERRUPTED = 130


class Whose(StrEnum):
    """Who has to act."""

    CALLER = "caller"
    PROVIDER = "provider"
    STORE = "store"
    US = "us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An error, ready to be shown."""

    code: str
    whose: Whose
    message: str
    advice: str
    exit_code: ExitCode


class RotationTimeout(errors.SessionError, TimeoutError):
    """The caller stopped waiting; the rotation goes on."""

    code = "rotation_timeout"

    def __init__(self, rotation_id: str, waited_seconds: float) -> None:
        super().__init__(rotation_id, waited_seconds)
        self.rotation_id, self.waited_seconds = rotation_id, waited_seconds

    def __str__(self) -> str:
        return f"rotation {self.rotation_id} was not done after {self.waited_seconds:g} s; it goes on"


class DigestTimeout(errors.SessionError, TimeoutError):
    """The caller stopped waiting; the digest goes on."""

    code = "digest_timeout"

    def __init__(self, digest_id: str, waited_seconds: float) -> None:
        super().__init__(digest_id, waited_seconds)
        self.digest_id, self.waited_seconds = digest_id, waited_seconds

    def __str__(self) -> str:
        return f"digest {self.digest_id} was not done after {self.waited_seconds:g} s; it goes on"


class WorkersNotReady(errors.SessionError):
    """Workers were started and did not answer."""

    code = "workers_not_ready"

    def __init__(self, waited_seconds: float) -> None:
        super().__init__(waited_seconds)
        self.waited_seconds = waited_seconds

    def __str__(self) -> str:
        return f"not both workers answered within {self.waited_seconds:g} s"


ADVICE: dict[type[errors.SessionError], str] = {
    errors.UnknownSession: "`sessionctl ls` lists sessions; `sessionctl send SESSION MESSAGE --agent NAME` opens one",
    errors.CannotConverge: "give the agent a larger window, or smaller shares",
    errors.InputTooLarge: "nothing was changed; shorten the input",
    errors.SessionClosed: "open another session",
    errors.SessionBusy: "try again later, or queue the turn with --busy enqueue",
    errors.CallerError: "nothing was changed; correct it and try again",
    errors.ProviderUnavailable: "try again later; check the provider's status and the agent's base URL",
    errors.ProviderError: "check the agent's provider, model and parameters",
    errors.StoreUnavailable: "check --store (SESSIONLIB_STORE_URL), or start a server with `sessionctl up`",
    errors.StoreFull: "give the server more memory, or purge sessions; running work goes on",
    errors.StoreError: "upgrade this program if a newer one wrote to the store; else restore a backup",
    errors.AnswerTimeout: "`sessionctl show SESSION --turn ID` asks for it later",
    errors.HandoffTimeout: "`sessionctl handoff SESSION --id ID` asks for it later",
    DigestTimeout: "`sessionctl journal SESSION` shows it when it is done",
    RotationTimeout: "`sessionctl show SESSION` says how it stands",
    WorkersNotReady: "their logs say why; --data DIRECTORY (demo, replay: --keep) keeps them",
    errors.TurnFailed: "what was committed of it is kept; send the next turn, or the same input under a new id",
    errors.AnswerUnreadable: "the answer itself is recorded; ask the model for it again",
    errors.SummaryFailed: "the session is as it was; ask again under another id, or for less (--guidance)",
    errors.SessionError: "try again; report it if it comes back",
}
"""What to do, by the nearest class of the error tree."""

FIELD_ADVICE = {
    "agent": "name the file or module that has the agent with --agents (SESSIONLIB_AGENTS)",
    "partitions": "set SESSIONLIB_PARTITIONS; `sessionctl up` prints what its server takes",
}
"""What to do about a wrong value, where its field says more than its kind."""

CALLER_CODES = frozenset(
    {"cancelled", "interrupted", "closed", "calls_closed", "deadline", "package_shadowed", "summary_size"}
)
"""Endings of a turn that its caller chose: by a call, or by the agent's own timeout."""

MODEL_CODES = frozenset({"summary_provider", "summary_validation", errors.AnswerUnreadable.code})
"""What a model is to blame for: endings of a summary, an answer in another form."""

UNKNOWN_FAULT_ADVICE = "this is a fault of sessionlib: please report it with the lines above"


def report_of(exc: Exception) -> Report:
    """How *exc* is reported. Whatever is not in the error tree is a fault of ours."""
    if not isinstance(exc, errors.SessionError):
        message = f"{type(exc).__name__}: {exc}"
        return Report(
            code="internal_error",
            whose=Whose.US,
            message=message,
            advice=UNKNOWN_FAULT_ADVICE,
            exit_code=ExitCode.FAILED,
        )
    code = exc.reason_code if isinstance(exc, errors.TurnFailed | errors.SummaryFailed) else exc.code
    return Report(code=code, whose=_whose(exc), message=str(exc), advice=_advice(exc), exit_code=_exit_code(exc))


def _advice(exc: errors.SessionError) -> str:
    if isinstance(exc, errors.InvalidInput) and exc.field in FIELD_ADVICE:
        return FIELD_ADVICE[exc.field]
    return next(ADVICE[kind] for kind in type(exc).__mro__ if kind in ADVICE)


def _exit_code(exc: errors.SessionError) -> ExitCode:
    match exc:
        case errors.CallerError():
            return ExitCode.USAGE
        case errors.StoreError():
            return ExitCode.STORE
        case TimeoutError():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED


def _whose(exc: errors.SessionError) -> Whose:
    if isinstance(exc, errors.TurnFailed | errors.SummaryFailed):
        return whose_code(exc.reason_code)
    if isinstance(exc, TimeoutError):
        return Whose.CALLER
    return whose_code(exc.code)


def whose_code(code: str) -> Whose:
    """Whose fault an error code stands for: the codes of the error tree, and those of a turn's endings."""
    sides = (
        (errors.CallerError, Whose.CALLER),
        (errors.ProviderError, Whose.PROVIDER),
        (errors.StoreError, Whose.STORE),
    )
    for base, whose in sides:
        if any(kind.code == code for kind in _tree(base)):
            return whose
    if code in CALLER_CODES:
        return Whose.CALLER
    return Whose.PROVIDER if code in MODEL_CODES else Whose.US


def _tree(base: type[errors.SessionError]) -> Iterator[type[errors.SessionError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _tree(kind)
