"""A turn's notes on every store: written once whatever dies, refused in words, read by later turns and by operators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sessionlib.agent import Agent
from sessionlib.catalog import Catalog
from sessionlib.entries import EntryKind
from sessionlib.errors import StoreUnavailable
from sessionlib.inputs import open_request
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Ran, run_turn, unobserved
from sessionlib.stores.contract import Committed, Grant, RoundCommit, SessionStore, TurnState
from tests.contract.arena import SESSION, Arena

AGENT = Agent(name="keeper", window_tokens=16_000, counter="characters", notes_tool=True)


class Kept:
    is_lost = False


@contextmanager
def hold(_grant: Grant) -> Iterator[Kept]:
    yield Kept()


def calling(request: ModelRequest) -> ModelReply | str:
    """Make the call that the message holds, `TOOL {arguments}`; then repeat its result."""
    last = request.entries[-1]
    if last.kind is EntryKind.TOOL_RESULT:
        return last.text or "(empty)"
    name, arguments = last.text.split(" ", 1)
    return ModelReply(text="", calls=(CallRequest(call_id="c1", name=f"notes.{name}", arguments=arguments),))


class Keeper:
    """An agent with notes on some store."""

    def __init__(self, arena: Arena) -> None:
        self.arena, self.store = arena, arena.store
        self.provider = ScriptedProvider(calling)
        self.turn_count = 0
        self.store.open(open_request(SESSION, AGENT, (), False))

    def run(self, store: SessionStore | None = None) -> Ran:
        catalog = Catalog({AGENT.name: AGENT}, {"default": self.provider})
        return run_turn(Engine(store or self.store, catalog, hold, unobserved), SESSION)

    def submit(self, tool: str, **arguments: Any) -> str:
        self.turn_count += 1
        turn_id = f"t{self.turn_count}"
        self.arena.submit(turn_id, f"{tool} {json.dumps(arguments)}")
        return turn_id

    def ask(self, tool: str, **arguments: Any) -> str:
        """What a turn is answered that makes this call."""
        view = self.store.turn(SESSION, self.submit(tool, **arguments))
        assert view is not None
        assert self.run().status == "answered"
        view = self.store.turn(SESSION, view.turn_id)
        assert view is not None
        assert view.answer is not None
        return view.answer.text


@pytest.fixture
def keeper(make_arena: Callable[..., Arena]) -> Keeper:
    return Keeper(make_arena(note_bytes=1_000, hint_bytes=100, notes_limit=2, notes_bytes=1_500))


def test_a_note_is_there_in_later_turns_and_for_operators(keeper: Keeper) -> None:
    """Written, lengthened, listed, searched, read; by name and text from outside."""
    assert keeper.ask("write_file", name="plan.md", content="Öl prüfen\n") == "Written: plan.md has 12 bytes now."
    assert keeper.ask("append_to_file", name="plan.md", content="pump") == "Written: plan.md has 16 bytes now."
    assert keeper.ask("list_files") == "plan.md (16 bytes)"
    assert keeper.ask("search_contents", query="PUMP") == "plan.md:2: pump"
    assert keeper.ask("read_file", name="plan.md", first_line=2) == "[plan.md, lines 2-2 of 2]\npump"
    assert dict(keeper.store.notes(SESSION)) == {"plan.md": 16}
    assert keeper.store.note(SESSION, "plan.md") == "Öl prüfen\npump"
    assert keeper.store.note(SESSION, "lost.md") is None


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [("big.md", 1_001, "1000"), ("thread_hint.md", 101, "100"), ("third.md", 1, "2")],
)
def test_a_limit_is_told_in_words(keeper: Keeper, name: str, size: int, words: str) -> None:
    """The model reads which, and the turn goes on; nothing is written."""
    for other in ("one.md", "two.md")[: 2 if name == "third.md" else 0]:
        keeper.ask("write_file", name=other, content="x")
    before = dict(keeper.store.notes(SESSION))
    text = keeper.ask("write_file", name=name, content="x" * size)
    assert text.startswith("Nothing was written: ")
    assert words in text.replace(",", "")
    assert dict(keeper.store.notes(SESSION)) == before


class Dying:
    """A store that cannot be reached any more when a round is to be committed."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        raise StoreUnavailable("gone")


def test_a_note_is_lengthened_once_whoever_dies(keeper: Keeper) -> None:
    """Its worker died before the result was saved: the next one runs the call again, and it changes nothing."""
    keeper.ask("write_file", name="log", content="one\n")
    turn_id = keeper.submit("append_to_file", name="log", content="two\n")
    dying: Any = Dying(keeper.store)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            keeper.run(dying)
        keeper.arena.expire()
    assert keeper.run().status == "answered"
    view = keeper.store.turn(SESSION, turn_id)
    assert view is not None
    assert view.answer is not None
    assert view.answer.text == "Written: log has 8 bytes now."
    assert keeper.store.note(SESSION, "log") == "one\ntwo\n"


def test_a_turn_that_was_cancelled_writes_nothing_more(keeper: Keeper) -> None:
    """It lost its lane: the run ends quietly, and its call has no result."""
    turn_id = keeper.submit("write_file", name="plan.md", content="late")

    def cancelled_meanwhile(request: ModelRequest) -> ModelReply | str:
        keeper.store.cancel(SESSION, turn_id)
        return calling(request)

    keeper.provider = ScriptedProvider(cancelled_meanwhile)
    assert keeper.run().status == "lost"
    assert dict(keeper.store.notes(SESSION)) == {}
    view = keeper.store.turn(SESSION, turn_id)
    assert view is not None
    assert view.state is TurnState.CANCELLED


def test_notes_are_purged_with_their_session(keeper: Keeper) -> None:
    """A session of the same name begins without them."""
    keeper.ask("write_file", name="plan.md", content="x")
    while not keeper.store.purge(SESSION):
        pass
    keeper.store.open(open_request(SESSION, AGENT, (), False))
    assert dict(keeper.store.notes(SESSION)) == {}
    assert keeper.store.note(SESSION, "plan.md") is None
