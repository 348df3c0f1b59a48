"""Run a lane's next work against a store: begin, compute, adopt. One flow for workers, `Session` and tests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import tenacity

from sessionlib.agent import Agent
from sessionlib.archive import find, pack
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.errors import (
    Cancelled,
    InvalidInput,
    LeaseLost,
    ProviderError,
    ProviderUnavailable,
    SessionError,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    place_of,
)
from sessionlib.policies.contract import Origin
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.recount import recounted
from sessionlib.rotation import RotationOutcome, plan_for, rotate
from sessionlib.steps import Consolidation, Effect, EffectResult, ModelCall, ToolOutput, ToolRun, drive
from sessionlib.stores.contract import (
    Adoption,
    AgentRef,
    Committed,
    Grant,
    Lane,
    Refusal,
    SessionStore,
    Snapshot,
)
from sessionlib.tools.declaration import Tool, ToolContext, run_tool
from sessionlib.tools.history import history_tools
from sessionlib.turn import RoundOutcome, RoundView, Spent, first_pending, play_round
from sessionlib.window import Budgets

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


def unobserved(_phase: str, **_figures: object) -> None:
    """An `Observe` for flows that nobody watches."""


LAST_SECONDS = 0.1
"""What a model call is given at a turn's deadline."""


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


def run_turn(engine: Engine, session_id: str, known: Snapshot | None = None) -> Ran:
    """Run the session's next turn to its end, or to where it cannot go on now. Never raises for what a turn does.

    Raises StoreUnavailable: the lease runs out, and another run goes on from the last saved step.
    """
    grant = engine.store.begin(session_id, Lane.TURN, new_token(), known)
    if isinstance(grant, Refusal):
        return Ran(status=grant)
    with engine.hold(grant) as held:
        return _settled(engine, grant, lambda: TurnRun(engine, grant, held).run())


def run_rotation(engine: Engine, session_id: str, known: Snapshot | None = None) -> Ran:
    """Run the session's pending rotation. As `run_turn` otherwise."""
    grant = engine.store.begin(session_id, Lane.ROTATION, new_token(), known)
    if isinstance(grant, Refusal):
        return Ran(status=grant)
    with engine.hold(grant) as held:
        return _settled(engine, grant, lambda: _RotationRun(engine, grant, held).run())


def run_disposals(engine: Engine, session_id: str) -> int:
    """Let the provider forget the sessions that nobody uses any more; how many.

    Raises ProviderError, or InvalidInput for a provider that is not in the catalog, when all were tried: what failed
    stays due.
    """
    count, failure = 0, None
    for handle in engine.store.handles_to_dispose(session_id):
        try:
            engine.catalog.provider(handle.provider).dispose(handle.handle)
        except (ProviderError, InvalidInput) as exc:
            failure = exc
            continue
        engine.store.disposed(session_id, handle.handle)
        count += 1
    if failure is not None:
        raise failure
    return count


def new_token() -> str:
    """A random 128-bit token."""
    return secrets.token_hex(16)


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


def _observer(engine: Engine, grant: Grant) -> Observe:
    """Tells the phases of what was granted: a message may have named another turn."""
    return partial(engine.observe, **{f"{grant.lane}_id": grant.work_id})


def _failed(engine: Engine, grant: Grant, code: str, reason: str, retry_seconds: float | None) -> Ran:
    _observer(engine, grant)("failed" if retry_seconds is None else "retry", code=code)
    try:
        next_turn_id = engine.store.fail(grant, code, reason, retry_seconds)
    except LeaseLost:
        return Ran(work_id=grant.work_id, status="lost")
    status = "failed" if retry_seconds is None else "retried"
    return Ran(work_id=grant.work_id, status=status, next_turn_id=next_turn_id)


class _StepLog:
    """Saves steps at their positions."""

    def __init__(self, engine: Engine, grant: Grant) -> None:
        self._store, self._grant = engine.store, grant
        self._position = grant.step_base + len(grant.steps)

    def save(self, name: str, result: EffectResult) -> None:
        self._position = self._store.save_step(self._grant, self._position, name, result)


