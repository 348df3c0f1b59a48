"""What a run shows of a streamed turn: the first piece at once, all in order, and what a new try makes void."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.errors import LeaseLost, ProviderRejected, ProviderUnavailable, StoreError, StoreUnavailable
from sessionlib.inputs import open_request
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.providers.scripted import ScriptedProvider, words
from sessionlib.running import Engine, Ran, run_turn, unobserved
from sessionlib.running.engine import RETRY_SECONDS
from sessionlib.running.streaming import CallStream, unheard
from sessionlib.running.streams import Streams
from sessionlib.stores.contract import Event, Grant, Lane, Limits, SessionStore, SubmitRequest, TurnInput
from sessionlib.stores.sqlite import SqliteStore
from tests.waiting import wait_for

FOR_EVER_MILLISECONDS = 3_600_000.0
SOON_MILLISECONDS = 1.0


class Noted:
    """A store that notes what is emitted, after the errors that it is to raise first."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.emitted = deque(errors), list[tuple[str, dict[str, Any]]]()

    def emit(self, grant: Grant, kind: str, data: dict[str, Any]) -> None:
        error = self.errors.popleft() if self.errors else None
        if error is not None:
            raise error
        self.emitted.append((kind, data))

    def emit_all(self, events: Sequence[tuple[Grant, str, dict[str, Any]]]) -> Sequence[bool]:
        for event in events:
            self.emit(*event)
        return [True] * len(events)

    @property
    def texts(self) -> list[str]:
        return [data["text"] for kind, data in self.emitted if kind == "delta"]


GRANT = cast(Grant, type("Held", (), {"session_id": "s", "work_id": "t", "lane": Lane.TURN}))


def stream(store: Noted, milliseconds: float = FOR_EVER_MILLISECONDS, streams: Streams | None = None) -> CallStream:
    return CallStream(streams or Streams(milliseconds), cast(SessionStore, store), GRANT, unheard, 0, 1)


def test_first_piece_is_sent_at_once_and_the_rest_at_the_end() -> None:
    """Within the pause everything is gathered; the end of the call ends the pause."""
    store = Noted()
    call = stream(store)
    call.add("Hel")
    assert store.texts == ["Hel"]
    call.add("lo ")
    call.add("you")
    assert store.texts == ["Hel"]
    call.finish("Hello you")
    assert store.emitted[1] == ("delta", {"round": 0, "attempt": 1, "at": 3, "text": "lo you"})


def test_what_is_gathered_is_sent_when_the_pause_is_over() -> None:
    """By a thread that all streams of a process share, while their calls go on."""
    stores = [Noted() for _ in range(8)]
    streams = Streams(SOON_MILLISECONDS)
    calls = [stream(store, streams=streams) for store in stores]
    for text in ("a", "b", "c"):
        for call in calls:
            call.add(text)
    for store in stores:
        wait_for(lambda store=store: "".join(store.texts) == "abc", what="the pieces")  # type: ignore[misc]
    assert sum(thread.name == "streams" and thread.is_alive() for thread in threading.enumerate()) >= 1


def test_nothing_is_sent_after_the_end() -> None:
    """What was gathered of a call that failed is dropped."""
    store = Noted()
    call = stream(store)
    call.add("a")
    call.add("b")
    call.close()
    assert call.send()
    call.add("c")
    call.finish("abc")
    assert store.texts == ["a"]


@given(pieces=st.lists(st.text(max_size=4), max_size=12), pause=st.sampled_from([0.0, SOON_MILLISECONDS, 1e6]))
def test_pieces_come_to_the_answer(pieces: list[str], pause: float) -> None:
    """In order, without a gap, each saying where it stands, whenever they were sent."""
    store = Noted()
    call = stream(store, pause)
    for piece in pieces:
        call.add(piece)
    call.finish("".join(pieces))
    call.close()
    assert "".join(store.texts) == "".join(pieces)
    lengths = [len(text) for text in store.texts]
    assert [data["at"] for _, data in store.emitted] == [0, *accumulate(lengths)][: len(lengths)]


def test_answer_of_a_provider_that_does_not_stream_is_one_piece() -> None:
    """Readers need not know who streams."""
    store = Noted()
    stream(store).finish("All at once.")
    assert store.texts == ["All at once."]


def test_answer_that_is_not_what_was_streamed_begins_anew() -> None:
    """The pieces of the newest attempt are the answer, whatever a provider says on the way."""
    store = Noted()
    call = stream(store)
    call.add("I think")
    call.finish("Forty-two.")
    assert [kind for kind, _ in store.emitted] == ["delta", "restarted", "delta"]
    assert store.emitted[-1][1] == {"round": 0, "attempt": 2, "at": 0, "text": "Forty-two."}


