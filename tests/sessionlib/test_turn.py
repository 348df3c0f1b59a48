"""The turn generator: one round, its effects, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.counters import counter_named
from sessionlib.entries import Entry, EntryKind, open_call_ids
from sessionlib.errors import HandleForgotten, InputTooLarge, ProviderUnavailable, WindowOverflow
from sessionlib.layout import Layout
from sessionlib.overflow import CUTS, UNREPORTED_OVERFLOW_RATIO
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.steps import Effect, EffectResult, ModelCall, ToolOutput, ToolRun, drive
from sessionlib.stores.contract import AgentRef, Grant, Handle, Lane, Snapshot, Trim, TurnInput
from sessionlib.tokens import Usage
from sessionlib.transcript import Transcript
from sessionlib.turn import (
    RoundOutcome,
    RoundView,
    Spent,
    closing_entries,
    first_pending,
    play_round,
)
from sessionlib.window import Budgets, narrowed, sent_sizes
from sessionlib.window_facts import LearnedWindow

COUNTER = counter_named("characters")
KNOWN = frozenset({"search", "history.read_item"})
AGENT = Agent(name="a", model="m", provider="main", instructions="Be brief.", window_tokens=1_000, counter="characters")
BUDGETS = Budgets(
    window_tokens=1_000,
    fixed_tokens=100,
    line_tokens=500,
    limit_tokens=700,
    trim_tokens=560,
    tail_tokens=90,
    stretched_tail_tokens=200,
    record_tokens=90,
    result_cap_tokens=300,
)


def snapshot_of(*entries: Entry, **changes: Any) -> Snapshot:
    layout = Layout(live=Transcript(entries, sent_sizes(entries, BUDGETS, COUNTER)))
    made = Snapshot(
        session_id="s", agent=AgentRef(name="a", digest=""), epoch=2, layout=layout, layout_token="l", tail_token="t"
    )
    return replace(made, **changes)


def view_of(*live: Entry, snapshot: Snapshot | None = None, **changes: Any) -> RoundView:
    made = RoundView(
        snapshot=snapshot or snapshot_of(*live),
        agent=AGENT,
        counter=COUNTER,
        budgets=BUDGETS,
        result_cap_tokens=BUDGETS.result_cap_tokens,
        turn_id="t1",
        round=0,
        pending=(Entry.user("hello"),),
        known_tools=KNOWN,
        seconds_left=60.0,
        window_tokens=AGENT.window_tokens,
    )
    return replace(made, **changes)


def call(call_id: str = "c1", name: str = "search", arguments: str = "{}") -> CallRequest:
    return CallRequest(call_id=call_id, name=name, arguments=arguments)


@dataclass
class Played:
    """A round played against scripted answers: an error is raised, a reply returned."""

    answers: list[ModelReply | Exception]
    tool: Callable[[CallRequest], str] = lambda call: f"result of {call.call_id}"
    saved: dict[str, EffectResult] = field(default_factory=dict)
    requests: list[ModelRequest] = field(default_factory=list)
    ran: list[CallRequest] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def play(self, view: RoundView) -> RoundOutcome:
        return drive(play_round(view), self._perform, dict(self.saved), self._save)

    def _perform(self, effect: Effect) -> EffectResult:
        if isinstance(effect, ToolRun):
            self.ran.append(effect.call)
            return ToolOutput(self.tool(effect.call))
        assert isinstance(effect, ModelCall)
        self.requests.append(effect.request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _save(self, name: str, result: EffectResult) -> None:
        self.names.append(name)
        self.saved[name] = result


def play(view: RoundView, *answers: ModelReply | Exception) -> RoundOutcome:
    return Played(list(answers)).play(view)


# --- an answer


def test_an_answer_ends_the_turn() -> None:
    """The input and the answer are recorded with their sizes, and the turn is over."""
    outcome = play(view_of(), ModelReply(text="hi there"))
    assert outcome.entries == (Entry.user("hello"), Entry.assistant("hi there"))
    assert outcome.sizes == tuple(map(COUNTER.entry, outcome.entries))
    assert outcome.answer is not None
    assert (outcome.answer.text, outcome.answer.round_count) == ("hi there", 1)


def test_the_request_is_the_whole_window() -> None:
    """Instructions, tools, parameters, live entries, the input; and what they take."""
    played = Played([ModelReply(text="ok")])
    played.play(view_of(Entry.user("before"), Entry.assistant("yes")))
    (request,) = played.requests
    assert [entry.text for entry in request.entries] == ["before", "yes", "hello"]
    assert request.counted_tokens == BUDGETS.fixed_tokens + sum(map(COUNTER.entry, request.entries))
    assert (request.model, request.instructions, request.timeout_seconds) == ("m", "Be brief.", 60.0)
    assert request.idempotency_key == "s/t1/model:0"
    assert request.tools == AGENT.declarations


def test_an_empty_answer_is_an_answer() -> None:
    """No text and no calls: recorded as an empty assistant entry."""
    outcome = play(view_of(), ModelReply(text=""))
    assert outcome.entries[-1] == Entry.assistant("")
    assert outcome.answer is not None


def test_a18_09_an_unanswered_call_leaves_nothing() -> None:
    """The error reaches the caller, and no step was saved."""
    played = Played([ProviderUnavailable("overloaded")])
    with pytest.raises(ProviderUnavailable):
        played.play(view_of())
    assert played.names == []


def test_an_input_above_the_window_is_refused_before_any_call() -> None:
    """The arithmetic is in the error, and the model was not asked."""
    played = Played([])
    with pytest.raises(InputTooLarge, match="takes 1004 tokens beside 100 "):
        played.play(view_of(pending=(Entry.user("x" * 4_000),)))
    assert played.requests == []


# --- tools


def test_known_tools_are_run_and_the_turn_goes_on() -> None:
    """Calls and results are recorded in order; there is no answer yet."""
    reply = ModelReply(text="let me look", calls=(call("c1"), call("c2", "history.read_item")))
    played = Played([reply])
    outcome = played.play(view_of())
    assert [entry.kind for entry in outcome.entries] == [
        EntryKind.USER, EntryKind.ASSISTANT, EntryKind.TOOL_CALL, EntryKind.TOOL_CALL,
        EntryKind.TOOL_RESULT, EntryKind.TOOL_RESULT,
    ]  # fmt: skip
    assert outcome.entries[-1] == Entry.tool_result("c2", "result of c2", "history.read_item")
    assert outcome.answer is None
    assert played.names == ["model:0", "tool:0:c1", "tool:0:c2"]


def test_calls_of_unknown_tools_end_the_turn_open() -> None:
    """What can be run here is run; the rest is the caller's."""
    outcome = play(view_of(), ModelReply(text="", calls=(call("c1"), call("c2", "deploy"))))
    assert outcome.answer is not None
    assert outcome.answer.open_calls == (call("c2", "deploy"),)
    assert open_call_ids(outcome.entries) == ("c2",)
    assert outcome.entries[-1] == Entry.tool_result("c1", "result of c1", "search")


