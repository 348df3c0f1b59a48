"""Observations of replays, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sessionlib.entries import Entry
from sessionlib.layout import Layout
from sessionlib.providers.contract import CallRequest
from sessionlib.recordings import RecordedRound, RecordedTurn, Recording
from sessionlib.stores.contract import Trim
from sessionlib.transcript import Transcript
from workers.replay.history import recorded_entries
from workers.replay.observed import Break, Observed, Place, PlayedRound, PlayedTurn, Span

BEGUN = 1_000.0
"""When the play begins, in seconds since the epoch."""
ROUND_SECONDS, CALL_SECONDS = 1.0, 0.9
"""Every round takes a second, of which the model has the last nine tenths."""


def recording(turn_count: int = 2, round_count: int = 2, *, result: str = "a result") -> Recording:
    """Turns of as many rounds, all but the last of each with a call."""
    return Recording(
        source="by hand",
        format="openai_chat",
        turns=tuple(
            RecordedTurn(
                input=f"input {turn}",
                rounds=tuple(_round(turn, number, number == round_count - 1, result) for number in range(round_count)),
            )
            for turn in range(turn_count)
        ),
    )


def _round(turn: int, number: int, is_last: bool, result: str) -> RecordedRound:
    if is_last:
        return RecordedRound(text=f"answer {turn}")
    call = CallRequest(call_id=f"call-{turn}-{number}", name="look", arguments=f'{{"at": {number}}}')
    return RecordedRound(text="", calls=(call,), results=((call.call_id, f"{result} of {turn}.{number}"),))


def turn(index: int, started: float, *rounds: PlayedRound, seconds: float = 2.0) -> PlayedTurn:
    return PlayedTurn(
        turn_id=f"turn-{index:04d}",
        submitted_at=started,
        answered_at=started + seconds,
        answer=f"answer {index - 1}",
        rounds=rounds,
    )


def played(
    index: int, number: int, at: float, *, epoch: int = 0, trim: Trim | None = None, is_nudged: bool = False
) -> PlayedRound:
    place = Place(f"turn-{index:04d}", number)
    return PlayedRound(place=place, epoch=epoch, trim=trim or Trim(), at=at, is_nudged=is_nudged)


def key(index: int, number: int) -> str:
    """The idempotency key of a round's model call."""
    return f"replay/turn-{index:04d}/model:{number}"


def call(index: int, number: int, started: float, ended: float) -> Span:
    return Span(kind="model", key=key(index, number), started=started, ended=ended)


def consolidation(started: float, ended: float) -> Span:
    return Span(kind="consolidation", key="consolidation/x/consolidation:1-9", started=started, ended=ended)


def broken(after: tuple[int, int], before: tuple[int, int]) -> Break:
    return Break(key=key(*after), previous_key=key(*before))


def as_it_should_be(**changes: Any) -> Observed:
    """Two turns of two rounds, all of it well; and *changes*."""
    turns, spans = [], []
    for index in (1, 2):
        started = BEGUN + 2 * ROUND_SECONDS * (index - 1)
        turns.append(turn(index, started, played(index, 0, started + 1), played(index, 1, started + 2)))
        for number in (0, 1):
            ended = started + ROUND_SECONDS * (number + 1)
            spans.append(call(index, number, ended - CALL_SECONDS, ended))
    entries = tuple(recorded_entries(recording()))
    observed = Observed(
        window_tokens=1_000,
        turns=tuple(turns),
        spans=tuple(spans),
        asked_again={},
        largest_request_tokens=800,
        archived=entries[:3],
        layout=Layout(live=live(*entries[3:])),
    )
    return replace(observed, **changes)


def live(*entries: Entry) -> Transcript:
    return Transcript(entries, tuple(10 for _ in entries), first_seq=4)
