"""Opaque items, images, structured answers and cached prefixes through whole sessions, on each API alike."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from sessionlib.agent import Agent
from sessionlib.archive import unpack
from sessionlib.attachments import media_from_bytes, media_from_url
from sessionlib.codec import encode
from sessionlib.entries import Entry, EntryKind
from sessionlib.errors import AnswerUnreadable, TurnFailed
from sessionlib.events import Reply
from sessionlib.media import Media
from sessionlib.policies.log_merge import LogMerge
from sessionlib.session import Session
from sessionlib.stores.contract import Answer
from sessionlib.structured import answer_format
from sessionlib.testing.server import FakeProviderServer
from sessionlib.tools.declaration import ToolResult
from sessionlib.workloads import ConsolidationWorkload
from tests.sessionlib.pictures import png
from tests.sessionlib.talks import ADAPTERS

SESSION = "team/items"
PHOTO = media_from_bytes(png(2_048, 1_536, padding_bytes=2_000), "photo.png")
LINKED = media_from_url("https://example.org/plan.pdf")
NOTES = "They asked for the plan. Nobody has seen it. " * 8

THINKING: Mapping[str, dict[str, Any]] = {
    "chat_completions": {},
    "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
    "responses": {"reasoning": {"effort": "low"}},
}
EACH = pytest.mark.parametrize("name", ADAPTERS)
THINKERS = pytest.mark.parametrize("name", ["anthropic", "responses"])


@pytest.fixture
def server(running: FakeProviderServer) -> FakeProviderServer:
    running.observations.clear()
    running.forget_recording(SESSION)
    running.responses.forget()
    return running


def look(what: str) -> object:
    """Look at something: at a photo, at the plan, or at both with words."""
    return {"photo": PHOTO, "plan": ToolResult("", (LINKED,)), "both": ToolResult(NOTES, (PHOTO, LINKED))}[what]


def agent(name: str, **fields: Any) -> Agent:
    defaults: dict[str, Any] = {
        "name": "viewer",
        "model": "m-1",
        "instructions": "Be kind.",
        "parameters": THINKING[name],
        "window_tokens": 800_000,
        "tools": (look,),
        "policy": LogMerge(tail_tokens=400),
        "consolidation": ConsolidationWorkload(summarizer="model", model="summarizer"),
    }
    return Agent(**{**defaults, **fields})


def call(call_id: str, arguments: str) -> dict[str, str]:
    return {"call_id": call_id, "name": "look", "arguments": arguments}


MANY = [call(f"m{number}", '{"what": "plan"}' if number % 50 == 0 else "{}") for number in range(200)]
TALK: Mapping[str, Mapping[str, Any]] = {
    "t1/model:0": {
        "reasoning": "Both at once.",
        "text": "Looking.",
        "calls": [call("c1", '{"what": "photo"}'), call("c2", '{"what": "both"}')],
    },
    "t1/model:1": {"reasoning": "Once more.", "calls": [call("c3", '{"what": "pla')]},
    "t1/model:2": {"reasoning": "Enough.", "text": "A house."},
    "t2/model:0": {"reasoning": "No.", "is_redacted": True, "refusal": "I will not say."},
    "t3/model:0": {"reasoning": "They want nothing."},
    "t4/model:0": {"reasoning": "All of it.", "is_redacted": True, "calls": MANY},
    "t4/model:1": {"text": ""},
    "t5/model:0": {"reasoning": "Bye.", "text": "Goodbye."},
}
"""Reasoning before text, before calls, before a refusal, before nothing; two hundred calls at once; arguments that do
not parse; empty content."""

MESSAGES: Mapping[str, tuple[str, tuple[Media, ...]]] = {
    "t1": ("What is this?", (PHOTO, LINKED)),
    "t2": ("And this?", ()),
    "t3": ("Well", (LINKED,)),
    "t4": ("Look at all", ()),
    "t5": ("Thanks", ()),
}


@dataclass(frozen=True)
class Told:
    """What a session came to."""

    recorded: tuple[Entry, ...]
    answers: tuple[str, ...]
    recovered: tuple[bool, ...]
    report: Mapping[str, Any]
    counted_tokens: int
    """For the largest request."""
    bodies: tuple[bytes, ...] = ()

    @property
    def visible(self) -> tuple[Entry, ...]:
        """What does not depend on who the provider was."""
        return tuple(entry for entry in self.recorded if entry.kind is not EntryKind.OPAQUE)

    @property
    def opaque(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.recorded if entry.kind is EntryKind.OPAQUE)


def recorded_by(session: Session) -> tuple[Entry, ...]:
    """Everything that the session ever recorded: archive, then live entries."""
    chunks = session.store.chunks(session.session_id)
    return (*(entry for chunk in chunks for entry in unpack(chunk.data)), *session.layout().live.entries)


class Bodies:
    """Every request to a model, as it went over the wire."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def client(self) -> httpx.Client:
        return httpx.Client(event_hooks={"request": [self._see]})

    def _see(self, request: httpx.Request) -> None:
        if request.method == "POST" and b'"summarizer"' not in request.content[:200]:
            self.seen.append(request.content)


