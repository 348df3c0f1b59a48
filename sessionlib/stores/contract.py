"""SessionStore: everything that must happen all or nothing, as one protocol with one contract suite.

Every method is one transaction. Every write may be sent twice (a client resends after a lost reply) and is then done
once: `begin` is recognised by its token, `save_step` by its position, `commit` by its commit token, `adopt` by its
layout token. Times are the store's own clock, in seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sessionlib.deltas import DELTA as DELTA
from sessionlib.entries import Entry
from sessionlib.layout import Layout, Record
from sessionlib.media import Media
from sessionlib.providers.contract import CallRequest
from sessionlib.steps import EffectResult
from sessionlib.window_facts import LearnedWindow


class Lane(StrEnum):
    """One kind of exclusive work on a session. Lanes never disturb each other."""

    TURN = "turn"
    ROTATION = "rotation"
    HANDOFF = "handoff"
    DIGEST = "digest"


JOB_LANES = (Lane.HANDOFF, Lane.DIGEST)
"""Lanes whose work is a job: a summary of a span of entries. It reads the session and changes nothing of it."""


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED)


THREAD_HINT = "thread_hint.md"
"""The note that each fresh window begins with (spec/work-room B6)."""


class Nudge(StrEnum):
    """What the policy `work_room` tells the model at the end of a request. Never stored as history."""

    REMINDER = "reminder"
    FALLBACK = "fallback"


class TurnState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_finished(self) -> bool:
        return self in (TurnState.ANSWERED, TurnState.FAILED, TurnState.CANCELLED)


class SessionState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class Busy(StrEnum):
    """What `submit` does when the session has unfinished turns."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    """End every unfinished turn as cancelled, abandon open calls, then enqueue."""


class DueKind(StrEnum):
    TURN = "turn"
    ROTATION = "rotation"
    OPEN_CALLS = "open_calls"
    DISPOSAL = "disposal"
    RETENTION = "retention"
    HANDOFF = "handoff"
    DIGEST = "digest"
    CAPTURE = "capture"
    """A stretch is finished, or will be if nobody speaks until then: a digest of it is to be requested."""
    PUBLICATION = "publication"
    """Digests that the agent's journal does not have yet."""
    ORPHAN = "orphan"
    """A provider session that no session has: its own was purged, or a step was refused that brought it. It outlives
    every session; the member's id is all that is known of it: see `sessionlib.stores.orphans`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """What a turn starts from: a message, or results for exactly the calls that the turn before left open."""

    message: str = ""
    results: tuple[tuple[str, str], ...] = ()
    """Pairs of call id and result text."""
    media: tuple[Media, ...] = ()
    """Beside the message."""

    @property
    def digest(self) -> str:
        """SHA-256 of the input: one turn id goes with one input."""
        parts: list[Any] = [self.message, self.results]
        if self.media:
            parts.append([[item.kind, item.media_type, item.data, item.url, item.name] for item in self.media])
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """How a request is shortened until the next rotation: the same for every request, so that the prefix stays."""

    pointers_before_seq: int = 0
    """Tool results before this sequence number are sent as pointers, media of messages by their names."""
    dropped_before_seq: int = 0
    """Live entries before this one are sent as one marker that names their span."""
    records_dropped: bool = False
    """Even the records are sent as a marker: the last resort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where a window of the policy `work_room` stands (spec/work-room B4); of no meaning under another policy."""

    is_reminded: bool = False
    """The model was told, in this window, that the room runs out."""
    had_breath: bool = False
    """There was a round in this window at which nothing had to be said."""
    breathless_count: int = 0
    """Windows running that had none."""
    is_braked: bool = False
    """Fresh windows bring nothing: no more of them, until the brake is lifted."""
    nudge: Nudge | None = None
    """What goes with the next request, at its end."""
    remaining_tokens: int = 0
    """What a reminder names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A held provider session and what it holds."""

    handle: str
    epoch: int
    next_seq: int
    """Entries before this sequence number are in it."""
    trim: Trim = field(default_factory=Trim)
    provider: str = ""
    model: str = ""
    """Who answered in it: another model would be sent other things."""
    parent: str = ""
    """The handle that this one continues ("" for none): the provider needs it as long as this one lives, and a
    disposal of this one is one of both, and so on back to the oldest.

    In `handles_to_dispose` it says where the disposal stops: "" disposes of the whole chain; with a *parent*, of what
    is newer than that only: nobody will use this handle, but its parent lives on, or is disposed of by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRef:
    """Which version of which agent a session follows."""

    name: str
    digest: str
    is_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A session as a worker needs it to build a request or to plan a rotation."""

    session_id: str
    agent: AgentRef
    epoch: int
    layout: Layout
    layout_token: str
    """Changes with every adopt; "" before the first."""
    tail_token: str
    """Changes with every commit; "" before the first."""
    calibration: float = 1.0
    window: LearnedWindow | None = None
    """What refusals taught of the provider's window; None if nothing."""
    trim: Trim = field(default_factory=Trim)
    handle: Handle | None = None
    room: Room = field(default_factory=Room)
    open_calls: tuple[CallRequest, ...] = ()
    abandoned: str = ""
    """Why the open calls will never be answered ("" while they may be): the next turn closes them."""
    sized_from_seq: int = 1
    """Sizes of what stands before this sequence number were counted for another version of the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The right to do a lane's next work, and all that is needed for it."""

    session_id: str
    lane: Lane
    token: str
    """The one that `begin` brought, and when the session was opened: work ids come again after a purge."""
    work_id: str
    """Turn id or rotation id."""
    deadline: float
    """The work's own deadline by the store's clock; `renew` refuses past it."""
    now: float
    """The store's clock at the grant: `deadline - now` is what is left, in seconds."""
    attempt: int
    """1 for the first grant; grows with each grant that saw no progress since the last."""
    snapshot: Snapshot
    steps: tuple[tuple[str, EffectResult], ...] = ()
    """Saved steps of the uncommitted round (turn) or of the whole work (rotation), by name."""
    step_base: int = 0
    """Position of the first of `steps`: positions count over the whole work, committed rounds included."""
    input: TurnInput | None = None
    """Turn lane only."""
    first_round: int = 0
    """Turn lane only: rounds committed so far."""
    input_seq: int = 0
    """Turn lane only: sequence number of the turn's input entry; 0 while round 0 is not committed."""
    boundary_seq: int = 0
    """Rotation lane only: the newest live entry at the first claim."""
    reason: str = ""
    """Rotation and digest lanes only: why it was requested."""
    request: str = ""
    """Handoff lane only: what the job's request says, JSON."""
    first_seq: int = 0
    last_seq: int = 0
    """Handoff and digest lanes only: the span of entries that the job is about."""
    is_streamed: bool = False
    """Turn lane only: its caller wants the answer's text as it comes."""


