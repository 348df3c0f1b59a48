"""A talk that has everything, with any provider behind an API, plain or streamed; and what a session came to by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessionlib.agent import Agent
from sessionlib.archive import unpack
from sessionlib.entries import Entry, EntryKind
from sessionlib.policies.log_merge import LogMerge
from sessionlib.providers.anthropic import Anthropic
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.providers.responses import Responses
from sessionlib.session import Session
from sessionlib.testing.server import FakeProviderServer
from sessionlib.workloads import ConsolidationWorkload

SESSION = "team/talk"
BROKEN_ARGUMENTS = '{"a": 1, "b":'
PAGE = "The build of module alpha failed with error 1234 in src/alpha.py, line 88. " * 30

Adapter = ChatCompletions | Anthropic | Responses
ADAPTERS: Mapping[str, Callable[..., Adapter]] = {
    "chat_completions": lambda server, **options: ChatCompletions(server.base_url, **options),
    "anthropic": lambda server, **options: Anthropic(server.url, **options),
    "responses": lambda server, **options: Responses(server.base_url, **options),
}


class Streamed:
    """A provider that streams every answer, whether anybody listens or not."""

    def __init__(self, provider: Adapter) -> None:
        self.shape: Shape = provider.shape
        self.efforts = provider.efforts
        self._provider = provider

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        pieces: list[str] = []

        def listen(text: str) -> None:
            pieces.append(text)
            if on_delta:
                on_delta(text)

        reply = self._provider.complete(request, listen)
        assert "".join(pieces) == reply.text
        return reply

    def dispose(self, handle: str, until: str = "") -> None:
        self._provider.dispose(handle, until)

    def close(self) -> None:
        self._provider.close()


def provider_of(server: FakeProviderServer, name: str, *, is_streamed: bool = False) -> Adapter | Streamed:
    """The adapter of that name."""
    provider = ADAPTERS[name](server)
    return Streamed(provider) if is_streamed else provider


def look(path: str) -> str:
    """Read a file."""
    return f"{path}: {PAGE}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(**fields: Any) -> Agent:
    defaults: dict[str, Any] = {
        "name": "coder",
        "model": "m-1",
        "instructions": "Be kind.",
        "window_tokens": 64_000,
        "tools": (look, add),
        "policy": LogMerge(tail_tokens=600),
        "consolidation": ConsolidationWorkload(summarizer="model", model="summarizer"),
    }
    return Agent(**{**defaults, **fields})


def call(call_id: str, name: str, arguments: str) -> dict[str, str]:
    return {"call_id": call_id, "name": name, "arguments": arguments}


TALK: Mapping[str, Mapping[str, Any]] = {
    "t1/model:0": {
        "text": "Looking.",
        "calls": [call("c1", "look", '{"path": "a.py"}'), call("c2", "add", '{"a": 1, "b": 2}')],
        "reasoning": "Two things at once. 🤔",
    },
    "t1/model:1": {"calls": [call("c3", "add", BROKEN_ARGUMENTS)]},
    "t1/model:2": {"text": "It is 3. Größe: 你好 👍"},
    "t2/model:0": {"calls": [call("c4", "look", '{"path": "b.py"}'), call("c5", "look", '{"path": "c.py"}')]},
    "t2/model:1": {"text": ""},
    "t3/model:0": {"refusal": "I will not do that."},
    "t4/model:0": {
        "text": "Again.",
        "calls": [call("c6", "history.read_item", '{"item": 1}')],
        "reasoning": "Secret.",
        "is_redacted": True,
    },
    "t4/model:1": {"text": "You asked for a.py."},
    "t5/model:0": {"reasoning": "They want nothing."},
}
"""What the model says in the talk, by turn and step: parallel calls, arguments that do not parse, empty content, a
refusal, the private tool, reasoning that is shown and that is not, and an answer that is reasoning only."""

ANSWERS = ("It is 3. Größe: 你好 👍", "", "I will not do that.", "You asked for a.py.", "")


@dataclass(frozen=True)
class Told:
    """What a session came to."""

    entries: tuple[Entry, ...]
    """All that was ever recorded, but for what only its provider can read."""
    opaque_count: int
    records: tuple[tuple[int, str], ...]
    answers: tuple[str, ...]
    recovered: tuple[bool, ...] = ()
    report: Mapping[str, Any] | None = None


def everything(session: Session) -> tuple[Entry, ...]:
    """Everything that the session ever recorded: archive, then live entries."""
    chunks = session.store.chunks(session.session_id)
    return (*(entry for chunk in chunks for entry in unpack(chunk.data)), *session.layout().live.entries)


def history(session: Session) -> tuple[Entry, ...]:
    """The same without what only its provider can read."""
    return tuple(entry for entry in everything(session) if entry.kind is not EntryKind.OPAQUE)


def record_talk(server: FakeProviderServer, attempt: str = "") -> None:
    """Have the server say its part. An *attempt* after the first has a key of its own; it gets the same answer."""
    server.record(SESSION, {"answers": {f"{SESSION}/{step}{attempt}": reply for step, reply in TALK.items()}})


def play(
    server: FakeProviderServer,
    provider: Adapter | Streamed,
    before_turn: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Told:
    """Have the talk, rotating after its first and third turn."""
    record_talk(server)
    replies = []
    with Session(agent(**fields), {"default": provider}, session_id=SESSION) as session:
        for number, message in enumerate(["Fix a.py", "And b.py?", "Do harm", "What did I ask?", "Well"], start=1):
            before_turn(f"t{number}")
            replies.append(session.send(message, turn_id=f"t{number}"))
            if number in {1, 3}:
                event = session.rotate(timeout_seconds=30)
                assert event is not None
                assert event.kind == "rotated", event
        told = Told(
            entries=history(session),
            opaque_count=len(everything(session)) - len(history(session)),
            records=tuple((record.tier, record.text) for record in session.layout().records),
            answers=tuple(reply.text for reply in replies),
            recovered=tuple(reply.answer.is_recovered for reply in replies),
            report=server.report([SESSION])["sessions"][SESSION],
        )
    provider.close()
    return told
