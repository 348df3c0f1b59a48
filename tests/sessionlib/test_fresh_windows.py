"""Fresh windows at work: nudges in requests, resets between rounds and after answers, and what may go wrong there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.archive import entries_of
from sessionlib.catalog import Catalog
from sessionlib.counters import counter_named
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import StoreError, StoreUnavailable, WindowOverflow
from sessionlib.inputs import open_request
from sessionlib.layout import RecordKind
from sessionlib.policies.contract import Consolidating, Rotated, RotationPlan
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Ran, run_rotation, run_turn, unobserved
from sessionlib.session import Session
from sessionlib.stores.contract import (
    THREAD_HINT,
    Grant,
    Lane,
    Limits,
    Nudge,
    Room,
    SessionStore,
    SubmitRequest,
    TurnInput,
    TurnState,
)
from sessionlib.stores.sqlite import SqliteStore
from tests.waiting import wait_for

WINDOW_TOKENS = 10_000
LONG = "the pump is blue and stays so. " * 60
"""About 470 tokens."""


def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: {LONG}"


AGENT = Agent(name="a", window_tokens=WINDOW_TOKENS, counter="characters", tools=(look,), policy=WorkRoom())
BUDGETS = AGENT.budgets(counter_named("characters"))
assert BUDGETS.bands is not None
BANDS = BUDGETS.bands


class Killed(BaseException):
    """Ends a run as a kill would: nothing of ours catches it."""


class Faulty:
    """A store that fails where a test says so: `before` or `after` the effect of a method's next call."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.before: dict[str, list[BaseException]] = {}
        self.after: dict[str, list[BaseException]] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if faults := self.before.get(name):
                raise faults.pop(0)
            result = attribute(*args, **kwargs)
            if faults := self.after.get(name):
                raise faults.pop(0)
            return result

        return call


class FakeHeld:
    is_lost = False


@dataclass
class Bench:
    """An engine on a store in memory, whose clock the test moves; the model does what `answer` says."""

    store: Any
    clock: list[float]
    agent: Agent = AGENT
    shape: Shape = Shape.STATELESS
    answer: Callable[[ModelRequest], ModelReply | str] = lambda _: "done"
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        @contextmanager
        def hold(_grant: Grant) -> Iterator[FakeHeld]:
            yield FakeHeld()

        return Engine(self.store, Catalog({"a": self.agent}, {"default": self.provider}), hold, unobserved)

    @cached_property
    def provider(self) -> ScriptedProvider:
        def asked(request: ModelRequest) -> ModelReply | str:
            self.requests.append(request)
            return self.answer(request)

        return ScriptedProvider(asked, shape=self.shape)

    def send(self, message: str = "hello", turn_id: str = "") -> Ran:
        self.submit(message, turn_id)
        return run_turn(self.engine, "s")

    def submit(self, message: str = "hello", turn_id: str = "") -> None:
        given = SubmitRequest(
            session_id="s", turn_id=turn_id or f"t{len(self.requests)}", input=TurnInput(message=message)
        )
        self.store.submit(given)

    def work(self, calls: int, place: str = "valve") -> None:
        """The next turn looks at so many places, one in each round, then answers."""
        left = iter(range(calls))

        def answer(request: ModelRequest) -> ModelReply | str:
            number = next(left, None)
            if number is None:
                return "done"
            call = CallRequest(call_id=f"{request.turn_id}-{number}", name="look", arguments=f'{{"place":"{place}"}}')
            return ModelReply(text="", calls=(call,))

        self.answer = answer

    def fill(self, tokens: int) -> None:
        """Say something until the window has *tokens*; the answers are short."""
        while self.store.view("s").conversation_tokens < tokens:
            self.send(f"message {len(self.requests)}: {LONG}")

    def fill_until_nudged(self) -> None:
        """Say something until the next request is to end with a nudge."""
        while self.store.snapshot("s").room.nudge is None:
            self.send(f"message {len(self.requests)}: {LONG}")

    def become(self, agent: Agent) -> None:
        """The session goes on with another version of its agent."""
        self.agent = agent
        self.store.open(open_request("s", agent, (), False, None))

    def history(self) -> list[Entry]:
        """All that was ever said: archive, then live entries."""
        live = self.store.snapshot("s").layout.live
        return [*entries_of(self.store.chunks("s"), 1, live.first_seq - 1), *live.entries]

    def audit(self) -> list[str]:
        return [event.kind for event in self.store.audit("s")]

    def note(self, name: str, text: str) -> None:
        """Write a note in a turn of its own."""
        call = CallRequest(call_id=f"n{len(self.requests)}", name="notes.write_file", arguments="")
        arguments = f'{{"name": "{name}", "content": "{text}"}}'
        noting = ModelReply(text="", calls=(replace(call, arguments=arguments),))
        replies: Iterator[ModelReply | str] = iter([noting, "noted"])
        self.answer = lambda _: next(replies)
        self.send()
        self.answer = lambda _: "done"

    def later(self) -> None:
        """Every lease and every pause is over."""
        self.clock[0] += 3_000


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock = [1_000.0]
    store = SqliteStore(":memory:", limits=Limits(), clock=lambda: clock[0])
    store.open(open_request("s", AGENT, (), False, None))
    yield Bench(Faulty(store), clock)
    store.close_connections()


