"""What streaming adds: how much later a caller sees a word than one who is connected to the provider itself.

    python -m bench.stream [--streams 32] [--rounds 8] [--in-flight 256] [--json] [--quick]

A real front worker on an embedded server, a provider in a process of its own that streams over HTTP, a caller in this
process that reads events.

- First words: from the moment at which the provider has sent the first piece of an answer to that at which the caller
  has it, all streams beginning at once; a direct connection to the same provider takes turns with it, round by round.
- In flight: many long answers at once through one front worker. Per stream: the delay of its first piece, that of its
  last event after the provider's end, and its longest pause between two pieces. Memory is the worker's at the height
  less what it had before; how much of it is for streaming shows beside as many turns that are not streamed, played
  first. A piece that is lost, doubled or out of order ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from bench.figures import Spread, print_json
from bench.in_flight import LEASE_SECONDS, SWEEP_SECONDS
from sessionlib.deltas import DELTA, RESTARTED
from sessionlib.entries import Entry
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.providers.contract import ModelRequest
from tests.crash.cluster import Cluster, memory_bytes
from workers.client import AsyncSession, AsyncSessions, Connection

SENTENCE = "The pump is blue and has been since spring. "
LATENCY_SECONDS = 0.3
"""How long the provider thinks before its first word: long enough for all calls of a round to be under way."""
FLIGHT_LATENCY_SECONDS = 6.0
"""The same for those in flight, which shall not begin to speak while others are still being handed in."""
PATIENCE_SECONDS = 240.0
LOOK_SECONDS = 0.25

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    streams: int = 32
    rounds: int = 8
    in_flight: int = 256
    tokens_per_second: float = 10.0
    """Of each stream in flight."""
    flight_latency_seconds: float = FLIGHT_LATENCY_SECONDS
    sentences: int = 20
    """Of each answer in flight: about ten tokens each."""


QUICK = Plan(streams=4, rounds=1, in_flight=8, tokens_per_second=40.0, flight_latency_seconds=1.0, sentences=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWords:
    """From the provider's first piece to its reader, in milliseconds."""

    streams: int
    streamed: Spread
    direct: Spread

    def __str__(self) -> str:
        return (
            f"{self.streams} streams, the provider's first piece to its reader: streamed {_figures(self.streamed)}, "
            f"connected directly {_figures(self.direct)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Many streams at once through one front worker. Milliseconds, a value for each stream."""

    streams: int
    events: int
    """With text, of all streams: what the pieces were gathered into."""
    first: Spread
    last: Spread
    """From the provider's end to the caller's last event, which is that of the recorded turn."""
    longest_pause: Spread
    """Between two events of a stream. The provider's own pause between two words is not taken off."""
    kib_per_stream: float
    """Memory of the worker at the height, above what it had before."""
    kib_for_streaming: float
    """Of that: above what as many turns took that are not streamed."""

    def __str__(self) -> str:
        return (
            f"{self.streams} in flight, {self.events:,} events in order, none lost: "
            f"first piece {_figures(self.first)}, "
            f"end {_figures(self.last)}, longest pause {_figures(self.longest_pause)}; "
            f"{self.kib_per_stream:.0f} KiB of the worker per stream, {self.kib_for_streaming:.0f} of it for streaming"
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a caller saw of one stream: when each event with text came, and the last. Seconds since the epoch."""

    session_id: str
    at: tuple[float, ...]
    ended: float


def _figures(spread: Spread) -> str:
    return f"p50 {spread.p50:.1f} ms, p99 {spread.p99:.1f} ms"


@contextmanager
def staged(directory: Path, plan: Plan) -> Iterator[Cluster]:
    """One front worker and a provider that streams, ready and warm."""
    cluster = Cluster(
        directory,
        fronts=1,
        backgrounds=1,
        over_tcp=True,
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=SWEEP_SECONDS,
        turns_concurrency=max(plan.streams, plan.in_flight),
    )
    with cluster:
        turn = cluster.sessions.open("warm", "talker").submit("hello", stream=True)
        turn.answer(PATIENCE_SECONDS)
        cluster.provider.change(latency_seconds=LATENCY_SECONDS, tokens_per_second=plan.tokens_per_second)
        yield cluster


async def first_words(cluster: Cluster, sessions: AsyncSessions, plan: Plan) -> FirstWords:
    """Rounds of streams that all begin at once, by turns with as many direct connections."""
    streamed: list[float] = []
    direct: list[float] = []
    loop, provider = asyncio.get_running_loop(), ChatCompletions(cluster.provider.base_url)
    with ThreadPoolExecutor(plan.streams) as threads:
        for number in range(plan.rounds):
            names = [f"first-{number}-{stream}" for stream in range(plan.streams)]
            seen = await _read_all(cluster, sessions, names, SENTENCE)
            streamed += [one.at[0] - _spoke(cluster, one.session_id)["first_token"] for one in seen]
            asked = [f"direct-{name}" for name in names]
            heard = await asyncio.gather(*(loop.run_in_executor(threads, _ask, provider, name) for name in asked))
            direct += [at - _spoke(cluster, name)["first_token"] for name, at in zip(asked, heard, strict=True)]
    provider.close()
    return FirstWords(streams=plan.streams, streamed=_milliseconds(streamed), direct=_milliseconds(direct))


def _ask(provider: ChatCompletions, session_id: str) -> float:
    """When the first piece of an answer came over a connection of this process."""
    heard: list[float] = []
    request = ModelRequest(
        model="m",
        instructions="",
        tools=(),
        parameters={},
        entries=(Entry.user("hello"),),
        session_id=session_id,
        turn_id="t",
        step="model:0",
        timeout_seconds=PATIENCE_SECONDS,
    )
    provider.complete(request, lambda _: heard.append(time.time()))
    return heard[0]


async def flight(cluster: Cluster, sessions: AsyncSessions, plan: Plan) -> Flight:
    """Many long answers at once that are not streamed, then as many that are."""
    cluster.provider.change(latency_seconds=plan.flight_latency_seconds)
    text, before = SENTENCE * plan.sentences, _worker_bytes(cluster)
    names = [f"flight-{number}" for number in range(plan.in_flight)]
    plain_height, _ = await _height(cluster, _send_all(cluster, sessions, [f"plain-{name}" for name in names], text))
    height, seen = await _height(cluster, _read_all(cluster, sessions, names, text))
    spoken = {one.session_id: _spoke(cluster, one.session_id) for one in seen}
    return Flight(
        streams=plan.in_flight,
        events=sum(len(one.at) for one in seen),
        first=_milliseconds([one.at[0] - spoken[one.session_id]["first_token"] for one in seen]),
        last=_milliseconds([one.ended - spoken[one.session_id]["ended"] for one in seen]),
        longest_pause=_milliseconds([max((later - at for at, later in pairwise(one.at)), default=0.0) for one in seen]),
        kib_per_stream=(height - before) / plan.in_flight / 1_024,
        kib_for_streaming=(height - plain_height) / plan.in_flight / 1_024,
    )


async def _send_all(cluster: Cluster, sessions: AsyncSessions, names: Sequence[str], text: str) -> None:
    opened = await _open_all(cluster, sessions, names, text)
    await asyncio.gather(*(session.send("hello", turn_id="t", timeout_seconds=PATIENCE_SECONDS) for session in opened))


async def _read_all(cluster: Cluster, sessions: AsyncSessions, names: Sequence[str], text: str) -> list[Seen]:
    """Submit a streamed turn to each of new sessions at once, and read them to their ends."""
    opened = await _open_all(cluster, sessions, names, text)
    return list(await asyncio.gather(*(_read(session, text) for session in opened)))


async def _open_all(
    cluster: Cluster, sessions: AsyncSessions, names: Sequence[str], text: str
) -> Sequence[AsyncSession]:
    """New sessions, whose first answer is *text*."""
    for name in names:
        await asyncio.to_thread(cluster.provider.record, name, {f"{name}/t/model:0": {"text": text}})
    return [await sessions.open(name, "talker") for name in names]


async def _read(session: AsyncSession, text: str) -> Seen:
    """Read a streamed turn to its end. Raises ValueError for text that is not the answer, piece after piece."""
    turn = await session.submit("hello", turn_id="t", stream=True)
    at: list[float] = []
    said, answer = "", None
    async for event in turn.events():
        if event.kind == DELTA:
            at.append(time.time())
            if event.data["at"] != len(said):
                raise ValueError(f"{session.session_id}: a piece stands at {event.data['at']}, not at {len(said)}")
            said += event.data["text"]
        elif event.kind == RESTARTED:
            raise ValueError(f"{session.session_id}: began anew without need")
        elif event.kind == "answered":
            answer = event.data["answer"]["text"]
    ended = time.time()
    if answer != text or not text.startswith(said) or not at:
        raise ValueError(f"{session.session_id}: {len(said)} of {len(text)} characters in {len(at)} events")
    return Seen(session.session_id, tuple(at), ended)


def _spoke(cluster: Cluster, session_id: str) -> Mapping[str, Any]:
    """When the provider said its first word to a session, and when it had said all."""
    (span,) = [span for span in cluster.provider.trace(session_id) if span["kind"] == "model"]
    return span


async def _height(cluster: Cluster, work: Coroutine[Any, Any, Value]) -> tuple[int, Value]:
    """The most memory that the front worker has while *work* is done, in bytes; and what that comes to."""
    height, task = 0, asyncio.create_task(work)
    while not task.done():
        height = max(height, _worker_bytes(cluster))
        await asyncio.sleep(LOOK_SECONDS)
    return height, await task


def _worker_bytes(cluster: Cluster) -> int:
    pid = cluster.pid(cluster.fronts[0])
    return memory_bytes(pid) if pid else 0


def _milliseconds(seconds: Sequence[float]) -> Spread:
    return Spread.of([value * 1_000 for value in seconds])


async def _measured(cluster: Cluster, plan: Plan) -> dict[str, Any]:
    async with AsyncSessions(Connection.to(cluster.settings)) as sessions:
        return {
            "first_words": await first_words(cluster, sessions, plan),
            "flight": await flight(cluster, sessions, plan),
        }


def measure(plan: Plan) -> dict[str, Any]:
    """Both measurements, on a deployment of their own."""
    with tempfile.TemporaryDirectory(prefix="sessionlib-") as directory, staged(Path(directory), plan) as cluster:
        return asyncio.run(_measured(cluster, plan))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = Plan()
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="few streams, short answers: seconds")
    parser.add_argument("--streams", type=int, metavar="N", help=f"that begin at once; {whole.streams} by default")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"{whole.rounds} by default")
    parser.add_argument("--in-flight", type=int, metavar="N", help=f"{whole.in_flight} by default")
    parser.add_argument(
        "--tokens-per-second",
        type=float,
        metavar="N",
        help=f"of each in flight; {whole.tokens_per_second:g} by default",
    )
    chosen = vars(parser.parse_args(arguments))
    is_json, is_quick = chosen.pop("json"), chosen.pop("quick")
    given = {name: value for name, value in chosen.items() if value is not None}
    found = measure(replace(QUICK if is_quick else whole, **given))
    if is_json:
        print_json(found)
    else:
        print(*found.values(), sep="\n")


if __name__ == "__main__":
    main()
