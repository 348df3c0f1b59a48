"""The rules themselves: what must hold of them on any store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sessionlib.codec import decode, encode
from sessionlib.entries import Entry
from sessionlib.errors import SessionError, StoreCorrupt
from sessionlib.providers.contract import ModelReply
from sessionlib.stores.contract import (
    DELTA,
    THREAD_HINT,
    Adoption,
    AgentRef,
    Answer,
    Busy,
    DueKind,
    Grant,
    Handle,
    HandoffRequest,
    JournalEntry,
    Lane,
    Limits,
    OpenRequest,
    Postings,
    RoundCommit,
    Settled,
    SubmitRequest,
    TurnInput,
)
from sessionlib.stores.memory import DueMember, MemoryShelf, MemoryStore, World
from sessionlib.stores.orphans import orphan_id, orphan_of
from sessionlib.stores.rules.due import SHORT_KINDS, longest_interval, sweep_interval
from sessionlib.stores.rules.state import Disposal


class StrictStore(MemoryStore):
    """Fails if a rule wrote before it refused: Lua does not roll back, so every check must come first."""

    @contextmanager
    def _shelf(self, session_id: str, *, write: bool) -> Iterator[MemoryShelf]:
        before = self.world
        with super()._shelf(session_id, write=write) as shelf:
            try:
                yield shelf
            except SessionError:
                assert shelf.result() == before
                raise
            if not write:
                assert shelf.result() == before


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> StrictStore:
    store = StrictStore(Limits(inbox_limit=3), clock)
    store.open(OpenRequest(session_id="s", agent=AgentRef(name="a", digest="d"), agent_json="{}"))
    return store


def submit(store: MemoryStore, turn_id: str, message: str = "hello", busy: Busy = Busy.ENQUEUE) -> None:
    store.submit(SubmitRequest(session_id="s", turn_id=turn_id, input=TurnInput(message=message), busy=busy))


def begin(store: MemoryStore, token: str = "k", lane: Lane = Lane.TURN) -> Grant:
    grant = store.begin("s", lane, token)
    assert isinstance(grant, Grant)
    return grant


def commit(number: int = 0, answer: Answer | None = None) -> RoundCommit:
    return RoundCommit(
        round=number,
        commit_token=f"c{number}",
        epoch=0,
        entries=(Entry.assistant("x"),),
        sizes=(1,),
        calibration=1.0,
        line_tokens=10**9,
        answer=answer,
    )


ADOPTION = Adoption(
    layout_token="l1",
    first_seq=1,
    dropped_count=1,
    dropped_tokens=1,
    old_layout_token="",
    tail_seq=1,
    tail_token="c0",
    records=(),
    chunk=b"chunk",
    postings=Postings(first_seq=1, last_seq=1, level=0, parts=(b"part",)),
    line_tokens=10**9,
    figures={},
)


def refuse_conflict(store: MemoryStore) -> None:
    submit(store, "t1")
    submit(store, "t1", "other")


def refuse_reject(store: MemoryStore) -> None:
    submit(store, "t1")
    submit(store, "t2", busy=Busy.REJECT)


def refuse_full_inbox(store: MemoryStore) -> None:
    for number in range(4):
        submit(store, f"t{number}", busy=Busy.INTERRUPT if number == 3 else Busy.ENQUEUE)


def refuse_closed(store: MemoryStore) -> None:
    store.close("s")
    submit(store, "t1")


def refuse_round(store: MemoryStore) -> None:
    submit(store, "t1")
    store.commit(begin(store), commit(1))


def refuse_stolen_commit(store: MemoryStore) -> None:
    submit(store, "t1")
    grant = begin(store)
    store.cancel("s", "t1")
    store.commit(grant, commit())


def refuse_gap(store: MemoryStore) -> None:
    submit(store, "t1")
    store.save_step(begin(store), 5, "model:5", ModelReply(text="x"))


def refuse_second_fail(store: MemoryStore) -> None:
    submit(store, "t1")
    grant = begin(store)
    store.fail(grant, "code", "reason")
    store.fail(grant, "code", "reason")


def refuse_reopen(store: MemoryStore) -> None:
    submit(store, "t1")
    store.commit(begin(store), commit(answer=Answer(text="x")))
    history = (Entry.user("late"),)
    store.open(
        OpenRequest(session_id="s", agent=AgentRef(name="a", digest="d2"), agent_json="{}", history=history, sizes=(1,))
    )


def refuse_handoff_of_nothing(store: MemoryStore) -> None:
    store.request_handoff(HandoffRequest(session_id="s", job_id="h1", request="{}"))


def refuse_handoff_conflict(store: MemoryStore) -> None:
    submit(store, "t1")
    store.commit(begin(store), commit(answer=Answer(text="x")))
    for request in ("{}", "[]"):
        store.request_handoff(HandoffRequest(session_id="s", job_id="h1", request=request))


def refuse_handoffs(store: MemoryStore) -> None:
    submit(store, "t1")
    store.commit(begin(store), commit(answer=Answer(text="x")))
    for number in range(101):
        store.request_handoff(HandoffRequest(session_id="s", job_id=f"h{number}", request="{}"))


def refuse_digest_of_more(store: MemoryStore) -> None:
    submit(store, "t1")
    store.commit(begin(store), commit(answer=Answer(text="x")))
    store.capture("s", "test")
    store.settle(begin(store, lane=Lane.DIGEST), Settled(settle_token="s1", result="x", last_seq=9))


def refuse_large_note(store: MemoryStore) -> None:
    submit(store, "t1")
    store.write_note(begin(store), THREAD_HINT, "x" * 4_097, key="t1/c1")


def refuse_stolen_note(store: MemoryStore) -> None:
    submit(store, "t1")
    grant = begin(store)
    store.cancel("s", "t1")
    store.write_note(grant, "plan.md", "x", key="t1/c1")


REFUSALS = [
    refuse_conflict,
    refuse_reject,
    refuse_full_inbox,
    refuse_closed,
    refuse_round,
    refuse_stolen_commit,
    refuse_gap,
    refuse_second_fail,
    refuse_reopen,
    refuse_handoff_of_nothing,
    refuse_handoff_conflict,
    refuse_handoffs,
    refuse_digest_of_more,
    refuse_large_note,
    refuse_stolen_note,
]


@pytest.mark.parametrize("refuse", REFUSALS, ids=lambda refuse: refuse.__name__.removeprefix("refuse_"))
def test_refused_operations_write_nothing(store: StrictStore, refuse: Callable[[MemoryStore], None]) -> None:
    """Everything is checked before the first write."""
    with pytest.raises(SessionError):
        refuse(store)


def test_world_is_one_hashable_value(store: StrictStore) -> None:
    """States can be kept in a set, and gone back to."""
    submit(store, "t1")
    before = store.world
    store.commit(begin(store), commit(answer=Answer(text="x")))
    store.publish("a", JournalEntry(session_id="s", digest_id="d1", first_seq=1, last_seq=1, text="x", at=1_000.0))
    after = store.world
    assert len({before, after, store.world}) == 2
    store.world = before
    assert begin(store).work_id == "t1"


def test_purged_store_is_empty(store: StrictStore) -> None:
    """Nothing is left but the agent's description."""
    submit(store, "t1")
    grant = begin(store)
    store.emit(grant, DELTA, {"text": "x"})
    store.write_note(grant, "plan.md", "x", key="t1/c1")
    store.commit(grant, commit(answer=Answer(text="x")))
    store.request_rotation("s", "test")
    store.adopt(begin(store, lane=Lane.ROTATION), ADOPTION)
    store.request_rotation("s", "test")
    store.capture("s", "test")
    digest = begin(store, lane=Lane.DIGEST)
    store.save_step(digest, 0, "summary", ModelReply(text="x"))
    store.settle(digest, Settled(settle_token="s1", result="x", last_seq=1))
    store.request_handoff(HandoffRequest(session_id="s", job_id="h1", request="{}"))
    store.save_step(begin(store, lane=Lane.HANDOFF), 0, "summary", ModelReply(text="x"))
    while not store.purge("s", batch=2):
        pass
    assert store.world == World(agents=store.world.agents)