def test_saved_steps_are_not_performed_again() -> None:
    """A round that runs again makes the same entries without asking anybody."""
    first = Played([ModelReply(text="", calls=(call("c1"), call("c2")))])
    outcome = first.play(view_of())
    again = Played([], saved=first.saved)
    assert again.play(view_of(is_resumed=True)).entries == outcome.entries
    assert (again.requests, again.ran) == ([], [])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["c1", "c1"], ["c1", "c1_6"]),
        (["", "  "], ["call_5", "call_6"]),
        (["old"], ["old_5"]),
        (["c1_6", "c1", "c1"], ["c1_6", "c1", "c1_7"]),
        (["call_6", ""], ["call_6", "call_6_"]),
    ],
)
def test_call_ids_are_made_unique(ids: list[str], expected: list[str]) -> None:
    """Given twice, given before, or not given: the id is made from the entry's sequence number."""
    live = (Entry.user("a"), Entry.tool_call("old", "{}", "search"), Entry.tool_result("old", "r", "search"))
    outcome = play(view_of(*live), ModelReply(text="", calls=tuple(map(call, ids))))
    calls = [entry for entry in outcome.entries if entry.kind is EntryKind.TOOL_CALL]
    assert [entry.tool_call_id for entry in calls] == expected
    assert open_call_ids(outcome.entries) == ()