def is_nudge(entry: Entry) -> bool:
    return entry.kind is EntryKind.RECORD and entry.text.startswith("[Context management]")


def nudged(requests: list[ModelRequest]) -> list[int]:
    """Which requests end with a nudge; none has one elsewhere."""
    assert not any(is_nudge(entry) for request in requests for entry in request.entries[:-1])
    return [number for number, request in enumerate(requests) if is_nudge(request.entries[-1])]


# --- nudges


def test_a_nudge_is_the_last_item_of_one_request_and_is_never_stored(bench: Bench) -> None:
    """The next request extends what was recorded, without it."""
    bench.fill(BANDS.reset_tokens - BANDS.buffer_tokens - 100)
    bench.send("next")
    assert len(nudged(bench.requests)) == 1
    at = nudged(bench.requests)[0]
    assert bench.requests[at + 1].entries[: len(bench.requests[at].entries) - 1] == bench.requests[at].entries[:-1]
    assert not any(is_nudge(entry) for entry in bench.history())
    told = bench.store.events("s", bench.requests[at].turn_id)
    assert [event.data for event in told if event.kind == "nudged"] == [{"round": 0, "nudge": "reminder"}]


def test_a_nudged_request_is_counted_and_within_the_limit(bench: Bench) -> None:
    """The nudge has its room there."""
    bench.fill(BANDS.reset_tokens - 500)
    (at,) = nudged(bench.requests)
    counted = [request.counted_tokens for request in bench.requests]
    assert counted[at] > counted[at - 1]
    assert max(counted) <= BUDGETS.fixed_tokens + BUDGETS.limit_tokens


def test_an_input_that_leaves_no_room_is_sent_without_its_nudge(bench: Bench) -> None:
    """What the user said comes first."""
    bench.fill(BANDS.base_tokens + BANDS.work_tokens - 500)
    limit_tokens = BANDS.reset_tokens
    ran = bench.send("x" * 4 * (limit_tokens - 120))
    assert ran.status == "answered"


def test_a_nudge_that_did_not_fit_is_still_due(bench: Bench) -> None:
    """It was not sent, and nobody is told that it was; the window is not replaced before one was."""
    bench.fill_until_nudged()
    bench.send("x" * 4 * (BUDGETS.limit_tokens - 60), "large")
    assert nudged(bench.requests) == []
    assert "nudged" not in [event.kind for event in bench.store.events("s", "large")]
    assert bench.store.view("s").epoch == 0
    assert bench.store.snapshot("s").room.nudge is Nudge.FALLBACK
    bench.send("go on", "small")
    assert nudged(bench.requests) == [len(bench.requests) - 1]
    assert [event.data for event in bench.store.events("s", "small") if event.kind == "nudged"] == [
        {"round": 0, "nudge": "fallback"}
    ]
    assert bench.store.view("s").epoch == 1


