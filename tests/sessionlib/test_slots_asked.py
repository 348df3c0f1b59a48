"""What a level asks of whoever summarizes, and sessions whose agents age by `slots`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from sessionlib import Agent, LogMerge, Session, Slots, Tiers
from sessionlib.archive import unpack
from sessionlib.codec import decode, encode
from sessionlib.entries import EntryKind
from sessionlib.layout import Level, Record
from sessionlib.providers.contract import ModelRequest, Shape
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.summaries.contract import ConsolidationRequest
from sessionlib.summaries.extractive import ExtractiveSummarizer
from sessionlib.summaries.prompts import INSTRUCTIONS, LEVEL_CLAUSES, TERSE_CLAUSE, compose
from sessionlib.summaries.purposes import Purpose
from sessionlib.tokens import CharactersCounter
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.rotating import Driven, budgets_of, planned
from tests.sessionlib.summarizing import consolidation, never, request_for, summarizer, summary
from tests.sessionlib.test_slots import with_slots
from tests.waiting import wait_for

MARKER = "00000000000000a0"
LONG = "The build of module alpha-7 failed with error 1234 in src/alpha.py. " * 12
WINDOW_TOKENS = 8_000


@pytest.mark.parametrize(
    ("level", "wish"),
    [
        (Level.LOW, "Be concise."),
        (Level.MEDIUM, "keep only decisions, facts and open threads"),
        (Level.HIGH, "essentials only: one or two lines"),
    ],
)
def test_a06_each_level_has_its_clause(level: Level, wish: str) -> None:
    """Pieces are peers of one span, repetition collapses, and one clause says how much to leave out."""
    clause = LEVEL_CLAUSES[level]
    assert wish in clause
    assert "peers: parts of one span" in clause
    assert "collapse the repetition" in clause
    assert [other for other in Level if wish in LEVEL_CLAUSES[other]] == [level]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("terse", [False, True])
def test_a06_the_clause_is_appended_to_the_instruction(level: Level, terse: bool) -> None:
    """Base, clause, material: the document is as without a level, and no length is asked for."""
    plain = compose(request_for(Purpose.CONTINUATION), MARKER)
    prompt = compose(request_for(Purpose.CONTINUATION, level=level, terse=terse), MARKER)
    parts = [INSTRUCTIONS[Purpose.CONTINUATION], LEVEL_CLAUSES[level], *([TERSE_CLAUSE] if terse else [])]
    assert prompt.instructions == "\n\n".join(parts)
    assert prompt.document == plain.document
    assert not re.search(r"\d|\b(words?|tokens?|characters?|sentences?|at most|limit)\b", LEVEL_CLAUSES[level])


def test_without_a_level_nothing_is_appended() -> None:
    """As policies without levels ask."""
    assert compose(request_for(Purpose.CONTINUATION), MARKER).instructions == INSTRUCTIONS[Purpose.CONTINUATION]


@pytest.mark.parametrize("level", Level)
def test_the_level_reaches_the_models_prompt(level: Level) -> None:
    """From the request of the policy to the instructions of the call, whose name tells levels apart."""
    provider = ScriptedProvider(lambda request: summary(Purpose.CONTINUATION))
    asked = summarizer(provider)
    asked.consolidate(consolidation(level=level), never)
    asked.consolidate(consolidation(), never)
    with_level, without = provider.requests
    assert with_level.instructions == f"{without.instructions}\n\n{LEVEL_CLAUSES[level]}"
    assert with_level.turn_id != without.turn_id


@pytest.mark.parametrize(
    ("level", "tier", "expected_tokens"),
    [
        (None, 1, 2_500),
        (Level.LOW, 1, 2_500),
        (Level.MEDIUM, 1, 1_250),
        (Level.HIGH, 1, 625),
        (Level.LOW, 2, 5_000),
        (Level.MEDIUM, 2, 2_500),
        (Level.HIGH, 2, 1_250),
    ],
)
def test_the_extractive_summarizer_leaves_less_at_a_higher_level(
    level: Level | None, tier: int, expected_tokens: int
) -> None:
    """All, a half, a quarter of what it chooses without a level."""
    request = ConsolidationRequest(
        tier=tier, first_seq=1, last_seq=9, material="x" * 40_000, budget_tokens=100_000, level=level
    )
    assert ExtractiveSummarizer(counter=CharactersCounter()).budget_tokens(request) == expected_tokens


def test_every_request_of_a_rotation_has_its_level() -> None:
    """A second, terser attempt and each chunk included."""
    policy = Slots(verbatim_rounds=4)
    plan = planned(with_slots(0, 0, 4, level=Level.LOW, since=4), budgets_of(policy, 8_000))
    driven = Driven(lambda request: "" if request.terse else request.material * 2)
    driven.rotate(plan, policy, summarizer_window_tokens=3_000)
    assert {effect.request.terse for effect in driven.effects.values()} == {False, True}
    assert len(driven.effects) > 4
    assert {effect.request.level for effect in driven.effects.values()} == {Level.MEDIUM}


def test_a_stored_record_keeps_its_level() -> None:
    """And one that was stored before there were levels is read."""
    record = Record(first_seq=1, last_seq=2, text="x", tokens=5, level=Level.HIGH, rotated_seq=9)
    stored = encode(record)
    assert decode(Record, stored) == record
    older = stored.replace(',"level":"high","rotated_seq":9', "")
    assert "level" not in older
    assert decode(Record, older) == Record(first_seq=1, last_seq=2, text="x", tokens=5)


def agent(**fields: object) -> Agent:
    return Agent(name="coder", **{"window_tokens": WINDOW_TOKENS, "policy": Slots(), **fields})


def history(session: Session) -> list[str]:
    """The texts of everything that was ever recorded: archive, then live entries."""
    chunks = session.store.chunks(session.session_id)
    archived = (entry for chunk in chunks for entry in unpack(chunk.data))
    return [entry.text for entry in (*archived, *session.layout().live.entries)]


def talk(session: Session, epochs: int, name: str = "") -> list[str]:
    """Send long messages until so many more rotations were adopted; what was sent."""
    sent, due = list[str](), session.view().epoch + epochs
    while session.view().epoch < due:
        sent.append(f"{name}{len(sent)} {LONG}")
        session.send(sent[-1])
        wait_for(lambda: session.view().rotation_id is None, what="the rotation to end")
        assert len(sent) < 400
    return sent


def assert_covered(session: Session) -> None:
    """Records stand for everything before the live entries, without gap or overlap."""
    layout = session.layout()
    assert layout.records[0].first_seq == 1
    assert layout.records[-1].last_seq + 1 == layout.live.first_seq
    assert all(older.last_seq + 1 == newer.first_seq for older, newer in pairwise(layout.records))


@pytest.mark.parametrize("shape", Shape)
def test_a_session_ages_by_slots(shape: Shape) -> None:
    """Six rotations: a fold on the way, all covered, nothing lost, every request within the window."""
    provider = ScriptedProvider(shape=shape)
    made = agent()
    with Session(made, {"default": provider}) as session:
        sent = talk(session, 6)
        assert_covered(session)
        assert [record.tier for record in session.layout().records] == [2, 1, 1]
        assert [text for text in history(session) if text in sent] == sent
        figures = [event.data for event in session.audit() if event.kind == "rotated"]
    assert [outcome["level"] for outcome in figures] == ["low"] * 6
    counter = made.own_counter
    line_tokens = made.budgets(counter).line_tokens
    assert all(outcome["tokens_after"] <= 0.8 * line_tokens for outcome in figures)


def test_a16_old_provider_sessions_are_disposed_of() -> None:
    """After three rotations only the newest is left."""
    provider = ScriptedProvider(shape=Shape.HELD)
    with Session(agent(), {"default": provider}) as session:
        talk(session, 3)
        session.send("after")
        wait_for(lambda: len(provider.handles) == 1, what="the old provider sessions to be disposed of")
        assert len(provider.disposed) >= 3


def test_the_clause_reaches_the_model_of_a_session() -> None:
    """Its consolidations are asked for at the level of the rotation; seeded records name their entries."""
    asked = list[ModelRequest]()

    def summarize(request: ModelRequest) -> str:
        asked.append(request)
        return summary(Purpose.CONTINUATION)

    providers = {"default": (provider := ScriptedProvider()), "summaries": ScriptedProvider(summarize)}
    workload = ConsolidationWorkload(summarizer="model", provider="summaries")
    with Session(agent(consolidation=workload), providers) as session:
        talk(session, 2)
        session.send("after")
        spans = [(record.first_seq, record.last_seq) for record in session.layout().records]
    assert asked
    assert all(LEVEL_CLAUSES[Level.LOW] in request.instructions for request in asked)
    seeded = [entry.text for entry in provider.requests[-1].entries if entry.kind is EntryKind.RECORD]
    assert len(seeded) == len(spans) == 2
    assert all(f"[entries {first}-{last}]" in text for text, (first, last) in zip(seeded, spans, strict=True))


@contextmanager
def opened(path: Path, policy: LogMerge | Tiers | Slots) -> Iterator[Session]:
    with Session(agent(policy=policy), {"default": ScriptedProvider()}, path=path) as session:
        yield session


@pytest.mark.parametrize("other", [LogMerge(), Tiers()], ids=["log_merge", "tiers"])
def test_a_living_session_changes_its_policy_there_and_back(tmp_path: Path, other: LogMerge | Tiers) -> None:
    """A new version of its agent: the next rotation plans from the layout that is there, and nothing is lost."""
    sent = list[str]()
    for number, policy in enumerate((other, Slots(), other, Slots())):
        with opened(tmp_path / "s.db", policy) as session:
            sent += talk(session, 2, f"policy {number}, ")
            assert_covered(session)
            assert [text for text in history(session) if text in sent] == sent
            newest = session.layout().records[-1]
            assert (newest.level is not None) == isinstance(policy, Slots)


def test_an_agent_names_the_policy_by_its_kind() -> None:
    """As a table does, and in its description, from which it is made again."""
    made = agent(policy={"kind": "slots", "verbatim_rounds": 6})
    assert made.policy == Slots(verbatim_rounds=6)
    assert '"kind":"slots"' in made.description()
    assert made.digest != agent().digest