@pytest.mark.parametrize("name", ["", "  "])
def test_a_call_without_a_name_is_answered_with_an_error(name: str) -> None:
    """It names no tool that anybody could run: the model reads that, and goes on."""
    played = Played([ModelReply(text="", calls=(call("c1", name),))])
    outcome = played.play(view_of())
    assert "names no tool" in outcome.entries[-1].text
    assert outcome.answer is None
    assert played.ran == []


def test_what_the_model_says_is_made_encodable() -> None:
    """Lone surrogates in text, names, arguments and results are replaced, not fatal."""
    reply = ModelReply(text="a\ud800b", calls=(call("c\udfff", "search", '{"q": "\ud83d\ude00"}'),))
    outcome = Played([reply], tool=lambda call: "r\udc00").play(view_of())
    assert [entry.text for entry in outcome.entries] == ["hello", "a�b", '{"q": "😀"}', "r�"]


def test_t38_over_long_results_are_stored_whole() -> None:
    """The entry keeps every character; its size is that of what is sent."""
    outcome = Played([ModelReply(text="", calls=(call(),))], tool=lambda call: "x" * 50_000).play(view_of())
    assert len(outcome.entries[-1].text) == 50_000
    assert outcome.sizes[-1] == BUDGETS.result_cap_tokens


# --- usage, calibration


def test_t82_calibration_grows_with_the_whole_request() -> None:
    """Reported ÷ counted, instructions and tools included; the line moves with it."""
    view = view_of(pending=(Entry.user("hello" * 20),))
    outcome = play(view, ModelReply(text="ok", usage=Usage(prompt_tokens=387, completion_tokens=5)))
    assert outcome.request_tokens == 129
    assert outcome.calibration == pytest.approx(3.0)
    assert outcome.line_tokens < BUDGETS.line_tokens


def test_a_small_request_teaches_nothing() -> None:
    """A provider's constant overhead on a short prompt must not pass for a dense tokenizer."""
    outcome = play(view_of(), ModelReply(text="ok", usage=Usage(prompt_tokens=1_000)))
    assert outcome.calibration == 1.0


def test_t84_a_silent_provider_teaches_nothing() -> None:
    """No report leaves the calibration as it is."""
    assert play(view_of(), ModelReply(text="ok", usage=Usage(0))).calibration == 1.0


def test_a18_55_calibration_is_learned_of_one_request_not_of_the_turns_sum() -> None:
    """A fourth round, whose three before it took 900 tokens: its report is compared with its own request."""
    view = view_of(Entry.user("x" * 400), round=3, pending=(), spent=Spent(prompt_tokens=900))
    outcome = play(view, ModelReply(text="ok", usage=Usage(204)))
    assert (outcome.request_tokens, outcome.calibration) == (204, 1.0)


def test_a18_58_a_resumed_round_learns_nothing() -> None:
    """A saved reply may answer a request of an older layout: its usage and handle are passed over."""
    saved: dict[str, EffectResult] = {"model:0": ModelReply(text="ok", usage=Usage(900), handle="h2")}
    outcome = Played([], saved=saved).play(view_of(is_resumed=True, shape=Shape.HELD))
    assert (outcome.calibration, outcome.handle) == (1.0, None)
    assert outcome.usage == Usage(900)


