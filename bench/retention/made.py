"""A conversation that the bench writes itself: talk about an invented business, with decisions planted in it.

Deterministic: a seed gives the same conversation everywhere. A turn is a question of two lines and an answer of four,
170 tokens on average (characters ÷ 4). One decision stands in each block of turns, at a random place, in one of many
phrasings; its value occurs nowhere else. Nothing but planted lines has both a decision verb and a digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.retention.conversation import Conversation, Fact, ValueProbe
from sessionlib.entries import Entry

BLOCK_TURNS = 50
"""Turns of a block (spec/retention)."""

BLOCKS = 50
"""Blocks of a conversation (spec/retention): 2,500 turns, 425,000 tokens."""

PHRASINGS = (
    "We decided that {anchor} runs with {value} from now on, whatever the old page says.",
    "Agreed: {value} it is for {anchor}, and that will go into the handbook.",
    "Let us settle on {value} as the figure for {anchor}.",
    "After some back and forth the team chose {value} for {anchor}.",
    "As of this morning {anchor} was switched to {value}, which nobody should undo.",
    "Final word on {anchor}: we approved {value} and turned the other offer down.",
    "Please keep {anchor} at {value} until somebody from finance says otherwise.",
    "The owner of {anchor} confirmed {value} on the phone.",
    "For {anchor} they picked {value}, mostly because of the warranty.",
    "{value} replaces the old entry of {anchor}.",
    "It must be {value} for {anchor}; anything else breaks the import.",
    "Between the two we adopted {value}, so that is what {anchor} gets.",
)
"""How decisions are said. The probe knows none of this: it looks for the value near the anchor."""

_WORDS = """
first amber birch cobalt dusty early fern grand hollow iron jade keen lunar maple noble olive pale quiet
first rapid silver tidal
second anchor bridge canal depot ferry garden harbor island junction kiosk ledger market nursery orchard pier quarry
person Mara Jonas Priya Tomas Ines Walid Greta Hugo Nadia Oskar Lena Yusuf
"""
_PARTS = """
thing: the delivery list; the staging server; our second warehouse; the invoice template; the morning report
thing: the cooling unit; the loading dock; the supplier portal; the paint order; the training plan; the night shift
thing: the label printer; the customs form; the spare pallet jack; the newsletter; the parking permit; the audit folder
does: looks fine again after; is still waiting for; was mentioned once more in; has little to do with; came up during
does: makes more sense next to; got mixed up with; is described in the notes about; was late because of
does: reminds everybody of; arrived together with; was compared with
end: and nobody complained so far; but the details are hazy; which is a pity; as far as anyone can tell
end: and that took most of the afternoon; so there is time to think about it; although the weather played a part
end: and the team would like to hear more; while the radio was on; as it did last spring
"""


def _words(kind: str) -> list[str]:
    lines = (line.split() for line in _WORDS.strip().splitlines())
    return [word for name, *words in lines if name == kind for word in words]


def _parts(kind: str) -> list[str]:
    lines = (line.partition(": ") for line in _PARTS.strip().splitlines())
    return [part.strip() for name, _, parts in lines if name == kind for part in parts.split(";")]


_ANCHORS = [f"{first}-{second}" for first in _words("first") for second in _words("second")]
_PEOPLE, _THINGS, _DOES, _ENDS = _words("person"), _parts("thing"), _parts("does"), _parts("end")


@dataclass(frozen=True, slots=True)
class Decision:
    """A planted decision: its line stands in one turn."""

    turn: int
    anchor: str
    value: str
    phrasing: str

    @property
    def text(self) -> str:
        return self.phrasing.format(anchor=self.anchor, value=self.value)

    @property
    def fact(self) -> Fact:
        return Fact("planted", self.turn, ValueProbe(self.value, self.anchor))


def decisions(random: Random, turns: Sequence[int]) -> list[Decision]:
    """A decision for each of *turns*, no two with one anchor or value."""
    numbers = random.sample(range(10_000, 100_000), len(turns))
    forms = ("{}", "K-{}", "${}", "unit {}")
    return [
        Decision(turn, anchor, random.choice(forms).format(number), random.choice(PHRASINGS))
        for turn, anchor, number in zip(turns, random.sample(_ANCHORS, len(turns)), numbers, strict=True)
    ]


def made(seed: int, *, blocks: int = BLOCKS) -> Conversation:
    """Write the conversation of *seed*."""
    random = Random(seed)
    turns = [block * BLOCK_TURNS + random.randrange(BLOCK_TURNS) for block in range(blocks)]
    planted = {decision.turn: decision for decision in decisions(random, turns)}
    return Conversation(
        name="made",
        units=tuple(_turn(random, planted.get(turn)) for turn in range(blocks * BLOCK_TURNS)),
        facts=tuple(decision.fact for decision in planted.values()),
        block_units=BLOCK_TURNS,
    )


def _turn(random: Random, decision: Decision | None) -> tuple[Entry, ...]:
    question, answer = list(_sentences(random, 2)), list(_sentences(random, 4))
    if decision:
        said = random.choice((question, answer))
        said[random.randrange(len(said))] = decision.text
    return Entry.user("\n".join(question)), Entry.assistant("\n".join(answer))


def _sentences(random: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        person, thing, other = random.choice(_PEOPLE), *random.sample(_THINGS, 2)
        opening = random.choice((f"{person} says", f"In the {random.randrange(2, 99)} messages from {person}", person))
        yield f"{opening} that {thing} {random.choice(_DOES)} {other}, {random.choice(_ENDS)}."