def test_character_that_is_cut_in_two_is_sent_whole() -> None:
    """Some APIs write characters beyond the first plane as two escapes, and may cut between them."""
    store = Noted()
    call = stream(store, 0.0)
    for piece in ("a\ud83d", "\ude00", "\ud83d"):
        call.add(piece)
    call.finish("a\ud83d\ude00\ud83d")
    assert "".join(store.texts) == "a\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"


def test_piece_that_is_no_text_is_the_providers_fault() -> None:
    """Asking again would not help."""
    with pytest.raises(ProviderRejected, match="streamed bytes"):
        stream(Noted()).add(cast(str, b"x"))


def test_lost_lease_ends_the_stream_and_then_the_call() -> None:
    """Nothing is raised where it is found out; who goes on to stream is told that nobody waits for it."""
    store = Noted(LeaseLost("s", Lane.TURN))
    call = stream(store)
    call.add("a")
    with pytest.raises(LeaseLost):
        call.add("b")
    assert store.emitted == []


def test_piece_that_may_not_have_arrived_is_sent_again_as_it_was() -> None:
    """The store knows an event that it has; one that was longer by now it could not know."""
    store = Noted(StoreUnavailable("away"))
    call = stream(store)
    call.add("a")
    call.add("b")
    assert call.send()
    assert store.texts == ["a", "b"]


def test_store_that_is_away_fails_nothing() -> None:
    """Not even at the end of the call: the turn's last event has the answer."""
    store = Noted(*[StoreUnavailable("away")] * 3)
    call = stream(store)
    call.add("a")
    call.finish("ab")
    call.close()
    assert store.emitted == []
    assert call.is_shown  # for all that is known


def test_store_that_refuses_a_piece_ends_the_stream() -> None:
    """A fault of ours must not take the turn with it, nor the thread of all other streams."""
    store = Noted(StoreError("refused"))
    call = stream(store)
    call.add("a")
    call.add("b")
    call.finish("ab")
    assert store.emitted == []


def test_streams_wait_for_a_store_that_is_away() -> None:
    """The thread tries again until it is back."""
    store = Noted(None, StoreUnavailable("away"))
    call = stream(store, SOON_MILLISECONDS)
    call.add("a")
    call.add("b")
    wait_for(lambda: store.texts == ["a", "b"], what="the second piece")


def look(text: str) -> str:
    """Look something up."""
    return f"found {text}"


AGENT = Agent(name="a", window_tokens=8_000, counter="characters", tools=(look,))
LOOK = CallRequest(call_id="c1", name="look", arguments='{"text":"x"}')


class Kept:
    is_lost = False


@contextmanager
def held(_grant: Grant) -> Iterator[Kept]:
    yield Kept()


@dataclass
class Desk:
    """One session, in memory, whose clock the test moves."""

    clock: list[float] = field(default_factory=lambda: [1_000.0])

    def __post_init__(self) -> None:
        self.store = SqliteStore(":memory:", limits=Limits(), clock=lambda: self.clock[0])
        self.store.open(open_request("s", AGENT, (), False, None))
        self.streams = Streams(FOR_EVER_MILLISECONDS)
        self.showing: list[Event] = []
        """The events of the turn as they were when a provider last looked."""

    def submit(self, *, is_streamed: bool = True) -> None:
        request = SubmitRequest(session_id="s", turn_id="t", input=TurnInput(message="hello"), is_streamed=is_streamed)
        self.store.submit(request)

    def run(self, provider: ScriptedProvider) -> Ran:
        engine = Engine(
            self.store, Catalog({"a": AGENT}, {"default": provider}), held, unobserved, streams=self.streams
        )
        return run_turn(engine, "s")

    def look(self) -> Sequence[Event]:
        return self.store.events("s", "t")


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.store.close_connections()


def shown(events: Iterable[Event]) -> list[tuple[str, int, int, str]]:
    """What events say of text: kind, round, attempt, text."""
    of_text = [event for event in events if event.kind in ("delta", "restarted")]
    return [(e.kind, e.data["round"], e.data["attempt"], e.data.get("text", "")) for e in of_text]


def failing_after(desk: Desk, count: int, error: Callable[[], BaseException]) -> Callable[[str], Iterator[str]]:
    """Cut by words; the first try ends with *error* after so many, every later one after noting what is shown."""
    tries: list[int] = []

    def pieces(text: str) -> Iterator[str]:
        tries.append(1)
        if len(tries) > 1:
            desk.showing = list(desk.look())
            yield from words(text)
            desk.showing = list(desk.look())
            return
        yield from list(words(text))[:count]
        raise error()

    return pieces


def test_turn_that_nobody_wants_streamed_is_not(desk: Desk) -> None:
    """Its provider is not even asked to."""
    asked: list[str] = []

    def pieces(text: str) -> list[str]:
        asked.append(text)
        return [text]

    desk.submit(is_streamed=False)
    assert desk.run(ScriptedProvider(pieces=pieces)).status == "answered"
    assert (asked, shown(desk.look())) == ([], [])