def test_the_answer_sums_up_the_turn() -> None:
    """Tokens of all rounds, the number of rounds, the largest request."""
    before = Spent(prompt_tokens=100, completion_tokens=10, cached_tokens=50, max_request_tokens=400)
    usage = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=90)
    answer = play(view_of(round=3, pending=(), spent=before), ModelReply(text="ok", usage=usage)).answer
    assert answer is not None
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (200, 17, 140)
    assert (answer.round_count, answer.max_request_tokens) == (4, 400)


# --- a provider that disagrees


def test_a_window_overflow_is_asked_again_smaller() -> None:
    """The window is taken to be what the provider says; the second attempt has a key of its own."""
    live = [Entry.user("old" * 300), Entry.assistant("a" * 900)]
    played = Played([WindowOverflow("too long", limit_tokens=500), ModelReply(text="ok")])
    outcome = played.play(view_of(*live))
    first, second = played.requests
    assert second.counted_tokens < first.counted_tokens
    assert second.counted_tokens * 2 <= 1_000
    assert (outcome.calibration, outcome.window) == (1.0, LearnedWindow(tokens=500, origin=AGENT.origin))
    assert outcome.trim != Trim()
    assert (first.step, second.step) == ("model:0", "model:0:1")
    assert played.names == ["model:0"]


def test_an_overflow_that_nothing_can_be_cut_from_is_passed_on() -> None:
    """The input alone was refused, in words that tell no figure: sent again it would be refused again."""
    played = Played([WindowOverflow("too long"), ModelReply(text="ok")])
    with pytest.raises(WindowOverflow, match="too long"):
        played.play(view_of())
    assert len(played.requests) == 1


WIDE = replace(BUDGETS, window_tokens=4_000, line_tokens=2_000, limit_tokens=3_500, trim_tokens=2_800)
LONG = tuple((Entry.assistant if number % 2 else Entry.user)(f"{number:04}" * 32) for number in range(90))
"""3,240 tokens in all."""


def wide(*live: Entry, **changes: Any) -> RoundView:
    return view_of(*live, budgets=WIDE, window_tokens=4_000, **changes)


def test_an_overflow_without_a_figure_is_cut_to_a_quarter() -> None:
    """The one retry of a round must fit, whatever the provider counts; of the cut no more is remembered than that the
    window holds less than was sent, and one step."""
    played = Played([WindowOverflow("too long"), ModelReply(text="ok")])
    outcome = played.play(wide(*LONG))
    first, second = played.requests
    assert first.counted_tokens > 3_000
    assert second.counted_tokens * max(CUTS) <= first.counted_tokens
    assert outcome.calibration == 1.0
    assert outcome.window is not None
    assert outcome.window.tokens == round(first.counted_tokens / UNREPORTED_OVERFLOW_RATIO)


def test_a_cut_without_a_figure_asks_for_a_rotation() -> None:
    """However little there is by our count: what the cut left out is in no record yet."""
    uncut = play(wide(*LONG[:40]), ModelReply(text="ok"))
    outcome = play(wide(*LONG[:40]), WindowOverflow("too long"), ModelReply(text="ok"))
    assert outcome.trim != uncut.trim
    assert outcome.line_tokens <= sum(map(COUNTER.entry, (*LONG[:40], *outcome.entries))) < uncut.line_tokens


def test_what_the_answer_to_a_cut_request_proves_is_remembered() -> None:
    """Three tokens for each of ours, by its usage: then what was refused was above the window anyway."""
    played = Played([WindowOverflow("too long"), ModelReply(text="ok")])
    played.play(wide(*LONG))
    cut_tokens = played.requests[-1].counted_tokens
    told = play(wide(*LONG), WindowOverflow("too long"), ModelReply(text="ok", usage=Usage(cut_tokens * 3)))
    assert told.calibration == pytest.approx(3.0)
    assert told.window is None