class TurnRun:
    """A granted turn, round by round. `run` plays all of it; a caller with a loop of its own plays each round, and
    needs no provider here."""

    def __init__(self, engine: Engine, grant: Grant, held: Held, *, is_own: bool = False) -> None:
        self._engine, self._grant, self._held, self._begun = engine, grant, held, time.monotonic()
        self._observe = _observer(engine, grant)
        self._steps = _StepLog(engine, grant)
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._shape = Shape.STATELESS if is_own else engine.catalog.provider(self._agent.provider).shape
        self._counter = counter_named(self._agent.counter)
        self._result_cap_tokens = self._agent.budgets(self._counter).result_cap_tokens
        self._snapshot = recounted(grant.snapshot, self._agent, self._counter)
        self._private = self._private_tools()
        self._tools = {**engine.catalog.runnable_tools(self._agent), **self._private}
        self._pending, self._spent, self._round = first_pending(grant), Spent(), grant.first_round
        self.saved = dict(grant.steps)
        """Results of this round's steps that an earlier run saved, by name."""

    def run(self) -> Ran:
        """Play rounds until the turn is answered."""
        while True:
            outcome, committed = self.play(self._perform)
            if outcome.answer is not None:
                return self._answered(committed)
            self._engine.announce(self._grant.session_id, committed)

    def view(self, known_tools: Iterable[str] | None = None) -> RoundView:
        """What the next round is decided from. *known_tools*: names of those that can be run, private ones besides."""
        return RoundView(
            snapshot=self._snapshot,
            agent=self._agent,
            counter=self._counter,
            budgets=self._agent.session_budgets(self._counter, self._snapshot.calibration),
            result_cap_tokens=self._result_cap_tokens,
            turn_id=self._grant.work_id,
            round=self._round,
            pending=self._pending,
            known_tools=frozenset(self._tools if known_tools is None else (*known_tools, *self._private)),
            seconds_left=self._seconds_left(),
            shape=self._shape,
            is_resumed=bool(self.saved),
            spent=self._spent,
        )

    def play(
        self, perform: Callable[[Effect], EffectResult], known_tools: Iterable[str] | None = None
    ) -> tuple[RoundOutcome, Committed]:
        """Play one round, its effects done by *perform*, and commit it. Raises LeaseLost and what *perform* raises."""
        view = self.view(known_tools)
        outcome = drive(play_round(view), perform, self.saved, self._steps.save)
        commit = outcome.commit(view, new_token())
        committed = self._engine.store.commit(self._grant, commit)
        self._observe(
            "round",
            round=view.round,
            epoch=committed.epoch,
            request_tokens=outcome.request_tokens,
            entries=len(outcome.entries),
        )
        self._snapshot = self._after(committed, commit.commit_token, outcome)
        self._pending, self._spent, self._round, self.saved = (), outcome.spent, self._round + 1, {}
        return outcome, committed

    def save(self, name: str, result: EffectResult) -> None:
        """Save a step of this round ahead of playing it, for callers who perform effects on their own."""
        if name not in self.saved:
            self._steps.save(name, result)
            self.saved[name] = result

    def run_private(self, call: CallRequest) -> ToolOutput:
        """Run a call of a private tool."""
        return run_tool(self._private, call, self._context(call))

    def is_private(self, name: str) -> bool:
        """Whether a tool is one of the engine's own (the history tool), which it runs itself."""
        return name in self._private

    def _after(self, committed: Committed, commit_token: str, outcome: RoundOutcome) -> Snapshot:
        """The session after a commit: what we had and what we added, or read anew if a rotation was adopted."""
        before = self._snapshot
        live = before.layout.live.append(outcome.entries, outcome.sizes)
        grown = replace(
            before,
            layout=before.layout.with_live(live),
            tail_token=commit_token,
            calibration=outcome.calibration,
            trim=outcome.trim,
            handle=outcome.handle,
            open_calls=outcome.answer.open_calls if outcome.answer else (),
            abandoned="",
        )
        if committed.layout_token == before.layout_token:
            return grown
        anew = self._engine.store.snapshot(self._grant.session_id, known=grown)
        return recounted(anew, self._agent, self._counter)

    def _answered(self, committed: Committed) -> Ran:
        return Ran(
            work_id=self._grant.work_id,
            status="answered",
            snapshot=self._snapshot,
            next_turn_id=committed.next_turn_id,
            rotation_id=committed.rotation_id,
            disposal=committed.disposal,
        )

    def _seconds_left(self) -> float:
        """Until the turn's deadline; a little is always left, since it is the store that ends a turn."""
        return max(LAST_SECONDS, self._grant.deadline - self._grant.now - (time.monotonic() - self._begun))

    def _private_tools(self) -> dict[str, Tool]:
        if not self._agent.history_tool:
            return {}
        return history_tools(self._entry, Projection(self._counter, self._result_cap_tokens))

    def _context(self, call: CallRequest) -> ToolContext:
        return ToolContext(session_id=self._grant.session_id, turn_id=self._grant.work_id, call_id=call.call_id)

    def _perform(self, effect: Effect) -> EffectResult:
        match effect:
            case ModelCall():
                self._observe("model", round=effect.round, request_tokens=effect.request.counted_tokens)
                return self._ask(effect.request)
            case ToolRun():
                self._observe("tool", round=effect.round, tool=effect.call.name)
                return run_tool(self._tools, effect.call, self._context(effect.call))
            case Consolidation():
                raise TypeError("a turn consolidates nothing")

    def _ask(self, request: ModelRequest) -> ModelReply:
        provider = self._engine.catalog.provider(self._agent.provider)
        for attempt in patiently(self._is_over):
            with attempt:
                return provider.complete(self._in_time(request))
        raise AssertionError("unreachable: the last attempt raises")

    def _is_over(self) -> bool:
        """Whether nothing more should be tried for this turn: it was cancelled, is another's, or its time is up."""
        return self._held.is_lost or self._seconds_left() <= LAST_SECONDS

    def _in_time(self, request: ModelRequest) -> ModelRequest:
        """*request* with no more time than the turn has by now: earlier tries took some of it."""
        return replace(request, timeout_seconds=min(request.timeout_seconds, self._seconds_left()))

    def _entry(self, seq: int) -> Entry | None:
        """An entry of the session by its number, in the window or archived."""
        live = self._snapshot.layout.live
        if live.first_seq <= seq < live.next_seq:
            return live.entries[seq - live.first_seq]
        if seq >= live.next_seq or seq < 1:
            return None
        return find(self._engine.store.chunks(self._grant.session_id, seq, seq), seq)


