"""The lossy summarizer: a model of how models forget, deterministic and free (spec/retention).

A text is lines. How long an answer is follows from how much is shown: 0.30 · tokens^0.78. The demand is 0.3 of what is
new and all of what was written by the summarizer before; the smaller the answer beside the demand, the fewer lines
survive. Key lines, those with a decision verb and a digit, nearly all survive one pass: what is lost is lost by being
rewritten again and again. Tokens are characters ÷ 4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import ClassVar

from sessionlib.summaries.contract import Consolidated, ConsolidationRequest

LENGTH_FACTOR, LENGTH_EXPONENT, LEAST_TOKENS = 0.30, 0.78, 60
"""Length of an answer in tokens: factor · input^exponent, at least this many (spec/retention)."""

RAW_DEMAND = 0.3
"""What new material demands, as a share of it; what was written before demands all of itself (spec/retention)."""

KEY_SURVIVAL, KEY_PRESSURE = 0.99, 0.046
PLAIN_SURVIVAL, PLAIN_PRESSURE = 0.97, 0.81
"""A line survives a pass with probability survival · (length ÷ demand)^pressure (spec/retention)."""

KEY_SHARE = 0.8
"""Share of an answer that key lines have first (spec/retention)."""

KEPT_SURVIVAL = 0.95
"""The variant that keeps lets each line of the previous record stay with this probability (spec/retention)."""

WORDY_FACTOR = 3
"""The wordy variant's answers are longer by this factor (spec/retention)."""

TERSE_FACTOR = 0.5
"""A second attempt is half as long. Nothing was measured here: it is what the extractive summarizer does."""

