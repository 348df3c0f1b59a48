"""What one search of the archive finds: decisions planted in each data set, and the evidence of LoCoMo's questions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from statistics import mean
from typing import Any

import bm25s

from bench.archives import DATA, MemoryArchive, data_sets
from bench.retention.shares import Share
from sessionlib.counters import counter_named
from sessionlib.entries import Entry, EntryKind
from sessionlib.projection import Projection
from sessionlib.tools.declaration import Tool, ToolContext
from sessionlib.tools.history import SEARCH, history_tools
from workers.demo import DEFAULT_SEED, demo_session
from workers.demo_texts import AGENT_PHRASINGS, DECISIONS, USER_PHRASINGS
from workers.replay.history import recorded_entries

LIMIT_TOKENS = 600
"""What one search may return (spec/retention)."""

CAP_TOKENS = 10_000
"""Far more than that: the window plays no part here."""

PLANT_CHARACTERS = 16_000
"""One decision in so much text: 4,000 tokens, about."""

LEAST_PLANTS = 4

QUESTIONS = (
    "What did we decide about the {subject}?",
    "Which {subject} did we settle on?",
    "What is the {subject} now?",
    "Remind me what was agreed for the {subject}, and why.",
    "{subject}",
)
"""None has a word of a value."""

DEMO = "demo"

COUNTER = counter_named("o200k_base")

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A decision in an archive, and what is asked for it."""

    value: str
    """Stands nowhere else."""
    question: str


@dataclass(frozen=True, slots=True)
class Planted:
    """An archive with decisions in it."""

    entries: Sequence[Entry]
    plants: Sequence[Plant]


def planted_sets(seeds: int) -> Mapping[str, Sequence[Planted]]:
    """Every data set, once a seed: its decisions and their places differ. The demo session has its own."""
    made = {name: [planted(entries, seed) for seed in range(seeds)] for name, entries in data_sets().items()}
    return {DEMO: [demo_planted(seed) for seed in range(seeds)], **made}


def demo_planted(seed: int) -> Planted:
    """A demo session of another seed, with the decisions that it was written with."""
    session, random = demo_session(DEFAULT_SEED + seed), Random(seed)
    return Planted(
        tuple(recorded_entries(session.recording)),
        [Plant(value=each.value, question=_question(random, each.subject)) for each in session.planted],
    )


def planted(entries: Sequence[Entry], seed: int) -> Planted:
    """*entries* with decisions at random places, one in PLANT_CHARACTERS about, while there are subjects."""
    random, grown = Random(seed), list(entries)
    spoken = [place for place, entry in enumerate(entries) if entry.kind in (EntryKind.USER, EntryKind.ASSISTANT)]
    wanted = sum(len(entry.text) for entry in entries) // PLANT_CHARACTERS
    count = min(len(DECISIONS), len(spoken), max(LEAST_PLANTS, wanted))
    plants = []
    for (subject, shape, reason), place in zip(
        random.sample(DECISIONS, count), random.sample(spoken, count), strict=True
    ):
        value, entry = _value(random, shape), grown[place]
        phrasing = random.choice(USER_PHRASINGS if entry.kind is EntryKind.USER else AGENT_PHRASINGS)
        sentence = phrasing.format(subject=subject, value=shape.format(number=value, name=value), reason=reason)
        grown[place] = replace(entry, text=_inserted(random, entry.text, sentence))
        plants.append(Plant(value=value, question=_question(random, subject)))
    return Planted(grown, plants)


def _question(random: Random, subject: str) -> str:
    return random.choice(QUESTIONS).format(subject=subject)


def _value(random: Random, shape: str) -> str:
    """Drawn so widely that it occurs nowhere else."""
    return str(random.randrange(10**7, 10**8)) if "{number}" in shape else f"{random.getrandbits(40):010x}-x"


def _inserted(random: Random, text: str, sentence: str) -> str:
    """*text* with a sentence at one of its line or sentence borders."""
    places = [0, *(match.end() for match in re.finditer(r"[.!?]\s|\n", text)), len(text)]
    place = random.choice(places)
    return f"{text[:place].rstrip(' ')}\n{sentence}\n{text[place:]}"


Searcher = Callable[[str], str]
"""From a question to what is shown of the archive."""


def planted_share(sets: Sequence[Planted], made: Callable[[Sequence[Entry]], Searcher]) -> Share:
    """Of how many decisions the value is in what is shown; the question has no word of it."""
    share = Share()
    for each in sets:
        searcher = made(each.entries)
        for plant in each.plants:
            assert not set(_words(plant.value)) & set(_words(plant.question)), plant
            share += Share(plant.value in searcher(plant.question), 1)
    return share


def by_tool(entries: Sequence[Entry]) -> Searcher:
    """The product: `history.search` over postings as rotations leave them."""
    search = history_tools(MemoryArchive(entries), Projection(COUNTER, CAP_TOKENS))[SEARCH]
    return lambda question: _run(search, question)