class Refusal(StrEnum):
    """Why `begin` grants nothing. All are normal: messages are hints."""

    NOTHING = "nothing"
    """No work, or it waits (for its retry time, or for the results of open calls)."""
    HELD = "held"
    """Another worker holds a live lease."""
    GONE = "gone"
    """The session was purged or never opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How an answered turn ended."""

    text: str
    open_calls: tuple[CallRequest, ...] = ()
    """Calls of tools that the worker does not know: the caller runs them and sends a results turn."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    """Of the prompts: what the provider wrote into its cache."""
    round_count: int = 1
    max_request_tokens: int = 0
    """The largest request of the turn, by our counter times the calibration."""
    is_recovered: bool = False
    """The provider had forgotten its session on the way, and was given the whole window again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsavedStep:
    """What `save_step` takes, to be saved by a commit before it records the round."""

    position: int
    name: str
    result: EffectResult
    handle: Handle | None = None
    """The provider session that the result brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommit:
    """One round to record; with `answer`, the last of its turn."""

    round: int
    commit_token: str
    epoch: int
    """The epoch of the snapshot that the round was built on: handle and trim of an older one are not stored."""
    entries: tuple[Entry, ...]
    sizes: tuple[int, ...]
    calibration: float
    line_tokens: int
    """Conversation tokens from which a rotation is requested."""
    window: LearnedWindow | None = None
    """What the round learned of the provider's window; None leaves what the session has."""
    input_index: int = -1
    """Round 0 of a message turn: which of the entries is the input; -1 otherwise."""
    closes_calls: bool = False
    """The entries answer the session's open calls (with results, or because they were abandoned)."""
    handle: Handle | None = None
    trim: Trim = field(default_factory=Trim)
    room: Room = field(default_factory=Room)
    answer: Answer | None = None
    last_step: UnsavedStep | None = None
    """The step that the round ended with, if it is not saved yet: both go to the store at once, the step first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    epoch: int
    layout_token: str
    next_turn_id: str | None = None
    """Due now: dispatch it."""
    rotation_id: str | None = None
    """Just requested: dispatch it."""
    disposal: bool = False
    """A handle became due for disposal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """What a search needs of the archived entries `first_seq … last_seq`, cut into parts by term: see
    `sessionlib.recall.postings`, which writes and reads them. A store only keeps them."""

    first_seq: int
    last_seq: int
    level: int
    """0: of one chunk; higher: merged from several of the level below."""
    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostingsRef:
    """Stored postings without their parts."""

    first_seq: int
    last_seq: int
    level: int
    part_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A rotation's outcome, to put in the place of exactly what it was computed from."""

    layout_token: str
    """Random; names the new layout."""
    first_seq: int
    """The oldest live entry that the rotation saw."""
    dropped_count: int
    """How many live entries leave, from the oldest on; 0 leaves the live entries as they are (records only)."""
    dropped_tokens: int
    old_layout_token: str
    tail_seq: int
    """The newest live entry that the rotation saw; 0 if there was none."""
    tail_token: str
    """Commit token of that entry."""
    records: tuple[Record, ...]
    chunk: bytes
    """Compressed archive chunk of the entries that leave; b"" if none does."""
    postings: Postings | None = None
    """Of that chunk, or of it and those before it that they are merged with."""
    merged_count: int = 0
    """How many of the newest stored postings they take the place of."""
    room: Room = field(default_factory=Room)
    """Of the new window."""
    line_tokens: int
    figures: dict[str, Any]
    """Outcome as figures only (tokens before and after, saturations, consolidation_count, …): audit, watch, answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    is_adopted: bool
    """False if the store no longer has what the rotation was computed from; nothing was changed then."""
    epoch: int
    rotation_id: str | None = None
    """The line is still passed: another rotation was requested; dispatch it."""
    disposal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRules:
    """When a stretch of the session is finished and a digest of it is made. All off by default."""

    on_close: bool = False
    on_rotation: bool = False
    idle_seconds: float | None = None
    """How long nobody has spoken since the last turn ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRequest:
    """Ask for a handoff of the session as it is now: all entries so far."""

    session_id: str
    job_id: str
    """The caller's idempotency key."""
    request: str
    """Task and guidance as JSON: the store only keeps it."""
    timeout_seconds: float = 3600.0
    """From the first grant to the job's deadline."""

    @property
    def digest(self) -> str:
        """SHA-256 of the request: one job id goes with one request."""
        return hashlib.sha256(self.request.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What is known of a handoff or of an unfinished digest."""

    job_id: str
    lane: Lane
    state: JobState
    first_seq: int
    last_seq: int
    result: str = ""
    """Of a handoff that is done: JSON, as `settle` was given it."""
    error_code: str = ""
    error: str = ""
    attempt: int = 0
    submitted_at: float = 0.0
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A job's result, to record once."""

    settle_token: str
    """Random; names this result."""
    result: str
    """JSON of a handoff; the text of a digest."""
    last_seq: int = 0
    """Digest lane: the last entry that it covers, at most the job's."""
    is_empty: bool = False
    """Digest lane: nothing but empty sections. It is accepted, and never published."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Model, effort, tokens, counts: for the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettled:
    """What a settled job made due: dispatch it."""

    next_job_id: str | None = None
    """Handoff lane: the next one that waits."""
    capture: bool = False
    """More of the session is to be digested."""
    publication: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One digest, accepted for good."""

    session_id: str
    digest_id: str
    first_seq: int
    last_seq: int
    text: str
    at: float
    """When it was accepted, in seconds since the epoch."""
    is_published: bool = False
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Create a session, or confirm one that is there."""

    session_id: str
    agent: AgentRef
    agent_json: str
    history: tuple[Entry, ...] = ()
    sizes: tuple[int, ...] = ()
    line_tokens: int = 0
    """Requests a rotation at once if the history is past it."""
    retention_seconds: float | None = None
    """How long the session is kept after it was closed; None keeps it until it is purged."""
    journal: JournalRules = field(default_factory=JournalRules)
    """The agent version's: they apply with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    is_new: bool
    agent: AgentRef
    rotation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    session_id: str
    turn_id: str
    input: TurnInput
    busy: Busy = Busy.ENQUEUE
    timeout_seconds: float = 3600.0
    """From the first `begin` to the turn's deadline."""
    open_calls_seconds: float = 3600.0
    """How long calls that this turn leaves open wait for their results."""
    is_own: bool = False
    """The caller runs it in a loop of its own: no worker gets it, and its deadline counts from now on."""
    is_streamed: bool = False
    """The caller wants the answer's text as it comes, as `delta` events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    state: TurnState
    is_new: bool
    is_dispatched: bool
    """True if the turn may begin now: send its message."""
    queue_length: int = 0
    """Unfinished turns of the session, this one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a turn reports on its way. `id` orders the events of a turn and resumes a reader."""

    id: str
    kind: str
    """queued, started, delta, restarted, nudged, tool, round, answered, failed, cancelled, rotated (watch only)."""
    data: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """What is known of a turn."""

    turn_id: str
    state: TurnState
    answer: Answer | None = None
    error_code: str = ""
    error: str = ""
    rotations: tuple[dict[str, Any], ...] = ()
    """Figures of the rotations since the answer before this one."""
    attempt: int = 0
    round_count: int = 0
    first_seq: int = 0
    last_seq: int = 0
    submitted_at: float = 0.0
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session's head as figures: what `show` and `ls` print."""

    session_id: str
    state: SessionState
    agent: AgentRef
    epoch: int
    next_seq: int
    live_from: int
    live_tokens: int
    record_tokens: int
    carried_tokens: int
    calibration: float
    trim: Trim
    queued: tuple[str, ...]
    running: str | None
    rotation_id: str | None
    rotation_state: str
    """"" (none), pending, running, or backing off with the reason."""
    open_calls: tuple[CallRequest, ...]
    created_at: float
    updated_at: float
    archived_bytes: int = 0
    """Of the archive's chunks as they are stored; what a search needs besides (postings) is not counted."""
    room: Room = field(default_factory=Room)
    window: LearnedWindow | None = None
    """What refusals taught of the provider's window; None if nothing."""

    @property
    def conversation_tokens(self) -> int:
        return self.live_tokens + self.record_tokens + self.carried_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One archive chunk: the entries `first_seq … last_seq` that left the window at one rotation, compressed."""

    first_seq: int
    last_seq: int
    epoch: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRef:
    """An archive chunk without its data."""

    first_seq: int
    last_seq: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueItem:
    session_id: str
    kind: DueKind
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Constants of a store, by the rules of DESIGN 4. Seconds unless named otherwise."""

    lease_seconds: float = 15.0
    idempotency_seconds: float = 7 * 86_400.0
    rotation_seconds: float = 3600.0
    """A rotation's deadline, from its first grant."""
    max_attempts: int = 5
    """Grants without progress before work is dead-lettered."""
    inbox_limit: int = 1_000
    """Unfinished turns of one session."""
    queued_limit: int = 1_000_000
    """Unfinished turns of one partition."""
    sweep_first_seconds: float = 2.0
    sweep_last_seconds: float = 60.0
    audit_limit: int = 1_000
    no_gain_backoff_seconds: float = 60.0
    """After two rotations running that freed nothing."""
    digest_seconds: float = 120.0
    """A digest's deadline, from its first grant (spec/summaries C10)."""
    digest_retry_seconds: float = 300.0
    """When a stretch is captured again whose digest failed."""
    digest_tries: int = 3
    """Digests of a stretch that may fail before it is left out (spec/summaries C10)."""
    journal_seconds: float = 14 * 86_400.0
    """How long a digest is kept (spec/summaries C10); those of a purged session go with it, except where published."""
    note_bytes: int = 1_000_000
    """The largest note (spec/work-room B6)."""
    hint_bytes: int = 4_096
    """The largest `thread_hint.md`, which each fresh window begins with (spec/work-room B6)."""
    notes_limit: int = 200
    """Notes of one session."""
    notes_bytes: int = 8_000_000
    """All notes of one session."""
    journal_limit: int = 1_000
    """Digests that are kept of one session, and published ones of one agent; the oldest go first."""
    orphan_sweeps: int = 43_200
    """Sweeps after which an orphan is given up: 30 days of `sweep_last_seconds`, after which OpenAI, by default, has
    forgotten a response by itself (OpenAI API guide, "Conversation state", data retention)."""


class SessionStore(Protocol):
    """Sessions, all or nothing. Every method may raise StoreUnavailable; writes of new work may raise StoreFull."""

    limits: Limits
    partition_count: int

    def open(self, request: OpenRequest) -> Opened:
        """Create the session or confirm it; a new agent version applies from the next turn, unless it is pinned.

        Raises SessionClosed for a closed one, InvalidInput if history is given for a session that has entries.
        """
        ...

    def submit(self, request: SubmitRequest) -> Submitted:
        """Accept a turn, or say what is known of it. Raises UnknownSession, SessionClosed, SessionBusy, TurnConflict,
        InvalidInput (results that are not for exactly the open calls; a message while calls wait for their results and
        the busy policy is not `interrupt` is queued behind them)."""
        ...

    def begin(
        self, session_id: str, lane: Lane, token: str, known: Snapshot | None = None, own_turn_id: str = ""
    ) -> Grant | Refusal:
        """Grant a lane's next work to *token*, for `limits.lease_seconds`. *known* is what this worker has cached.

        With *own_turn_id* only that turn; without, any turn but those that their callers run themselves.
        """
        ...

    def snapshot(self, session_id: str, known: Snapshot | None = None) -> Snapshot:
        """The session as it is now. Raises UnknownSession."""
        ...

    def save_step(
        self, grant: Grant, position: int, name: str, result: EffectResult, handle: Handle | None = None
    ) -> int:
        """Save a step at *position* (0 first, counted over the whole work) and return how many there are.

        *handle*: the provider session that the result brought (turn lane only). It is due for disposal once its round
        is committed without it, or its turn ends; if the step is refused it is an orphan, unless the session has it.

        Raises LeaseLost, also when the position would leave a gap.
        """
        ...

    def renew(self, grant: Grant) -> None:
        """Extend the lease. Raises LeaseLost if the lane is another's, the work ended or its deadline passed."""
        ...

    def emit(self, grant: Grant, kind: str, data: dict[str, Any]) -> None:
        """Append an event to the granted turn's stream. Those of kind `DELTA` go when it ends, and one that is like the
        newest of them is that one, sent twice. Raises LeaseLost."""
        ...

    def emit_all(self, events: Sequence[tuple[Grant, str, dict[str, Any]]]) -> Sequence[bool]:
        """Several `emit`s, of different turns, in one exchange; each is a transaction, and False means a lost lease."""
        ...

    def commit(self, grant: Grant, commit: RoundCommit) -> Committed:
        """Record a round, drop its steps; with an answer, end the turn. Raises LeaseLost."""
        ...

    def adopt(self, grant: Grant, adoption: Adoption) -> Adopted:
        """Archive chunk in, new records in, prefix out, tail kept, epoch + 1; or nothing at all. Raises LeaseLost."""
        ...

    def release(self, grant: Grant) -> None:
        """Give the lane back, due now, no attempt counted. Harmless if it is lost already."""
        ...

    def fail(self, grant: Grant, code: str, reason: str, retry_seconds: float | None = None) -> str | None:
        """Try the work again after *retry_seconds*, or end it as failed (None). Returns the turn that is due next.

        Ending a rotation changes nothing but the pending request. Raises LeaseLost.
        """
        ...

    def cancel(self, session_id: str, turn_id: str) -> TurnState:
        """End a turn that is not finished; the state it has now. Raises UnknownSession, InvalidInput (unknown turn)."""
        ...

    def request_rotation(self, session_id: str, reason: str) -> str:
        """The pending rotation's id, requested now if there was none. Raises UnknownSession."""
        ...

    def cancel_rotation(self, session_id: str) -> bool:
        """Drop a pending or running rotation; whether there was one."""
        ...

    def request_handoff(self, request: HandoffRequest) -> JobView:
        """Accept a handoff of all entries so far, or say what is known of it. A closed session can be handed off too.

        Raises UnknownSession, TurnConflict (its id is known with another request), SessionBusy (too many wait),
        InvalidInput (there are no entries yet).
        """
        ...

    def capture(self, session_id: str, reason: str) -> str | None:
        """The id of the digest of what is finished and not yet digested, requested now if there was none.

        None if there is nothing to digest (a due capture is done then). While a digest is unfinished its id is
        answered, and what came since is captured after it. Raises UnknownSession.
        """
        ...

    def settle(self, grant: Grant, settled: Settled) -> JobSettled:
        """Record a job's result and end it. Recognised by its settle token. Raises LeaseLost."""
        ...

    def job(self, session_id: str, lane: Lane, job_id: str) -> JobView | None:
        """What is known of a job; None if nothing is (never requested, forgotten, or a digest that is finished)."""
        ...

    def journal(self, session_id: str, limit: int = 1_000) -> Sequence[JournalEntry]:
        """The session's newest *limit* digests, oldest first; none of an unknown session."""
        ...

    def unpublished(self, session_id: str) -> Sequence[JournalEntry]:
        """Digests that the agent's journal is to have and may not have yet, oldest first; none: publishing is done."""
        ...

    def publish(self, agent_name: str, entry: JournalEntry) -> None:
        """Put a digest into the journal of an agent, where its other sessions find it. Twice is once."""
        ...

    def published(self, session_id: str, digest_id: str) -> None:
        """The agent's journal has the digest."""
        ...

    def recent_digests(self, agent_name: str, limit: int = 5) -> Sequence[JournalEntry]:
        """The newest *limit* digests of an agent's sessions, oldest first."""
        ...

    def close(self, session_id: str, *, now: bool = False) -> None:
        """Refuse new turns; accepted ones finish, or end as failed (`closed`) with *now*. Raises UnknownSession."""
        ...

    def purge(self, session_id: str, batch: int = 1_000) -> bool:
        """Delete at most *batch* keys or rows of the session; True when nothing is left. With the first call each
        provider session that it holds is an orphan, due now."""
        ...

    def due(self, partition: int, limit: int = 100) -> Sequence[DueItem]:
        """Overdue things, each marked swept: its next time moves forward, doubling."""
        ...

    def close_open_calls(self, session_id: str) -> None:
        """The open calls waited long enough: the next turn closes them."""
        ...

    def handles_to_dispose(self, session_id: str) -> Sequence[Handle]:
        """Held provider sessions that no unfinished turn began on; `Handle.parent` says how far back each goes."""
        ...

    def disposed(self, session_id: str, handle: str) -> None:
        """The provider let go of *handle*."""
        ...

    def let_go(self, session_id: str, orphan_id: str) -> None:
        """The provider let go of an orphan of that session, which may be gone, or opened anew."""
        ...

    def turn(self, session_id: str, turn_id: str) -> TurnView | None:
        """What is known of a turn; None if nothing is (never submitted, or forgotten)."""
        ...

    def events(self, session_id: str, turn_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        """Events of a turn after the one with id *after*, oldest first."""
        ...

    def audit(self, session_id: str, after: str = "", limit: int = 1_000) -> Sequence[Event]:
        """The session's audit after the event *after*, oldest first."""
        ...

    def view(self, session_id: str) -> SessionView:
        """The session's figures. Raises UnknownSession."""
        ...

    def sessions(self, partition: int, cursor: str = "", limit: int = 100) -> tuple[Sequence[str], str]:
        """Session ids of a partition in some stable order, and the cursor of the next page ("" at the end)."""
        ...

    def chunks(self, session_id: str, first_seq: int = 1, last_seq: int | None = None) -> Sequence[Chunk]:
        """Archive chunks that overlap the span, oldest first."""
        ...

    def archive_index(self, session_id: str, limit: int = 1_000) -> Sequence[ChunkRef]:
        """The newest *limit* archive chunks without their data, oldest first."""
        ...

    def postings_index(self, session_id: str) -> Sequence[PostingsRef]:
        """What postings there are, oldest first."""
        ...

    def postings(self, session_id: str, wanted: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Parts of postings, each by the last sequence number of theirs and its position; b"" for what is not there
        (any more: an adopt may have merged them)."""
        ...

    def notes(self, session_id: str) -> Mapping[str, int]:
        """Names of the session's notes, sorted, each with its size in bytes; none of an unknown session."""
        ...

    def note(self, session_id: str, name: str) -> str | None:
        """A note's text; None if there is none of that name."""
        ...

    def write_note(self, grant: Grant, name: str, text: str, *, key: str, append: bool = False) -> int:
        """Write or lengthen a note; its size now, in bytes. Of the turn lane.

        *key* names this one write: sent again it changes nothing. Raises LeaseLost, and InvalidInput for what would be
        above `Limits.note_bytes`, `hint_bytes`, `notes_limit` or `notes_bytes`.
        """
        ...

    def lift_brake(self, session_id: str) -> bool:
        """Let a session under `work_room` begin fresh windows again; whether it was braked. Raises UnknownSession."""
        ...

    def agent_json(self, session_id: str) -> str:
        """The description of the agent version that the session follows."""
        ...

    def close_connections(self) -> None:
        """Give connections back; call it when no operation runs any more."""
        ...
