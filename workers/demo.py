"""The demo session: a coding agent at work on an invented repository, written by the project itself.

Deterministic: a seed gives the same session everywhere. It has what long sessions have: files, searches, failing tests
and their traces, diffs, JSON, file names of many scripts, calls in parallel, one very long result, turns of many
rounds. Decisions are planted from its first turn to its last; their values occur nowhere else in it, so that they can
be looked for in whatever is left of the session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import NamedTuple

from sessionlib.recordings import Recording
from workers import demo_texts as texts
from workers.demo_author import Author

DEFAULT_SEED = 20
TURN_COUNT = 44
LONG_TURNS = {10: "refactor", 22: "inventory", 31: "refactor"}
"""Turn index → what is done in it; the others take turns among `SHORT_KINDS`."""
SHORT_KINDS = ("repair", "change", "investigate")
NEAR_CHARACTERS = 240
"""How far the words of a subject may be from the value: a long sentence, or two short ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something that was settled in a turn. `value` is written like this once, in that turn."""

    turn_index: int
    subject: str
    value: str

    def is_in(self, text: str) -> bool:
        """True if *text* has the value near all words of the subject, in whatever phrasing."""
        for match in re.finditer(rf"(?<!\w){re.escape(self.value)}(?!\w)", text):
            near = text[max(0, match.start() - NEAR_CHARACTERS) : match.end() + NEAR_CHARACTERS].lower()
            if all(word in near for word in self.subject.split()):
                return True
        return False


@dataclass(frozen=True, slots=True)
class DemoSession:
    """The session in the shape of a recording, and what was planted in it, in order."""

    recording: Recording
    planted: tuple[Decision, ...]

    def found_in(self, text: str) -> tuple[Decision, ...]:
        """The planted decisions that *text* still tells."""
        return tuple(decision for decision in self.planted if decision.is_in(text))


def demo_session(seed: int = DEFAULT_SEED) -> DemoSession:
    """Write the session of *seed*."""
    author = Author(Random(seed))
    planted = _planted(Random(seed))
    kinds = [LONG_TURNS.get(index, SHORT_KINDS[index % len(SHORT_KINDS)]) for index in range(TURN_COUNT)]
    turns = tuple(author.turn(kind, _additions(planted.get(index))) for index, kind in enumerate(kinds))
    recording = Recording(source="demo", format="demo", turns=turns, instructions=texts.INSTRUCTIONS)
    return DemoSession(recording, tuple(plant.decision for plant in planted.values()))


class _Plant(NamedTuple):
    """A decision, the sentence that tells it, and where that stands: with the user, in a round, in the answer."""

    decision: Decision
    sentence: str
    place: str


def _additions(plant: _Plant | None) -> dict[str, str]:
    return {plant.place: plant.sentence} if plant else {}


def _planted(random: Random) -> dict[int, _Plant]:
    """The decisions by turn index, spread evenly from the first turn to the last."""
    # Five digits: whatever else the session counts, it has fewer.
    numbers = iter(random.sample(range(10_007, 99_991), len(texts.DECISIONS)))
    names = list(product(*texts.NAME_WORDS))
    random.shuffle(names)
    plants = {}
    for index, (subject, shape, reason) in enumerate(texts.DECISIONS):
        value = str(next(numbers)) if "{number}" in shape else "-".join(names[index])
        turn_index = round(index * (TURN_COUNT - 1) / (len(texts.DECISIONS) - 1))
        place = ("input", "round", "answer")[index % 3]
        phrasing = random.choice(texts.USER_PHRASINGS if place == "input" else texts.AGENT_PHRASINGS)
        sentence = phrasing.format(subject=subject, value=shape.format(number=value, name=value), reason=reason)
        plants[turn_index] = _Plant(Decision(turn_index=turn_index, subject=subject, value=value), sentence, place)
    return plants