def play(
    server: FakeProviderServer,
    name: str,
    *,
    rotate_after: tuple[str, ...] = (),
    before_turn: Callable[[str], None] = lambda _: None,
) -> Told:
    """Have the talk."""
    answers = {f"{SESSION}/{step}{attempt}": reply for step, reply in TALK.items() for attempt in ("", ":1")}
    server.record(SESSION, {"answers": answers})
    bodies = Bodies()
    provider = ADAPTERS[name](server, build_client=bodies.client)
    replies = []
    with Session(agent(name), {"default": provider}, session_id=SESSION) as session:
        for turn_id, (message, media) in MESSAGES.items():
            before_turn(turn_id)
            replies.append(session.send(message, media=media, turn_id=turn_id))
            if turn_id in rotate_after:
                event = session.rotate(timeout_seconds=60)
                assert event is not None
                assert event.kind == "rotated", event
        recorded = recorded_by(session)
    provider.close()
    return Told(
        recorded=recorded,
        answers=tuple(reply.text for reply in replies),
        recovered=tuple(reply.answer.is_recovered for reply in replies),
        report=server.report([SESSION])["sessions"][SESSION],
        counted_tokens=max(reply.answer.max_request_tokens for reply in replies),
        bodies=tuple(bodies.seen),
    )


@cache
def expected_talk() -> Told:
    """The talk with chat completions, which have no opaque items."""
    with FakeProviderServer() as server:
        return play(server, "chat_completions")


@EACH
@pytest.mark.parametrize("rotate_after", [(), ("t1", "t4")], ids=["whole", "rotated"])
def test_the_same_talk_gives_the_same_history(
    server: FakeProviderServer, name: str, rotate_after: tuple[str, ...]
) -> None:
    """But for opaque items: pictures in messages and results, reasoning everywhere, two hundred parallel calls,
    arguments that do not parse, a refusal, empty content. No request was refused, or one that the official types do."""
    expected, told = expected_talk(), play(server, name, rotate_after=rotate_after)
    assert told.visible == expected.visible
    assert told.answers == expected.answers == ("A house.", "I will not say.", "", "", "Goodbye.")
    assert expected.opaque == ()
    assert told.report["refused"] == 0
    assert told.report["break_count"] == len(rotate_after)


@THINKERS
def test_reasoning_is_recorded_before_what_it_led_to(server: FakeProviderServer, name: str) -> None:
    """As the provider gave it, with who can read it."""
    told = play(server, name)
    led_to = [
        following for entry, following in zip(told.recorded, told.recorded[1:], strict=False) if entry in told.opaque
    ]
    assert [entry.text or entry.tool_call_id for entry in led_to] == [
        *("Looking.", BROKEN, "A house.", "I will not say.", None, '{"what": "plan"}', "Goodbye."),
    ]
    assert {entry.origin for entry in told.opaque} == {"default/m-1"}
    assert all(json.loads(entry.text)["type"] in OPAQUE_TYPES for entry in told.opaque)


BROKEN = '{"what": "pla'
OPAQUE_TYPES = {"thinking", "redacted_thinking", "reasoning"}