@pytest.mark.parametrize(("message_tokens", "parts"), [(400, 4.0), (800, 3.0), (1_300, 2.0), (2_000, 1.25)])
def test_a_cut_leaves_room_for_the_input(message_tokens: int, parts: float) -> None:
    """It is as deep as that allows: not to send the input would lose the turn."""
    message = Entry.user("long" * (message_tokens - 4))
    played = Played([WindowOverflow("too long"), ModelReply(text="ok")])
    played.play(wide(*LONG[: 90 - message_tokens // 36], pending=(message,)))
    first, second = played.requests
    assert first.entries[-1] == second.entries[-1] == message
    limit_tokens = narrowed(WIDE, parts * 4_000 / first.counted_tokens).limit_tokens
    assert 0.5 * limit_tokens < second.counted_tokens - WIDE.fixed_tokens <= limit_tokens


def test_a_second_overflow_is_not_retried() -> None:
    """The round fails with the provider's own words."""
    with pytest.raises(WindowOverflow, match="still"):
        play(wide(*LONG), WindowOverflow("too long"), WindowOverflow("still too long"))


# --- held sessions

LIVE = (Entry.user("a"), Entry.assistant("b"))


def held(**changes: Any) -> Handle:
    return replace(Handle(handle="h1", epoch=2, next_seq=3, provider="main", model="m"), **changes)


def test_a_held_session_is_sent_only_what_is_new() -> None:
    """Handle and count of what it holds; the next handle holds this round's reply too."""
    played = Played([ModelReply(text="ok", handle="h2")])
    outcome = played.play(view_of(snapshot=snapshot_of(*LIVE, handle=held()), shape=Shape.HELD))
    (request,) = played.requests
    assert (request.handle, request.held_count, len(request.entries)) == ("h1", 2, 3)
    assert outcome.handle == held(handle="h2", next_seq=5, parent="h1")


@pytest.mark.parametrize(
    "handle",
    [held(epoch=1), held(trim=Trim(pointers_before_seq=2)), held(provider="other"), None],
    ids=["other epoch", "other trim", "other provider", "none"],
)
def test_a_handle_that_holds_something_else_is_left(handle: Handle | None) -> None:
    """The whole window seeds a new provider session."""
    played = Played([ModelReply(text="ok", handle="h2")])
    outcome = played.play(view_of(snapshot=snapshot_of(*LIVE, handle=handle), shape=Shape.HELD))
    assert (played.requests[0].handle, played.requests[0].held_count) == (None, 0)
    assert outcome.handle == held(handle="h2", next_seq=5)


def test_a_forgotten_session_is_seeded_again() -> None:
    """The provider lost it: the whole window goes over, within the same round."""
    played = Played([HandleForgotten("gone"), ModelReply(text="ok", handle="h2")])
    outcome = played.play(view_of(snapshot=snapshot_of(*LIVE, handle=held()), shape=Shape.HELD))
    assert [request.handle for request in played.requests] == ["h1", None]
    assert played.requests[1].idempotency_key == "s/t1/model:0:1"
    assert outcome.is_reseeded
    assert outcome.handle == held(handle="h2", next_seq=5)


def test_a_new_session_that_is_forgotten_at_once_is_an_error() -> None:
    """A provider that knows none of its sessions is not asked for ever."""
    with pytest.raises(HandleForgotten):
        play(view_of(shape=Shape.HELD), HandleForgotten("gone"), HandleForgotten("gone"))


def test_renamed_calls_seed_the_held_session_anew() -> None:
    """The provider holds ids that we do not record: it could not pair their results."""
    reply = ModelReply(text="", calls=(call("c1"), call("c1")), handle="h2")
    assert play(view_of(shape=Shape.HELD), reply).handle is None


def test_results_of_a_round_are_new_to_the_handle() -> None:
    """The handle holds the calls; their results come with the next request."""
    reply = ModelReply(text="", calls=(call("c1"),), handle="h2")
    outcome = play(view_of(shape=Shape.HELD), reply)
    assert outcome.handle is not None
    assert outcome.handle.next_seq == 3
    snapshot = snapshot_of(*outcome.entries, handle=outcome.handle)
    played = Played([ModelReply(text="ok", handle="h3")])
    played.play(view_of(snapshot=snapshot, pending=(), round=1, shape=Shape.HELD))
    assert (played.requests[0].held_count, len(played.requests[0].entries)) == (2, 3)


# --- how a turn begins


def grant_of(turn_input: TurnInput, snapshot: Snapshot, first_round: int = 0) -> Grant:
    return Grant(
        session_id="s", lane=Lane.TURN, token="x", work_id="t1", deadline=60.0, now=0.0, attempt=1,
        snapshot=snapshot, input=turn_input, first_round=first_round,
    )  # fmt: skip


OPEN = (call("c1", "deploy"), call("c2", "deploy"))


@pytest.mark.parametrize(
    ("turn_input", "changes", "expected"),
    [
        (TurnInput(message="hi"), {}, (Entry.user("hi"),)),
        (
            TurnInput(results=(("c2", "two"), ("c1", "one"))),
            {"open_calls": OPEN},
            (Entry.tool_result("c1", "one", "deploy"), Entry.tool_result("c2", "two", "deploy")),
        ),
        (
            TurnInput(message="never mind"),
            {"open_calls": OPEN[:1], "abandoned": "interrupted by a new message"},
            (
                Entry.tool_result("c1", "No result: interrupted by a new message.", "deploy"),
                Entry.user("never mind"),
            ),
        ),
    ],
    ids=["message", "results", "abandoned calls"],
)
def test_what_begins_a_turn(turn_input: TurnInput, changes: dict[str, Any], expected: tuple[Entry, ...]) -> None:
    """Open calls are answered or closed first, in their own order; then comes the message."""
    assert first_pending(grant_of(turn_input, snapshot_of(**changes))) == expected


def test_a_turn_whose_first_round_is_recorded_begins_with_nothing() -> None:
    """Its input is in the history already."""
    assert first_pending(grant_of(TurnInput(message="hi"), snapshot_of(), first_round=1)) == ()


def test_closing_entries_pair_with_their_calls() -> None:
    """One stated result for each call."""
    closed = closing_entries(OPEN, "the turn was cancelled")
    assert [entry.tool_call_id for entry in closed] == ["c1", "c2"]
    assert closed[0].text == "No result: the turn was cancelled."


@pytest.mark.parametrize(("round_number", "closes"), [(0, True), (1, False)])
def test_only_the_first_round_closes_open_calls(round_number: int, closes: bool) -> None:
    """The commit says so, and carries all that the store records."""
    view = view_of(snapshot=snapshot_of(open_calls=OPEN), round=round_number)
    commit = play(view, ModelReply(text="ok")).commit(view, "token")
    assert commit.closes_calls is closes
    assert (commit.round, commit.commit_token, commit.epoch) == (round_number, "token", 2)
    assert len(commit.entries) == len(commit.sizes)


def test_a_turn_of_many_rounds_keeps_its_task_and_its_limit() -> None:
    """300 rounds without a rotation: each request within the limit, with the task in it, its pairs whole."""
    snapshot = snapshot_of()
    pending: tuple[Entry, ...] = (Entry.user("the task"),)
    for number in range(300):
        played = Played([ModelReply(text="", calls=(call(f"c{number}", arguments="a" * 100),))], lambda call: "r" * 500)
        outcome = played.play(view_of(snapshot=snapshot, round=number, pending=pending))
        (request,) = played.requests
        assert request.counted_tokens <= BUDGETS.limit_tokens + BUDGETS.fixed_tokens
        assert Entry.user("the task") in request.entries
        assert open_call_ids(request.entries) == ()
        live = snapshot.layout.live.append(outcome.entries, outcome.sizes)
        snapshot = replace(snapshot, layout=snapshot.layout.with_live(live), trim=outcome.trim)
        pending = ()
