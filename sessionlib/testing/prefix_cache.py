"""The prompt cache of the fake provider server: what of a prompt has been read before, by the rules of each vendor."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MINIMUM_TOKENS = 1_024
"""A shorter prefix is not cached (OpenAI and Anthropic guides, prompt caching)."""

STEP_TOKENS = 128
"""OpenAI's cache grows in steps of this (guide, prompt caching)."""

LOOK_BACK_BLOCKS = 20
"""How far before a breakpoint Anthropic looks for what it has cached (guide, prompt caching)."""

PREFIXES = 500_000
"""Prefixes that are remembered, those used last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a prompt, its tokens, and whether a breakpoint stands at its end."""

    ids: Sequence[int]
    tokens: int
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Cached:
    """Tokens of a prompt that came from the cache, and those that were written to it."""

    read_tokens: int = 0
    written_tokens: int = 0


class PrefixCache:
    """What was read before. Safe for concurrent use; bounded in memory.

    A prefix is known by its tokens and by its *scope*, which no two models share.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def clear(self) -> None:
        with self._lock:
            self._known.clear()

    def automatic(self, scope: str, ids: Sequence[int], ratio: float) -> Cached:
        """As OpenAI caches: the longest known prefix, in steps. *ratio*: how many tokens each of *ids* stands for."""
        ends = range(STEP_TOKENS, int(len(ids) * ratio) + 1, STEP_TOKENS)
        prefixes = list(_digests(scope, ids, [min(len(ids), round(end / ratio)) for end in ends]))
        with self._lock:
            hits = [end for end, prefix in zip(ends, prefixes, strict=True) if prefix in self._known]
            self._remember(prefixes)
        return Cached(hits[-1] if hits and hits[-1] >= MINIMUM_TOKENS else 0)

    def marked(self, scope: str, blocks: Sequence[Block]) -> Cached:
        """As Anthropic caches: up to the breakpoints, and no further back from one than a number of blocks."""
        ends, total = [], 0
        for block in blocks:
            total += len(block.ids)
            ends.append(total)
        prefixes = list(_digests(scope, [token for block in blocks for token in block.ids], ends))
        sizes = _running([block.tokens for block in blocks])
        marks = [place for place, block in enumerate(blocks) if block.is_marked and sizes[place] >= MINIMUM_TOKENS]
        seen = {place for mark in marks for place in range(max(0, mark - LOOK_BACK_BLOCKS), mark + 1)}
        with self._lock:
            read_tokens = max((sizes[place] for place in seen if prefixes[place] in self._known), default=0)
            self._remember([prefixes[place] for place in marks])
        written_tokens = max(0, sizes[marks[-1]] - read_tokens) if marks else 0
        return Cached(read_tokens, written_tokens)

    def _remember(self, prefixes: Sequence[bytes]) -> None:
        for prefix in prefixes:
            self._known[prefix] = None
            self._known.move_to_end(prefix)
        while len(self._known) > PREFIXES:
            self._known.popitem(last=False)


def _digests(scope: str, ids: Sequence[int], ends: Sequence[int]) -> Iterator[bytes]:
    """A digest of each prefix of *ids* that ends at one of *ends*, which only grow."""
    growing, start = hashlib.blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=16), 0
    for end in ends:
        growing.update(array("I", ids[start:end]).tobytes())
        yield growing.copy().digest()
        start = end


def _running(sizes: Sequence[int]) -> list[int]:
    total, totals = 0, []
    for size in sizes:
        total += size
        totals.append(total)
    return totals