def test_a_nudge_names_only_tools_that_are_there(bench: Bench) -> None:
    """An agent without notes is asked to write none, in nudges and in what a fresh window opens with."""
    bench.become(AGENT.model_copy(update={"notes_tool": False}))
    while bench.store.view("s").epoch == 0:
        bench.send(f"message {len(bench.requests)}: {LONG}")
    told = [bench.requests[at].entries[-1].text for at in nudged(bench.requests)]
    told.append(bench.store.snapshot("s").layout.records[0].text)
    assert len(told) == 2
    assert not any("notes" in text or THREAD_HINT in text for text in told)
    assert all("history" in text for text in told)


def test_a_held_session_that_was_nudged_is_seeded_anew(bench: Bench) -> None:
    """The provider would remember the nudge."""
    bench.shape = Shape.HELD
    bench.fill(BANDS.reset_tokens - BANDS.buffer_tokens - 100)
    bench.send("next")
    (at,) = nudged(bench.requests)
    assert bench.requests[at].handle is not None
    assert bench.requests[at].held_count < len(bench.requests[at].entries) - 1
    assert bench.requests[at + 1].handle is None
    assert all(request.handle for request in bench.requests[1 : at + 1])


# --- resets


def test_a_turn_resets_its_window_between_its_rounds(bench: Bench) -> None:
    """Its input is carried, all else left with the prefix; no consolidation, no call but the turn's own."""
    bench.work(20)
    ran = bench.send("look at all of them")
    assert ran.status == "answered"
    assert len(bench.requests) == 21
    view = bench.store.view("s")
    assert view.epoch >= 1
    assert view.rotation_id is None
    fresh = next(request for request in bench.requests if "current: 002" in request.entries[0].text)
    assert [entry.kind for entry in fresh.entries] == [EntryKind.RECORD, EntryKind.RECORD, EntryKind.USER]
    assert fresh.entries[1].text.split("\n")[3] == "- look valve"
    assert fresh.entries[2].text == "look at all of them"
    assert all(event.data["consolidation_count"] == 0 for event in bench.store.audit("s") if event.kind == "rotated")


def test_windows_are_counted_from_the_archive(bench: Bench) -> None:
    """B8.1, B8.2: each names the one before it, across runs; no number comes twice."""
    bench.work(60)
    bench.send("look at all of them")
    names = [
        request.entries[0].text.partition("<context_window>\n")[2].split("\n")[:2]
        for request in bench.requests
        if request.entries[0].kind is EntryKind.RECORD
    ]
    distinct = list(dict.fromkeys(map(tuple, names)))
    assert len(distinct) == bench.store.view("s").epoch >= 3
    assert distinct == [(f"previous: {n:03d}", f"current: {n + 1:03d}") for n in range(1, len(distinct) + 1)]


def test_nothing_is_lost_over_many_windows(bench: Bench) -> None:
    """Archive and live entries are all that was said, in order."""
    bench.work(60)
    bench.send("look at all of them")
    history = bench.history()
    assert [entry.kind for entry in history[:3]] == [EntryKind.USER, EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT]
    assert [entry.tool_call_id for entry in history if entry.kind is EntryKind.TOOL_CALL] == [
        f"t0-{number}" for number in range(60)
    ]
    assert history[-1] == Entry.assistant("done")
    assert len(history) == 2 + 2 * 60


def test_after_the_last_round_the_answer_is_out_first(bench: Bench) -> None:
    """The reset follows its commit; the fresh window shows what the user said last, since nothing carries it."""
    bench.fill(BANDS.base_tokens + BANDS.work_tokens)
    epoch = bench.store.view("s").epoch
    bench.store.calls.clear()
    while bench.store.view("s").epoch == epoch:
        ran = bench.send(f"message {len(bench.requests)}: {LONG}")
        assert ran.status == "answered"
    calls = [name for name in bench.store.calls if name in ("commit", "adopt")]
    assert calls[-2:] == ["commit", "adopt"]
    layout = bench.store.snapshot("s").layout
    assert layout.carried is None
    assert f"message {len(bench.requests) - 1}: " in layout.records[0].text
    assert ran.snapshot is not None
    assert ran.snapshot.layout == layout


