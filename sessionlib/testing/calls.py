"""A call of the fake provider server: what was asked, and how many tokens it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sessionlib.counters import ExactCounter, counter_named
from sessionlib.errors import InvalidInput
from sessionlib.testing.answers import Answer
from sessionlib.testing.failures import Failure, Fault, Kind
from sessionlib.testing.observations import Spent
from sessionlib.testing.prefix_cache import Block, Cached, PrefixCache
from sessionlib.testing.wire import Asked, WireApi

SUMMARIZER_MODEL = "summarizer"
"""The model whose requests are consolidations."""


class Tokenizer:
    """Counts in tokens of its own, *ratio* of them for one of o200k_base: a model's tokenizer is not ours."""

    def __init__(self, ratio: float) -> None:
        counter = counter_named("o200k_base")
        if not isinstance(counter, ExactCounter):
            raise InvalidInput("counter", counter.name, "must be exact")
        self.ratio, self.counter = ratio, counter

    def count(self, text: str) -> int:
        return round(self.counter.text(text) * self.ratio)

    def blocks(self, asked: Asked) -> list[Block]:
        """What the model reads, piece by piece."""
        blocks = []
        for segment in asked.segments:
            ids = self.counter.ids(segment.text)
            blocks.append(Block(ids=ids, tokens=round(len(ids) * self.ratio), is_marked=segment.is_marked))
        return blocks


@dataclass(slots=True)
class Call:
    """A call that is as it should be. One thread after the other works on it."""

    api: WireApi
    asked: Asked
    session: str
    key: str
    started: float
    """Seconds since the epoch."""
    tokenizer: Tokenizer
    blocks: Sequence[Block] = field(init=False)
    prompt_tokens: int = field(init=False)
    completion_tokens: int = 0
    """0 until it is answered."""
    is_under_way: bool = False
    """Its answer is sent part by part."""

    def __post_init__(self) -> None:
        self.blocks = self.tokenizer.blocks(self.asked)
        self.prompt_tokens = sum(block.tokens for block in self.blocks)

    @property
    def is_summary(self) -> bool:
        return bool(self.asked.body["model"] == SUMMARIZER_MODEL)

    @property
    def kind(self) -> Kind:
        return Kind.SUMMARIES if self.is_summary else Kind.ANSWERS

    @property
    def is_streamed(self) -> bool:
        return bool(self.asked.body.get("stream"))

    def may_break(self, failure: Failure) -> bool:
        """Whether the call is answered all the same, and *failure* strikes the answer."""
        if failure.fault is Fault.ERROR_EVENT:
            return self.is_streamed
        return failure.fault not in {None, Fault.GARBAGE, Fault.HANG}

    def spent(self, answer: Answer, cache: PrefixCache) -> Spent:
        """What the call costs with *answer*; the cache knows its prompt from now on."""
        self.completion_tokens = self.tokenizer.count(json.dumps(answer.message(), ensure_ascii=False))
        cached = Cached() if self.is_summary else self._cached(cache)
        return Spent(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self.tokenizer.count(answer.reasoning),
            cached_tokens=cached.read_tokens,
            written_tokens=cached.written_tokens,
        )

    def _cached(self, cache: PrefixCache) -> Cached:
        scope = f"{self.api.name}/{self.asked.body['model']}/{self.asked.cache_key}"
        if self.api.is_marked:
            return cache.marked(scope, self.blocks)
        ids = [token for block in self.blocks for token in block.ids]
        return cache.automatic(scope, ids, self.tokenizer.ratio)