def test_retry_time_is_bounded(store: StrictStore, clock: Clock) -> None:
    """However long a provider asks to wait, the turn is looked at again after five minutes."""
    submit(store, "t1")
    store.fail(begin(store), "provider_unavailable", "come back tomorrow", 86_400.0)
    clock.now += 300.0
    assert begin(store, "k2").work_id == "t1"


@pytest.mark.parametrize(("sweeps", "seconds"), [(0, 2.0), (1, 4.0), (2, 8.0), (4, 32.0), (5, 60.0), (10_000, 60.0)])
def test_sweep_intervals_double_up_to_the_last(sweeps: int, seconds: float) -> None:
    """2, 4, 8, … 60 seconds."""
    assert sweep_interval(sweeps, Limits()) == seconds


@pytest.mark.parametrize("kind", SHORT_KINDS)
def test_score_too_far_ahead_is_pulled_back(store: StrictStore, clock: Clock, kind: DueKind) -> None:
    """A clock that was set back would leave a thing waiting for the old time: a sweep mends it."""
    store.world = World(due=(DueMember("s", kind, "x", clock.now + 10**6),))
    store.due(0)
    [member] = store.world.due
    assert member.at == clock.now + longest_interval(store.limits)


@pytest.mark.parametrize(("sweeps", "given"), [(43_199, 1), (43_200, 0)])
def test_orphan_is_given_up_after_thirty_days(store: StrictStore, clock: Clock, sweeps: int, given: int) -> None:
    """Of sweeps a minute: by then its provider has forgotten it by itself."""
    store.world = World(due=(DueMember("s", DueKind.ORPHAN, "x", clock.now, sweeps),))
    assert len(store.due(0)) == given
    assert len(store.world.due) == given


