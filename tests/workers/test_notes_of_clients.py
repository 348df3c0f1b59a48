"""Notes over a real server: written by workers and in the caller's own loop, read by both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sessionlib.agent import Agent
from sessionlib.entries import Entry, EntryKind
from sessionlib.providers.contract import CallRequest, ModelReply, ModelRequest
from sessionlib.providers.scripted import ScriptedProvider
from sessionlib.providers.wire_names import to_wire
from tests.workers.local import LocalWorkers, connection_to, local_workers
from workers.client import AsyncSessions, ClientSession, Connection, Sessions

AGENT = Agent(name="keeper", window_tokens=16_000, counter="characters", notes_tool=True)
WRITE = CallRequest(call_id="c1", name="notes.write_file", arguments='{"name": "plan.md", "content": "pump"}')


def writing(request: ModelRequest) -> ModelReply | str:
    """Write the plan, then say so."""
    last = request.entries[-1]
    return last.text if last.kind is EntryKind.TOOL_RESULT else ModelReply(text="", calls=(WRITE,))


@pytest.fixture
def workers(valkey_url: str, namespace: str) -> Iterator[LocalWorkers]:
    with local_workers(valkey_url, namespace, AGENT, ScriptedProvider(writing)) as workers:
        yield workers


@pytest.fixture
def session(connection: Connection) -> ClientSession:
    return Sessions(connection).open("s", "keeper")


def test_a_worker_writes_and_a_client_reads(session: ClientSession) -> None:
    """The private tools are run where the turn is."""
    assert session.send("plan it", timeout_seconds=30.0).text == "Written: plan.md has 4 bytes now."
    assert dict(session.notes()) == {"plan.md": 4}
    assert session.note("plan.md") == "pump"
    assert session.note("lost.md") is None


def test_a_loop_of_ones_own_has_the_notes_too(session: ClientSession, connection: Connection) -> None:
    """Declared by `tools()` under the wire's names, and answered by `commit`."""
    with session.turn("plan it", turn_id="t") as turn:
        assert to_wire("notes.write_file") in [tool["function"]["name"] for tool in turn.tools()]
        call = CallRequest(call_id="c1", name=to_wire(WRITE.name), arguments=WRITE.arguments)
        assert turn.commit("", calls=[call]) is False
        assert turn.commit("Done.") is True
    assert session.note("plan.md") == "pump"
    assert connection.store.snapshot("s").layout.live.entries[2] == Entry.tool_result(
        "c1", "Written: plan.md has 4 bytes now.", "notes.write_file"
    )


def test_the_client_for_asyncio_reads_notes(workers: LocalWorkers, session: ClientSession) -> None:
    """As the blocking one."""
    session.send("plan it", timeout_seconds=30.0)

    async def read() -> tuple[dict[str, int], str | None]:
        async with AsyncSessions(connection_to(workers.store, workers.catalog, workers)) as sessions:
            found = await sessions.get("s")
            return dict(await found.notes()), await found.note("plan.md")

    assert asyncio.run(read()) == ({"plan.md": 4}, "pump")
