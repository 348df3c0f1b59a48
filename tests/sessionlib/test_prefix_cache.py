"""The fake provider server's prompt cache: what of a prompt was read before, by each vendor's rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlib.testing.prefix_cache import LOOK_BACK_BLOCKS, Block, Cached, PrefixCache


def block(tokens: int, start: int = 0, *, is_marked: bool = False) -> Block:
    return Block(ids=range(start, start + tokens), tokens=tokens, is_marked=is_marked)


@pytest.mark.parametrize(
    ("before", "after", "cached_tokens"),
    [
        (range(1_023), range(1_023), 0),
        (range(1_024), range(1_024), 1_024),
        (range(1_151), range(9_000), 1_024),
        (range(1_152), range(9_000), 1_152),
        (range(9_000), range(2_000), 1_920),
        (range(9_000), [*range(2_000), *range(7_000)], 1_920),
        (range(9_000), [1, *range(9_000)], 0),
        ([], range(2_000), 0),
    ],
)
def test_a_prefix_is_cached_in_steps(before: Sequence[int], after: Sequence[int], cached_tokens: int) -> None:
    """From 1,024 tokens on, in steps of 128, as far as the beginning is the same."""
    cache = PrefixCache()
    assert cache.automatic("m", before, 1.0) == Cached()
    assert cache.automatic("m", after, 1.0) == Cached(cached_tokens)


def test_scopes_share_nothing() -> None:
    """Another model, or another cache key, has not read it."""
    cache = PrefixCache()
    cache.automatic("m/a", range(2_000), 1.0)
    assert cache.automatic("m/b", range(2_000), 1.0) == Cached()
    cache.clear()
    assert cache.automatic("m/a", range(2_000), 1.0) == Cached()


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60), st.floats(0.5, 4.0))
def test_what_is_cached_was_there_before(before: list[int], after: list[int], ratio: float) -> None:
    """Never more than the common beginning, whatever a token is worth."""
    cache, before, after = PrefixCache(), before * 60, after * 60
    cache.automatic("m", before, ratio)
    shared = next((place for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    shared = min(len(before), len(after)) if shared is None else shared
    assert cache.automatic("m", after, ratio).read_tokens <= shared * ratio + 1


def test_what_stands_before_a_breakpoint_is_written_then_read() -> None:
    """Blocks after the last breakpoint are neither; a breakpoint that moves on reads what the one before wrote."""
    cache = PrefixCache()
    first = [block(1_000), block(500, is_marked=True), block(50)]
    assert cache.marked("m", first) == Cached(0, 1_500)
    assert cache.marked("m", first) == Cached(1_500, 0)
    longer = [block(1_000), block(500), block(50), block(700, is_marked=True)]
    assert cache.marked("m", longer) == Cached(1_500, 750)
    changed = [block(1_000, 1), block(500, is_marked=True)]
    assert cache.marked("m", changed) == Cached(0, 1_500)


def test_short_prompts_are_not_cached() -> None:
    """Below the least size a breakpoint means nothing."""
    cache = PrefixCache()
    assert cache.marked("m", [block(1_023, is_marked=True)]) == Cached()
    assert cache.marked("m", [block(1_023, is_marked=True), block(5)]) == Cached()


@pytest.mark.parametrize("is_second_marked", [False, True])
def test_a_breakpoint_looks_back_so_far_only(is_second_marked: bool) -> None:
    """What was written further before it is found by another breakpoint that stands there, or not at all."""
    cache = PrefixCache()
    cache.marked("m", [block(2_000, is_marked=True)])
    added = [block(10) for _ in range(LOOK_BACK_BLOCKS)]
    longer = [block(2_000, is_marked=is_second_marked), *added, block(10, is_marked=True)]
    assert cache.marked("m", longer).read_tokens == (2_000 if is_second_marked else 0)
    near = [block(2_000, is_marked=True), *added[1:], block(10, is_marked=True)]
    assert cache.marked("m", near).read_tokens == 2_000