@pytest.mark.parametrize("kind", [kind for kind in DueKind if kind is not DueKind.ORPHAN])
def test_nothing_else_is_ever_given_up(store: StrictStore, clock: Clock, kind: DueKind) -> None:
    """Somebody waits for it, or for its end."""
    store.world = World(due=(DueMember("s", kind, "x", clock.now, 10**6),))
    assert [item.kind for item in store.due(0)] == [kind]
    assert len(store.world.due) == 1


@pytest.mark.parametrize("until", ["", "h1", 'h\t1\n"ü'])
def test_orphan_is_known_by_its_id(until: str) -> None:
    """The id tells the handle, and where its disposal stops."""
    held = Handle(handle='h\t2\n"ü', epoch=3, next_seq=5, provider="held", parent="h1")
    assert orphan_of(orphan_id(held, until)) == replace(held, parent=until)


@pytest.mark.parametrize("damaged", ["", "x", "\t", "x\t{}", f"h\t{encode(Handle(handle='h', epoch=0, next_seq=1))}"])
def test_damaged_orphan_is_named(damaged: str) -> None:
    """It is no handle, and nobody is asked to let go of it."""
    with pytest.raises(StoreCorrupt):
        orphan_of(damaged)


@pytest.mark.parametrize("stop", ["", "h1"])
def test_disposal_of_an_older_head(stop: str) -> None:
    """Formerly the handle's parent said where its disposal stops: it is read alike."""
    stored = f'{{"handle":{{"handle":"h2","epoch":0,"next_seq":1,"parent":"{stop}"}},"waits_for":"t1"}}'
    disposal = decode(Disposal, f'{{"v":1,"type":"Disposal","value":{stored}}}')
    assert (disposal.until, disposal.handle.parent, disposal.waits_for) == (stop, stop, "t1")


@pytest.mark.parametrize("kind", [DueKind.OPEN_CALLS, DueKind.RETENTION, DueKind.CAPTURE])
def test_waits_that_callers_chose_are_kept(store: StrictStore, clock: Clock, kind: DueKind) -> None:
    """Retention may be years."""
    store.world = World(due=(DueMember("s", kind, "", clock.now + 10**8),))
    store.due(0)
    [member] = store.world.due
    assert member.at == clock.now + 10**8


def test_one_begin_ends_a_bounded_number_of_turns(clock: Clock) -> None:
    """A long run of turns that cannot start does not make one transaction long; the next begin goes on."""
    store = StrictStore(Limits(max_attempts=0), clock)
    store.open(OpenRequest(session_id="s", agent=AgentRef(name="a", digest="d"), agent_json="{}"))
    for number in range(40):
        submit(store, f"t{number}")
    store.begin("s", Lane.TURN, "k1")
    assert len(store.view("s").queued) == 8
    store.begin("s", Lane.TURN, "k2")
    assert store.view("s").queued == ()


def test_forgotten_handoffs_do_not_pile_up(store: StrictStore, clock: Clock) -> None:
    """Each request deletes more than it adds; an old id that is used again queues at the end."""
    submit(store, "t1")
    store.commit(begin(store), commit(answer=Answer(text="x")))

    def request(job_id: str) -> None:
        store.request_handoff(HandoffRequest(session_id="s", job_id=job_id, request="{}"))

    for number in range(40):
        request(f"h{number}")
        grant = begin(store, f"k{number}", Lane.HANDOFF)
        store.settle(grant, Settled(settle_token=f"s{number}", result="x"))
    clock.now += store.limits.idempotency_seconds
    request("waiting")
    request("h39")
    assert len(store.world.box("s").jobs) == 40 - 2 * 16 + 1
    assert begin(store, "k", Lane.HANDOFF).work_id == "waiting"