def test_a_fresh_window_begins_with_the_hint(bench: Bench) -> None:
    """Fenced, in the conversation, never among the instructions."""
    bench.note(THREAD_HINT, "The valve is next.")
    bench.fill(BANDS.reset_tokens - 600)
    bench.work(4)
    bench.send("go on")
    fresh = next(request for request in bench.requests if "current: 002" in request.entries[0].text)
    assert "The valve is next." in fresh.entries[0].text
    assert all("The valve is next." not in request.instructions for request in bench.requests)
    assert len({request.instructions for request in bench.requests}) == 1


def test_a_hint_that_leaves_no_room_is_left_out_and_that_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside an input that fills the window: in the log and in the audit, each time."""
    bench.note(THREAD_HINT, "h" * 4_000)
    bench.work(6)
    with caplog.at_level(logging.WARNING):
        bench.send("y" * 4 * 6_400)
    left_out = [event.data["hint_left_out_tokens"] for event in bench.store.audit("s") if event.kind == "rotated"]
    assert left_out
    assert set(left_out) == {1_000}
    assert [record.message for record in caplog.records] == ["thread hint left out of a fresh window"] * len(left_out)
    assert "hhh" not in bench.store.snapshot("s").layout.records[0].text


class LongNoted(Faulty):
    """A store that took a longer hint than a window shows."""

    def note(self, _session_id: str, _name: str) -> str:
        return "h" * 5_000


def test_a_hint_that_is_too_long_is_left_out_and_that_is_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """B6: it is not cut."""
    bench.store = LongNoted(bench.store._store)
    with caplog.at_level(logging.WARNING):
        while bench.store.view("s").epoch == 0:
            bench.send(f"message {len(bench.requests)}: {LONG}")
    (told,) = caplog.records
    assert told.message == "thread hint left out of a fresh window: it is too long"
    assert told.__dict__["hint_bytes"] == 5_000
    assert "hhh" not in bench.store.snapshot("s").layout.records[0].text


def test_a_hint_that_is_shown_is_told_of_nowhere(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to tell."""
    bench.note(THREAD_HINT, "The valve is next.")
    with caplog.at_level(logging.WARNING):
        while bench.store.view("s").epoch == 0:
            bench.send(f"message {len(bench.requests)}: {LONG}")
    (rotated,) = [event.data for event in bench.store.audit("s") if event.kind == "rotated"]
    assert "hint_left_out_tokens" not in rotated
    assert caplog.records == []


def test_a_seed_that_a_user_typed_is_a_message_like_any(bench: Bench) -> None:
    """B8.7: seeds are told by their kind."""
    seed = WorkRoom().seed_message
    bench.work(20)
    bench.send(seed)
    fresh = next(request for request in bench.requests if "current: 002" in request.entries[0].text)
    assert fresh.entries[2] == Entry.user(seed)


def asking(bench: Bench) -> None:
    """A session whose model asks a human in every answer; the user said something once, at its beginning."""
    bench.become(AGENT.model_copy(update={"tools": ()}))

    def answer(_: ModelRequest) -> ModelReply:
        call = CallRequest(call_id=f"open-{len(bench.requests)}", name="ask_human", arguments="{}")
        return ModelReply(text="", calls=(call,))

    bench.answer = answer
    bench.send("look after the pump")


def answered_by_results(bench: Bench, count: int) -> None:
    """So many turns, each with the result that the one before waits for."""
    for _ in range(count):
        call_id = bench.store.view("s").open_calls[0].call_id
        given = TurnInput(results=((call_id, LONG),))
        bench.store.submit(SubmitRequest(session_id="s", turn_id=f"r{len(bench.requests)}", input=given))
        assert run_turn(bench.engine, "s").status == "answered"


