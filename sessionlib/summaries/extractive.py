"""Summaries without a model: the sentences with the most specifics per token, word for word.

The consolidation is plain sentences, without headings: it ends every escalation, where each token counts and nothing
may be refused any more. The generator writes the same kind of sentences under the headings of its purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from sessionlib.entries import as_continuation
from sessionlib.errors import InvalidInput
from sessionlib.layout import Level
from sessionlib.summaries.chunks import Measure
from sessionlib.summaries.contract import Consolidated, ConsolidationRequest, Fault, Settlement, SummaryRequest
from sessionlib.summaries.evidence import Item, Provenance
from sessionlib.summaries.grounding import unsupported_values
from sessionlib.summaries.prompts import texts_of
from sessionlib.summaries.purposes import DIGEST_LIMIT_BYTES, Purpose
from sessionlib.summaries.redaction import redact
from sessionlib.summaries.sections import Bullet, bullets_for, written
from sessionlib.summaries.sentences import Piece, pieces_of, points_by_word, ranked
from sessionlib.summaries.validation import complaint
from sessionlib.tokens import Counter

TOOL_QUOTA = 0.2
"""Share of the budget that tool calls and results have to themselves; what they leave goes to prose, and vice versa."""

REJECTIONS = 24
"""After this many pieces in a row that do not fit what is left of the budget, the budget counts as used."""


def extract(text: str, budget_tokens: int, counter: Measure) -> str:
    """The most specific sentences of *text*, in their order, at most *budget_tokens* by *counter*.

    *text* is rendered entries (`entries.render`), earlier records, or anything else. Never blank for text that is not;
    where not even one character fits, a full stop stands for it. Raises InvalidInput for a budget below one token.
    """
    if budget_tokens < 1:
        raise InvalidInput("budget_tokens", budget_tokens, "must be at least 1")
    if not text.strip():
        return ""
    # A token rarely stands for more than 16 characters: longer texts are not counted in vain.
    if len(text) <= 16 * budget_tokens and counter.text(text.strip()) <= budget_tokens:
        return text.strip()
    pieces = list(pieces_of(text))
    chosen = _chosen(pieces, budget_tokens, counter)
    while chosen and counter.text(kept := _assembled(pieces, chosen)) > budget_tokens:
        chosen.pop()
    return kept if chosen else _cut(_best_text(pieces) or text.strip(), budget_tokens, counter)


def _chosen(pieces: Sequence[Piece], budget_tokens: int, counter: Measure) -> list[int]:
    """Positions of the pieces to keep, the most valuable first; prose and tool material each within their share."""
    points = points_by_word(pieces)
    prose = ranked([p for p, piece in enumerate(pieces) if not piece.is_tool], pieces, points)
    tools = [p for p, piece in enumerate(pieces) if piece.is_tool]
    quota_tokens = math.floor(budget_tokens * TOOL_QUOTA) if tools else 0
    selection = _Selection(pieces, counter)
    selection.take(prose, budget_tokens - quota_tokens)
    selection.take(ranked(tools, pieces, points), budget_tokens)
    selection.take(prose, budget_tokens)  # goes on where it stopped
    return selection.positions


class _Selection:
    """Pieces taken so far and what they cost, in tokens."""

    def __init__(self, pieces: Sequence[Piece], counter: Measure) -> None:
        self._pieces, self._counter = pieces, counter
        self._labelled: set[int] = set()
        self._tokens = 0
        self.positions: list[int] = []

    def take(self, ranked: Iterable[int], limit_tokens: int) -> None:
        """Take from *ranked* what fits while the whole stays at or below *limit_tokens*."""
        rejections = 0
        for position in ranked:
            piece = self._pieces[position]
            opens = piece.entry not in self._labelled
            # One token more for the line break or blank before it.
            tokens = self._counter.text(f"{_prefix(piece)}{piece.text}" if opens else piece.text) + 1
            if self._tokens + tokens > limit_tokens:
                rejections += 1
                if rejections > REJECTIONS:
                    return
                continue
            rejections = 0
            self._tokens += tokens
            self._labelled.add(piece.entry)
            self.positions.append(position)


def _assembled(pieces: Sequence[Piece], positions: Iterable[int]) -> str:
    """The chosen pieces as text: sentences of one line stay on it, an entry's label opens its first chosen line."""
    parts: list[str] = []
    before: Piece | None = None
    for position in sorted(positions):
        piece = pieces[position]
        if before and before.line == piece.line:
            parts.append(f" {piece.text}")
        else:
            parts.append("\n" if before else "")
            is_continued = before and before.entry == piece.entry
            parts.append(as_continuation(piece.text) if is_continued else f"{_prefix(piece)}{piece.text}")
        before = piece
    return "".join(parts)


def _prefix(piece: Piece) -> str:
    return f"{piece.label}: " if piece.label else ""


def _best_text(pieces: Sequence[Piece]) -> str:
    """The most valuable piece, for a budget into which no whole piece fits; "" if the text is nothing but labels."""
    best = next(ranked(range(len(pieces)), pieces, points_by_word(pieces)), 0)
    return pieces[best].text if pieces else ""


