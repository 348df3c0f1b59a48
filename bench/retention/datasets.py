"""Recorded conversations with facts in them: LoCoMo, tau-bench, coding sessions, each with decisions planted as well.

They lie beside the checkout, or where SESSIONLIB_DATA says, and are no part of the project.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from bench.retention.conversation import AnswerProbe, Conversation, Fact, ValueProbe, causal, content_words
from bench.retention.made import decisions
from sessionlib.entries import Entry, EntryKind
from sessionlib.recordings import read_recording

BLOCKS = 50
"""A block is a fiftieth of a conversation."""

PLANTED_TOKENS = 3_200
"""One decision is planted in as many tokens: 27 in LoCoMo's five dialogues (spec/retention)."""

EXACT_FACTS = 150
"""Exact facts of a conversation at most, spread over it."""

HOLDERS = 4
"""A value that stands in more entries is no single fact."""

ANSWERED_CATEGORIES = (1, 2, 3, 4)
"""LoCoMo's questions with an answer (spec/retention)."""

CODING = ("claude_code_258c7280.json", "claude_code_4d5611e5.json", "claude_code_8463c716.json")

_VALUE = re.compile(
    r"(?<![\w$.-])(?:\$\d[\d,]*(?:\.\d+)?|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{4,23}|\d{4,9})(?![\w-])"
)
"""Amounts, identifiers of letters and digits, numbers of four digits or more."""

Units = tuple[tuple[Entry, ...], ...]
Candidates = list[tuple[Fact, frozenset[int]]]


def data_directory() -> Path:
    """Where the recordings should be."""
    return Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[3] / "shared" / "data")


def locomo(directory: Path) -> Conversation:
    """Five dialogues in one conversation, the speakers named; questions with their evidence are its facts."""
    document = json.loads((directory / "locomo5.json").read_text())
    entries: list[Entry] = []
    places: dict[tuple[int, str], int] = {}
    questions: list[tuple[int, dict[str, Any]]] = []
    for number, dialogue in enumerate(document["conversations"]):
        session = None
        for said in dialogue["entries"]:
            places[number, said["id"]] = len(entries)
            text = _line_of_dialogue(said, is_first=said["session"] != session)
            session = said["session"]
            entries.append(Entry.user(text) if said["role"] == "user" else Entry.assistant(text))
        questions += [(number, question) for question in dialogue["qa"]]
    units = _turns(entries)
    unit_of = _unit_of(units)
    candidates: Candidates = []
    for number, question in questions:
        evidence = [places.get((number, place)) for place in question["evidence"]]
        if _is_asked(question) and evidence and None not in evidence:
            found = frozenset(place for place in evidence if place is not None)
            probe = AnswerProbe(content_words(str(question["answer"])), content_words(question["question"]))
            if probe.answer and probe.question:
                candidates.append((Fact("qa", unit_of[max(found)], probe), found))
    return _conversation("locomo", units, causal(candidates, units))


def _is_asked(question: Mapping[str, Any]) -> bool:
    """Whether a question has an answer that nobody found wrong."""
    return question["category"] in ANSWERED_CATEGORIES and "answer" in question and "audit" not in question


def _line_of_dialogue(said: Mapping[str, Any], *, is_first: bool) -> str:
    """What was said, by whom; with the date, if it opens a session."""
    caption = f" [image: {said['image_caption']}]" if said.get("image_caption") else ""
    opening = f"[{said['time']}]\n" if is_first else ""
    return f"{opening}{said['name']}: {said['content']}{caption}"


def tau(directory: Path) -> Conversation:
    """Fifty episodes of a customer service agent as one conversation; ids and amounts are its facts."""
    return _recorded("tau", [directory / "tau_airline_gpt4o.json"])


def coding(directory: Path) -> Conversation:
    """Three sessions of a coding agent as one, by rounds; ids and numbers that were said in prose are its facts."""
    return _recorded("coding", [directory / name for name in CODING])


def _recorded(name: str, paths: Sequence[Path]) -> Conversation:
    units = tuple(unit for path in paths for unit in _rounds(path))
    return _conversation(name, units, _spread(causal(_exact(units), units), EXACT_FACTS))


