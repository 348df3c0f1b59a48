"""Plays a conversation through a policy, by the product's own rotation, and looks for the facts on the way.

Synchronous: a rotation runs when a unit has passed the line, and is adopted before the next. Everything else is the
product's: budgets, plan, policy, chunking, acceptance, escalation. Tokens are characters ÷ 4 throughout.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from random import Random

from bench.retention.arrangements import COUNTER, Arrangement
from bench.retention.conversation import Conversation, Fact, Passages
from bench.retention.shares import Share
from sessionlib.entries import Entry, EntryKind, render
from sessionlib.layout import Layout, Record, RecordKind, seeded_record
from sessionlib.policies.contract import RotationPlan
from sessionlib.projection import Projection
from sessionlib.rotation import plan_for, rotate
from sessionlib.rotation_outcome import RotationOutcome
from sessionlib.steps import Consolidation, Effect, EffectResult, drive
from sessionlib.stores.contract import Trim
from sessionlib.summaries.contract import Summarizer
from sessionlib.summaries.grounding import Source
from sessionlib.summaries.redaction import Redacted
from sessionlib.window import fit, sent_sizes

BANDS = ((1, 4), (5, 9), (10, 14), (15, 24), (25, 49), (50, 50))
"""Ages in blocks, from the one in which a fact was said last, which counts as 1 (spec/retention). The last is "50 and
more", in a conversation of 50 blocks."""

ROTATION_BANDS = ((0, 4), (5, 9), (10, 14), (15, 10**9))
"""Ages in rotations, as the tiered engine's authors published theirs (spec/results)."""

SHOW_SPAN = True
"""Agents have the history tool unless they refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A conversation, with what all policies need of it computed once."""

    conversation: Conversation
    due: dict[int, list[tuple[int, Fact]]]
    """Block → what is probed at its end: band and fact. Each fact is probed once in each band that it lives to see."""
    source: Source
    """The whole transcript, for values that occur nowhere in it."""

    @classmethod
    def of(cls, conversation: Conversation, seed: int) -> Prepared:
        random, due = Random(seed), dict[int, list[tuple[int, Fact]]]()
        for fact in conversation.facts:
            for band, (least, most) in enumerate(BANDS):
                block = fact.unit // conversation.block_units + random.randint(least, most) - 1
                due.setdefault(block, []).append((band, fact))
        return cls(
            conversation=conversation,
            due=due,
            source=Source(render(entry for unit in conversation.units for entry in unit)),
        )


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of it. Sums, so that several are added by kind."""

    units: int = 0
    bands: dict[str, list[Share]] = field(default_factory=dict)
    """By kind of fact, by age in blocks."""
    final: dict[str, Share] = field(default_factory=dict)
    rotation_bands: dict[str, list[Share]] = field(default_factory=dict)
    """By kind, by rotations since the fact was said, at the end."""
    rotations: int = 0
    noops: int = 0
    calls: int = 0
    summarizer_tokens: int = 0
    """Shown and answered, without prompts."""
    answered_tokens: int = 0
    """Of these: answered."""
    methods: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    """Sum over the units' requests."""
    cached_tokens: int = 0
    """Of these: the longest common prefix with the request before."""
    after_rotation_prompt_tokens: int = 0
    after_rotation_cached_tokens: int = 0
    """The same for requests that follow a rotation."""
    most_prompt_tokens: int = 0
    final_record_tokens: int = 0
    """Text of the records at the end, summed over runs."""
    budget_breaks: int = 0
    """Records above their budget, or requests above the limit."""
    trims: int = 0
    """Requests that had to be trimmed to stay within the limit."""
    fabricated: int = 0
    """Values in records that occur nowhere in the transcript."""
    runs: int = 1

    def add(self, other: Played) -> None:
        """Count *other* in."""
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.methods.update(other.methods)
        self.most_prompt_tokens = max(self.most_prompt_tokens, other.most_prompt_tokens)
        for kind, shares in other.bands.items():
            self.bands[kind] = _added(self.bands.get(kind), shares)
        for kind, shares in other.rotation_bands.items():
            self.rotation_bands[kind] = _added(self.rotation_bands.get(kind), shares)
        for kind, share in other.final.items():
            self.final[kind] = self.final.get(kind, Share()) + share


SUMMED = [field.name for field in fields(Played) if field.type == "int" and field.name != "most_prompt_tokens"]
"""What two of them add up: all plain numbers but the maximum."""


def _added(some: Sequence[Share] | None, others: Sequence[Share]) -> list[Share]:
    return [one + other for one, other in zip(some, others, strict=True)] if some else list(others)


def play(prepared: Prepared, arrangement: Arrangement, seed: int) -> Played:
    """Play the whole conversation once."""
    return _Run(prepared, arrangement, arrangement.make_summarizer(seed)).play()


