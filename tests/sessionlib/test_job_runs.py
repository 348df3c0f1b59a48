"""Runs of summaries against a store: what happens when workers, catalogs and sessions change meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessionlib.agent import Agent, Journal
from sessionlib.catalog import Catalog
from sessionlib.entries import Entry
from sessionlib.errors import ProviderUnavailable, StoreUnavailable, SummaryFailed
from sessionlib.handoffs import handoff_of
from sessionlib.inputs import handoff_request, open_request
from sessionlib.providers.contract import ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.running import Engine, Held, publish_digests, run_digest, run_handoff, run_rotation, unobserved
from sessionlib.stores.contract import Grant, JournalEntry, Lane, Limits
from sessionlib.stores.sqlite import SqliteStore
from sessionlib.summaries.purposes import Purpose
from sessionlib.workloads import Choice, ConsolidationWorkload, SummaryWorkload
from tests.sessionlib.summarizing import summary

FAST = SummaryWorkload(choice="fast")
AGENT = Agent(name="coder", model="m", window_tokens=32_000, handoff=FAST, journal=Journal(digest=FAST))
HISTORY = (Entry.user("Is the pump blue?"), Entry.assistant("The pump P-17 is blue."))


class Kept:
    is_lost = False


@contextmanager
def held(_grant: Grant) -> Iterator[Held]:
    yield Kept()


@dataclass
class Model:
    """Makes every summary, keeps which models were asked for it, and first does what it is told."""

    first: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, request: ModelRequest) -> ModelReply:
        self.asked.append(request.model)
        self.first()
        purpose = Purpose(request.entries[0].text.split("\n")[0].removeprefix("Purpose: "))
        return ModelReply(text=summary(purpose))


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    made = SqliteStore()
    made.open(open_request("s", AGENT, HISTORY, False))
    yield made
    made.close_connections()


def engine_of(
    store: Any, model: Model, choices: dict[str, Choice], agents: tuple[Agent, ...] = (), provider: str = "default"
) -> Engine:
    """A worker's engine, whose catalog is the one of its own start."""
    catalog = Catalog({agent.name: agent for agent in agents}, {provider: ScriptedProvider(model.answer)}, choices)
    return Engine(store, catalog, held, unobserved)


def stopped() -> None:
    raise KeyboardInterrupt


def purged(store: SqliteStore) -> None:
    store.purge("s")


def requested(store: SqliteStore) -> str:
    return store.request_handoff(handoff_request("s", "paint it red", "", "h1")).job_id


@pytest.mark.parametrize("later", [{"fast": Choice(model="new")}, {}], ids=["changed", "gone"])
@pytest.mark.parametrize("lane", [Lane.HANDOFF, Lane.DIGEST])
def test_a_job_keeps_its_model_whatever_becomes_of_the_choice(
    store: SqliteStore, later: dict[str, Choice], lane: Lane
) -> None:
    """Resolved when it was captured: the worker that takes over has another catalog, and asks the same model."""
    requested(store)
    store.capture("s", "asked")
    run = run_handoff if lane is Lane.HANDOFF else run_digest
    first, second = Model(first=stopped), Model()
    with pytest.raises(KeyboardInterrupt):
        run(engine_of(store, first, {"fast": Choice(model="old")}), "s")
    assert run(engine_of(store, second, later), "s").status == "done"
    assert (first.asked, second.asked) == (["old"], ["old"])


def test_a_rotation_keeps_its_model_whatever_becomes_of_the_choice() -> None:
    """And its window: the worker that takes over cuts the same chunks, or the saved answers would be none of them."""
    agent = AGENT.model_copy(
        update={"consolidation": ConsolidationWorkload(summarizer="model", choice="fast", window_tokens=None)}
    )
    store = SqliteStore()
    history = [Entry.user("The pump P-17 is blue. " * 40), Entry.assistant("Noted. " * 40)] * 40
    store.open(open_request("s", agent, history, False))
    store.request_rotation("s", "asked")
    first, second = Model(), Model()
    first.first = lambda: stopped() if len(first.asked) == 3 else None
    with pytest.raises(KeyboardInterrupt):
        run_rotation(engine_of(store, first, {"fast": Choice(model="old", window_tokens=8_000)}, (agent,)), "s")
    run_rotation(engine_of(store, second, {"fast": Choice(model="new", window_tokens=64_000)}, (agent,)), "s")
    assert {*first.asked, *second.asked} == {"old"}
    (rotated,) = [event.data for event in store.audit("s") if event.kind == "rotated"]
    assert rotated["consolidation_count"] == len(first.asked) - 1 + len(second.asked)
    assert len(second.asked) > 1
    store.close_connections()


def test_a_pinned_session_is_summarized_by_its_own_version(store: SqliteStore) -> None:
    """The catalog's agent has moved on; the description in the store says who is asked."""
    newer = AGENT.model_copy(update={"handoff": SummaryWorkload(model="newer")})
    store.open(open_request("s", newer, (), True))
    requested(store)
    model = Model()
    run_handoff(engine_of(store, model, {"fast": Choice(model="old")}, (newer,)), "s")
    assert model.asked == ["old"]


