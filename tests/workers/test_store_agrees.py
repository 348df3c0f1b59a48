"""The Lua scripts and the rules in Python answer alike: random walks on both, every reply and every view compared.

Time is taken out of it: a walk's limits are so long that nothing passes, or zero so that all has passed at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import fakeredis
import pytest
import redis

from sessionlib.entries import Entry
from sessionlib.errors import SessionError
from sessionlib.layout import Record
from sessionlib.providers.contract import CallRequest, ModelReply
from sessionlib.steps import EffectResult, ToolOutput
from sessionlib.stores.contract import (
    DELTA,
    THREAD_HINT,
    Adoption,
    AgentRef,
    Answer,
    Busy,
    Grant,
    Handle,
    HandoffRequest,
    JournalRules,
    Lane,
    Limits,
    Nudge,
    OpenRequest,
    Postings,
    Room,
    RoundCommit,
    SessionStore,
    Settled,
    Snapshot,
    SubmitRequest,
    Trim,
    TurnInput,
    UnsavedStep,
)
from sessionlib.stores.memory import MemoryStore
from sessionlib.window_facts import LearnedWindow
from workers.store import RedisStore

LONG = 1_000.0
SESSIONS = ("s", "s:2")
NEVER_LINE = 10**9
TIME_FIELDS = {"now", "deadline", "submitted_at", "finished_at", "created_at", "updated_at", "at"}
OWN_ID_FIELDS = {"id"}
"""Events are numbered by each store in its own way."""

LASTING = Limits(
    lease_seconds=LONG,
    max_attempts=2,
    inbox_limit=4,
    queued_limit=6,
    sweep_first_seconds=LONG,
    sweep_last_seconds=LONG,
    audit_limit=10,
    no_gain_backoff_seconds=LONG,
    digest_seconds=LONG,
    digest_retry_seconds=LONG,
    digest_tries=2,
    journal_seconds=LONG,
    journal_limit=3,
    note_bytes=30,
    hint_bytes=10,
    notes_limit=3,
    notes_bytes=60,
    orphan_sweeps=2,
)
PASSING = replace(
    LASTING,
    lease_seconds=0.0,
    sweep_first_seconds=0.0,
    no_gain_backoff_seconds=0.0,
    digest_retry_seconds=0.0,
)
LANES = (Lane.TURN, Lane.TURN, Lane.TURN, Lane.ROTATION, Lane.HANDOFF, Lane.DIGEST)
JOBS = (Lane.HANDOFF, Lane.DIGEST)


def comparable(value: Any) -> Any:
    """A reply without its times and event ids."""
    if isinstance(value, Grant):
        value = replace(value, token=begin_token(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: comparable(getattr(value, item.name))
            for item in fields(value)
            if item.name not in TIME_FIELDS and not (item.name in OWN_ID_FIELDS and type(value).__name__ == "Event")
        }
    if isinstance(value, tuple | list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return [[key, comparable(item)] for key, item in value.items()]
    return value


def begin_token(grant: Grant) -> str:
    """A grant's token as its worker made it up; the rest is a time."""
    return grant.token.partition("@")[0]


def outcome(operation: Callable[[], Any]) -> Any:
    """What an operation answers, or the kind of error that it raises."""
    try:
        return operation()
    except SessionError as exc:
        return type(exc)


@dataclass
class Pair:
    """The same thing as each of the two stores knows it."""

    of_rules: Any
    of_scripts: Any


