"""How long one search of a long archive takes, on SQLite and on a server, by the number of archived entries."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random

from bench.archives import chunked
from bench.figures import Spread
from bench.recall_questions import COUNTER, LIMIT_TOKENS, QUESTIONS
from sessionlib.agent import Agent
from sessionlib.archive import pack
from sessionlib.entries import Entry
from sessionlib.inputs import open_request, turn_input
from sessionlib.projection import Projection
from sessionlib.running import new_token
from sessionlib.running.history import SessionHistory, indexed
from sessionlib.stores.contract import (
    Adoption,
    Answer,
    Grant,
    Lane,
    RoundCommit,
    SessionStore,
    SubmitRequest,
)
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.tools.declaration import ToolContext
from sessionlib.tools.history import SEARCH, history_tools
from workers.demo import demo_session
from workers.demo_texts import DECISIONS
from workers.embedded import EmbeddedServer
from workers.replay.history import recorded_entries
from workers.settings import Settings
from workers.store import RedisStore

AGENT = Agent(name="searcher", window_tokens=32_000)

LARGEST_LINE = 10**9
"""A rotation line that nothing reaches: the bench rotates by itself."""

SAMPLED = 500
"""Entries that queries are taken from, spread over the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Searches of one archive."""

    store: str
    entries: int
    text_megabytes: float
    """Text that is searched."""
    milliseconds: Spread
    keeping_milliseconds: Spread
    """Making the postings of one rotation, merges included, since the size before."""


def timed(name: str, store: SessionStore, sizes: Sequence[int], searches: int) -> Iterator[Timed]:
    """Searches at each size of one session that grows, each by a reader that knows nothing yet."""
    session_id = f"s-{uuid.uuid4().hex}"
    store.open(open_request(session_id, AGENT, (), False))
    texts, archived, sampled, keeping = demo_entries(), 0, list[Entry](), list[float]()
    characters = 0
    for size in sizes:
        entries = list(islice(texts, size - archived))
        for chunk in chunked(entries):
            keeping.append(_archived(store, session_id, chunk))
        archived, characters = size, characters + sum(len(entry.text) for entry in entries)
        sampled += Random(size).sample(entries, min(SAMPLED, len(entries)))
        took = [_search(store, session_id, query) for query in _queries(sampled, searches + 1)]
        yield Timed(
            store=name,
            entries=size,
            text_megabytes=characters / 10**6,
            milliseconds=Spread.of(took[1:]),  # the first one loads numpy and the counter
            keeping_milliseconds=Spread.of(keeping),
        )
        keeping = []


def demo_entries() -> Iterator[Entry]:
    """Entries of demo sessions, each by another seed, without end: files, traces, logs, talk; 560 characters each."""
    for seed in count():
        yield from recorded_entries(demo_session(seed).recording)


def _queries(sampled: Sequence[Entry], number: int) -> Iterator[str]:
    """Questions, single words and runs of eight words of the archive, by turns."""
    random = Random(number)
    for place in range(number):
        words = random.choice(sampled).text.split() or ["nothing"]
        start = random.randrange(len(words))
        match place % 3:
            case 0:
                yield random.choice(QUESTIONS).format(subject=random.choice(DECISIONS)[0])
            case 1:
                yield words[start]
            case _:
                yield " ".join(words[start : start + 8])


def _search(store: SessionStore, session_id: str, query: str) -> float:
    """Milliseconds of one call of the tool."""
    snapshot, projection = store.snapshot(session_id), Projection(COUNTER, LIMIT_TOKENS * 4)
    context = ToolContext(session_id=session_id, turn_id="t", call_id="c", round=0)
    arguments = json.dumps({"query": query, "limit_tokens": LIMIT_TOKENS})
    begun = time.perf_counter()
    history_tools(SessionHistory(store, projection, lambda: snapshot), projection)[SEARCH].run(arguments, context)
    return (time.perf_counter() - begun) * 1_000


def _archived(store: SessionStore, session_id: str, entries: Sequence[Entry]) -> float:
    """Record *entries* as one turn and archive them as a rotation does; milliseconds that their postings took."""
    turn_id = uuid.uuid4().hex
    made = turn_input(AGENT, "go on", None)
    store.submit(SubmitRequest(session_id=session_id, turn_id=turn_id, input=made))
    grant = _granted(store, session_id, Lane.TURN)
    commit = RoundCommit(
        round=0,
        commit_token=new_token(),
        epoch=grant.snapshot.epoch,
        entries=tuple(entries),
        sizes=(1,) * len(entries),
        calibration=1.0,
        line_tokens=LARGEST_LINE,
        input_index=0,
        answer=Answer(text=""),
    )
    store.commit(grant, commit)
    store.request_rotation(session_id, "asked")
    grant = _granted(store, session_id, Lane.ROTATION)
    first_seq = grant.snapshot.layout.live.first_seq
    begun = time.perf_counter()
    kept = indexed(store, session_id, entries, first_seq)
    took = (time.perf_counter() - begun) * 1_000
    assert kept is not None
    adopted = store.adopt(
        grant,
        Adoption(
            layout_token=new_token(),
            first_seq=first_seq,
            dropped_count=len(entries),
            dropped_tokens=len(entries),
            old_layout_token=grant.snapshot.layout_token,
            tail_seq=first_seq + len(entries) - 1,
            tail_token=grant.snapshot.tail_token,
            records=(),
            chunk=pack(entries),
            postings=kept.postings,
            merged_count=kept.merged_count,
            line_tokens=LARGEST_LINE,
            figures={},
        ),
    )
    assert adopted.is_adopted, adopted
    return took


def _granted(store: SessionStore, session_id: str, lane: Lane) -> Grant:
    grant = store.begin(session_id, lane, new_token())
    assert isinstance(grant, Grant), grant
    return grant


@contextmanager
def stores() -> Iterator[dict[str, SessionStore]]:
    """A SQLite file and an embedded server, both removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="sessionlib-") as directory, EmbeddedServer() as server:
        server_store = RedisStore.connect(Settings.read().for_embedded(server.url))
        try:
            with SqliteStore(Path(directory) / "sessions.sqlite") as sqlite:
                yield {"SQLite": sqlite, "server": server_store}
        finally:
            server_store.close_connections()