def _run(search: Tool, question: str) -> str:
    context = ToolContext(session_id="s", turn_id="t", call_id="c", round=0)
    result = search.run(json.dumps({"query": question, "limit_tokens": LIMIT_TOKENS}), context)
    assert isinstance(result, str)
    return result


def by_plain_bm25(entries: Sequence[Entry]) -> Searcher:
    """The usual: BM25 over whole entries, split into lower-cased words, as many as fit."""
    texts = [entry.readable for entry in entries]
    order = plain_order(texts)
    return lambda question: "\n".join(_fitting([texts[place] for place in order(question)]))


def by_newest(entries: Sequence[Entry]) -> Searcher:
    """A control: the newest text that fits."""
    shown = "\n".join(_fitting([entry.readable for entry in reversed(entries)]))

    def search(question: str) -> str:
        del question
        return shown

    return search


def plain_order(texts: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """Places of *texts* by their BM25 score for a question, the best first."""
    index = bm25s.BM25()
    index.index([_words(text) or [""] for text in texts], show_progress=False)

    def order(question: str) -> Sequence[int]:
        words = [word for word in dict.fromkeys(_words(question)) if word in index.vocab_dict]
        scores = index.get_scores(words).tolist() if words else [0.0] * len(texts)
        return sorted(range(len(texts)), key=lambda place: -scores[place])

    return order


def _fitting(texts: Sequence[str]) -> Iterator[str]:
    """The first of *texts* that fit; the last is cut."""
    left_tokens = LIMIT_TOKENS
    for text in texts:
        tokens = _tokens(text)
        if tokens > left_tokens:
            yield text[: left_tokens * 3]  # a token has three characters at least, about
            return
        yield text
        left_tokens -= tokens


@cache
def _tokens(text: str) -> int:
    return COUNTER.text(text)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


# --- LoCoMo's own questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence recall over questions: the mean share of a question's evidence that is shown."""

    questions: int
    recall: float
    whole: Share
    """Questions all of whose evidence is shown."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One of LoCoMo's dialogues: an entry for each thing said, and questions with the entries that answer them."""

    entries: Sequence[Entry]
    questions: Sequence[tuple[str, AbstractSet[int]]]


def dialogues() -> Sequence[Dialogue]:
    """Those of the data set; none where it is absent. Questions whose answer the audit found wrong are left out."""
    path = DATA / "locomo5.json"
    return [_dialogue(each) for each in json.loads(path.read_text())["conversations"]] if path.is_file() else []


def _dialogue(conversation: Mapping[str, Any]) -> Dialogue:
    entries = [_said(each) for each in conversation["entries"]]
    seqs = {each["id"]: seq for seq, each in enumerate(conversation["entries"], 1)}
    questions = [
        (each["question"], frozenset(seqs[cited] for cited in _cited(each) if cited in seqs))
        for each in conversation["qa"]
        if each["category"] <= 4 and "audit" not in each  # 5 has no answer
    ]
    return Dialogue(entries, [(question, evidence) for question, evidence in questions if evidence])


def _said(each: Mapping[str, Any]) -> Entry:
    text = each["content"] + (f"\n[image: {each['image_caption']}]" if each.get("image_caption") else "")
    return Entry.user(text) if each["role"] == "user" else Entry.assistant(text)


def _cited(question: Mapping[str, Any]) -> Iterator[str]:
    for evidence in question["evidence"]:
        yield from re.findall(r"D\d+:\d+", evidence)


def evidence_recall(
    found: Sequence[Dialogue], made: Callable[[Dialogue], Callable[[str], AbstractSet[int]]]
) -> Evidence:
    """Over the questions of all dialogues; *made* gives the entries that are shown for a question."""
    shares, whole = [], Share()
    for dialogue in found:
        shown = made(dialogue)
        for question, evidence in dialogue.questions:
            held = len(evidence & shown(question))
            shares.append(held / len(evidence))
            whole += Share(held == len(evidence), 1)
    return Evidence(questions=len(shares), recall=mean(shares), whole=whole)


_HEADING = re.compile(r"^\[(\d+) (?:user|assistant)", re.MULTILINE)


def shown_by_tool(dialogue: Dialogue) -> Callable[[str], AbstractSet[int]]:
    """The entries that `history.search` shows, whole or in part."""
    searcher = by_tool(dialogue.entries)
    return lambda question: {int(seq) for seq in _HEADING.findall(searcher(question))}


def shown_by_plain_bm25(dialogue: Dialogue) -> Callable[[str], AbstractSet[int]]:
    """The best whole entries that fit, without any heading."""
    texts = [entry.readable for entry in dialogue.entries]
    order = plain_order(texts)

    def shown(question: str) -> AbstractSet[int]:
        places, left_tokens = set(), LIMIT_TOKENS
        for place in order(question):
            left_tokens -= _tokens(texts[place])
            if left_tokens < 0:
                break
            places.add(place + 1)
        return places

    return shown
