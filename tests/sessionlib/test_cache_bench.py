"""The bench of the prompt cache: what it tells of a session that was made for it."""

from __future__ import annotations

import pytest

from bench.apis import APIS
from bench.cache import Shares, measured, play
from sessionlib.providers.contract import CallRequest
from sessionlib.recordings import RecordedRound, RecordedTurn, Recording
from sessionlib.tokens import Usage

PAGE = "The build of module alpha failed with error 1234 in src/alpha.py, line 88. " * 40


def turn(number: int) -> RecordedTurn:
    """A message, two rounds with calls, one of which gives nothing, and an answer."""
    calls = [CallRequest(call_id=f"c{number}-{n}", name="look", arguments='{"a": 1}') for n in range(2)]
    results = [((call.call_id, text),) for call, text in zip(calls, (PAGE, ""), strict=True)]
    rounds = [
        RecordedRound(text=f"Looking, {number}.", calls=(call,), results=given)
        for call, given in zip(calls, results, strict=True)
    ]
    return RecordedTurn(input=f"{number}: {PAGE}", rounds=(*rounds, RecordedRound(text=f"Done with {number}.")))


RECORDING = Recording(source="made", format="made", turns=tuple(turn(number) for number in range(16)))


@pytest.mark.parametrize("provider", APIS)
def test_between_rotations_all_that_a_cache_can_hold_comes_from_it(provider: str) -> None:
    """With each kind of provider, across at least one rotation."""
    shares = Shares()
    play(RECORDING, "log_merge", provider, 48, shares)
    assert shares.calls == 48
    assert shares.breaks >= 1
    assert shares.stable_tokens > 0
    assert shares.stable_cached_tokens == shares.stable_tokens


def test_a_row_tells_shares() -> None:
    """For each policy and provider that was asked for."""
    (row,) = measured([RECORDING], ["slots"], ["chat_completions"], 4)
    assert (row["policy"], row["provider"], row["between"]) == ("slots", "chat_completions", 1.0)
    assert 0 < row["cached"] < 1


def test_what_could_have_been_cached_and_was_not_shows() -> None:
    """A request that extends the one before, but was read anew."""
    shares = Shares()
    shares.add(Usage(2_000, 1), None, is_marked=False, is_break=False)
    shares.add(Usage(3_000, 1, 1_024), Usage(2_000, 1), is_marked=False, is_break=False)
    assert shares.figures()["between"] == 1_024 / 1_920