def test_a_turn_of_results_shows_the_message_before_it(bench: Bench) -> None:
    """Nothing of it can be carried; the user's last message is in the opening, from however far back."""
    asking(bench)
    answered_by_results(bench, 45)
    view, layout = bench.store.view("s"), bench.store.snapshot("s").layout
    assert view.epoch >= 2
    assert "look after the pump" in layout.records[0].text
    assert layout.carried is None
    assert [call.call_id for call in view.open_calls] == [layout.live.entries[-1].tool_call_id]


def test_a_window_that_somebody_asks_to_replace_is_replaced(bench: Bench) -> None:
    """Whatever its fill; a session at rest."""
    bench.send(LONG)
    bench.send(LONG)
    bench.store.request_rotation("s", "asked")
    assert run_rotation(bench.engine, "s").status == "adopted"
    assert bench.store.snapshot("s").room == Room()
    assert bench.send("and now?").status == "answered"


# --- what may go wrong


SMALL_ROOM = AGENT.model_copy(update={"policy": WorkRoom(work_budget_tokens=4_500)})
MERGING = AGENT.model_copy(update={"policy": LogMerge()})


def test_a_line_that_another_policy_passed_replaces_no_window(bench: Bench) -> None:
    """The request of before is dropped, for the model was not told yet. However often that happens, it holds no reset
    that is called for."""
    for _ in range(2):
        bench.become(MERGING)
        while bench.store.view("s").rotation_id is None:
            bench.send(f"message {len(bench.requests)}: {LONG}")
        bench.become(SMALL_ROOM)
        bench.send(f"message {len(bench.requests)}: {LONG}")
        assert bench.store.snapshot("s").room.nudge is Nudge.FALLBACK
        assert run_rotation(bench.engine, "s").status == "noop"
        assert run_rotation(bench.engine, "s").status == "nothing"
    assert bench.store.view("s").epoch == 0
    assert nudged(bench.requests) == []
    bench.send("go on")
    assert nudged(bench.requests) == [len(bench.requests) - 1]
    assert bench.store.view("s").epoch == 1
    assert bench.store.snapshot("s").room == Room(breathless_count=1)


def test_a_line_of_before_replaces_no_window_that_has_room(bench: Bench) -> None:
    """Not even when the model was reminded: it was promised what is left."""
    bench.become(AGENT.model_copy(update={"policy": LogMerge(line_tokens=5_000)}))
    while bench.store.view("s").rotation_id is None:
        bench.send(f"message {len(bench.requests)}: {LONG}")
    bench.become(AGENT)
    bench.fill_until_nudged()
    bench.send("go on")
    assert nudged(bench.requests) == [len(bench.requests) - 1]
    assert bench.store.view("s").rotation_id is not None
    assert run_rotation(bench.engine, "s").status == "noop"
    assert bench.store.view("s").epoch == 0


@pytest.mark.parametrize("refused_from_tokens", [3_500, 5_000, 6_500])
def test_a_refusal_as_too_long_replaces_no_window_untold(bench: Bench, refused_from_tokens: int) -> None:
    """A provider that says no more than that: the window is taken to be smaller, and the model is told so first."""
    refused: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        if request.counted_tokens > refused_from_tokens and not refused:
            refused.append(request)
            raise WindowOverflow("too long")
        return "done"

    bench.answer = answer
    while bench.store.view("s").epoch == 0:
        bench.send(f"message {len(bench.requests)}: {LONG}")
        run_rotation(bench.engine, "s")
    assert refused
    assert len(nudged(bench.requests)) == 1


class Damaged(Faulty):
    """A store whose archive cannot be read."""

    def __getattr__(self, name: str) -> Any:
        read = super().__getattr__(name)
        if name != "chunks":
            return read
        return lambda *args: tuple(replace(chunk, data=b"damaged") for chunk in read(*args))


