"""A conversation that is played through policies, and the facts that are looked for afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from sessionlib.entries import Entry

NEAR_CHARACTERS = 160
"""How far an anchor may be from its value: a sentence, or the one beside it."""

SENTENCES_AROUND = 2
"""An answer may spread over a sentence and this many on either side (spec/retention)."""

ANSWER_SHARE, SHORT_ANSWER_WORDS, QUESTION_SHARE = 0.75, 3, 1 / 3
"""How many content words of the answer must be there (all, of a short one), and of the question (spec/retention)."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
_WORD = re.compile(r"\w+(?:[.:/]\w+)*")
_STOPPED = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be been by can could did do does for from had has have he her his how i if in is it its
        might of on or she so that the their them they this to was were what when where which who why will with would
        you your s t""",
    )
)


def content_words(text: str) -> frozenset[str]:
    """The words of *text* that say something."""
    return frozenset(word for word in _WORD.findall(text.casefold()) if word not in _STOPPED)


@lru_cache(maxsize=100_000)
def _sentence_words(sentence: str) -> frozenset[str]:
    return content_words(sentence)


class Passages:
    """Texts in which facts are looked for: records and live entries, or a whole transcript."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._stretches: list[tuple[int, frozenset[str]]] | None = None

    def stretches(self) -> list[tuple[int, frozenset[str]]]:
        """The content words of each sentence with its neighbours, and which text it is in; none crosses two texts."""
        if self._stretches is None:
            self._stretches = [
                (number, words) for number, text in enumerate(self.texts) for words in _words_around(text)
            ]
        return self._stretches


@lru_cache(maxsize=20_000)
def _words_around(text: str) -> tuple[frozenset[str], ...]:
    words = [_sentence_words(sentence) for sentence in _SENTENCE_END.split(text) if sentence.strip()]
    return tuple(
        frozenset().union(*words[max(0, at - SENTENCES_AROUND) : at + SENTENCES_AROUND + 1]) for at in range(len(words))
    )


class Probe(Protocol):
    """Says where a fact is told, without a judge."""

    def found_in(self, passages: Passages) -> frozenset[int]:
        """Which of the texts tell it, by their positions."""
        ...


@dataclass(frozen=True, slots=True)
class ValueProbe:
    """A literal value near one of its anchor's words, in whatever phrasing."""

    value: str
    anchor: str

    def found_in(self, passages: Passages) -> frozenset[int]:
        return frozenset(number for number, text in enumerate(passages.texts) if self._is_in(text))

    def _is_in(self, text: str) -> bool:
        at = text.find(self.value)
        while at >= 0:
            end = at + len(self.value)
            near = text[max(0, at - NEAR_CHARACTERS) : end + NEAR_CHARACTERS]
            if self.anchor in near and not text[at - 1 : at].isalnum() and not text[end : end + 1].isalnum():
                return True
            at = text.find(self.value, end)
        return False


@dataclass(frozen=True, slots=True)
class AnswerProbe:
    """A question's answer: enough of its words close together, with some of the question's."""

    answer: frozenset[str]
    question: frozenset[str]

    def found_in(self, passages: Passages) -> frozenset[int]:
        return frozenset(number for number, words in passages.stretches() if self._is_told_by(words))

    def _is_told_by(self, words: frozenset[str]) -> bool:
        if len(self.answer) <= SHORT_ANSWER_WORDS:
            if not self.answer <= words:
                return False
        elif len(self.answer & words) < ANSWER_SHARE * len(self.answer):
            return False
        return len(self.question & words) >= QUESTION_SHARE * len(self.question)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was said. `unit` is the index of the unit with its last evidence."""

    kind: str
    unit: int
    probe: Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation in units: a turn, or a round of one where turns are as long as sessions."""

    name: str
    units: tuple[tuple[Entry, ...], ...]
    facts: tuple[Fact, ...]
    block_units: int
    """Ages are counted in blocks of this many units."""

    @property
    def texts(self) -> list[str]:
        return [entry.text for unit in self.units for entry in unit]


def causal(candidates: Sequence[tuple[Fact, frozenset[int]]], units: Sequence[Sequence[Entry]]) -> tuple[Fact, ...]:
    """The facts that the whole transcript tells and the transcript without their evidence does not.

    Each candidate comes with the positions of its evidence among all entries.
    """
    passages = Passages(entry.text for unit in units for entry in unit)
    kept = []
    for fact, evidence in candidates:
        found = fact.probe.found_in(passages)
        if found and found <= evidence:
            kept.append(fact)
    return tuple(kept)