_DECISION = re.compile(
    r"\b(decid|decision|agree|settl|cho[os]s?e|chosen|switch|reject|approv|confirm|fix(ed)?\b|set\b|must\b|cancel|book(ed)?\b"
    r"|pick|adopt|keep\b|kept\b|rul(ed|ing)\b|replac|chang(e|ed)\b)",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_LINE_END = re.compile(r"\n|(?<=[.!?]) +(?=\S)")
LONGEST_LINE_CHARACTERS = 240
"""A longer line is taken apart at the ends of its sentences, and cut where there are none: data and logs."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Line:
    """A line, what it takes with its line break, and whether it says that something was decided."""

    text: str
    tokens: float
    is_key: bool
    hashed: int


@lru_cache(maxsize=400_000)
def _line(text: str) -> Line:
    is_key = bool(_DIGIT.search(text) and _DECISION.search(text))
    return Line(text, (len(text) + 1) / 4, is_key, int.from_bytes(blake2b(text.encode(), digest_size=8).digest()))


@lru_cache(maxsize=100_000)
def _lines_of_one(text: str) -> tuple[Line, ...]:
    if len(text) <= LONGEST_LINE_CHARACTERS:
        return (_line(text),) if text.strip() else ()
    parts = (part for sentence in _LINE_END.split(text) if sentence for part in _cut(sentence))
    return tuple(_line(part) for part in parts if part.strip())


def _cut(text: str) -> Iterator[str]:
    """Parts of a long line, broken at blanks: a value that is broken would look made up."""
    while len(text) > LONGEST_LINE_CHARACTERS:
        at = text.rfind(" ", LONGEST_LINE_CHARACTERS // 2, LONGEST_LINE_CHARACTERS) + 1
        at = at or text.find(" ", LONGEST_LINE_CHARACTERS) + 1 or len(text)
        yield text[:at]
        text = text[at:]
    yield text


def lines_of(text: str) -> list[Line]:
    """The lines of a text that say anything."""
    return [line for whole in text.split("\n") for line in _lines_of_one(whole)]


def draw(seed: int, call: int, hashed: int) -> float:
    """A number in [0, 1) that depends on nothing else (splitmix64 of the three)."""
    x = (hashed ^ (seed * 0x9E3779B97F4A7C15) ^ (call * 0xD1342543DE82EF95)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) / 2**64


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line at its place in the source, with what was drawn for it."""

    position: int
    line: Line
    margin: float
    """Drawn number ÷ probability: below 1 the line survives, and the lower, the sooner it is taken."""


Choose = Callable[[Sequence[Drawn], float], list[Drawn]]
"""Which of the lines an answer of so many tokens holds."""


def surviving(drawn: Sequence[Drawn], length_tokens: float) -> list[Drawn]:
    """Lines that survived, cut to the length, key lines first until they have their share."""
    survivors = sorted((each for each in drawn if each.margin < 1), key=lambda each: each.margin)
    chosen: list[Drawn] = []
    used = 0.0
    for each in survivors:
        if each.line.is_key and used < KEY_SHARE * length_tokens and used + each.line.tokens <= length_tokens:
            chosen.append(each)
            used += each.line.tokens
    rest, _ = _taken([each for each in survivors if not each.line.is_key], length_tokens, used)
    return [*chosen, *rest]


def newest(drawn: Sequence[Drawn], length_tokens: float) -> list[Drawn]:
    """A control: the newest lines of the same length."""
    return _taken(drawn[::-1], length_tokens, 0.0, is_suffix=True)[0]


def at_random(drawn: Sequence[Drawn], length_tokens: float) -> list[Drawn]:
    """A control: lines at random, of the same length."""
    return _taken(sorted(drawn, key=lambda each: (each.margin, each.position)), length_tokens, 0.0)[0]


def _taken(
    drawn: Sequence[Drawn], limit_tokens: float, used: float, *, is_suffix: bool = False
) -> tuple[list[Drawn], float]:
    chosen: list[Drawn] = []
    for each in drawn:
        if used + each.line.tokens <= limit_tokens:
            chosen.append(each)
            used += each.line.tokens
        elif is_suffix:
            break
    return chosen, used


@dataclass(slots=True, kw_only=True)
class LossySummarizer:
    """One run's summarizer; it counts its calls. What its calls cost is tokens shown and answered, without a prompt."""

    seed: int
    keeps: bool = False
    wordy: bool = False
    choose: Choose = surviving
    even_odds: bool = False
    """All lines alike: for the controls, which know no key lines."""
    call_count: int = field(default=0, init=False)
    window_tokens: ClassVar[int] = 1_000_000

    def consolidate(self, request: ConsolidationRequest, cancelled: Callable[[], bool]) -> Consolidated:
        """One pass over previous record and material. Levels are ignored, as lengths that are asked for are."""
        del cancelled
        self.call_count += 1
        previous, material = lines_of(request.previous_record), lines_of(request.material)
        shown_tokens = (len(request.previous_record) + len(request.material)) / 4
        lines = material if self.keeps else [*previous, *material]
        dense_tokens = 0.0 if self.keeps else sum(line.tokens for line in previous)
        material_tokens = sum(line.tokens for line in material)
        is_dense = request.tier > 1  # material of a coarser record is records
        demand_tokens = dense_tokens + material_tokens * (1.0 if is_dense else RAW_DEMAND)
        length_tokens = self._length(shown_tokens, demand_tokens, terse=request.terse)
        answer = self._pass(lines, length_tokens, min(1.0, length_tokens / demand_tokens))
        if self.keeps:
            kept = [line for line in previous if draw(self.seed, self.call_count, line.hashed) < KEPT_SURVIVAL]
            answer = [*kept, *answer]
        text = "\n".join(line.text for line in answer)
        return Consolidated(
            text=text, prompt_tokens=math.ceil(shown_tokens), completion_tokens=math.ceil(len(text) / 4)
        )

    def _length(self, shown_tokens: float, demand_tokens: float, *, terse: bool) -> float:
        length_tokens: float = max(LEAST_TOKENS, LENGTH_FACTOR * math.pow(shown_tokens, LENGTH_EXPONENT))
        length_tokens *= (WORDY_FACTOR if self.wordy else 1) * (TERSE_FACTOR if terse else 1)
        return min(length_tokens, demand_tokens)

    def _pass(self, lines: Sequence[Line], length_tokens: float, room: float) -> list[Line]:
        """The lines of an answer of at most *length_tokens*, in their order; at least one."""
        key, plain = KEY_SURVIVAL * room**KEY_PRESSURE, PLAIN_SURVIVAL * room**PLAIN_PRESSURE
        drawn = [
            Drawn(
                position,
                line,
                draw(self.seed, self.call_count, line.hashed)
                / (1.0 if self.even_odds else key if line.is_key else plain),
            )
            for position, line in enumerate(lines)
        ]
        chosen = self.choose(drawn, length_tokens)
        if not chosen:
            return [min(drawn, key=lambda each: (each.line.tokens > length_tokens, each.margin)).line]
        return [each.line for each in sorted(chosen, key=lambda each: each.position)]


VARIANTS = {"terse": (False, False), "keeps": (True, False), "wordy": (False, True), "both": (True, True)}
"""Variant → (keeps, wordy)."""
