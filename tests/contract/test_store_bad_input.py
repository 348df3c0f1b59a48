"""Contract: what no store takes, and that nothing is changed by the attempt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sessionlib.attachments import media_from_url
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput
from sessionlib.stores.contract import SubmitRequest, TurnInput
from sessionlib.window_facts import LearnedWindow
from tests.contract.arena import SESSION, Arena

BAD_IDS = ["", " ", "a b", "x" * 129, "é", "a\n", "{tag}", "a|b", "a*", "\x00"]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_ids_outside_the_alphabet(arena: Arena, bad: str) -> None:
    """They never reach a key."""
    with pytest.raises(InvalidInput):
        arena.open(bad)
    with pytest.raises(InvalidInput):
        arena.submit(bad)
    with pytest.raises(InvalidInput):
        arena.store.turn(SESSION, bad)
    with pytest.raises(InvalidInput):
        arena.store.view(bad)


@pytest.mark.parametrize("good", ["a", "x" * 128, "user:7/chat@home.org-1_b"])
def test_ids_of_the_alphabet(arena: Arena, good: str) -> None:
    """Whatever a caller's own ids look like, if they keep to the alphabet."""
    assert arena.open(good).is_new
    assert arena.submit(good, session_id=good).is_new


@pytest.mark.parametrize(
    "message",
    ["", "   ", "\n\t", " " * 1_000_000, "\ud800 lone"],
    ids=["empty", "blank", "lines", "million", "surrogate"],
)
def test_bad_messages(arena: Arena, message: str) -> None:
    """Refused before any state changes; the session is usable afterwards."""
    with pytest.raises(InvalidInput):
        arena.submit("t1", message)
    assert arena.store.turn(SESSION, "t1") is None
    assert arena.submit("t1").is_new


@pytest.mark.parametrize("message", ["x" * 5_000_000, "\x00 NUL", "<|endoftext|>"], ids=["5MB", "nul", "special"])
def test_odd_but_good_messages(arena: Arena, message: str) -> None:
    """They come back as they were."""
    arena.submit("t1", message)
    grant = arena.begin()
    assert grant.input == TurnInput(message=message)


@pytest.mark.parametrize(
    "value",
    [
        TurnInput(),
        TurnInput(message="both", results=(("c1", "x"),)),
        TurnInput(results=(("c1", "x"), ("c1", "y"))),
        TurnInput(results=(("", "x"),)),
        TurnInput(results=(("c1", "\udfff"),)),
        TurnInput(results=(("c1", "x"),), media=(media_from_url("https://example.org/a.png"),)),
    ],
    ids=["nothing", "both", "twice", "unnamed", "surrogate", "media"],
)
def test_bad_inputs(arena: Arena, value: TurnInput) -> None:
    """A turn starts from a message or from results, each for one call."""
    arena.answer("t0", "hello", "c1")
    with pytest.raises(InvalidInput):
        arena.store.submit(SubmitRequest(session_id=SESSION, turn_id="t1", input=value))


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["timeout_seconds", "open_calls_seconds"])
def test_bad_times(arena: Arena, field: str, seconds: float) -> None:
    """Times are finite and not negative."""
    with pytest.raises(InvalidInput):
        arena.submit("t1", "hello", SESSION, **{field: seconds})
    with pytest.raises(InvalidInput):
        arena.open("other", retention_seconds=seconds)
    arena.submit("t2")
    with pytest.raises(InvalidInput):
        arena.store.fail(arena.begin(), "code", "reason", seconds)


@pytest.mark.parametrize(
    "bad",
    [
        {"entries": (), "sizes": ()},
        {"sizes": (1,)},
        {"sizes": (1, -1)},
        {"calibration": float("nan")},
        {"calibration": 0.0},
        {"window": LearnedWindow(tokens=0, origin="p/m")},
        {"line_tokens": -1},
        {"input_index": 2},
        {"commit_token": ""},
    ],
    ids=str,
)
def test_bad_commits(arena: Arena, bad: dict[str, Any]) -> None:
    """A commit that makes no sense records nothing."""
    arena.submit("t1")
    grant = arena.begin()
    with pytest.raises(InvalidInput):
        arena.commit(grant, **bad)
    assert arena.history() == []
    arena.finish(grant)


def test_bad_history(arena: Arena) -> None:
    """Every entry has its size."""
    with pytest.raises(InvalidInput):
        arena.open("other", history=(Entry.user("a"),), sizes=())


def test_bad_adoptions(arena: Arena) -> None:
    """Entries leave only into the archive."""
    arena.answer("t1")
    with pytest.raises(InvalidInput):
        arena.rotate(2, chunk=b"")
    assert arena.store.view(SESSION).epoch == 0


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), object(), {1, 2}, "\ud800"], ids=["nan", "inf", "object", "set", "surrogate"]
)
def test_figures_and_events_are_json(arena: Arena, bad: object) -> None:
    """What is no JSON is refused before anything is written."""
    arena.answer("t1")
    with pytest.raises(InvalidInput):
        arena.rotate(1, figures={"x": bad})
    assert arena.store.view(SESSION).epoch == 0
    arena.submit("t2")
    with pytest.raises(InvalidInput):
        arena.store.emit(arena.begin(), "delta", {"x": bad})
    assert arena.kinds("t2") == ["queued", "started"]


def test_empty_token_takes_nothing(arena: Arena) -> None:
    """A free lane is not held by everybody who has no token."""
    arena.submit("t1")
    grant = arena.begin()
    arena.store.release(grant)
    with pytest.raises(InvalidInput):
        arena.store.begin(SESSION, grant.lane, "")
    arena.store.release(replace(grant, token=""))
    assert arena.begin().work_id == "t1"


@pytest.mark.parametrize("bad", ["zzz", " ", "-1", "1-", "1-2-3", "٣", "9" * 40, "(1", "+", None])
def test_what_is_no_events_id(arena: Arena, bad: Any) -> None:
    """Whoever reads on from there is told so, and nobody is asked for it; of a session that is unknown too."""
    arena.submit("t1")
    for session_id in (SESSION, "unknown"):
        for read in (partial(arena.store.events, session_id, "t1"), partial(arena.store.audit, session_id)):
            with pytest.raises(InvalidInput) as caught:
                read(bad)
            assert (caught.value.field, caught.value.rule) == ("after", "must be the id of an event")
    assert arena.kinds("t1") == ["queued"]
