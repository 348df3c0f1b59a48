"""A turn as a generator, one round at a time: the model call, the tools it asks for, and what is to be recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from sessionlib.agent import Agent
from sessionlib.entries import Entry, EntryKind, encodable
from sessionlib.errors import HandleForgotten, InputTooLarge, WindowOverflow
from sessionlib.layout import Layout
from sessionlib.media import Media
from sessionlib.overflow import Measure, remeasured
from sessionlib.projection import Projection, sent_size
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.repair import no_result
from sessionlib.replies import recordable
from sessionlib.rooms import judged, nudge_of
from sessionlib.steps import ModelCall, Steps, ToolOutput, ToolRun, model_step
from sessionlib.stores.contract import Answer, Grant, Handle, Room, RoundCommit, Snapshot, Trim
from sessionlib.tokens import Counter, Usage, calibrated
from sessionlib.window import Budgets, Sent, fit
from sessionlib.window_facts import LearnedWindow, WindowFact, WindowSource

CALIBRATING_FRACTION = 0.125
"""Share of the window from which on a request is worth learning from: on a small one a provider's constant overhead
looks like a dense tokenizer, and the largest ratio is kept for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a turn has used so far, in tokens, and whether it had to recover."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    max_request_tokens: int = 0
    """The largest request, by our counter times the calibration."""
    is_recovered: bool = False
    """A round of it was reseeded (`RoundOutcome.is_reseeded`)."""

    def plus(self, usage: Usage | None, request_tokens: int, *, is_reseeded: bool = False) -> Spent:
        """With one more round."""
        reported = usage or Usage(0)
        return Spent(
            prompt_tokens=self.prompt_tokens + reported.prompt_tokens,
            completion_tokens=self.completion_tokens + reported.completion_tokens,
            cached_tokens=self.cached_tokens + reported.cached_tokens,
            written_tokens=self.written_tokens + reported.written_tokens,
            max_request_tokens=max(self.max_request_tokens, request_tokens),
            is_recovered=self.is_recovered or is_reseeded,
        )


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """All that one round is decided from."""

    snapshot: Snapshot
    agent: Agent
    counter: Counter
    budgets: Budgets
    """At the snapshot's calibration and the window below."""
    window_tokens: int
    """What the provider holds, in its own tokens: the agent's word, or a smaller one's."""
    result_cap_tokens: int
    """At calibration 1 (`Budgets.result_cap_tokens`): a result is sent in the same words in each request."""
    turn_id: str
    round: int
    pending: tuple[Entry, ...] = ()
    """What this round adds before the model is asked: see `first_pending`."""
    known_tools: frozenset[str] = frozenset()
    """Names of the tools that can be run here, private ones included."""
    seconds_left: float
    """Until the turn's deadline."""
    shape: Shape = Shape.STATELESS
    is_resumed: bool = False
    """An earlier run saved steps of this round: what they say of usage and handle may belong to an older layout, and
    nothing is learned from it."""
    spent: Spent = field(default_factory=Spent)
    """By the rounds of the turn before this one."""

    @property
    def projection(self) -> Projection:
        return Projection(self.counter, self.result_cap_tokens, self.agent.history_tool, self.agent.origin)

    def budgets_at(self, calibration: float, window_tokens: int) -> Budgets:
        """The budgets as they are with what a refusal taught."""
        return self.agent.session_budgets(self.counter, calibration, WindowFact(window_tokens, WindowSource.REFUSED))

    @cached_property
    def layout(self) -> Layout:
        """The snapshot's layout with the pending entries at its end."""
        layout = self.snapshot.layout
        return layout.with_live(layout.live.append(self.pending, self.sizes(self.pending)))

    def sizes(self, entries: Iterable[Entry]) -> tuple[int, ...]:
        """Sizes of entries as they are sent, in tokens."""
        return tuple(sent_size(entry, self.result_cap_tokens, self.counter) for entry in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What one round came to: what to record, and what was learned on the way."""

    entries: tuple[Entry, ...]
    sizes: tuple[int, ...]
    calibration: float
    window: LearnedWindow | None
    """What was learned of the provider's window; None if nothing."""
    trim: Trim
    handle: Handle | None
    """Held shape: the provider session that goes on; None seeds a new one with the next request."""
    answer: Answer | None
    """Given if the turn ends here: the model asked for no tools, or for some that cannot be run here."""
    line_tokens: int
    request_tokens: int
    """The whole request by our counter."""
    usage: Usage | None
    spent: Spent
    closes_calls: bool
    is_reseeded: bool = False
    """The provider had forgotten its session, and was given the whole window again."""
    room: Room = field(default_factory=Room)
    is_reset: bool = False
    """The window is used up: a fresh one begins before the next round."""
    is_nudged: bool = False
    """The request ended with a nudge, which is in no other."""

    def commit(self, view: RoundView, commit_token: str) -> RoundCommit:
        """The outcome as the store takes it."""
        return RoundCommit(
            round=view.round,
            commit_token=commit_token,
            epoch=view.snapshot.epoch,
            entries=self.entries,
            sizes=self.sizes,
            calibration=self.calibration,
            window=self.window,
            line_tokens=self.line_tokens,
            input_index=next((i for i, entry in enumerate(view.pending) if entry.kind is EntryKind.USER), -1),
            closes_calls=self.closes_calls,
            handle=self.handle,
            trim=self.trim,
            room=self.room,
            answer=self.answer,
        )


def first_pending(grant: Grant) -> tuple[Entry, ...]:
    """The entries that begin a granted turn: open calls answered or closed first, then its message.

    None if the turn's first round is committed already.
    """
    if grant.first_round or grant.input is None:
        return ()
    results = dict(grant.input.results)
    calls = grant.snapshot.open_calls
    answered = tuple(_result(call, results[call.call_id]) for call in calls if call.call_id in results)
    left = [call for call in calls if call.call_id not in results]
    message = (Entry.user(grant.input.message, grant.input.media),) if not results else ()
    return (*answered, *closing_entries(left, grant.snapshot.abandoned or "the conversation went on"), *message)


def closing_entries(open_calls: Iterable[CallRequest], reason: str) -> tuple[Entry, ...]:
    """Mechanical results for calls that nothing will answer."""
    return tuple(no_result(_call(call), reason) for call in open_calls)


def play_round(view: RoundView) -> Steps[RoundOutcome]:
    """One round: ask the model, run the tools that it asks for.

    Raises InputTooLarge if the input fits no request, and whatever an effect raises that a round does not handle.
    """
    asked = yield from _ask(view)
    first_seq = view.snapshot.layout.live.next_seq + len(view.pending)
    reply = recordable(asked.reply, first_seq, _call_ids(view.snapshot.layout))
    results: list[Entry] = []
    unknown: list[CallRequest] = []
    for call in reply.calls:
        if not call.name.strip():
            results.append(_result(call, "InvalidInput: the call names no tool"))
        elif call.name not in view.known_tools:
            unknown.append(call)
        else:
            output: ToolOutput = yield ToolRun(view.round, call)
            results.append(_result(call, output.text, output.media))
    return _outcome(view, asked, reply, results, unknown)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An answered model call."""

    request: ModelRequest
    reply: ModelReply
    trim: Trim
    measure: Measure
    is_reseeded: bool
    is_nudged: bool


def _ask(view: RoundView) -> Steps[_Asked]:
    """Ask the model, once more if its window is smaller than thought, and once more if it forgot its session.

    All attempts are one step, since only the one that is answered has a result to save; each has its own idempotency
    key, since they differ in content.
    """
    measure = Measure(view.budgets, view.snapshot.calibration, view.window_tokens)
    handle, is_remeasured, attempt = view.snapshot.handle, False, 0
    while True:
        sent, trim, is_nudged = _sent(view, measure.limits)
        continued = _continued(view, handle, trim)
        request = _request(view, sent, view.budgets.fixed_tokens, continued, attempt)
        attempt += 1
        try:
            reply: ModelReply = yield ModelCall(view.round, request)
        except HandleForgotten:
            if continued is None:
                raise
            handle = None
        except WindowOverflow as overflow:
            if is_remeasured:
                raise
            has_room = partial(_has_room, view)
            measure = remeasured(measure, overflow, request.counted_tokens, view.budgets_at, has_room)
            is_remeasured = True
        else:
            is_reseeded = handle is None and view.snapshot.handle is not None
            return _Asked(request, reply, trim, measure, is_reseeded, is_nudged)


def _has_room(view: RoundView, budgets: Budgets) -> bool:
    """Whether the input fits: it must be sent in any case."""
    try:
        fit(view.layout, view.snapshot.trim, budgets, view.projection)
    except InputTooLarge:
        return False
    return True


def _sent(view: RoundView, budgets: Budgets) -> tuple[Sent, Trim, bool]:
    """What is sent, the trim that it took, and whether it ends with a nudge: one that would not fit is left out."""
    layout, nudge = view.layout, nudge_of(view.agent, view.snapshot)
    if nudge is not None:
        nudge_tokens = view.counter.entry(nudge)
        with suppress(InputTooLarge):
            sent, trim = fit(layout, view.snapshot.trim, budgets.without(nudge_tokens), view.projection)
            return sent.ending_with(nudge, layout.live.next_seq, nudge_tokens), trim, True
    return *fit(layout, view.snapshot.trim, budgets, view.projection), False


def _request(view: RoundView, sent: Sent, fixed_tokens: int, continued: Handle | None, attempt: int) -> ModelRequest:
    agent = view.agent
    step = model_step(view.round)
    return ModelRequest(
        model=agent.model,
        instructions=agent.full_instructions,
        tools=agent.declarations,
        parameters=agent.parameters,
        entries=sent.entries,
        session_id=view.snapshot.session_id,
        turn_id=view.turn_id,
        step=f"{step}:{attempt}" if attempt else step,
        timeout_seconds=min(agent.call_timeout_seconds, view.seconds_left),
        handle=continued.handle if continued else None,
        held_count=sent.held_count(continued.next_seq) if continued else 0,
        counted_tokens=fixed_tokens + sent.tokens,
    )


def _continued(view: RoundView, handle: Handle | None, trim: Trim) -> Handle | None:
    """The provider session to go on with: it must hold exactly what would be sent to a new one."""
    if view.shape is not Shape.HELD or handle is None:
        return None
    if (handle.provider, handle.model) != (view.agent.provider, view.agent.model):
        return None
    return handle if (handle.epoch, handle.trim) == (view.snapshot.epoch, trim) else None


def _outcome(
    view: RoundView, asked: _Asked, reply: ModelReply, results: Sequence[Entry], unknown: Sequence[CallRequest]
) -> RoundOutcome:
    made = (*reply.entries(view.agent.origin), *results)
    request_tokens, learned = asked.request.counted_tokens, _learned(view, asked)
    sent_tokens = math.ceil(request_tokens * max(learned.calibration, view.counter.error_ratio))
    spent = view.spent.plus(reply.usage, sent_tokens, is_reseeded=asked.is_reseeded)
    sizes = (*view.layout.live.sizes[len(view.snapshot.layout.live) :], *view.sizes(made))
    judgement = judged(
        view.agent,
        view.snapshot.room,
        view.snapshot.layout.conversation_tokens + sum(sizes),
        learned.budgets,
        is_nudged=asked.is_nudged,
        is_cut=asked.measure.cut is not None,
    )
    return RoundOutcome(
        entries=(*view.pending, *made),
        sizes=sizes,
        calibration=learned.calibration,
        window=_learned_window(view, learned),
        trim=asked.trim,
        handle=_new_handle(view, asked, reply),
        answer=_answer(view, reply, unknown, spent) if unknown or not reply.calls else None,
        line_tokens=judgement.line_tokens,
        request_tokens=request_tokens,
        usage=reply.usage,
        spent=spent,
        closes_calls=view.round == 0 and bool(view.snapshot.open_calls),
        is_reseeded=asked.is_reseeded,
        room=judgement.room,
        is_reset=judgement.is_reset,
        is_nudged=asked.is_nudged,
    )


def _learned(view: RoundView, asked: _Asked) -> Measure:
    """How the provider counts, and what it holds, as far as is known after its answer."""
    before, request_tokens, usage = asked.measure, asked.request.counted_tokens, asked.reply.usage
    calibration = before.calibration
    if not view.is_resumed and request_tokens >= view.window_tokens * CALIBRATING_FRACTION:
        calibration = calibrated(calibration, request_tokens, _believable(usage, view.window_tokens))
    window_tokens = before.window_after(calibrated(calibration, request_tokens, usage))
    if (calibration, window_tokens) == (before.calibration, before.window_tokens):
        return before
    return Measure(view.budgets_at(calibration, window_tokens), calibration, window_tokens)


def _learned_window(view: RoundView, learned: Measure) -> LearnedWindow | None:
    if learned.window_tokens >= view.window_tokens:
        return None
    return LearnedWindow(tokens=learned.window_tokens, origin=view.agent.origin)


def _believable(usage: Usage | None, window_tokens: int) -> Usage | None:
    """*usage* with no more than the window holds: what was answered was not above it, whatever the provider reports."""
    if usage is None or usage.prompt_tokens <= window_tokens:
        return usage
    return replace(usage, prompt_tokens=window_tokens)


def _answer(view: RoundView, reply: ModelReply, unknown: Sequence[CallRequest], spent: Spent) -> Answer:
    return Answer(
        text=reply.text,
        open_calls=tuple(unknown),
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cached_tokens=spent.cached_tokens,
        written_tokens=spent.written_tokens,
        round_count=view.round + 1,
        max_request_tokens=spent.max_request_tokens,
        is_recovered=spent.is_recovered,
    )


def _new_handle(view: RoundView, asked: _Asked, reply: ModelReply) -> Handle | None:
    """The provider session that holds this round's reply; None if it holds something else than what is recorded, a
    nudge for one."""
    is_as_recorded = reply.calls == asked.reply.calls and reply.text == asked.reply.text and not asked.is_nudged
    if view.shape is not Shape.HELD or reply.handle is None or view.is_resumed or not is_as_recorded:
        return None
    held_count = len(view.pending) + len(reply.entries(view.agent.origin))
    return Handle(
        handle=reply.handle,
        epoch=view.snapshot.epoch,
        next_seq=view.snapshot.layout.live.next_seq + held_count,
        trim=asked.trim,
        provider=view.agent.provider,
        model=view.agent.model,
        parent=asked.request.handle or "",
    )


def _call_ids(layout: Layout) -> set[str]:
    return {str(entry.tool_call_id) for entry in layout.live.entries if entry.kind is EntryKind.TOOL_CALL}


def _call(call: CallRequest) -> Entry:
    return Entry.tool_call(call.call_id, call.arguments, call.name)


def _result(call: CallRequest, text: str, media: tuple[Media, ...] = ()) -> Entry:
    return Entry.tool_result(call.call_id, encodable(text), call.name, media)
