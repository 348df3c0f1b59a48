"""What the flows of both lanes share: their collaborators, how a run ends, and patience with providers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import tenacity

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.errors import (
    Cancelled,
    LeaseLost,
    ProviderUnavailable,
    SessionError,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    place_of,
)
from sessionlib.running.streaming import Hear, unheard
from sessionlib.running.streams import Streams
from sessionlib.steps import EffectResult
from sessionlib.stores.contract import (
    AgentRef,
    Committed,
    Grant,
    Handle,
    JobSettled,
    Lane,
    Refusal,
    RoundCommit,
    SessionStore,
    Snapshot,
    UnsavedStep,
)

Observe = Callable[..., None]
"""Hears of phases, as in `observe("model", round=3, tokens=812)`: ids and figures, never content."""

CALL_ATTEMPTS = 3
"""Tries of one provider call inside one run; after them the work goes back to the store, due later."""

RETRY_SECONDS = 5.0
"""When work is due again whose provider could not be reached, unless the provider names a time."""

LONGEST_PAUSE_SECONDS = 2.0
"""The longest pause between two tries of one call: who is told to wait longer gives the lane back meanwhile."""

FAULT_RETRY_SECONDS = 1.0
"""When work is due again that ended with an error of ours or of the store; five such attempts end it."""


LAST_SECONDS = 0.1
"""What a call is given at its work's deadline."""


def unobserved(_phase: str, **_figures: object) -> None:
    """An `Observe` for flows that nobody watches."""


class Held(Protocol):
    """A lease that is kept alive."""

    @property
    def is_lost(self) -> bool: ...


Hold = Callable[[Grant], AbstractContextManager[Held]]
"""Keeps a grant's lease alive inside a `with` block."""

Announce = Callable[[str, Committed], None]
"""Hears what a commit inside a turn of that session made due: the turn's own end is in its `Ran`."""