def test_thinking_comes_back_in_the_loop_and_in_later_turns(server: FakeProviderServer) -> None:
    """Each message that has any begins with it, signed as it was; the answer that was reasoning only is not sent."""
    *_, last = play(server, "anthropic").bodies
    said = [message["content"] for message in json.loads(last)["messages"] if message["role"] == "assistant"]
    assert [content[0]["type"] for content in said] == [*["thinking"] * 3, *["redacted_thinking"] * 2]
    assert b"They want nothing." not in last


def test_a_forgotten_session_is_given_its_reasoning_again(server: FakeProviderServer) -> None:
    """It holds its own, so it is sent none while it is known, and all of it where it has forgotten."""
    known = play(server, "responses")
    assert not any(b'encrypted_content":' in body for body in known.bodies)
    server.observations.clear()
    told = play(server, "responses", before_turn=lambda turn_id: server.responses.forget())
    assert told.visible == known.visible
    assert told.recovered == (False, True, True, True, True)
    sent = json.loads(told.bodies[-1])["input"]
    kinds = [item.get("type", "message") for item in sent]
    assert [kinds[place + 1] for place, kind in enumerate(kinds) if kind == "reasoning"] == [
        *("message", "function_call", "message", "message", "function_call"),
    ]


@THINKERS
def test_a_rotation_leaves_reasoning_behind(server: FakeProviderServer, name: str) -> None:
    """It is archived with what it led to, and in no request, record or summary after that."""
    told = play(server, name, rotate_after=("t4",))
    assert told.visible == expected_talk().visible
    assert len(told.opaque) == 7
    last = told.bodies[-1]
    assert b"Both at once." not in last
    assert b'signature":' not in last


@THINKERS
def test_another_model_is_sent_no_reasoning(server: FakeProviderServer, name: str, tmp_path: Any) -> None:
    """A new version of the agent goes on with what both can read; history keeps all of it."""
    server.record(SESSION, {"answers": {f"{SESSION}/{step}": reply for step, reply in TALK.items()}})
    bodies = Bodies()
    for model, turn_id in [("m-1", "t2"), ("m-2", "t3"), ("m-2", "t5")]:
        provider = ADAPTERS[name](server, build_client=bodies.client)
        made = agent(name, model=model)
        with Session(made, {"default": provider}, session_id=SESSION, path=tmp_path / "s.db") as session:
            reply = session.send(MESSAGES[turn_id][0], turn_id=turn_id)
            recorded = recorded_by(session)
        provider.close()
    assert reply.text == "Goodbye."
    assert not reply.answer.is_recovered
    assert [entry.origin for entry in recorded if entry.origin] == ["default/m-1", "default/m-2", "default/m-2"]
    assert all(not re.search(rb'"type":"(redacted_thinking|reasoning)"', body) for body in bodies.seen)
    assert b"And this?" in bodies.seen[1]
    if name == "responses":
        assert b"previous_response_id" not in bodies.seen[1]
        assert b"previous_response_id" in bodies.seen[2]


@EACH
def test_a18_56_a_message_is_recorded_when_it_was_answered(server: FakeProviderServer, name: str) -> None:
    """A call that fails leaves neither the message nor its picture; sent again, they are there once."""
    bodies = Bodies()
    provider = ADAPTERS[name](server, build_client=bodies.client)
    with Session(agent(name), {"default": provider}, session_id="failing") as session:
        server.fail(401)
        with pytest.raises(TurnFailed):
            session.send("See", media=[LINKED], turn_id="t1")
        assert recorded_by(session) == ()
        session.send("See", media=[LINKED], turn_id="t2")
        assert recorded_by(session)[0] == Entry.user("See", (LINKED,))
    provider.close()
    assert bodies.seen[0] == bodies.seen[1]


# --- pictures


