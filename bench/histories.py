"""Sessions with a history of a given length, most of it archived: real commits, real rotations, no model."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from bench.agents import answer, message
from sessionlib.agent import Agent
from sessionlib.entries import Entry
from sessionlib.inputs import open_request, turn_input
from sessionlib.running import Engine, new_token, run_rotation
from sessionlib.stores.contract import Answer, Committed, Grant, Lane, RoundCommit, SubmitRequest
from sessionlib.tokens import Counter
from sessionlib.window import sent_sizes

ENTRY_TOKENS = 140
"""Tokens of an entry of a conversation, on average."""

TURN_ENTRIES = 40
"""Entries of one building turn: many, so that ten thousand take seconds; few enough that no turn passes the line by
much."""


def conversation(session_id: str, entry_count: int) -> Iterator[Entry]:
    """Messages and answers by turns."""
    for number in range(entry_count):
        text = answer(f"{session_id} {number}") if number % 2 else message(session_id, number)
        yield Entry.assistant(text) if number % 2 else Entry.user(text)


def build(engine: Engine, agent: Agent, entry_count: int) -> str:
    """Open a session of *agent* with *entry_count* entries, just rotated; its id."""
    session_id = f"s-{uuid.uuid4().hex}"
    engine.store.open(open_request(session_id, agent, (), False))
    counter, entries = agent.own_counter, tuple(conversation(session_id, entry_count))
    for start in range(0, entry_count, TURN_ENTRIES):
        committed = _record(engine, agent, counter, session_id, entries[start : start + TURN_ENTRIES])
        if committed.rotation_id:
            run_rotation(engine, session_id)
    rotate(engine, session_id)
    return session_id


def rotate(engine: Engine, session_id: str) -> None:
    """Let a session begin again with its records and its tail."""
    engine.store.request_rotation(session_id, "asked")
    run_rotation(engine, session_id)


def submit(engine: Engine, agent: Agent, session_id: str, text: str) -> str:
    """Accept a turn, as a client does; its id."""
    turn_id = uuid.uuid4().hex
    made = turn_input(agent, text, None)
    engine.store.submit(SubmitRequest(session_id=session_id, turn_id=turn_id, input=made))
    return turn_id


def _record(engine: Engine, agent: Agent, counter: Counter, session_id: str, entries: tuple[Entry, ...]) -> Committed:
    """Record *entries* as one turn."""
    submit(engine, agent, session_id, entries[0].text)
    grant = engine.store.begin(session_id, Lane.TURN, new_token())
    assert isinstance(grant, Grant), grant
    budgets = agent.budgets(counter)
    commit = RoundCommit(
        round=0,
        commit_token=new_token(),
        epoch=grant.snapshot.epoch,
        entries=entries,
        sizes=sent_sizes(entries, budgets, counter),
        calibration=1.0,
        line_tokens=budgets.line_tokens,
        input_index=0,
        answer=Answer(text=entries[-1].text),
    )
    return engine.store.commit(grant, commit)