def unannounced(_session_id: str, _committed: Committed) -> None:
    """An `Announce` where nobody needs to be told."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What the flows work with."""

    store: SessionStore
    catalog: Catalog
    hold: Hold
    observe: Observe
    announce: Announce = unannounced
    streams: Streams = field(default_factory=Streams)
    """Of the process, whose thread they share."""
    hear: Hear = unheard

    def agent(self, session_id: str, ref: AgentRef) -> Agent:
        """The agent version that a session follows: the catalog's, or rebuilt from the stored description."""
        current = self.catalog.agents.get(ref.name)
        if current is not None and current.digest == ref.digest:
            return current
        return self.catalog.agent_from_description(self.store.agent_json(session_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to: what the caller should dispatch, and the snapshot to remember."""

    work_id: str = ""
    status: str
    """answered, failed, retried, lost, adopted, stale, noop, or a Refusal."""
    snapshot: Snapshot | None = None
    next_turn_id: str | None = None
    rotation_id: str | None = None
    disposal: bool = False
    settled: JobSettled | None = None
    """What a handoff or digest made due."""


def new_token() -> str:
    """A random 128-bit token."""
    return secrets.token_hex(16)


def run_granted(
    engine: Engine, session_id: str, lane: Lane, known: Snapshot | None, run: Callable[[Grant, Held], Ran]
) -> Ran:
    """Begin a lane's next work, if there is some for us, and run it under its lease."""
    grant = engine.store.begin(session_id, lane, new_token(), known)
    if isinstance(grant, Refusal):
        return Ran(status=grant)
    with engine.hold(grant) as held:
        return _settled(engine, grant, lambda: run(grant, held))


def _settled(engine: Engine, grant: Grant, run: Callable[[], Ran]) -> Ran:
    """Run, and tell the store how it ended where it did not end well."""
    try:
        return run()
    except (LeaseLost, Cancelled):
        return Ran(work_id=grant.work_id, status="lost")
    except StoreUnavailable:
        raise  # no verdict on the work, even if the store is back by now: the lease runs out, another run goes on
    except SessionError as exc:
        return _failed(engine, grant, exc.code, str(exc), _retry_seconds(exc))
    except KeyboardInterrupt:
        with suppress(StoreError):  # then the lease runs out by itself
            engine.store.release(grant)
        raise
    except Exception as exc:  # noqa: BLE001 - a fault of ours must not take the worker with it; attempts are counted
        return _failed(engine, grant, "internal_error", f"{type(exc).__name__} at {place_of(exc)}", FAULT_RETRY_SECONDS)


def _retry_seconds(error: SessionError) -> float | None:
    """When work is due again that ended with *error*; None ends it."""
    match error:
        case ProviderUnavailable():
            return max(RETRY_SECONDS, error.retry_after_seconds or 0.0)
        case StoreCorrupt():
            return None
        case StoreError():
            return FAULT_RETRY_SECONDS
        case _:
            return None


def observer_of(engine: Engine, grant: Grant) -> Observe:
    """Tells the phases of what was granted: a message may have named another turn."""
    return partial(engine.observe, **{f"{grant.lane}_id": grant.work_id})


def _failed(engine: Engine, grant: Grant, code: str, reason: str, retry_seconds: float | None) -> Ran:
    observer_of(engine, grant)("failed" if retry_seconds is None else "retry", code=code)
    try:
        next_turn_id = engine.store.fail(grant, code, reason, retry_seconds)
    except LeaseLost:
        return Ran(work_id=grant.work_id, status="lost")
    status = "failed" if retry_seconds is None else "retried"
    return Ran(work_id=grant.work_id, status=status, next_turn_id=next_turn_id)


class TimeLeft:
    """What is left of granted work's time. A little always is, since it is the store that ends work at its deadline."""

    def __init__(self, grant: Grant, held: Held) -> None:
        self._grant, self._held, self._begun = grant, held, time.monotonic()

    def seconds(self) -> float:
        """Until the deadline, at least LAST_SECONDS."""
        return max(LAST_SECONDS, self._grant.deadline - self._grant.now - (time.monotonic() - self._begun))

    def is_over(self) -> bool:
        """Whether nothing more should be tried: the work was cancelled, is another's, or its time is up."""
        return self._held.is_lost or self.seconds() <= LAST_SECONDS


class StepLog:
    """Saves steps at their positions."""

    def __init__(self, engine: Engine, grant: Grant) -> None:
        self._store, self._grant = engine.store, grant
        self._position = grant.step_base + len(grant.steps)

    def save(self, name: str, result: EffectResult) -> None:
        self._position = self._store.save_step(self._grant, self._position, name, result)


class RoundLog(StepLog):
    """Saves the steps of rounds: each before the next effect, the last of a round together with the round's commit.

    Between a result and either of them there is nothing but computing, and a round waits for the store once less.
    """

    def __init__(self, engine: Engine, grant: Grant) -> None:
        super().__init__(engine, grant)
        self._last: tuple[str, EffectResult] | None = None
        self._handle: Handle | None = None

    def brought(self, handle: Handle) -> None:
        """The result that is saved next came with this provider session, which must not be left behind."""
        self._handle = handle

    def save(self, name: str, result: EffectResult) -> None:
        self.save_last()
        self._last = (name, result)

    def save_last(self) -> None:
        """Save what still waits for its commit. Raises LeaseLost."""
        if self._last:
            self._position = self._store.save_step(self._grant, self._position, *self._last, handle=self._handle)
            self._last = self._handle = None

    def commit(self, commit: RoundCommit) -> Committed:
        """Record a round, after its last step. Raises LeaseLost."""
        if self._last is None:
            return self._store.commit(self._grant, commit)
        name, result = self._last
        step = UnsavedStep(position=self._position, name=name, result=result, handle=self._handle)
        committed = self._store.commit(self._grant, replace(commit, last_step=step))
        self._position, self._last, self._handle = self._position + 1, None, None
        return committed


def patiently(is_over: Callable[[], bool]) -> Iterator[Any]:
    """A few attempts of one provider call, with growing pauses between them; none after *is_over*."""
    return iter(
        tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: _is_soon_over(error) and not is_over()),
            stop=tenacity.stop_after_attempt(CALL_ATTEMPTS),
            wait=_pause_seconds,
            reraise=True,
        )
    )


_GROWING = tenacity.wait_exponential_jitter(multiplier=0.2, max=LONGEST_PAUSE_SECONDS, jitter=0.2)


def _pause_seconds(state: tenacity.RetryCallState) -> float:
    """A growing pause, and no less than what the provider asked for."""
    error = state.outcome.exception() if state.outcome else None
    asked_seconds = error.retry_after_seconds if isinstance(error, ProviderUnavailable) else None
    return max(_GROWING(state), asked_seconds or 0.0)


def _is_soon_over(error: BaseException) -> bool:
    """Whether a call is worth another try after a short pause."""
    return isinstance(error, ProviderUnavailable) and (error.retry_after_seconds or 0.0) <= LONGEST_PAUSE_SECONDS
