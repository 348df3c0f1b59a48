"""A turn in the caller's own loop: the caller asks and runs tools, the store keeps lease and order.

with session.turn("Fix the build") as turn:
    while turn.is_open:
        reply = ask_my_model(turn.messages(), turn.tools())
        turn.commit(reply.text, calls=reply.calls, results=run_my_tools(reply.calls))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sessionlib.errors import AnswerTimeout, InvalidInput, UnknownSession
from sessionlib.events import Reply, reply_of
from sessionlib.providers.chat_completions import wire_messages, wire_tool
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.wire_names import from_wire
from sessionlib.running import Engine, Held, TurnRun, new_token, unobserved
from sessionlib.steps import Effect, EffectResult, ModelCall, ToolOutput, ToolRun, model_step
from sessionlib.stores.contract import Grant, Lane
from sessionlib.tools.declaration import ToolResult
from sessionlib.turn import play_round
from workers.dispatch import send_hints

if TYPE_CHECKING:
    from workers.blocking import Connection

LOOK_SECONDS = 1.0
"""How often a caller whose turn is not next yet looks again: nobody sends it a hint that the lane is free."""


class OwnTurn:
    """A turn that this caller runs. Holds the session's turn lane until its last commit, or the end of the block.

    A turn that was left open (the process died, the block was left early) goes on when the same turn id is taken again;
    until then, or until its deadline, the session's later turns wait.
    """

    def __init__(self, connection: Connection, grant: Grant, held: Held, stack: ExitStack) -> None:
        self._connection, self._grant, self._stack = connection, grant, stack
        engine = Engine(connection.store, connection.catalog, connection.leases.hold, unobserved)
        self._run = TurnRun(engine, grant, held, is_own=True)
        self.turn_id = grant.work_id
        self.is_open = True

    @classmethod
    def _taken(cls, connection: Connection, grant: Grant) -> Self:
        """Hold what was granted, or give it back."""
        stack = ExitStack()
        held = stack.enter_context(connection.leases.hold(grant))
        try:
            return cls(connection, grant, held, stack)
        except BaseException:
            stack.close()
            connection.store.release(grant)
            raise

    @classmethod
    def begun(cls, connection: Connection, session_id: str, turn_id: str, timeout_seconds: float) -> Self:
        """Wait until the turn is next, then hold it. Raises AnswerTimeout, TurnFailed if it ended meanwhile,
        InvalidInput if it was answered before."""
        deadline = time.monotonic() + timeout_seconds
        token = new_token()
        while True:
            grant = connection.store.begin(session_id, Lane.TURN, token, own_turn_id=turn_id)
            if isinstance(grant, Grant):
                return cls._taken(connection, grant)
            view = connection.store.turn(session_id, turn_id)
            if view is None:
                raise UnknownSession(session_id)
            if view.state.is_finished:
                reply_of(view)
                raise InvalidInput("turn_id", turn_id, "was answered before; ask for it with `get_turn`")
            left = deadline - time.monotonic()
            if left <= 0:
                raise AnswerTimeout(turn_id, timeout_seconds)
            connection.hints.wait(session_id, "", min(LOOK_SECONDS, left))

    def messages(self) -> list[dict[str, Any]]:
        """What to ask the model with now, as chat messages (system, user, assistant, tool), within the window."""
        request = self._request()
        return wire_messages(request.instructions, request.entries)

    def tools(self) -> list[dict[str, Any]]:
        """The agent's tools as chat declarations, the private ones included: `commit` answers its calls."""
        return [wire_tool(tool) for tool in self._request().tools]

    @property
    def saved_reply(self) -> ModelReply | None:
        """The model's answer to this round, if an earlier run saved it: go on from it instead of asking again."""
        saved = self._run.saved.get(self._model_step())
        return saved if isinstance(saved, ModelReply) else None

    def save(self, text: str, calls: Sequence[CallRequest] = ()) -> None:
        """Make the model's answer durable before its tools run, so that a crash does not pay for it again.

        Raises InvalidInput for what is no text, LeaseLost if the lane was lost.
        """
        _require_texts({"text": text})
        self._run.save(self._model_step(), ModelReply(text=text, calls=_named(calls)))

    def commit(
        self,
        text: str = "",
        calls: Sequence[CallRequest] = (),
        results: Mapping[str, str | ToolResult] | None = None,
    ) -> bool:
        """Record a round: the model's text and calls, and the calls' results by id. Without calls it is the answer.

        A result is text, or a ToolResult with images and files beside it.
        Calls of private tools are answered here; a call without a result stays open, and ends the turn. Whether the
        turn is answered now. Raises InvalidInput for a result without its call and for what is no text, LeaseLost if
        the lane was lost.
        """
        if not self.is_open:
            raise InvalidInput("turn", self.turn_id, "is answered; take another")
        results = dict(results or {})
        outputs = {call_id: _output(call_id, result) for call_id, result in results.items()}
        _require_texts({"text": text})
        reply = self.saved_reply or ModelReply(text=text, calls=_named(calls))
        for call_id in results.keys() - {call.call_id for call in reply.calls}:
            raise InvalidInput("results", call_id, "must be for a call of this round")
        known = {call.name for call in reply.calls if call.call_id in results}
        for call in reply.calls:
            if call.name in known and call.call_id not in results:
                raise InvalidInput("results", call.call_id, f"must be given for every call of {call.name}, or for none")
        outcome, committed = self._run.play(self._performer(reply, outputs), known)
        if outcome.answer is not None:
            self._leave()
        send_hints(self._connection.dispatch, self._grant.session_id, committed)
        return not self.is_open

    def answer(self) -> Reply:
        """The reply, as any reader of the turn gets it. Raises InvalidInput while the turn is open."""
        view = self._connection.store.turn(self._grant.session_id, self.turn_id)
        if view is None or not view.state.is_finished:
            raise InvalidInput("turn", self.turn_id, "is open; commit its answer first")
        return reply_of(view)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_open:
            try:
                self._connection.store.release(self._grant)
            finally:
                self._leave()

    def _leave(self) -> None:
        self.is_open = False
        self._stack.close()

    def _request(self) -> ModelRequest:
        effect = next(play_round(self._run.view()))
        assert isinstance(effect, ModelCall)
        return effect.request

    def _model_step(self) -> str:
        return model_step(self._run.view().round)

    def _performer(self, reply: ModelReply, outputs: Mapping[str, ToolOutput]) -> Callable[[Effect], EffectResult]:
        in_order = (outputs[call.call_id] for call in reply.calls if call.call_id in outputs)

        def perform(effect: Effect) -> EffectResult:
            if isinstance(effect, ModelCall):
                return reply
            assert isinstance(effect, ToolRun)
            if self._run.is_private(effect.call.name):
                return self._run.run_private(effect.call)
            return next(in_order)  # by order: a call id that was used before is recorded under another

        return perform


def _named(calls: Sequence[CallRequest]) -> tuple[CallRequest, ...]:
    """Calls with our names for the tools, where the model used those that it was given."""
    return tuple(CallRequest(call_id=c.call_id, name=from_wire(c.name), arguments=c.arguments) for c in calls)


def _output(call_id: str, result: object) -> ToolOutput:
    """A result as a step has it. Raises InvalidInput."""
    if isinstance(result, ToolResult):
        return ToolOutput(result.text, media=result.media)
    if not isinstance(result, str):
        raise InvalidInput(f"result of {call_id}", result, "must be a string or a ToolResult")
    return ToolOutput(result)


def _require_texts(values: Mapping[str, object]) -> None:
    """Before anything of them is saved. Raises InvalidInput."""
    for field, value in values.items():
        if not isinstance(value, str):
            raise InvalidInput(field, value, "must be a string")
