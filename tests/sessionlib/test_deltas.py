"""What a reader shows of a streamed turn: each piece once, in order, and in the end the whole answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.deltas import Delta, Shown

Told = tuple[str, dict[str, Any]]

BACK = "(back)"
"""What stands here for a restart."""


def piece(at: int, text: str, *, round: int = 0, attempt: int = 1) -> Told:
    return "delta", {"round": round, "attempt": attempt, "at": at, "text": text}


def restarted(attempt: int, *, round: int = 0) -> Told:
    return "restarted", {"round": round, "attempt": attempt}


def answered(text: str, *, rounds: int = 1) -> Told:
    return "answered", {"answer": {"text": text, "round_count": rounds}}


def seen(*events: Told, is_resumed: bool = False) -> list[str]:
    """What a reader of these events shows."""
    shown = Shown(is_resumed=is_resumed)
    deltas: list[Delta] = [delta for event in events for delta in shown.take(*event)]
    return [BACK if delta.is_restart else str(delta) for delta in deltas]


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([("queued", {}), ("started", {"attempt": 1}), answered("all")], ["all"]),
        ([piece(0, "a"), piece(1, "ll"), answered("all")], ["a", "ll"]),
        ([piece(0, "a"), answered("all")], ["a", "ll"]),
        ([piece(0, "a"), piece(0, "a"), piece(1, "ll"), piece(0, "all"), answered("all")], ["a", "ll"]),
        ([piece(0, "a"), restarted(2), piece(0, "no", attempt=2), answered("no")], ["a", BACK, "no"]),
        ([piece(0, "a"), piece(0, "no", attempt=2), piece(1, "b"), answered("no")], ["a", BACK, "no"]),
        ([piece(0, "look"), piece(0, "do", round=1), answered("done", rounds=2)], ["look", "do", "ne"]),
        ([piece(0, "look"), answered("done", rounds=2)], ["look", "done"]),
        ([piece(0, "other"), answered("all")], ["other", BACK, "all"]),
        ([piece(2, "l"), answered("all")], ["l"]),
        ([piece(0, "a"), piece(2, "l"), answered("all")], ["a", "ll"]),
        ([piece(0, "a"), ("cancelled", {"code": "cancelled"})], ["a"]),
        ([answered("")], []),
    ],
    ids=[
        *("not streamed", "streamed", "late end", "told twice", "restarted", "restart missed", "rounds"),
        *("answer unseen", "something else", "begun in the middle", "gap", "cancelled", "empty"),
    ],
)
def test_a_reader_shows(events: list[Told], texts: list[str]) -> None:
    """Whatever it is told, and whatever it missed."""
    assert seen(*events) == texts


def test_restart_is_shown_though_nothing_was_seen() -> None:
    """Who reads on from an event cannot tell what stands on the screen."""
    assert seen(restarted(2), piece(0, "x", attempt=2)) == [BACK, "x"]


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([answered("all")], [BACK, "all"]),
        ([answered("all", rounds=3)], [BACK, "all"]),
        ([piece(1, "l"), answered("all")], ["l", "l"]),
        ([piece(1, "l"), piece(0, "no", attempt=2), answered("no")], ["l", BACK, "no"]),
        ([restarted(2), answered("all")], [BACK, "all"]),
        ([piece(4, "me"), answered("done", rounds=2)], ["me", "done"]),
        ([("failed", {"code": "deadline"})], []),
    ],
    ids=["ended", "rounds later", "in time", "tried again", "ended after a restart", "next round unseen", "failed"],
)
def test_a_reader_goes_on_after_an_event(events: list[Told], texts: list[str]) -> None:
    """What it showed before, it knows; nobody here does: if the pieces are gone, that is void."""
    assert seen(*events, is_resumed=True) == texts


@given(st.text(min_size=1, max_size=30), st.data())
def test_a_reader_that_comes_again_has_the_answer_in_the_end(text: str, data: st.DataObject) -> None:
    """Wherever it was cut off, and however many of the pieces were gone by then: since the last restart it is all."""
    ends = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0})
    told = [piece(at, text[at:end]) for at, end in pairwise(ends)]
    cut = data.draw(st.integers(0, len(told)))
    before = seen(*told[:cut])
    later = told[cut:] if data.draw(st.booleans()) else []
    screen = [*before, *seen(*later, answered(text), is_resumed=bool(cut))]
    last = max((place for place, one in enumerate(screen) if one is BACK), default=-1)
    assert "".join(screen[last + 1 :]) == text


@given(st.text(max_size=30), st.data())
def test_events_told_twice_and_cut_short_still_come_to_the_answer(text: str, data: st.DataObject) -> None:
    """Pieces of an attempt, any of them again, any number missing at the end: what is shown is the answer."""
    ends = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0})
    pieces = [piece(at, text[at:end]) for at, end in pairwise(ends)]
    told: list[Told] = []
    for event in pieces:
        told += [event, *data.draw(st.lists(st.sampled_from([*told, event]), max_size=2))]
    assert "".join(seen(*told, answered(text))) == text
