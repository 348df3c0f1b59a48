"""What a store keeps of a session, as frozen and hashable values. All times are seconds by the store's clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessionlib.entries import Entry
from sessionlib.providers.contract import CallRequest
from sessionlib.stores.contract import (
    AgentRef,
    Answer,
    Handle,
    JobState,
    JournalRules,
    Lane,
    Room,
    SessionState,
    Trim,
    TurnState,
)
from sessionlib.window_facts import LearnedWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Who holds a lane, and until when."""

    token: str = ""
    lease: float = 0.0

    def is_live(self, now: float) -> bool:
        return bool(self.token) and self.lease > now


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How a piece of work fared so far."""

    attempts: int = 0
    progress: bool = False
    """A step was saved or a round committed since the last grant."""
    not_before: float = 0.0
    deadline: float = 0.0
    """0 until the first grant."""
    step_base: int = 0
    """Position of the first step that is still kept: positions count over the whole work."""
    error_code: str = ""
    """Of the last failure that is to be tried again."""
    error: str = ""

    @property
    def next_attempt(self) -> int:
        """What the next grant counts as: an attempt counts only if it saw no progress."""
        return 1 if self.progress else self.attempts + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The pending rotation of a session; there is one at most."""

    rotation_id: str
    reason: str
    requested_by: str = ""
    """Token of the commit or adopt that requested it: that one's answer names it, and no later one's."""
    boundary_seq: int = 0
    """The newest live entry at the first claim."""
    hold: Hold = field(default_factory=Hold)
    tries: Tries = field(default_factory=Tries)

    @property
    def is_claimed(self) -> bool:
        """It was granted once; whoever asks for it again is the reaper."""
        return self.tries.deadline > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLane:
    """A lane for jobs: who holds it, and the job that began there and is not finished."""

    hold: Hold = field(default_factory=Hold)
    work: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A handoff, or the unfinished digest."""

    job_id: str
    lane: Lane
    state: JobState = JobState.QUEUED
    request: str = ""
    """Of a handoff, JSON."""
    digest: str = ""
    """Of its request."""
    reason: str = ""
    """Of a digest: why it was requested."""
    first_seq: int
    last_seq: int
    timeout_seconds: float
    tries: Tries = field(default_factory=Tries)
    settle_token: str = ""
    result: str = ""
    error_code: str = ""
    error: str = ""
    submitted: float
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDigest:
    """A digest that was accepted, in the journal of its session or of its agent; `figures` is a JSON object."""

    session_id: str
    digest_id: str
    first_seq: int
    last_seq: int
    text: str
    at: float
    is_published: bool
    figures: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposal:
    """A held provider session that is used no more once the turn it waits for has ended ("" waits for nobody)."""

    handle: Handle
    """As it was committed, or brought by a step."""
    is_chain: bool = False
    """It was the session's: all that it continues goes with it."""
    waits_for: str = ""

    @property
    def until(self) -> str:
        """Where the disposal stops: see `Handle.parent`."""
        return "" if self.is_chain else self.handle.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNote:
    """A note, and which write made it as it is."""

    key: str
    text: str

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn without its input, which is kept beside it because it may be large."""

    turn_id: str
    state: TurnState = TurnState.QUEUED
    digest: str
    result_ids: tuple[str, ...] = ()
    """Call ids that its input has results for; () for a message."""
    timeout_seconds: float
    open_calls_seconds: float
    is_own: bool = False
    """Its caller runs it: no worker is granted it."""
    is_streamed: bool = False
    handles: tuple[Handle, ...] = ()
    """What its saved steps brought that no round has taken over."""
    tries: Tries = field(default_factory=Tries)
    rounds: int = 0
    commit_token: str = ""
    """Of its newest round."""
    first_seq: int = 0
    last_seq: int = 0
    input_seq: int = 0
    answer: Answer | None = None
    error_code: str = ""
    error: str = ""
    rotations: tuple[str, ...] = ()
    """Figures of rotations as JSON objects."""
    submitted: float
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A session beside its bulk."""

    agent: AgentRef
    state: SessionState = SessionState.OPEN
    purged: bool = False
    """A tombstone: it refuses everything until nothing of the session is left."""
    history_digest: str = ""
    sized_by: str = ""
    """Digest of the agent version that the newest entries' sizes were counted for."""
    sized_from_seq: int = 1
    """Entries before this one were sized for another version."""
    next_seq: int = 1
    live_from: int = 1
    live_tokens: int = 0
    record_tokens: int = 0
    carried_tokens: int = 0
    epoch: int = 0
    layout_token: str = ""
    tail_token: str = ""
    calibration: float = 1.0
    window: LearnedWindow | None = None
    trim: Trim = field(default_factory=Trim)
    room: Room = field(default_factory=Room)
    lifted_under: str = ""
    """Token of the turn lane when the brake was last lifted: its holder may not know of it."""
    handle: Handle | None = None
    disposals: tuple[Disposal, ...] = ()
    open_calls: tuple[CallRequest, ...] = ()
    abandoned: str = ""
    hold: Hold = field(default_factory=Hold)
    """Of the turn lane."""
    work: str = ""
    """The turn that began and is not finished."""
    rotation: Rotation | None = None
    rotation_count: int = 0
    no_gain_count: int = 0
    backoff_until: float = 0.0
    backoff_reason: str = ""
    outcomes: tuple[str, ...] = ()
    """Figures of the rotations since the last answer, as JSON objects."""
    handoff: JobLane = field(default_factory=JobLane)
    digest: JobLane = field(default_factory=JobLane)
    digest_count: int = 0
    digested_seq: int = 0
    """The last entry that a digest covers, or that was given up."""
    digest_failures: int = 0
    """Digests from there on that failed one after the other."""
    digest_settled: str = ""
    """Settle token of the last accepted digest."""
    journal: JournalRules = field(default_factory=JournalRules)
    retention_seconds: float | None = None
    created: float = 0.0
    updated: float = 0.0

    @property
    def conversation_tokens(self) -> int:
        return self.live_tokens + self.record_tokens + self.carried_tokens

    @property
    def calls_wait(self) -> bool:
        """There are open calls that results may still come for."""
        return bool(self.open_calls) and not self.abandoned

    @property
    def has_due_disposal(self) -> bool:
        return any(not disposal.waits_for for disposal in self.disposals)

    def rotation_requested_by(self, token: str) -> str | None:
        """The pending rotation, if the write with this token requested it and nobody claimed it yet."""
        pending = self.rotation
        is_its_own = pending is not None and pending.requested_by == token and not pending.is_claimed
        return pending.rotation_id if pending and is_its_own else None


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """An entry in the window, with its size as it is sent and the token of the commit that recorded it."""

    seq: int
    entry: Entry
    tokens: int
    commit_token: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event or audit line before the store gave it an id; `data` is a JSON object."""

    kind: str
    data: str
    at: float
