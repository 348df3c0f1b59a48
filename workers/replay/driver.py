"""Feeds a recording's turns to a stage, kills workers on the way, and gathers what was to be seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sessionlib.archive import unpack
from sessionlib.errors import TurnFailed
from sessionlib.recordings import RecordedTurn, Recording
from sessionlib.stores.contract import Event, SessionView, Trim
from workers.client import ClientSession, Turn
from workers.replay.agents import AGENT
from workers.replay.observed import Break, Kill, Observed, Place, PlayedRound, PlayedTurn, Span, turn_id_of
from workers.replay.stage import Stage
from workers.supervisor import Role

SESSION_ID = "replay"
SETTLE_SECONDS = 60.0
"""How long the last rotation may take after the last turn."""
LOOK_SECONDS = 0.02
TELL_SECONDS = 0.1

HELD_KIND: Mapping[Role, str] = {"front": "answers", "background": "summaries"}
"""Which of a role's calls the provider holds open while the worker is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A worker to be killed: at its first call after *after_rounds* rounds were committed."""

    role: Role
    after_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a replay is."""

    turns: int
    rounds: int
    view: SessionView
    kills: tuple[Kill, ...]


Listener = Callable[[Progress], None]


def play(
    stage: Stage,
    recording: Recording,
    *,
    drills: Sequence[Drill] = (),
    pause_seconds: float = 0.0,
    listen: Listener = lambda _: None,
) -> Observed:
    """Play *recording* turn by turn, pausing between them. Raises InputTooLarge for an input that fits no request."""
    stage.provider.record(SESSION_ID, uploaded(recording))
    session = stage.sessions.open(SESSION_ID, AGENT)
    player = _Player(stage, session, len(recording.turns), drills, listen)
    with player.drilling():
        for index, turn in enumerate(recording.turns):
            player.play(index, turn)
            time.sleep(pause_seconds)
        _settle(session)
    return _gathered(stage, session, player)


def uploaded(recording: Recording) -> dict[str, Any]:
    """A recording as the fake provider takes it: answers by turn and round, so that nothing can shift them."""
    answers = {
        f"{SESSION_ID}/{turn_id_of(turn)}/model:{number}": {
            "text": reply.text,
            "calls": [{"call_id": c.call_id, "name": c.name, "arguments": c.arguments} for c in reply.calls],
        }
        for (turn, number), reply in recording.provider_replies().items()
    }
    return {"answers": answers, "results": recording.tool_results()}


class _Player:
    """Plays turns; a thread beside it kills workers while the provider holds a call of theirs."""

    def __init__(
        self, stage: Stage, session: ClientSession, turn_count: int, drills: Sequence[Drill], listen: Listener
    ) -> None:
        self._stage, self._session, self._drills, self._listen = stage, session, drills, listen
        self._turn_count, self._told_at = turn_count, 0.0
        self.turns: list[PlayedTurn] = []
        self.kills: list[Kill] = []
        self._round_count = 0
        self._is_over = threading.Event()

    def play(self, index: int, turn: RecordedTurn) -> None:
        submitted_at = time.time()
        played = self._session.submit(turn.input, turn_id=turn_id_of(index))
        events = list(self._followed(played))
        answered_at, answer = time.time(), _answer(played)
        self.turns.append(
            PlayedTurn(
                turn_id=played.turn_id,
                submitted_at=submitted_at,
                answered_at=answered_at,
                answer=answer,
                started_at=tuple(event.at for event in events if event.kind == "started"),
                rounds=tuple(_rounds(played.turn_id, events)),
            )
        )
        self._tell()

    def _followed(self, turn: Turn) -> Iterator[Event]:
        """The turn's events as they come, up to its end."""
        for event in turn.events():
            yield event
            if event.kind == "round":
                self._round_count += 1
                self._tell()

    def _tell(self) -> None:
        """Tell the listener where the play is, but not so often that the workers would notice."""
        now = time.monotonic()
        if now < self._told_at + TELL_SECONDS and len(self.turns) < self._turn_count:
            return
        self._told_at = now
        self._listen(
            Progress(
                turns=len(self.turns),
                rounds=self._round_count,
                view=self._session.view(),
                kills=tuple(self.kills),
            )
        )

    @contextmanager
    def drilling(self) -> Iterator[None]:
        """Do the drills while the block lasts; what did not come to it is left."""
        thread = threading.Thread(target=self._drill, name="drills", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _drill(self) -> None:
        for drill in self._drills:
            self._kill(drill.role, drill.after_rounds)

    def _kill(self, role: Role, after_rounds: int) -> None:
        """Kill a worker while the provider holds a call of its open, unless the play is over first."""
        provider, kind = self._stage.provider, HELD_KIND[role]
        if not self._awaited(lambda: self._round_count >= after_rounds):
            return
        provider.hold(kind)
        try:
            if self._awaited(lambda: provider.held_count(kind) > 0):
                self.kills.append(Kill(worker=role, at=time.time()))
                self._stage.supervisor.kill(role)
        finally:
            provider.release(kind)

    def _awaited(self, condition: Callable[[], bool]) -> bool:
        """Wait for *condition*; False if the play is over first."""
        while not condition():
            if self._is_over.wait(LOOK_SECONDS):
                return False
        return True


def _rounds(turn_id: str, events: Sequence[Event]) -> Iterator[PlayedRound]:
    """The rounds that a turn's events tell of."""
    nudged = {event.data["round"] for event in events if event.kind == "nudged"}
    for event in events:
        if event.kind == "round":
            data = event.data
            yield PlayedRound(
                place=Place(turn_id, data["round"]),
                epoch=data["epoch"],
                trim=Trim(**data["trim"]),
                at=event.at,
                is_nudged=data["round"] in nudged,
            )


def _answer(turn: Turn) -> str | None:
    try:
        reply = turn.reply()
    except TurnFailed:
        return None
    return reply.text if reply and not reply.open_calls else None


def _settle(session: ClientSession) -> None:
    """Let a pending rotation end, so that the figures are those of a session at rest."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while session.view().rotation_state in ("pending", "running") and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def _gathered(stage: Stage, session: ClientSession, player: _Player) -> Observed:
    report, store = stage.provider.report(SESSION_ID), stage.sessions.connection.store
    seen = report["sessions"][SESSION_ID]
    audit = store.audit(SESSION_ID)
    consolidations = report["consolidations"]
    return Observed(
        window_tokens=report["window_tokens"],
        turns=tuple(player.turns),
        kills=tuple(player.kills),
        spans=tuple(Span.read(span) for span in stage.provider.trace(SESSION_ID)),
        consolidations=tuple(Span.read(span, "consolidation") for span in consolidations),
        breaks=tuple(Break(key=found["key"], previous_key=found["previous_key"]) for found in seen["breaks"]),
        break_count=seen["break_count"],
        asked_again=seen["asked_again"],
        largest_request_tokens=seen["largest_request_tokens"],
        refused_count=seen["refused"],
        summarizer_tokens=sum(span["prompt_tokens"] + span["completion_tokens"] for span in consolidations),
        archived=tuple(entry for chunk in store.chunks(SESSION_ID) for entry in unpack(chunk.data)),
        layout=session.layout(),
        rotations=tuple(event.data for event in audit if event.kind == "rotated"),
        version_changes=[event.at for event in audit if event.kind == "agent_version"],
    )