def test_a_damaged_archive_holds_no_reset(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The fresh window opens without the user's message, for an older one would be taken for the task; once for each,
    that is told."""
    asking(bench)
    answered_by_results(bench, 20)
    epoch = bench.store.view("s").epoch
    assert epoch >= 1
    bench.store = Damaged(bench.store._store)
    with caplog.at_level(logging.WARNING):
        answered_by_results(bench, 40)
    begun = bench.store.view("s").epoch - epoch
    assert begun >= 2
    assert "look after the pump" not in bench.store.snapshot("s").layout.records[0].text
    assert "rotation_failed" not in bench.audit()
    assert [record.message for record in caplog.records] == [
        "fresh window without its trail: the archive is damaged"
    ] * begun


def used_up(bench: Bench) -> None:
    """A session whose next committed round asks for a reset."""
    bench.fill(BANDS.base_tokens + BANDS.work_tokens + BANDS.buffer_tokens - 520)
    assert bench.store.view("s").epoch == 0


@pytest.mark.parametrize("fault", [StoreError("disk"), StoreUnavailable("away"), ValueError("a fault of ours")])
@pytest.mark.parametrize("place", ["before", "after"])
def test_b8_3_a_failed_archive_holds_the_reset(bench: Bench, fault: Exception, place: str) -> None:
    """Archive and reset are one: where adopt fails nothing is changed, the turn goes on, and it is tried again."""
    used_up(bench)
    before = len(bench.history())
    getattr(bench.store, place)["adopt"] = [fault]
    bench.work(3)
    assert bench.send("look").status == "answered"
    assert len(bench.history()) == before + 2 + 2 * 3
    if place == "before":
        assert bench.store.view("s").epoch == 0
        assert bench.store.view("s").rotation_id is not None
    bench.later()
    run_rotation(bench.engine, "s")
    assert bench.store.view("s").epoch == 1
    assert len(bench.history()) == before + 2 + 2 * 3


def test_a_reset_that_another_worker_does_is_not_waited_for(bench: Bench) -> None:
    """The turn goes on in the window that it has."""
    used_up(bench)
    bench.store.request_rotation("s", "asked")
    held = bench.store.begin("s", Lane.ROTATION, "another")
    assert isinstance(held, Grant)
    bench.work(3)
    assert bench.send("look").status == "answered"
    assert bench.store.view("s").epoch == 0
    assert not bench.store.snapshot("s").room.is_braked


def test_a_reset_for_a_window_that_is_gone_is_let_be(bench: Bench) -> None:
    """A round that was built on the window before asked for it; the fresh one stays."""
    used_up(bench)
    bench.store.request_rotation("s", "asked")
    swapped: list[Ran] = []

    def answer(_: ModelRequest) -> ModelReply | str:
        if swapped:
            return "done"
        swapped.append(run_rotation(bench.engine, "s"))
        call = CallRequest(call_id="c", name="look", arguments='{"place":"valve"}')
        return ModelReply(text="", calls=(call,))

    bench.answer = answer
    assert bench.send(f"look {LONG}").status == "answered"
    assert swapped[0].status == "adopted"
    bench.later()
    assert run_rotation(bench.engine, "s").status in ("nothing", "noop")
    assert bench.store.view("s").epoch == 1


FAULT_POINTS = [
    ("commit", "after"),
    ("begin", "before"),
    ("begin", "after"),
    ("note", "before"),
    ("adopt", "before"),
    ("adopt", "after"),
    ("snapshot", "before"),
]


@pytest.mark.parametrize(("method", "place"), FAULT_POINTS)
@pytest.mark.parametrize("by", ["the turn", "a background worker"])
def test_a_kill_around_a_reset_is_harmless(bench: Bench, method: str, place: str, by: str) -> None:
    """Between the commit that requests it and its adoption, and inside: nothing is lost, nothing doubled, and no model
    is asked again for what was committed."""
    used_up(bench)
    before, asked = len(bench.history()), len(bench.requests)
    bench.work(6)
    bench.submit("look", "killed")
    struck = {"is_due": False}

    class Striking(Faulty):
        """Kills at *method*, once the reset is requested."""

        def __getattr__(self, name: str) -> Any:
            run = super().__getattr__(name)
            if name != method or not callable(run):
                return run

            def call(*args: Any, **kwargs: Any) -> Any:
                is_due = self._store.view("s").rotation_id is not None
                if place == "before" and is_due and not struck["is_due"]:
                    struck["is_due"] = True
                    raise Killed
                result = run(*args, **kwargs)
                is_due = is_due or self._store.view("s").rotation_id is not None
                if place == "after" and is_due and not struck["is_due"]:
                    struck["is_due"] = True
                    raise Killed
                return result

            return call

    store = bench.store
    bench.store = Striking(store._store)
    if method == "snapshot":
        struck["is_due"] = True  # the reset is done by then: killed at the first look after it
        bench.store.before["snapshot"] = [Killed()]
    with pytest.raises(Killed):
        run_turn(bench.engine, "s")
    bench.store = store
    bench.later()
    if by == "a background worker":
        run_rotation(bench.engine, "s")
    assert run_turn(bench.engine, "s").status == "answered"
    bench.later()
    run_rotation(bench.engine, "s")
    assert bench.store.view("s").epoch == 1
    assert bench.store.turn("s", "killed").state is TurnState.ANSWERED
    assert len(bench.history()) == before + 2 + 2 * 6
    assert len(bench.requests) == asked + 7


# --- the brake


def braked(bench: Bench) -> None:
    """A session that a large input filled up three times running, as soon as its window began."""
    bench.work(40, "x" * 16_000)
    bench.send("y" * 4 * 4_500)
    assert bench.store.view("s").room.is_braked


def test_three_windows_without_breath_engage_the_brake(bench: Bench) -> None:
    """No more resets; every request stays within the window, and the turn is answered."""
    braked(bench)
    assert bench.store.view("s").epoch == 2
    assert bench.audit().count("braked") == 1
    assert bench.audit().count("rotated") == 2
    assert max(request.counted_tokens for request in bench.requests) <= 0.9 * WINDOW_TOKENS


def test_a_lifted_brake_lets_fresh_windows_begin(bench: Bench) -> None:
    """Inside the turn that runs, too, which is braked no more; a second lift finds nothing."""
    bench.work(40, "x" * 16_000)
    work = bench.answer
    lifted: list[bool] = []

    def answer(request: ModelRequest) -> ModelReply | str:
        if bench.store.view("s").room.is_braked and not lifted:
            lifted.append(bench.store.lift_brake("s"))
        return work(request)

    bench.answer = answer
    bench.send("y" * 4 * 4_500)
    assert lifted == [True]
    assert bench.audit().count("braked") == bench.audit().count("brake_lifted") == 1
    assert bench.store.view("s").epoch >= 4
    assert not bench.store.lift_brake("s")


# --- other policies


def test_a_living_session_goes_over_to_fresh_windows_and_back(bench: Bench) -> None:
    """The next rotation plans from the records that are there; nothing of the history is lost."""
    kinds = []
    policies = [LogMerge(), WorkRoom(), LogMerge()]
    for policy in policies:
        bench.agent = AGENT.model_copy(update={"policy": policy, "ledger": True})
        bench.store.open(open_request("s", bench.agent, (), False, None))
        epoch = bench.store.view("s").epoch
        while bench.store.view("s").epoch < epoch + 2:
            bench.send(f"message {len(bench.requests)}: {LONG}")
            run_rotation(bench.engine, "s")
        kinds.append([record.kind for record in bench.store.snapshot("s").layout.records])
    assert kinds[0][0] is RecordKind.SUMMARY
    assert kinds[1] == [RecordKind.OPENING, RecordKind.LEDGER]
    assert kinds[2][-1] is RecordKind.LEDGER
    users = [entry.text for entry in bench.history() if entry.kind is EntryKind.USER]
    assert users == [f"message {number}: {LONG}" for number in range(len(bench.requests))]


@pytest.mark.parametrize("ledger", [None, False])
def test_a_ledger_outlives_a_policy_that_keeps_none(bench: Bench, ledger: bool | None) -> None:
    """By default the next policy carries along what it finds, its own work included; `ledger=False` drops it."""
    policies = {"first": WorkRoom(), "second": LogMerge(), "third": WorkRoom()}
    for place, policy in policies.items():
        bench.agent = AGENT.model_copy(
            update={"policy": policy, "ledger": ledger if isinstance(policy, LogMerge) else None}
        )
        bench.store.open(open_request("s", bench.agent, (), False, None))
        epoch = bench.store.view("s").epoch
        while bench.store.view("s").epoch == epoch:
            bench.work(2, f"{place} {len(bench.requests)}")
            bench.send(LONG)
            run_rotation(bench.engine, "s")
    ledger_text = bench.store.snapshot("s").layout.records[-1].text
    assert ("- look first 0" in ledger_text) == (ledger is None)
    assert "- look third" in ledger_text


class Emptying(LogMerge):
    """Leaves nothing at all."""

    def rotate(self, plan: RotationPlan) -> Consolidating:
        yield from ()
        _, live = plan.layout.live.split_at(len(plan.layout.live))
        return Rotated(layout=replace(plan.layout, records=(), live=live))


def test_b5_an_invalid_layout_changes_nothing_and_is_counted(bench: Bench) -> None:
    """The session goes on as it was; the audit says why."""
    bench.agent = AGENT.model_copy(update={"policy": LogMerge()})
    bench.store.open(open_request("s", bench.agent, (), False, None))
    bench.send(LONG)
    bench.send(LONG)
    bench.agent.__dict__["told_policy"] = Emptying()  # no agent can be made with it
    before = bench.store.snapshot("s").layout
    bench.store.request_rotation("s", "asked")
    assert run_rotation(bench.engine, "s").status == "noop"
    failed = [event.data for event in bench.store.audit("s") if event.kind == "rotation_failed"]
    assert [data["code"] for data in failed] == ["invalid_layout:no_message_is_left"]
    assert bench.store.snapshot("s").layout == before
    assert bench.send("still there?").status == "answered"


# --- without workers


def test_a_session_without_workers_resets_in_the_caller_s_thread(tmp_path: Path) -> None:
    """`send` returns when the answer is there; the next begins in a fresh window. No background thread is needed."""
    path = tmp_path / "s.db"
    with Session(AGENT, {"default": ScriptedProvider(lambda _: "done")}, path=path) as session:
        number = 0
        while session.view().epoch < 2:
            session.send(f"message {number}: {LONG}")
            number += 1
            assert session.view().rotation_id is None
        assert not session.lift_brake()
        kinds = [record.kind for record in session.layout().records]
    assert kinds == [RecordKind.OPENING, RecordKind.LEDGER]
    with Session(AGENT, {"default": ScriptedProvider(lambda _: "done")}, path=path) as again:
        assert "current: 003" in again.layout().records[0].text
        assert again.send("go on").text == "done"


def test_a_session_tells_of_a_work_room_that_was_too_small(caplog: pytest.LogCaptureFixture) -> None:
    """Once, when it is made: what was asked for and what is given. Nothing of one that is large enough."""
    providers = {"default": ScriptedProvider(lambda _: "done")}
    with caplog.at_level(logging.WARNING):
        with Session(AGENT, providers):
            pass
        assert caplog.records == []
        with Session(AGENT.model_copy(update={"policy": WorkRoom(work_budget_tokens=10)}), providers) as session:
            session.send("hello")
            session.send("hello")
    (told,) = caplog.records
    assert told.message == "work room raised to its floor"
    assert (told.__dict__["agent"], told.__dict__["asked_tokens"], told.__dict__["given_tokens"]) == ("a", 10, 4_096)


def test_a_history_past_the_limit_is_taken_over_into_a_fresh_window() -> None:
    """All of it is archived at once, without a model."""
    history = [entry for number in range(30) for entry in (Entry.user(f"{number} {LONG}"), Entry.assistant("done"))]
    with Session(AGENT, {"default": ScriptedProvider(lambda _: "done")}, history=history) as session:
        wait_for(lambda: session.view().epoch == 1, what="the fresh window")
        assert session.view().live_from == 61
        assert session.send("go on").text == "done"