def test_deltas_are_gone_when_the_answer_is_there(desk: Desk) -> None:
    """Whoever comes late finds the answer in the last event."""
    desk.submit()
    desk.run(ScriptedProvider(lambda _: "one two three", pieces=words))
    events = desk.look()
    assert [event.kind for event in events] == ["queued", "started", "round", "answered"]
    assert events[-1].data["answer"]["text"] == "one two three"


def test_text_beside_calls_is_streamed_too(desk: Desk) -> None:
    """Each round counts its attempts by itself."""
    seen: list[Event] = []

    def pieces(text: str) -> Iterator[str]:
        yield from words(text)
        seen[:] = desk.look()

    answers: list[ModelReply | str] = [ModelReply(text="I look.", calls=(LOOK,)), "It is x."]
    desk.submit()
    desk.run(ScriptedProvider(answers, pieces=pieces))
    assert shown(seen) == [("delta", 0, 1, "I"), ("delta", 0, 1, " look."), ("delta", 1, 1, "It")]


def test_retry_inside_a_run_says_that_it_begins_anew(desk: Desk) -> None:
    """What the failed try had shown is void before the next says a word."""
    desk.submit()
    pieces = failing_after(desk, 2, lambda: ProviderUnavailable("cut off"))
    assert desk.run(ScriptedProvider(lambda _: "one two three", pieces=pieces)).status == "answered"
    assert shown(desk.showing) == [("delta", 0, 1, "one"), ("restarted", 0, 2, ""), ("delta", 0, 2, "one")]


def test_run_after_a_crash_says_that_it_begins_anew(desk: Desk) -> None:
    """It learns from the turn's events what the run before had shown, and that it had shown something."""

    class Crash(BaseException):
        """What ends a process: nothing is saved any more."""

    desk.submit()
    pieces = failing_after(desk, 2, Crash)
    provider = ScriptedProvider(lambda _: "one two three", pieces=pieces)
    with pytest.raises(Crash):
        desk.run(provider)
    desk.clock[0] += 60
    assert desk.run(provider).status == "answered"
    assert shown(desk.showing) == [("delta", 0, 1, "one"), ("restarted", 0, 2, ""), ("delta", 0, 2, "one")]


def test_run_after_one_that_gave_up_goes_on_counting(desk: Desk) -> None:
    """Tries that show nothing count for nothing: their restart is still the newest word."""
    silent = ScriptedProvider(lambda _: "one two", failures=lambda _: ProviderUnavailable("overloaded"))
    desk.submit()
    pieces = failing_after(desk, 1, lambda: ProviderUnavailable("cut off", retry_after_seconds=60.0))
    provider = ScriptedProvider(lambda _: "one two", pieces=pieces)
    assert desk.run(provider).status == "retried"
    for _ in range(2):
        desk.clock[0] += 60 + RETRY_SECONDS
        assert desk.run(silent).status == "retried"
    desk.clock[0] += 60 + RETRY_SECONDS
    assert desk.run(provider).status == "answered"
    assert shown(desk.showing) == [("delta", 0, 1, "one"), ("restarted", 0, 2, ""), ("delta", 0, 2, "one")]


def test_saved_answer_is_not_shown_anew(desk: Desk) -> None:
    """A run that finds its round's model call answered goes on with the next round; what was shown stays."""

    class Crash(BaseException):
        """What ends a process: nothing is saved any more."""

    seen: list[Event] = []
    crashes = [Crash()]

    def pieces(text: str) -> Iterator[str]:
        yield from words(text)
        seen[:] = desk.look()
        if text == "It is x." and crashes:
            raise crashes.pop()

    answers: list[ModelReply | str] = [ModelReply(text="I look.", calls=(LOOK,)), "It is x."]
    provider = ScriptedProvider(answers, pieces=pieces)
    desk.submit()
    with pytest.raises(Crash):
        desk.run(provider)
    desk.clock[0] += 60
    assert desk.run(provider).status == "answered"
    assert shown(seen) == [
        *(("delta", 0, 1, "I"), ("delta", 0, 1, " look.")),
        *(("delta", 1, 1, "It"), ("restarted", 1, 2, ""), ("delta", 1, 2, "It")),
    ]


def test_cancelled_turn_stops_its_provider(desk: Desk) -> None:
    """The next piece after the store refused one ends the call: nobody pays for the rest."""
    said: list[str] = []
    desk.streams = Streams(0.0)

    def pieces(text: str) -> Iterator[str]:
        desk.store.cancel("s", "t")
        for piece in words(text):
            said.append(piece)
            yield piece

    desk.submit()
    assert desk.run(ScriptedProvider(lambda _: "one two three", pieces=pieces)).status == "lost"
    assert said == ["one", " two"]