@EACH
def test_a_large_picture_is_stored_once(
    server: FakeProviderServer, name: str, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Five megabytes, in the session's entries and nowhere else: no event, no log line, no second copy. A rotation
    takes them away from what is sent."""
    caplog.set_level(logging.DEBUG)
    picture = media_from_bytes(png(4_000, 3_000, padding_bytes=5_000_000), "large.png")
    path = tmp_path / "s.db"
    bodies = Bodies()
    provider = ADAPTERS[name](server, build_client=bodies.client)
    with Session(agent(name), {"default": provider}, session_id="large", path=path) as session:
        session.send("See this", media=[picture], turn_id="t1")
        for message in ("And?", "Go on", "Go on"):
            session.send(message)
        assert recorded_by(session)[0] == Entry.user("See this", (picture,))
        events = [*session.store.events("large", "t1"), *session.audit()]
        assert session.rotate(timeout_seconds=60)
        session.send("Thanks")
    provider.close()
    marker = picture.data[2_000:2_040]
    assert all(marker not in json.dumps(dict(event.data)) for event in events)
    assert marker not in caplog.text
    assert marker.encode() in bodies.seen[0]
    assert marker.encode() not in bodies.seen[-1]
    stored = sum(file.read_bytes().count(marker.encode()) for file in tmp_path.iterdir())
    assert path.stat().st_size < 3 * len(picture.data)
    assert stored <= 2  # a page that is free again keeps its bytes


@EACH
def test_what_a_provider_counts_is_covered(server: FakeProviderServer, name: str) -> None:
    """Pictures and reasoning included: no request takes more than was counted for it before it was sent."""
    told = play(server, name)
    assert sum(len(entry.media) for entry in told.visible) == 10
    assert told.report["largest_request_tokens"] <= told.counted_tokens


# --- prompts


@EACH
def test_requests_extend_each_other_byte_for_byte(server: FakeProviderServer, name: str) -> None:
    """Between rotations each body begins with the one before it, but for cache marks; a held conversation's with the
    same head, and carries nothing that it carried before."""
    bodies = [unmarked(body) for body in play(server, name).bodies]
    assert len(bodies) == len(TALK)
    if name == "responses":
        heads = {re.sub(rb'"previous_response_id":"[^"]*",', b"", body).partition(b'"input":')[0] for body in bodies}
        assert len(heads) == 1
        inputs = [item for body in bodies for item in json.loads(body)["input"]]
        assert len({json.dumps(item) for item in inputs}) == len(inputs)
        return
    for before, after in pairwise(bodies):
        assert after.startswith(before.rstrip(b"]}"))


def unmarked(body: bytes) -> bytes:
    return re.sub(rb',"cache_control":\{"type":"ephemeral"\}', b"", body)


# --- structured answers


class Verdict(BaseModel):
    """What the model is to answer."""

    title: str
    score: int = 0


@EACH
def test_an_answer_comes_in_the_form_that_was_asked_for(server: FakeProviderServer, name: str) -> None:
    """The agent's parameters go to the provider as they are, and the reply is made a value."""
    answers = {"s1/t1/model:0": {"text": '{"title": "Fine", "score": 9}'}, "s1/t2/model:0": {"text": '{"score": "x"}'}}
    server.record("s1", {"answers": answers})
    made = agent(name, parameters=answer_format(Verdict, name))  # type: ignore[arg-type]
    bodies = Bodies()
    provider = ADAPTERS[name](server, build_client=bodies.client)
    with Session(made, {"default": provider}, session_id="s1") as session:
        assert session.send("Judge", turn_id="t1").parsed(Verdict) == Verdict(title="Fine", score=9)
        with pytest.raises(AnswerUnreadable, match="title: missing; score: int parsing"):
            session.send("Again", turn_id="t2").parsed(Verdict)
    provider.close()
    assert b'"additionalProperties":false' in bodies.seen[0]


@pytest.mark.parametrize("text", ["hunter2", '{"title": ["hunter2"], "score": "hunter2"}', '{"hunter2": 1}', ""])
def test_an_unreadable_answer_is_not_quoted(text: str) -> None:
    """Error texts are logged, and may be shown to whoever did not ask."""
    reply = Reply(turn_id="t1", text=text, answer=Answer(text=text))
    with pytest.raises(AnswerUnreadable) as caught:
        reply.parsed(Verdict)
    assert "hunter2" not in str(caught.value)
    assert caught.value.turn_id == "t1"
    assert encode(replace(reply.answer, text="x"))