@dataclass
class Walk:
    """One random walk over both stores. Tokens are counted, so both are given the same."""

    rules: MemoryStore
    scripts: RedisStore
    random: random.Random
    steps: list[str] = field(default_factory=list)
    grants: list[Pair] = field(default_factory=list)
    commits: list[tuple[Pair, RoundCommit]] = field(default_factory=list)
    adoptions: list[tuple[Pair, Adoption]] = field(default_factory=list)
    settlements: list[tuple[Pair, Settled]] = field(default_factory=list)
    snapshots: list[Pair] = field(default_factory=list)
    turn_ids: list[str] = field(default_factory=list)
    count: int = 0

    def both(self, name: str, session_id: str, operation: Callable[[SessionStore, Any], Any]) -> Pair:
        """Run an operation on both stores; the replies must be equal. It is given a chooser for paired values."""
        self.steps.append(f"{name}({session_id})")
        pair = Pair(
            outcome(lambda: operation(self.rules, lambda pair: pair and pair.of_rules)),
            outcome(lambda: operation(self.scripts, lambda pair: pair and pair.of_scripts)),
        )
        assert comparable(pair.of_scripts) == comparable(pair.of_rules), self.story()
        return pair

    def story(self) -> str:
        return f"after {len(self.steps)} operations, the last: {', '.join(self.steps[-25:])}"

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def maybe(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def go(self, operation_count: int) -> None:
        moves = [
            (self.open, 4), (self.submit, 14), (self.begin, 18), (self.save_step, 8), (self.renew, 3), (self.emit, 2),
            (self.commit, 20), (self.commit_again, 3), (self.adopt, 10), (self.adopt_again, 2), (self.release, 4),
            (self.fail, 6), (self.cancel, 4), (self.request_rotation, 5), (self.cancel_rotation, 1), (self.close, 1),
            (self.close_open_calls, 2), (self.dispose, 4), (self.sweep, 6), (self.snapshot, 6), (self.purge, 1),
            (self.request_handoff, 6), (self.capture, 6), (self.settle, 12), (self.settle_again, 2), (self.publish, 4),
            (self.write_note, 6), (self.lift_brake, 2), (self.let_go, 2),
        ]  # fmt: skip
        names, weights = zip(*moves, strict=True)
        for session_id in SESSIONS:
            self.open(session_id)
        for _ in range(operation_count):
            session_id = self.random.choice(SESSIONS)
            self.random.choices(names, weights)[0](session_id)
            self.look(session_id)

    def look(self, session_id: str) -> None:
        """Compare what can be read of a session; what seldom changes, seldom."""
        turn_id = self.turn_id()
        self.both("view", session_id, lambda store, of: store.view(session_id))
        self.both("snapshot", session_id, lambda store, of: store.snapshot(session_id))
        self.both("handles", session_id, lambda store, of: store.handles_to_dispose(session_id))
        self.both("audit", session_id, lambda store, of: store.audit(session_id))
        self.both("turn", session_id, lambda store, of: store.turn(session_id, turn_id))
        self.both("events", session_id, lambda store, of: store.events(session_id, turn_id))
        self.both("journal", session_id, lambda store, of: store.journal(session_id))
        self.look_at_job(session_id)
        self.both("postings_index", session_id, lambda store, of: store.postings_index(session_id))
        self.both("notes", session_id, lambda store, of: store.notes(session_id))
        if self.maybe(0.2):
            name, limit = self.note_name(), self.random.randrange(4)
            wanted = [(self.random.randrange(40), self.random.randrange(3)) for _ in range(60)]
            self.both("note", session_id, lambda store, of: store.note(session_id, name))
            self.both("postings", session_id, lambda store, of: list(store.postings(session_id, wanted)))
            self.both("archive_index", session_id, lambda store, of: store.archive_index(session_id, limit))
            first, last = sorted(self.random.sample(range(1, 40), 2))
            self.both("chunks", session_id, lambda store, of: store.chunks(session_id, first, last))
            self.both("agent", session_id, lambda store, of: store.agent_json(session_id))
            self.both("sessions", session_id, lambda store, of: store.sessions(0))

    def look_at_job(self, session_id: str) -> None:
        lane = self.random.choice(JOBS)
        job_id = self.job_id() if lane is Lane.HANDOFF else f"d{self.random.randrange(6)}"
        self.both(f"job {lane} {job_id}", session_id, lambda store, of: store.job(session_id, lane, job_id))

    def job_id(self) -> str:
        return f"h{self.random.randrange(8)}"

    def turn_id(self) -> str:
        """One of the last few turns, or one that is not there."""
        return self.random.choice(self.turn_ids[-6:] or ["none"]) if self.maybe(0.95) else "none"

    def open(self, session_id: str) -> None:
        history = (Entry.user("old"), Entry.assistant("times")) if self.maybe(0.3) else ()
        request = OpenRequest(
            session_id=session_id,
            agent=AgentRef(name="a", digest=f"d{self.random.randrange(3)}", is_pinned=self.maybe(0.1)),
            agent_json=self.random.choice(["{}", '{"name":"ä"}']),
            history=history,
            sizes=(30,) * len(history),
            line_tokens=self.line(),
            retention_seconds=self.random.choice([None, 0.0, LONG]),
            journal=JournalRules(
                on_close=self.maybe(0.5),
                on_rotation=self.maybe(0.5),
                idle_seconds=self.random.choice([None, 0.0, LONG]),
            ),
        )
        self.both("open", session_id, lambda store, of: store.open(request))

    def line(self) -> int:
        return self.random.choice([0, 60, 200, NEVER_LINE, NEVER_LINE])

    def submit(self, session_id: str) -> None:
        view = outcome(lambda: self.rules.view(session_id))
        calls = getattr(view, "open_calls", ())
        if (calls and self.maybe(0.6)) or self.maybe(0.05):
            ids = [call.call_id for call in calls][self.maybe(0.1) :] or ["none"]
            value = TurnInput(results=tuple((call_id, "result\n") for call_id in self.random.sample(ids, len(ids))))
        else:
            value = TurnInput(message=self.random.choice(["hello", "größer\x01", "x" * 50]))
        request = SubmitRequest(
            session_id=session_id,
            turn_id=self.turn_id() if self.maybe(0.1) else self.new("t"),
            input=value,
            busy=self.random.choice([Busy.ENQUEUE] * 6 + [Busy.REJECT, Busy.INTERRUPT]),
            timeout_seconds=0.0 if self.maybe(0.1) else LONG,
            open_calls_seconds=0.0 if self.maybe(0.5) else LONG,
            is_own=self.maybe(0.1),
            is_streamed=self.maybe(0.5),
        )
        self.turn_ids.append(request.turn_id)
        self.both("submit", session_id, lambda store, of: store.submit(request))

    def begin(self, session_id: str, lane: Lane | None = None) -> None:
        lane = lane or self.random.choice(LANES)
        is_again = bool(self.grants) and self.maybe(0.1)
        token = begin_token(self.random.choice(self.grants).of_rules) if is_again else self.new("k")
        known = self.random.choice(self.snapshots) if self.snapshots and self.maybe(0.7) else None
        own = self.turn_id() if self.maybe(0.1) else ""

        def begin(store: SessionStore, of: Any) -> Any:
            return store.begin(session_id, lane, token, of(known), own)

        pair = self.both(f"begin {lane}", session_id, begin)
        if isinstance(pair.of_rules, Grant):
            self.grants.append(pair)
            self.snapshots.append(Pair(pair.of_rules.snapshot, pair.of_scripts.snapshot))

    def snapshot(self, session_id: str) -> None:
        known = self.random.choice(self.snapshots) if self.snapshots else None
        pair = self.both("snapshot", session_id, lambda store, of: store.snapshot(session_id, of(known)))
        if isinstance(pair.of_rules, Snapshot):
            self.snapshots.append(pair)

    def grant(self, session_id: str, lane: Lane) -> Pair | None:
        """Mostly a grant that still counts, begun now if there is none; sometimes an old one."""
        if self.maybe(0.1):
            return self.random.choice([pair for pair in self.grants if pair.of_rules.lane is lane][-12:] or [None])
        if not self.current(session_id, lane):
            self.begin(session_id, lane)
        return self.random.choice(self.current(session_id, lane) or [None])

    def current(self, session_id: str, lane: Lane) -> list[Pair]:
        return [
            pair
            for pair in self.grants[-30:]
            if (pair.of_rules.session_id, pair.of_rules.lane) == (session_id, lane) and self.is_current(pair.of_rules)
        ]

    def is_current(self, grant: Grant) -> bool:
        """Whether a grant's token is still its lane's."""
        head = self.rules.world.box(grant.session_id).head
        if head is None:
            return False
        holders = {Lane.TURN: head, Lane.ROTATION: head.rotation, Lane.HANDOFF: head.handoff, Lane.DIGEST: head.digest}
        holder: Any = holders[grant.lane]
        return holder is not None and holder.hold.token == grant.token

    def with_grant(self, name: str, session_id: str, operation: Callable[[SessionStore, Grant], Any]) -> None:
        grant = self.grant(session_id, self.random.choice(LANES))
        if grant is not None:
            name = f"{name} {grant.of_rules.work_id}"
            self.both(name, grant.of_rules.session_id, lambda store, of: operation(store, of(grant)))

    def save_step(self, session_id: str) -> None:
        reply = ModelReply(text="hm", calls=(CallRequest(call_id="c", name="n", arguments="{"),))
        result: EffectResult = ToolOutput("done") if self.maybe(0.5) else reply
        position, name = self.random.randrange(5), self.new("tool:0:")
        handle = self.handle() if self.maybe(0.3) else None
        self.with_grant(
            "save_step", session_id, lambda store, grant: store.save_step(grant, position, name, result, handle)
        )

    def renew(self, session_id: str) -> None:
        self.with_grant("renew", session_id, lambda store, grant: store.renew(grant))

    def emit(self, session_id: str) -> None:
        kind = self.random.choice(["tool", DELTA])
        self.with_grant("emit", session_id, lambda store, grant: store.emit(grant, kind, {"name": "ls", "ratio": 0.5}))

    def commit(self, session_id: str) -> None:
        grant = self.grant(session_id, Lane.TURN)
        if grant is None:
            return
        commit = self.round(grant.of_rules)
        self.commits.append((grant, commit))
        self.send_commit(grant, commit)

    def commit_again(self, _: str) -> None:
        if self.commits:
            self.send_commit(*self.random.choice(self.commits[-5:]))

    def send_commit(self, grant: Pair, commit: RoundCommit) -> None:
        name = f"commit {grant.of_rules.work_id}:{commit.round}{' answered' if commit.answer else ''}"
        self.both(name, grant.of_rules.session_id, lambda store, of: store.commit(of(grant), commit))

    def round(self, grant: Grant) -> RoundCommit:
        view = outcome(lambda: self.rules.turn(grant.session_id, grant.work_id))
        is_next = not self.maybe(0.05)
        number = getattr(view, "round_count", grant.first_round) + (not is_next)
        entries = tuple(Entry.assistant(f"{grant.work_id} says {i}\n") for i in range(self.random.randrange(1, 4)))
        step = UnsavedStep(
            position=self.random.randrange(4), name="model:0", result=ToolOutput("x"), handle=self.handle()
        )
        calls = tuple(CallRequest(call_id=f"c{i}", name="ask", arguments="{}") for i in range(self.random.randrange(3)))
        answer = Answer(text="done ü", open_calls=calls if self.maybe(0.5) else (), prompt_tokens=3)
        return RoundCommit(
            round=number,
            commit_token=self.new("c"),
            epoch=max(0, grant.snapshot.epoch - self.maybe(0.2)),
            entries=entries,
            sizes=tuple(self.random.randrange(60) for _ in entries),
            calibration=self.random.choice([1.0, 1.1, 1 / 3 + 1]),
            window=LearnedWindow(tokens=self.random.randint(1, 9), origin="p/m") if self.maybe(0.1) else None,
            line_tokens=self.line(),
            input_index=0 if number == 0 and self.maybe(0.8) else -1,
            closes_calls=self.maybe(0.3),
            handle=self.handle() if self.maybe(0.5) else None,
            trim=Trim(pointers_before_seq=self.random.randrange(3)),
            room=self.room(),
            answer=answer if self.maybe(0.5) else None,
            last_step=step if is_next and self.maybe(0.3) else None,  # of a refused round either may keep it or not
        )

    def room(self) -> Room:
        return Room(
            had_breath=self.maybe(0.5),
            breathless_count=self.random.randrange(4),
            is_braked=self.maybe(0.3),
            nudge=self.random.choice([None, Nudge.REMINDER]),
        )

    def handle(self) -> Handle:
        name, parent = self.random.choice(["h1", "h2", "h\t3\n"]), self.random.choice(["", "h1", "h\t3\n"])
        return Handle(handle=name, epoch=0, next_seq=1, provider="held", parent=parent)

    def adopt(self, session_id: str) -> None:
        grant = self.grant(session_id, Lane.ROTATION)
        if grant is None:
            return
        adoption = self.adoption(grant.of_rules)
        self.adoptions.append((grant, adoption))
        self.send_adoption(grant, adoption)

    def adopt_again(self, _: str) -> None:
        if self.adoptions:
            self.send_adoption(*self.random.choice(self.adoptions[-3:]))

    def send_adoption(self, grant: Pair, adoption: Adoption) -> None:
        self.both("adopt", grant.of_rules.session_id, lambda store, of: store.adopt(of(grant), adoption))

    def adoption(self, grant: Grant) -> Adoption:
        seen, live = grant.snapshot, grant.snapshot.layout.live
        dropped = self.random.randrange(len(live) + 1 + self.maybe(0.05))
        record = Record(first_seq=1, last_seq=live.first_seq, text="gist", tokens=self.random.choice([1, 5, 500]))
        return Adoption(
            layout_token=self.new("l"),
            first_seq=live.first_seq,
            dropped_count=dropped,
            dropped_tokens=sum(live.sizes[:dropped]),
            old_layout_token=seen.layout_token,
            tail_seq=live.next_seq - 1 if live else 0,
            tail_token="other" if self.maybe(0.05) else seen.tail_token,
            records=(record,) * self.random.randrange(3),
            chunk=b"\x00chunk\n" if dropped else b"",
            line_tokens=self.line(),
            figures=self.random.choice([{}, {"tokens_before": 5, "saturated": [{"tier": 1}]}]),
            room=self.room(),
            **self.postings(live.first_seq, dropped, grant.session_id),
        )

    def postings(self, live_from: int, dropped: int, session_id: str) -> dict[str, Any]:
        """Postings of what leaves, mostly merged with some of those that are there as they should be."""
        if not dropped or self.maybe(0.2):
            return {}
        merged_count = self.random.randrange(3)
        stored = self.rules.postings_index(session_id)
        merged = stored[len(stored) - merged_count :] if merged_count <= len(stored) else ()
        first_seq = merged[0].first_seq if merged else live_from
        parts = tuple(f"\x00{self.new('p')}\n".encode() for _ in range(self.random.randrange(4)))
        first_seq = max(1, first_seq - self.maybe(0.1))
        postings = Postings(first_seq=first_seq, last_seq=live_from + dropped - 1, level=merged_count, parts=parts)
        return {"postings": postings, "merged_count": merged_count}

    def note_name(self) -> str:
        return self.random.choice(["plan.md", "größer", "key:", "a b", THREAD_HINT])

    def write_note(self, session_id: str) -> None:
        grant = self.grant(session_id, Lane.TURN)
        if grant is None:
            return
        name, text, append = self.note_name(), "ü\n" * self.random.randrange(6), self.maybe(0.5)
        key = f"t/{self.random.randrange(4)}"

        def write(store: SessionStore, of: Any) -> int:
            return store.write_note(of(grant), name, text, key=key, append=append)

        self.both(f"write_note {name}", grant.of_rules.session_id, write)

    def lift_brake(self, session_id: str) -> None:
        self.both("lift_brake", session_id, lambda store, of: store.lift_brake(session_id))

    def release(self, session_id: str) -> None:
        self.with_grant("release", session_id, lambda store, grant: store.release(grant))

    def fail(self, session_id: str) -> None:
        code = self.random.choice(["provider_unavailable", "tool_error", "no_gain"])
        retry = self.random.choice([None, 0.0, 0.0, LONG])
        self.with_grant(f"fail {retry}", session_id, lambda store, grant: store.fail(grant, code, 'it "broke"', retry))

    def cancel(self, session_id: str) -> None:
        turn_id = self.turn_id()
        self.both(f"cancel {turn_id}", session_id, lambda store, of: store.cancel(session_id, turn_id))

    def request_rotation(self, session_id: str) -> None:
        self.both("request_rotation", session_id, lambda store, of: store.request_rotation(session_id, 'by "hand" ü'))

    def cancel_rotation(self, session_id: str) -> None:
        self.both("cancel_rotation", session_id, lambda store, of: store.cancel_rotation(session_id))

    def request_handoff(self, session_id: str) -> None:
        request = HandoffRequest(
            session_id=session_id,
            job_id=self.job_id(),
            request=self.random.choice(['{"task":"größer\\n"}'] * 9 + ["{}"]),
            timeout_seconds=0.0 if self.maybe(0.1) else LONG,
        )
        self.both(f"request_handoff {request.job_id}", session_id, lambda store, of: store.request_handoff(request))

    def capture(self, session_id: str) -> None:
        self.both("capture", session_id, lambda store, of: store.capture(session_id, 'so "it" is ü'))

    def settle(self, session_id: str) -> None:
        grant = self.grant(session_id, self.random.choice(JOBS))
        if grant is None:
            return
        settled = Settled(
            settle_token=self.new("s"),
            result=self.random.choice(["## Done\n", "größer\x01 ü"]),
            last_seq=max(0, grant.of_rules.last_seq - self.maybe(0.2) * self.random.randrange(3) + self.maybe(0.05)),
            is_empty=self.maybe(0.3),
            figures=self.random.choice([{}, {"model": 'm"ü', "tokens": 7, "ratio": 0.5, "parts": [{"a": None}]}]),
        )
        self.settlements.append((grant, settled))
        self.send_settled(grant, settled)

    def settle_again(self, _: str) -> None:
        if self.settlements:
            self.send_settled(*self.random.choice(self.settlements[-3:]))

    def send_settled(self, grant: Pair, settled: Settled) -> None:
        name = f"settle {grant.of_rules.work_id}"
        self.both(name, grant.of_rules.session_id, lambda store, of: store.settle(of(grant), settled))

    def publish(self, session_id: str) -> None:
        """Each store's own entries, for their times differ; sometimes the worker dies before it says so."""
        found = self.both("unpublished", session_id, lambda store, of: store.unpublished(session_id))
        for place, entry in enumerate(found.of_rules):
            self.publish_entry(session_id, found, place)
            if self.maybe(0.8):
                self.mark_published(session_id, entry.digest_id)
        self.both("recent", session_id, lambda store, of: store.recent_digests("a", 2))

    def publish_entry(self, session_id: str, found: Pair, place: int) -> None:
        self.both("publish", session_id, lambda store, of: store.publish("a", of(found)[place]))

    def mark_published(self, session_id: str, digest_id: str) -> None:
        self.both("published", session_id, lambda store, of: store.published(session_id, digest_id))

    def close(self, session_id: str) -> None:
        now = self.maybe(0.5)
        self.both("close", session_id, lambda store, of: store.close(session_id, now=now))
        if self.maybe(0.8):
            self.purge(session_id)

    def close_open_calls(self, session_id: str) -> None:
        self.both("close_open_calls", session_id, lambda store, of: store.close_open_calls(session_id))

    def dispose(self, session_id: str) -> None:
        name = self.handle().handle
        self.both(f"disposed {name!r}", session_id, lambda store, of: store.disposed(session_id, name))

    def let_go(self, session_id: str) -> None:
        orphans = [due.work_id for due in self.rules.world.due if (due.session_id, due.kind) == (session_id, "orphan")]
        orphan_id = self.random.choice([*orphans, "none"])
        self.both("let_go", session_id, lambda store, of: store.let_go(session_id, orphan_id))

    def sweep(self, _: str) -> None:
        def swept(store: SessionStore, of: Any) -> list[tuple[str, ...]]:
            return sorted((item.session_id, item.kind, item.id) for item in store.due(0, limit=1_000))

        self.both("sweep", "*", swept)

    def purge(self, session_id: str) -> None:
        """A first step, on which both agree that there is a tombstone; then until each has nothing left."""
        self.both("purge", session_id, lambda store, of: store.purge(session_id, 0))
        request = OpenRequest(session_id=session_id, agent=AgentRef(name="a", digest="d"), agent_json="{}")
        self.both("open purged", session_id, lambda store, of: store.open(request))
        for store in (self.rules, self.scripts):
            while not store.purge(session_id, 7):
                pass
        # A token that came back in a session of the same name would be the old one's: real ones are random.
        self.grants = [pair for pair in self.grants if pair.of_rules.session_id != session_id]
        self.open(session_id)


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.mark.parametrize("limits", [LASTING, PASSING], ids=["lasting", "passing"])
@pytest.mark.parametrize("seed", range(3))
def test_scripts_agree_with_rules(server: redis.Redis, namespace: str, seed: int, limits: Limits) -> None:
    """On a real server the scripts answer every operation of a random walk as the rules do."""
    scripts = RedisStore(server, namespace=namespace, limits=limits)
    walk = Walk(MemoryStore(limits, time.time), scripts, random.Random(seed))
    walk.go(300)
    assert scripts.counters(0).get("unfinished", 0) == walk.rules.world.unfinished


@pytest.mark.parametrize("seed", [100, 101])
def test_fakeredis_agrees_with_rules(namespace: str, seed: int) -> None:
    """The same on fakeredis, whose Lua is another."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        walk = Walk(MemoryStore(LASTING, time.time), RedisStore(client, limits=LASTING), random.Random(seed))
        walk.go(60)
