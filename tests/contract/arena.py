"""A store under test with its clock, and the short forms in which the contract's tests speak."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessionlib.archive import pack, unpack
from sessionlib.entries import Entry
from sessionlib.layout import Record
from sessionlib.providers.contract import CallRequest
from sessionlib.stores.contract import (
    Adopted,
    Adoption,
    AgentRef,
    Answer,
    Committed,
    DueItem,
    DueKind,
    Event,
    Grant,
    Handle,
    Lane,
    Opened,
    OpenRequest,
    Refusal,
    RoundCommit,
    SessionStore,
    SubmitRequest,
    Submitted,
    Trim,
    TurnInput,
)

SESSION = "s"
AGENT = AgentRef(name="coder", digest="d1")
NEVER = 10**9
"""A line in tokens that no test's conversation reaches."""
SIZE_TOKENS = 10
"""What every entry of these tests counts."""


@dataclass
class Arena:
    """One store, one session unless a test names another."""

    store: SessionStore
    advance: Callable[[float], None]
    """Lets that many seconds pass by the store's clock."""
    now: Callable[[], float]
    tokens: Any = field(default_factory=itertools.count)

    def token(self, kind: str = "k") -> str:
        return f"{kind}{next(self.tokens)}"

    def open(self, session_id: str = SESSION, **fields: Any) -> Opened:
        fields = {"agent": AGENT, "agent_json": '{"name":"coder"}', "line_tokens": NEVER, **fields}
        return self.store.open(OpenRequest(session_id=session_id, **fields))

    def submit(self, turn_id: str, message: str = "hello", session_id: str = SESSION, **fields: Any) -> Submitted:
        value = TurnInput(message=message)
        return self.store.submit(SubmitRequest(session_id=session_id, turn_id=turn_id, input=value, **fields))

    def submit_results(self, turn_id: str, *call_ids: str, **fields: Any) -> Submitted:
        value = TurnInput(results=tuple((call_id, f"result of {call_id}") for call_id in call_ids))
        return self.store.submit(SubmitRequest(session_id=SESSION, turn_id=turn_id, input=value, **fields))

    def try_begin(self, lane: Lane = Lane.TURN, session_id: str = SESSION) -> Grant | Refusal:
        return self.store.begin(session_id, lane, self.token())

    def begin(self, lane: Lane = Lane.TURN, session_id: str = SESSION) -> Grant:
        grant = self.try_begin(lane, session_id)
        assert isinstance(grant, Grant), grant
        return grant

    def round(
        self, grant: Grant, *, number: int | None = None, texts: Sequence[str] = (), **fields: Any
    ) -> RoundCommit:
        """A round as a turn would commit it: its input first, if it is round 0, then what the model said."""
        number = grant.first_round if number is None else number
        entries = [Entry.user(grant.input.message)] if number == 0 and grant.input and grant.input.message else []
        entries += [Entry.assistant(text) for text in texts or (f"{grant.work_id}:{number}",)]
        defaults: dict[str, Any] = {
            "round": number,
            "commit_token": self.token("c"),
            "epoch": grant.snapshot.epoch,
            "entries": tuple(entries),
            "sizes": (SIZE_TOKENS,) * len(entries),
            "calibration": 1.0,
            "line_tokens": NEVER,
            "input_index": 0 if number == 0 else -1,
        }
        return RoundCommit(**{**defaults, **fields})

    def commit(self, grant: Grant, **fields: Any) -> Committed:
        return self.store.commit(grant, self.round(grant, **fields))

    def finish(self, grant: Grant, *open_ids: str, **fields: Any) -> Committed:
        """Commit the last round of a turn, with open calls if ids are given."""
        answer = Answer(text=f"answer to {grant.work_id}", open_calls=calls(*open_ids))
        return self.commit(grant, answer=answer, **fields)

    def answer(self, turn_id: str, message: str = "hello", *open_ids: str, **fields: Any) -> Committed:
        """Submit a turn and run it to its end."""
        self.submit(turn_id, message)
        return self.finish(self.begin(), *open_ids, **fields)

    def adoption(self, grant: Grant, count: int, **fields: Any) -> Adoption:
        """What a rotation would adopt that consolidates the *count* oldest live entries into one record more."""
        live, seen = grant.snapshot.layout.live, grant.snapshot
        leaving, _ = live.split_at(count)
        records = seen.layout.records
        if count:
            record = Record(first_seq=live.first_seq, last_seq=leaving.next_seq - 1, text="gist", tokens=1)
            records = (*records, record)
        defaults: dict[str, Any] = {
            "layout_token": self.token("l"),
            "first_seq": live.first_seq,
            "dropped_count": count,
            "dropped_tokens": leaving.tokens,
            "old_layout_token": seen.layout_token,
            "tail_seq": live.next_seq - 1 if live else 0,
            "tail_token": seen.tail_token,
            "records": records,
            "chunk": pack(leaving.entries) if count else b"",
            "line_tokens": NEVER,
            "figures": {"tokens_before": live.tokens},
        }
        return Adoption(**{**defaults, **fields})

    def rotate(self, count: int, reason: str = "test", **fields: Any) -> Adopted:
        """Request a rotation and run it to its end; *count* live entries leave, the last of them the newest."""
        self.store.request_rotation(SESSION, reason)
        grant = self.begin(Lane.ROTATION)
        return self.store.adopt(grant, self.adoption(grant, count, **fields))

    def expire(self) -> None:
        """Let every lease end."""
        self.advance(self.store.limits.lease_seconds + 0.01)

    def sweep(self) -> list[DueItem]:
        return [item for part in range(self.store.partition_count) for item in self.store.due(part)]

    def swept(self, kind: DueKind) -> list[str]:
        """Ids of what is overdue now of one kind."""
        return [item.id for item in self.sweep() if item.kind is kind]

    def wait_for_due(self, work_id: str, seconds: float = 20.0) -> None:
        """Sweep until that thing is overdue. Raises AssertionError after so many seconds."""
        deadline = self.now() + seconds
        while work_id not in [item.id for item in self.sweep()]:
            assert self.now() < deadline, f"{work_id} was not due within {seconds:g} s"
            self.advance(0.01)

    def history(self, session_id: str = SESSION) -> list[Entry]:
        """Archive and live entries, in order."""
        archived = [entry for chunk in self.store.chunks(session_id) for entry in unpack(chunk.data)]
        return [*archived, *self.store.snapshot(session_id).layout.live.entries]

    def events(self, turn_id: str) -> list[Event]:
        return list(self.store.events(SESSION, turn_id))

    def kinds(self, turn_id: str) -> list[str]:
        return [event.kind for event in self.events(turn_id)]

    def audit_kinds(self) -> list[str]:
        return [event.kind for event in self.store.audit(SESSION)]


def calls(*call_ids: str) -> tuple[CallRequest, ...]:
    return tuple(CallRequest(call_id=call_id, name="ask", arguments="{}") for call_id in call_ids)


def handle(name: str, epoch: int = 0) -> Handle:
    return Handle(handle=name, epoch=epoch, next_seq=1, trim=Trim(), provider="held")