@pytest.mark.parametrize(
    ("choices", "provider", "named"),
    [({}, "default", "choice"), ({"fast": Choice(provider="gone")}, "default", "provider")],
)
def test_a_handoff_that_nobody_here_can_make_says_what_is_missing(
    store: SqliteStore, choices: dict[str, Choice], provider: str, named: str
) -> None:
    """It ends, instead of waiting for ever, and the session is as it was."""
    requested(store)
    before = store.snapshot("s").layout
    assert run_handoff(engine_of(store, Model(), choices, provider=provider), "s").status == "failed"
    view = store.job("s", Lane.HANDOFF, "h1")
    assert view is not None
    with pytest.raises(SummaryFailed, match=named):
        handoff_of(view)
    assert store.snapshot("s").layout == before


def test_a_session_that_is_purged_meanwhile_gets_no_digest(store: SqliteStore) -> None:
    """The answer comes too late: nothing is written for a session that is gone, nor told to its agent."""
    store.capture("s", "asked")
    model = Model(first=lambda: purged(store))
    assert run_digest(engine_of(store, model, {"fast": Choice()}), "s").status == "lost"
    assert publish_digests(store, "s") == 0
    assert (store.journal("s"), store.recent_digests("coder")) == ((), [])


def test_a_session_that_is_closed_meanwhile_gets_its_digest(store: SqliteStore) -> None:
    """Closing takes no new turns; what was finished is digested all the same."""
    store.capture("s", "asked")
    model = Model(first=lambda: store.close("s", now=True))
    assert run_digest(engine_of(store, model, {"fast": Choice()}), "s").status == "done"
    assert len(store.journal("s")) == 1


class Unpublishing:
    """A store whose agent's journal cannot be reached, as often as told."""

    def __init__(self, store: SqliteStore, times: int) -> None:
        self._store, self._left = store, times

    def publish(self, agent_name: str, entry: JournalEntry) -> None:
        if self._left:
            self._left -= 1
            raise StoreUnavailable("gone")
        self._store.publish(agent_name, entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_digest_that_cannot_be_published_is_never_asked_for_again(store: SqliteStore) -> None:
    """Accepted for good before that: it stays due until it is published, once."""
    store.capture("s", "asked")
    model, broken = Model(), Unpublishing(store, times=2)
    run_digest(engine_of(store, model, {"fast": Choice()}), "s")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            publish_digests(broken, "s")
        assert [entry.is_published for entry in store.journal("s")] == [False]
    assert publish_digests(broken, "s") == 1
    assert publish_digests(broken, "s") == 0
    assert [entry.text for entry in store.recent_digests("coder")] == [summary(Purpose.DIGEST)]
    assert len(model.asked) == 1


def test_a_stretch_is_asked_about_three_times_at_most(store: SqliteStore) -> None:
    """Then it is left out, which the audit says; what is said afterwards is another stretch."""

    class Refusing(Model):
        def answer(self, request: ModelRequest) -> ModelReply:
            self.asked.append(request.model)
            return ModelReply(text="no digest")

    model = Refusing()
    engine = engine_of(store, model, {"fast": Choice()})
    for _ in range(5):
        store.capture("s", "asked")
        run_digest(engine, "s")
    assert len(model.asked) == 3
    kinds = [event.kind for event in store.audit("s")]
    assert (kinds.count("digest_failed"), kinds.count("digest_dropped")) == (3, 1)
    assert store.capture("s", "asked") is None


@pytest.mark.parametrize(("lane", "seconds"), [(Lane.DIGEST, 0.5), (Lane.HANDOFF, 60.0)])
def test_a_model_that_never_answers_is_left_at_its_deadline(lane: Lane, seconds: float) -> None:
    """Of the call, as the workload says, or of the job, if that is sooner; a digest's is its store's limit."""
    waits: list[float] = []

    class Silent(Model):
        def answer(self, request: ModelRequest) -> ModelReply:
            waits.append(request.timeout_seconds)
            raise ProviderUnavailable("timed out", retry_after_seconds=30.0)

    clock = [1_000.0]
    store = SqliteStore(clock=lambda: clock[0], limits=Limits(digest_seconds=0.5))
    agent = AGENT.model_copy(update={"handoff": SummaryWorkload(timeout_seconds=60.0)})
    store.open(open_request("s", agent, HISTORY, False))
    requested(store)
    store.capture("s", "asked")
    run = run_handoff if lane is Lane.HANDOFF else run_digest
    engine = engine_of(store, Silent(), {"fast": Choice()})
    assert run(engine, "s").status == "retried"
    assert waits[0] == pytest.approx(seconds, abs=0.4)
    clock[0] += 3_601.0
    assert run(engine, "s").status == "nothing"
    failed = [event.data["code"] for event in store.audit("s") if event.kind == f"{lane}_failed"]
    assert failed == ["deadline"]
    assert len(waits) == 1
    store.close_connections()


def test_sessions_of_one_agent_publish_at_the_same_time(tmp_path: Path) -> None:
    """Each digest is there once, whoever came first."""
    stores = [SqliteStore(tmp_path / "s.db") for _ in range(4)]

    def publish(number: int) -> None:
        for digest in range(10):
            entry = JournalEntry(
                session_id=f"s{number}", digest_id=f"d{digest}", first_seq=1, last_seq=2, text="## Done", at=time.time()
            )
            stores[number].publish("coder", entry)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(publish, range(4)))
    published = [(entry.session_id, entry.digest_id) for entry in stores[0].recent_digests("coder", 100)]
    assert sorted(published) == [(f"s{number}", f"d{digest}") for number in range(4) for digest in range(10)]
    for made in stores:
        made.close_connections()