def _rounds(path: Path) -> Iterator[tuple[Entry, ...]]:
    for turn in read_recording(path.read_bytes(), path.name).turns:
        entries = [Entry.user(turn.input)]
        for played in turn.rounds:
            entries += [Entry.assistant(played.text)] if played.text else []
            entries += [Entry.tool_call(call.call_id, call.arguments, call.name) for call in played.calls]
            entries += [Entry.tool_result(call_id, text) for call_id, text in played.results]
            yield tuple(entries)
            entries = []


def _exact(units: Units) -> Candidates:
    """Values that stand in prose and in few entries, each with the word before it as its anchor."""
    entries = [entry for unit in units for entry in unit]
    unit_of = _unit_of(units)
    holders: dict[str, set[int]] = {}
    for number, entry in enumerate(entries):
        for match in _VALUE.finditer(entry.text):
            holders.setdefault(match[0], set()).add(number)
    candidates: Candidates = []
    for value, found in holders.items():
        spoken = [at for at in sorted(found) if entries[at].kind in (EntryKind.USER, EntryKind.ASSISTANT)]
        if spoken and len(found) <= HOLDERS and (anchor := _anchor(entries[spoken[0]].text, value)):
            candidates.append((Fact("exact", unit_of[max(found)], ValueProbe(value, anchor)), frozenset(found)))
    return candidates


def _anchor(text: str, value: str) -> str:
    """The nearest plain word of four letters or more before the value in its line, or after it."""
    at = text.find(value)
    before = re.findall(r"[A-Za-z]{4,}", text[text.rfind("\n", 0, at) + 1 : at])
    after = re.findall(r"[A-Za-z]{4,}", text[at + len(value) : at + len(value) + 80])
    return before[-1] if before else after[0] if after else ""


def _spread(facts: Sequence[Fact], most: int) -> tuple[Fact, ...]:
    """At most so many of *facts*, evenly from the first to the last."""
    ordered = sorted(facts, key=lambda fact: fact.unit)
    step = max(1.0, len(ordered) / most)
    return tuple(ordered[int(at * step)] for at in range(min(most, len(ordered))))


def _turns(entries: Sequence[Entry]) -> Units:
    """A user message after an answer begins a turn."""
    units: list[list[Entry]] = []
    previous = EntryKind.ASSISTANT
    for entry in entries:
        if not units or (entry.kind is EntryKind.USER and previous is not EntryKind.USER):
            units.append([])
        units[-1].append(entry)
        previous = entry.kind
    return tuple(map(tuple, units))


def _unit_of(units: Units) -> list[int]:
    return [number for number, unit in enumerate(units) for _ in unit]


def _conversation(name: str, units: Units, facts: tuple[Fact, ...]) -> Conversation:
    return Conversation(name=name, units=units, facts=facts, block_units=max(1, len(units) // BLOCKS))


def planted(conversation: Conversation, seed: int) -> Conversation:
    """The conversation with decisions planted at the ends of answers, one in PLANTED_TOKENS tokens."""
    random = Random(seed)
    sums = list(accumulate(sum(len(entry.text) // 4 for entry in unit) for unit in conversation.units))
    starts = range(0, sums[-1] - PLANTED_TOKENS // 2, PLANTED_TOKENS)
    wanted = sorted({_unit_at(sums, start + random.randrange(PLANTED_TOKENS // 2)) for start in starts})
    chosen = {decision.turn: decision for decision in decisions(random, wanted)}
    units = tuple(
        _with_line(unit, chosen[number].text) if number in chosen else unit
        for number, unit in enumerate(conversation.units)
    )
    facts = (*conversation.facts, *(decision.fact for decision in chosen.values()))
    return Conversation(name=conversation.name, units=units, facts=facts, block_units=conversation.block_units)


def _unit_at(sums: Sequence[int], tokens: int) -> int:
    return next(number for number, total in enumerate(sums) if total > tokens)


def _with_line(unit: Sequence[Entry], line: str) -> tuple[Entry, ...]:
    """The unit with one more line at the end of what was last said in it; as a message where nothing was said."""
    spoken = [at for at, entry in enumerate(unit) if entry.kind in (EntryKind.USER, EntryKind.ASSISTANT)]
    if not spoken:
        return (Entry.assistant(line), *unit)
    at = spoken[-1]
    return (*unit[:at], Entry(unit[at].kind, f"{unit[at].text}\n{line}"), *unit[at + 1 :])


DATA_SETS: Mapping[str, Callable[[Path], Conversation]] = {"locomo": locomo, "tau": tau, "coding": coding}
"""Each needs its files; `made` needs none."""