class _Run:
    def __init__(self, prepared: Prepared, arrangement: Arrangement, summarizer: Summarizer) -> None:
        self._prepared, self._conversation = prepared, prepared.conversation
        self._policy, self._summarizer = arrangement.policy, summarizer
        self._budgets = arrangement.policy.budgets(arrangement.room, COUNTER, show_span=SHOW_SPAN)
        self._layout, self._trim = Layout(), Trim()
        self._sent: Layout | None = None
        """The layout of the request before."""
        self._rotated_at: list[int] = []
        self._played = Played()

    def play(self) -> Played:
        block_units = self._conversation.block_units
        for index, unit in enumerate(self._conversation.units):
            self._play_unit(unit)
            if self._layout.conversation_tokens >= self._budgets.line_tokens:
                self._rotate(index)
            if (index + 1) % block_units == 0:
                self._probe((index + 1) // block_units - 1)
        self._finish()
        return self._played

    def _play_unit(self, unit: Sequence[Entry]) -> None:
        """A request with the unit's input at its end, then its answer."""
        sizes = sent_sizes(unit, self._budgets, COUNTER)
        inputs = sum(1 for _ in itertools.takewhile(lambda entry: entry.kind is EntryKind.USER, unit))
        live = self._layout.live
        self._layout = self._layout.with_live(live.append(unit[:inputs], sizes[:inputs]))
        self._count_request()
        self._layout = self._layout.with_live(self._layout.live.append(unit[inputs:], sizes[inputs:]))
        self._played.units += 1

    def _count_request(self) -> None:
        tokens, before, played = self._layout.conversation_tokens, self._sent, self._played
        if tokens > self._budgets.limit_tokens:
            projection = Projection(COUNTER, self._budgets.result_cap_tokens)
            sent, self._trim = fit(self._layout, self._trim, self._budgets, projection)
            tokens = sent.tokens
            played.trims += 1
            played.budget_breaks += tokens > self._budgets.limit_tokens
        is_continued = before is not None and before.records == self._layout.records and not self._is_fresh
        cached = before.conversation_tokens if is_continued and before else 0
        if self._is_fresh and before is not None:
            cached = common_prefix_tokens(before.records, self._layout.records)
            played.after_rotation_prompt_tokens += tokens
            played.after_rotation_cached_tokens += cached
        played.prompt_tokens += tokens
        played.cached_tokens += min(cached, tokens)
        played.most_prompt_tokens = max(played.most_prompt_tokens, tokens)
        self._sent = self._layout

    @property
    def _is_fresh(self) -> bool:
        """Whether a rotation was adopted since the request before."""
        return self._sent is not None and self._sent.live.first_seq != self._layout.live.first_seq

    def _rotate(self, index: int) -> None:
        outcome = self._outcome(self._layout)
        played = self._played
        played.calls += outcome.consolidation_count
        played.summarizer_tokens += outcome.prompt_tokens + outcome.completion_tokens
        played.answered_tokens += outcome.completion_tokens
        played.methods.update(method.value for method in outcome.methods)
        if outcome.is_noop:
            played.noops += 1
            return
        played.rotations += 1
        played.budget_breaks += outcome.layout.record_tokens > self._budgets.record_tokens
        for record in set(outcome.layout.records) - set(self._layout.records):
            if record.kind is RecordKind.SUMMARY:
                played.fabricated += len(self._prepared.source.unsupported_in(record.text))
        self._layout, self._trim = outcome.layout, Trim()
        self._rotated_at.append(index)

    def _outcome(self, layout: Layout) -> RotationOutcome:
        plan: RotationPlan = plan_for(
            layout, layout.live.next_seq - 1, budgets=self._budgets, counter=COUNTER, show_span=SHOW_SPAN
        )
        steps = rotate(
            plan,
            self._policy,
            summarizer_window_tokens=self._summarizer.window_tokens,
            cancelled=lambda: False,
            redact=_as_it_is,
        )
        return drive(steps, self._perform, {}, _forget)

    def _perform(self, effect: Effect) -> EffectResult:
        assert isinstance(effect, Consolidation)
        return self._summarizer.consolidate(effect.request, lambda: False)

    def _window(self) -> Passages:
        live = self._layout.live.entries
        return Passages([*(record.text for record in self._layout.records), *(entry.text for entry in live)])

    def _probe(self, block: int) -> None:
        """What is due at the end of a block."""
        passages = self._window()
        for band, fact in self._prepared.due.get(block, ()):
            shares = self._played.bands.setdefault(fact.kind, [Share()] * len(BANDS))
            shares[band] += _told(fact, passages)

    def _finish(self) -> None:
        """The end: what is still told, by age."""
        passages, played = self._window(), self._played
        for fact in self._conversation.facts:
            told = _told(fact, passages)
            played.final[fact.kind] = played.final.get(fact.kind, Share()) + told
            rotations = sum(1 for at in self._rotated_at if at >= fact.unit)
            shares = played.rotation_bands.setdefault(fact.kind, [Share()] * len(ROTATION_BANDS))
            band = next(at for at, (least, most) in enumerate(ROTATION_BANDS) if least <= rotations <= most)
            shares[band] += told
        played.final_record_tokens += sum(COUNTER.text(record.text) for record in self._layout.records)


def _told(fact: Fact, passages: Passages) -> Share:
    return Share(1 if fact.probe.found_in(passages) else 0, 1)


def _forget(name: str, result: EffectResult) -> None:
    """Nothing is saved: nobody dies here."""


def _as_it_is(text: str) -> Redacted:
    """No redaction: no fact is a secret, and looking for secrets takes as long as all the rest."""
    return Redacted(text=text, count=0)


def common_prefix_tokens(before: Sequence[Record], after: Sequence[Record]) -> int:
    """Tokens of the longest common beginning of two seeds, by their text."""
    tokens = 0
    for old, new in zip(before, after, strict=False):
        if old == new:
            tokens += old.tokens
            continue
        texts = [seeded_record(record, show_span=SHOW_SPAN).text for record in (old, new)]
        return tokens + common_characters(*texts) // 4
    return tokens


def common_characters(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