class _RotationRun:
    """One granted rotation."""

    def __init__(self, engine: Engine, grant: Grant, held: Held) -> None:
        self._engine, self._grant, self._held = engine, grant, held
        self._observe = _observer(engine, grant)
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._counter = counter_named(self._agent.counter)
        self._snapshot = recounted(grant.snapshot, self._agent, self._counter)
        self._summarizer = engine.catalog.summarizer_for(self._agent)
        self._steps = _StepLog(engine, grant)

    def run(self) -> Ran:
        outcome = self._decided()
        if outcome.is_noop:
            self._engine.store.fail(self._grant, "no_gain", "the rotation would shorten nothing")
            return Ran(work_id=self._grant.work_id, status="noop")
        adopted = self._engine.store.adopt(self._grant, self._adoption(outcome))
        self._observe(
            "adopted" if adopted.is_adopted else "stale",
            epoch=adopted.epoch,
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            consolidation_count=outcome.consolidation_count,
        )
        return Ran(
            work_id=self._grant.work_id,
            status="adopted" if adopted.is_adopted else "stale",
            rotation_id=adopted.rotation_id,
            disposal=adopted.disposal,
        )

    def _decided(self) -> RotationOutcome:
        plan = plan_for(
            self._snapshot.layout,
            self._grant.boundary_seq,
            budgets=self._budgets,
            counter=self._counter,
            show_span=self._agent.history_tool,
            origin=self._origin(),
        )
        steps = rotate(
            plan,
            self._agent.policy,
            summarizer_window_tokens=self._summarizer.window_tokens,
            cancelled=lambda: self._held.is_lost,
        )
        return drive(steps, self._perform, dict(self._grant.steps), self._steps.save)

    @property
    def _budgets(self) -> Budgets:
        return self._agent.session_budgets(self._counter, self._snapshot.calibration)

    def _origin(self) -> Origin:
        """Reported, if only what the provider said of its own count puts the conversation past the line."""
        own_line_tokens = self._agent.budgets(self._counter).line_tokens
        is_own = self._snapshot.layout.conversation_tokens >= own_line_tokens
        return Origin.ESTIMATED if is_own or self._grant.reason != "line" else Origin.REPORTED

    def _perform(self, effect: Effect) -> EffectResult:
        if not isinstance(effect, Consolidation):
            raise TypeError("a rotation only consolidates")
        request = effect.request
        self._observe("consolidation", first_seq=request.first_seq, last_seq=request.last_seq, attempt=effect.attempt)
        for attempt in patiently(lambda: self._held.is_lost):
            with attempt:
                return self._summarizer.consolidate(request, lambda: self._held.is_lost)
        raise AssertionError("unreachable: the last attempt raises")

    def _adoption(self, outcome: RotationOutcome) -> Adoption:
        snapshot, live = self._snapshot, self._snapshot.layout.live
        leaving = live.entries[: outcome.dropped_count]
        return Adoption(
            layout_token=new_token(),
            first_seq=live.first_seq,
            dropped_count=outcome.dropped_count,
            dropped_tokens=outcome.dropped_tokens,
            old_layout_token=snapshot.layout_token,
            tail_seq=live.next_seq - 1 if live else 0,
            tail_token=snapshot.tail_token,
            records=outcome.layout.records,
            chunk=pack(leaving) if leaving else b"",
            line_tokens=self._budgets.line_tokens,
            figures=outcome.figures(),
        )


def patiently(is_over: Callable[[], bool]) -> Iterator[Any]:
    """A few attempts of one provider call, with growing pauses between them; none after *is_over*."""
    return iter(
        tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: _is_soon_over(error) and not is_over()),
            stop=tenacity.stop_after_attempt(CALL_ATTEMPTS),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=LONGEST_PAUSE_SECONDS, jitter=0.2),
            reraise=True,
        )
    )


def _is_soon_over(error: BaseException) -> bool:
    """Whether a call is worth another try after a short pause."""
    return isinstance(error, ProviderUnavailable) and (error.retry_after_seconds or 0.0) <= LONGEST_PAUSE_SECONDS
