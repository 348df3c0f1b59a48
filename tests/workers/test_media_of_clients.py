"""Images and files through the workers: attached by every client, shown by tools, stored once, in no message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from sessionlib.agent import Agent
from sessionlib.attachments import media_from_bytes, media_from_url
from sessionlib.entries import Entry
from sessionlib.errors import InvalidInput, TurnConflict
from sessionlib.media import MEDIA_LIMIT_BYTES
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.tools.declaration import ToolResult
from tests.sessionlib.pictures import pdf, png
from tests.workers.commands import Desk
from tests.workers.local import LocalWorkers, connected, connection_to, local_workers
from workers.client import AsyncSessions, ClientSession, Sessions

SHOT = media_from_bytes(png(padding_bytes=900), "shot.png")
MAP = media_from_url("https://example.org/map.png")
LARGE = media_from_bytes(png(4_000, 3_000, padding_bytes=5_000_000), "large.png")


def camera(what: str) -> ToolResult:
    """Take a picture."""
    return ToolResult(f"a {what}", (SHOT,))


AGENT = Agent(name="viewer", window_tokens=16_000, counter="characters", tools=(camera,))


def answer(request: ModelRequest) -> ModelReply | str:
    newest = request.entries[-1]
    if newest.text == "take":
        return ModelReply(text="", calls=(CallRequest(call_id="c1", name="camera", arguments='{"what": "house"}'),))
    return f"{newest.text}: {', '.join(media.name for media in newest.media)}"


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider(answer)) as workers:
        yield workers


@pytest.fixture
def session(workers: LocalWorkers) -> Iterator[ClientSession]:
    with connected(workers) as connection:
        yield Sessions(connection).open("s", "viewer")


def test_a_message_is_sent_with_its_pictures(session: ClientSession) -> None:
    """They are part of the entry, and of what a turn id stands for."""
    assert session.send("see", media=[SHOT, MAP], turn_id="t1", timeout_seconds=20).text == "see: shot.png, map.png"
    assert session.layout().live.entries[0] == Entry.user("see", (SHOT, MAP))
    assert session.submit("see", media=[SHOT, MAP], turn_id="t1").reply() is not None
    with pytest.raises(TurnConflict):
        session.submit("see", media=[SHOT], turn_id="t1")


def test_a_tool_shows_a_picture(session: ClientSession) -> None:
    """Its result is an entry with it, and the model sees it in the next round."""
    assert session.send("take", timeout_seconds=20).text == "a house: shot.png"
    assert session.layout().live.entries[2] == Entry.tool_result("c1", "a house", "camera", (SHOT,))


def test_an_own_loop_has_pictures_both_ways(session: ClientSession) -> None:
    """As chat messages; a result with one is a ToolResult."""
    call = CallRequest(call_id="c1", name="camera", arguments='{"what": "door"}')
    with session.turn("see", media=[MAP]) as turn:
        shown = {"type": "image_url", "image_url": {"url": MAP.url, "detail": "high"}}
        assert turn.messages()[-1]["content"] == [{"type": "text", "text": "see"}, shown]
        turn.commit("", calls=[call], results={"c1": ToolResult("a door", (MAP,))})
        assert turn.messages()[-1]["content"][1] == shown
        with pytest.raises(InvalidInput):
            turn.commit("", calls=[call], results={"c1": MAP})  # type: ignore[dict-item]
        turn.commit("Nice.")
    assert session.layout().live.entries[2] == Entry.tool_result("c1", "a door", "camera", (MAP,))


def test_a_message_is_sent_with_its_pictures_from_an_event_loop(workers: LocalWorkers) -> None:
    """As from a thread."""

    async def send() -> str:
        async with AsyncSessions(connection_to(workers.store, workers.catalog, workers)) as sessions:
            session = await sessions.open("s", "viewer")
            return (await session.send("see", media=[SHOT], timeout_seconds=20)).text

    assert asyncio.run(send()) == "see: shot.png"


def test_a_large_picture_is_stored_once(
    session: ClientSession, workers: LocalWorkers, valkey_url: str, namespace: str
) -> None:
    """Five megabytes: in the entries alone when the turn has ended, in no event, and in no message to a worker."""
    session.send("see", media=[LARGE], turn_id="t1", timeout_seconds=30)
    marker = LARGE.data[2_000:2_040].encode()
    with Redis.from_url(valkey_url) as redis:
        keys = [key for key in redis.keys(f"*{namespace}*") if marker in (redis.dump(key) or b"")]
    assert len(keys) == 1, keys
    assert session.layout().live.entries[0].media == (LARGE,)
    assert marker.decode() not in json.dumps([dict(event.data) for event in workers.store.events("s", "t1")])
    assert all(len(value) < 200 for _, ids in workers.sent for value in ids.values())


# --- `sessionctl send --attach`


def named(request: ModelRequest) -> str:
    newest = request.entries[-1]
    return f"{newest.text}: {', '.join(media.label for media in newest.media)}"


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(agents=(Agent(name="echo", window_tokens=400_000),), provider=ScriptedProvider(named))
    yield made
    made.store.close_connections()


def test_files_and_urls_are_attached(desk: Desk, tmp_path: Path) -> None:
    """In their order; what each is taken for, and how large it is, is said on stderr."""
    (tmp_path / "shot.png").write_bytes(png(padding_bytes=900))
    (tmp_path / "report").write_bytes(pdf())
    attached = [str(tmp_path / "shot.png"), "https://example.org/map.png", str(tmp_path / "report")]
    options = [option for place in attached for option in ("--attach", place)]
    result = desk.run("send", "s", "see", "--agent", "echo", *options)
    labels = [SHOT.label, MAP.label, media_from_bytes(pdf(), "report").label]
    assert (result.exit_code, result.stdout) == (0, f"see: {', '.join(labels)}\n")
    assert [line for line in result.stderr.splitlines() if line.startswith("attached")] == [
        f"attached {label}" for label in labels
    ]


@pytest.mark.parametrize(
    ("size", "complaint"), [(None, "cannot be read"), (0, "must not be empty"), (MEDIA_LIMIT_BYTES + 1, "20,000,000")]
)
def test_what_cannot_be_attached_is_refused(desk: Desk, tmp_path: Path, size: int | None, complaint: str) -> None:
    """Before a session is opened; a file that is too large is not read to its end."""
    path = tmp_path / "file"
    if size is not None:
        with path.open("wb") as file:
            file.truncate(size)
    result = desk.run("send", "s", "see", "--agent", "echo", "--attach", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert str(path) in result.stderr
    assert list(desk.sessions) == []
