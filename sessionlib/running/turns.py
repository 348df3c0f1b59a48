"""Run a session's next turn: begin, play round after round, commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sessionlib.errors import LeaseLost, ProviderRejected, StoreUnavailable
from sessionlib.projection import Projection
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Provider, Shape
from sessionlib.recount import recounted
from sessionlib.running.engine import (
    Engine,
    Held,
    Ran,
    RoundLog,
    TimeLeft,
    new_token,
    observer_of,
    patiently,
    run_granted,
)
from sessionlib.running.history import SessionHistory
from sessionlib.running.rooms import reset_window
from sessionlib.running.streaming import TurnStream
from sessionlib.steps import Effect, EffectResult, ModelCall, ToolOutput, ToolRun, drive
from sessionlib.stores.contract import (
    Committed,
    Grant,
    Handle,
    Lane,
    Snapshot,
)
from sessionlib.tools.declaration import Tool, ToolContext, run_tool
from sessionlib.tools.history import history_tools
from sessionlib.tools.notebook import Notebook
from sessionlib.tools.notes import notes_tools
from sessionlib.turn import RoundOutcome, RoundView, Spent, first_pending, play_round
from sessionlib.window_facts import learned


def run_turn(engine: Engine, session_id: str, known: Snapshot | None = None) -> Ran:
    """Run the session's next turn to its end, or to where it cannot go on now. Never raises for what a turn does.

    Raises StoreUnavailable: the lease runs out, and another run goes on from the last saved step.
    """
    return run_granted(engine, session_id, Lane.TURN, known, lambda grant, held: TurnRun(engine, grant, held).run())


class TurnRun:
    """A granted turn, round by round. `run` plays all of it; a caller with a loop of its own plays each round, and
    needs no provider here."""

    def __init__(self, engine: Engine, grant: Grant, held: Held, *, is_own: bool = False) -> None:
        self._engine, self._grant, self._time = engine, grant, TimeLeft(grant, held)
        self._observe = observer_of(engine, grant)
        self._steps = RoundLog(engine, grant)
        self._stream = TurnStream(engine.streams, engine.store, grant, engine.hear) if grant.is_streamed else None
        self._agent = engine.agent(grant.session_id, grant.snapshot.agent)
        self._is_own = is_own
        self._shape = Shape.STATELESS if is_own else engine.catalog.provider(self._agent.provider).shape
        self._counter = self._agent.own_counter
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
        known = self._agent.window if self._is_own else self._engine.catalog.window(self._agent)
        window = learned(known, self._snapshot.window, self._agent.origin)
        return RoundView(
            snapshot=self._snapshot,
            agent=self._agent,
            counter=self._counter,
            budgets=self._agent.session_budgets(self._counter, self._snapshot.calibration, window),
            window_tokens=window.tokens,
            result_cap_tokens=self._result_cap_tokens,
            turn_id=self._grant.work_id,
            round=self._round,
            pending=self._pending,
            known_tools=frozenset(self._tools if known_tools is None else (*known_tools, *self._private)),
            seconds_left=self._time.seconds(),
            shape=self._shape,
            is_resumed=bool(self.saved),
            spent=self._spent,
        )

    def play(
        self, perform: Callable[[Effect], EffectResult], known_tools: Iterable[str] | None = None
    ) -> tuple[RoundOutcome, Committed]:
        """Play one round, its effects done by *perform*, and commit it. Raises LeaseLost and what *perform* raises."""
        view = self.view(known_tools)
        try:
            outcome = drive(play_round(view), self._after_saving(perform), self.saved, self._steps.save)
            self._tell_nudge(view, outcome)
            commit = outcome.commit(view, new_token())
            committed = self._steps.commit(commit)
        except (LeaseLost, StoreUnavailable):
            raise  # nothing can be saved now
        except BaseException:
            self._steps.save_last()
            raise
        self._observe(
            "round",
            round=view.round,
            epoch=committed.epoch,
            request_tokens=outcome.request_tokens,
            entries=len(outcome.entries),
        )
        self._snapshot = self._after(committed, commit.commit_token, outcome)
        self._pending, self._spent, self._round, self.saved = (), outcome.spent, self._round + 1, {}
        return outcome, self._in_fresh_window(committed) if outcome.is_reset else committed

    def _in_fresh_window(self, committed: Committed) -> Committed:
        """Replace the window that the round used up, before the next begins. The answer, if this was it, is out."""
        left = reset_window(self._engine, self._grant.session_id, committed)
        with suppress(StoreUnavailable):  # then the next round is built on what we have, as if it were reset later
            self._snapshot = self._anew(self._snapshot)
        return left

    def _tell_nudge(self, view: RoundView, outcome: RoundOutcome) -> None:
        """Whoever compares requests must know that the last item of this one is in no other."""
        if outcome.is_nudged:
            data = {"round": view.round, "nudge": view.snapshot.room.nudge}
            self._engine.store.emit(self._grant, "nudged", data)

    def _after_saving(self, perform: Callable[[Effect], EffectResult]) -> Callable[[Effect], EffectResult]:
        """*perform*, when the result of the effect before is saved."""

        def performed(effect: Effect) -> EffectResult:
            self._steps.save_last()
            return perform(effect)

        return performed

    def save(self, name: str, result: EffectResult) -> None:
        """Save a step of this round ahead of playing it, for callers who perform effects on their own."""
        if name not in self.saved:
            self._steps.save(name, result)
            self._steps.save_last()
            self.saved[name] = result

    def run_private(self, call: CallRequest) -> ToolOutput:
        """Run a call of a private tool. Raises LeaseLost, StoreUnavailable: the call is not answered then."""
        return run_tool(self._private, call, self._context(call), passing=(LeaseLost, StoreUnavailable))

    def is_private(self, name: str) -> bool:
        """Whether a tool is one of the engine's own (history and notes), which it runs itself."""
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
            window=outcome.window or before.window,
            trim=outcome.trim,
            handle=outcome.handle,
            room=outcome.room,
            open_calls=outcome.answer.open_calls if outcome.answer else (),
            abandoned="",
        )
        is_ours = committed.layout_token == before.layout_token and not outcome.room.is_braked
        return grown if is_ours else self._anew(grown)  # somebody may have lifted the brake

    def _anew(self, known: Snapshot) -> Snapshot:
        anew = self._engine.store.snapshot(self._grant.session_id, known=known)
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

    def _private_tools(self) -> dict[str, Tool]:
        projection = Projection(self._counter, self._result_cap_tokens)
        history = SessionHistory(self._engine.store, projection, lambda: self._snapshot)
        reading = history_tools(history, projection) if self._agent.history_tool else {}
        notes = notes_tools(self._notebook(), projection) if self._agent.has_notes else {}
        return {**reading, **notes}

    def _notebook(self) -> Notebook:
        store, session_id = self._engine.store, self._grant.session_id
        return Notebook(
            sizes=partial(store.notes, session_id),
            text=partial(store.note, session_id),
            write=partial(store.write_note, self._grant),
        )

    def _context(self, call: CallRequest) -> ToolContext:
        return ToolContext(
            session_id=self._grant.session_id, turn_id=self._grant.work_id, call_id=call.call_id, round=self._round
        )

    def _perform(self, effect: Effect) -> EffectResult:
        match effect:
            case ModelCall():
                self._observe("model", round=effect.round, request_tokens=effect.request.counted_tokens)
                return self._ask(effect.round, effect.request)
            case ToolRun():
                self._observe("tool", round=effect.round, tool=effect.call.name)
                if self.is_private(effect.call.name):
                    return self.run_private(effect.call)
                return run_tool(self._tools, effect.call, self._context(effect.call))
            case _:
                raise TypeError(f"a turn does not do {effect.name}")

    def _ask(self, round: int, request: ModelRequest) -> ModelReply:
        provider = self._engine.catalog.provider(self._agent.provider)
        for attempt in patiently(self._time.is_over):
            with attempt:
                reply = self._tried(provider, round, self._in_time(request))
                self._note_handle(request, reply)
                return reply
        raise AssertionError("unreachable: the last attempt raises")

    def _note_handle(self, request: ModelRequest, reply: ModelReply) -> None:
        """Let the store know of the provider session that a reply brought, should its round never be committed."""
        if reply.handle is None:
            return
        handle = Handle(
            handle=reply.handle,
            epoch=self._snapshot.epoch,
            next_seq=self._snapshot.layout.live.next_seq,
            provider=self._agent.provider,
            model=self._agent.model,
            parent=request.handle or "",
        )
        self._steps.brought(handle)

    def _tried(self, provider: Provider, round: int, request: ModelRequest) -> ModelReply:
        """One try of a model call, streamed if the turn's caller wants that."""
        if self._stream is None:
            return _reply(provider.complete(request))
        with self._stream.trying(round) as stream:
            reply = _reply(provider.complete(request, stream.add))
            stream.finish(reply.text)
            return reply

    def _in_time(self, request: ModelRequest) -> ModelRequest:
        """*request* with no more time than the turn has by now: earlier tries took some of it."""
        return replace(request, timeout_seconds=min(request.timeout_seconds, self._time.seconds()))


def _reply(given: object) -> ModelReply:
    """What a provider answered. Raises ProviderRejected if that is no reply: asking again would not help."""
    if not isinstance(given, ModelReply):
        raise ProviderRejected(f"the provider returned {type(given).__name__} in the place of a reply")
    return given