def _cut(text: str, budget_tokens: int, counter: Measure) -> str:
    """The longest beginning of *text* that fits, found by halving; never blank."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.text(text[:middle].rstrip()) <= budget_tokens else (low, middle - 1)
    return text[:low].rstrip() or "."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractiveSummarizer:
    """A Summarizer without a model: shorter text made of the source's own sentences. Deterministic, costs no tokens.

    Plain sentences without headings, as the last resort of every consolidation: it cannot invent, and cannot fail.

    It chooses its own size, as a model does: a quarter of new material, half of what is dense already (records that
    are merged, a previous record), and less of both at a higher level. Never more than its budget, which is the most
    that its record may take, and never more than half of its source.
    """

    counter: Counter
    window_tokens: int = 1_000_000

    FRESH_SHARE: ClassVar[float] = 0.25
    DENSE_SHARE: ClassVar[float] = 0.5
    """Also the ceiling: the engine accepts a merge at 0.6 of its source or less (DESIGN 6)."""
    FLOOR_TOKENS: ClassVar[int] = 60
    """What the shortest real summaries take (spec/retention, the lossy model)."""
    LEVEL_SHARES: ClassVar[Mapping[Level, float]] = MappingProxyType(
        {Level.LOW: 1.0, Level.MEDIUM: 0.5, Level.HIGH: 0.25}
    )
    """What each level leaves of these sizes, as a level leaves a half and a quarter of the tail (spec/tiers A15)."""

    def consolidate(self, request: ConsolidationRequest, cancelled: Callable[[], bool]) -> Consolidated:
        """Consolidate the previous record, if any, and the material: milliseconds, so *cancelled* is not asked."""
        del cancelled
        source = request.material if request.is_degradation else f"{request.previous_record}\n{request.material}"
        return Consolidated(text=extract(source, self.budget_tokens(request), self.counter))

    def budget_tokens(self, request: ConsolidationRequest) -> int:
        """What the answer to *request* takes at most."""
        material_tokens = self.counter.text(request.material)
        previous_tokens = 0 if request.is_degradation else self.counter.text(request.previous_record)
        share = self.DENSE_SHARE if request.tier > 1 else self.FRESH_SHARE
        wanted_tokens = previous_tokens * self.DENSE_SHARE + material_tokens * share
        if request.level:
            wanted_tokens *= self.LEVEL_SHARES[request.level]
        size_tokens = max(self.FLOOR_TOKENS, wanted_tokens) / (2 if request.terse else 1)
        ceiling_tokens = (previous_tokens + material_tokens) * self.DENSE_SHARE
        return max(1, math.floor(min(size_tokens, request.budget_tokens, ceiling_tokens)))


@dataclass(frozen=True, slots=True)
class ExtractiveGenerator:
    """A Generator without a model, for every purpose: sentences of the evidence under the purpose's headings.

    Valid text without a value that is not in the evidence; deterministic, costs no tokens. It faults only where a
    continuation cannot be smaller than its source: the headings alone take some 250 characters.
    """

    counter: Measure

    SHARE: ClassVar[float] = 0.25
    """What it leaves of a source, as the consolidation of new material does."""
    FLOOR_TOKENS: ClassVar[int] = 300
    DIGEST_TOKENS: ClassVar[int] = 800
    """A digest picks few facts, however long its source is; a long source needs no longer digest (C2)."""

    def admits(self, request: SummaryRequest) -> bool:
        """Anything: there is no window."""
        del request
        return True

    def generate(self, request: SummaryRequest, cancelled: Callable[[], bool]) -> Settlement:
        """Settle at once. A previous record counts as the oldest of the evidence."""
        if cancelled():
            return Settlement(fault=Fault.CANCELLED, reason="the summary was cancelled")
        source = "\n".join(texts_of(request))
        redacted = redact(self._text(request, source))
        if reason := complaint(redacted.text, request.purpose, source=source):
            return Settlement(fault=Fault.VALIDATION, reason=reason)
        values = unsupported_values(redacted.text, source)
        return Settlement(text=redacted.text, redaction_count=redacted.count, unsupported_values=values)

    def _text(self, request: SummaryRequest, source: str) -> str:
        """The bullets that fit, in the order of their worth."""
        budget_tokens = max(self.FLOOR_TOKENS, math.floor(self.counter.text(source) * self.SHARE))
        if request.purpose is Purpose.DIGEST:
            budget_tokens = min(budget_tokens, self.DIGEST_TOKENS)
        evidence = request.evidence
        if request.previous.strip():
            evidence = replace(evidence, items=(Item(Provenance.RECORD, request.previous), *evidence.items))
        chosen: list[Bullet] = []
        rejections = 0
        for bullet in bullets_for(request.purpose, evidence, f"{request.focus}\n{request.guidance}"):
            tokens = self.counter.text(bullet.text) + 1
            text = written(request.purpose, [*chosen, bullet])
            if tokens <= budget_tokens and _is_valid_size(text, request, source):
                chosen.append(bullet)
                budget_tokens, rejections = budget_tokens - tokens, 0
            elif (rejections := rejections + 1) > REJECTIONS:
                break
        return written(request.purpose, chosen)


def _is_valid_size(text: str, request: SummaryRequest, source: str) -> bool:
    if request.purpose is Purpose.DIGEST:
        return len(text.encode()) <= DIGEST_LIMIT_BYTES
    return request.purpose is Purpose.HANDOFF or len(text) < len(source)
