"""What the workers of the crash tests know: agents whose provider is a process that outlives every kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from sessionlib.agent import Agent, Journal
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.chat_completions import ChatCompletions
from sessionlib.testing.fake_provider import SUMMARIZER_MODEL
from sessionlib.tools.declaration import ToolContext
from sessionlib.workloads import ConsolidationWorkload, SummaryWorkload

PROVIDER_VARIABLE = "CRASH_PROVIDER_URL"
DIRECTORY_VARIABLE = "CRASH_DIRECTORY"
LOOK_SECONDS = 0.01

PART_WORDS = 1_480
"""About 1,500 tokens."""


def part(number: int) -> str:
    """What `read_part` answers: the same text whenever it is asked."""
    return f"Part {number}: " + " ".join(f"w{(number * 31 + at) % 10}" for at in range(PART_WORDS // 2))


def read_part(number: int, context: ToolContext) -> str:
    """Read one part of the report."""
    note_run(context.call_id)
    return part(number)


def wait_at_gate(name: str, context: ToolContext) -> str:
    """Wait until the gate of that name is open."""
    note_run(context.call_id)
    while (directory() / name).exists():
        time.sleep(LOOK_SECONDS)
    return f"gate {name} passed"


def break_down(note: str) -> str:
    """Fail with what it was given."""
    raise RuntimeError(f"cannot work with {note}")


def note_run(call_id: str) -> None:
    """Write down that this process runs a call, so that a test can tell which worker to kill."""
    with (directory() / "runs").open("a") as runs:
        runs.write(f"{call_id} {os.getpid()}\n")


def directory() -> Path:
    return Path(os.environ[DIRECTORY_VARIABLE])


def _provider() -> ChatCompletions:
    return ChatCompletions(os.environ[PROVIDER_VARIABLE])


def _quoting_answer(request: httpx.Request) -> httpx.Response:
    """What gateways do at their worst: repeat what they were sent, in an error, in half a page, in an exception."""
    said = str(json.loads(request.content)["messages"][-1]["content"])
    if "explode" in said:
        raise ValueError(said)
    if "garbage" in said:
        return httpx.Response(200, text=f"<html>{said}")
    status = 503 if "overloaded" in said else 400
    return httpx.Response(status, json={"error": {"message": f"cannot read {said}", "type": said, "code": said}})


def _quoting() -> ChatCompletions:
    transport = httpx.MockTransport(_quoting_answer)
    return ChatCompletions("http://gateway.invalid/v1", build_client=lambda: httpx.Client(transport=transport))


SUMMARIZED = ConsolidationWorkload(summarizer="model", model=SUMMARIZER_MODEL)
SUMMARIES = SummaryWorkload(model=SUMMARIZER_MODEL)

SMALL_WINDOWS: Sequence[tuple[LogMerge | Slots | WorkRoom, int]] = (
    (LogMerge(), 4_000),
    (Slots(), 4_500),
    (WorkRoom(least_work_tokens=1_500, least_work_multiple=0.0, trail_tokens=200), 4_000),
)
"""About as small, in tokens, as each policy takes: a rotation every few turns."""

AGENTS = [
    Agent(name="talker", model="m", window_tokens=8_000, counter="o200k_base", consolidation=SUMMARIZED),
    Agent(
        name="reader",
        model="m",
        window_tokens=32_000,
        counter="o200k_base",
        tools=(read_part,),
        consolidation=SUMMARIZED,
    ),
    Agent(
        name="toolman",
        model="m",
        window_tokens=8_000,
        counter="o200k_base",
        tools=(wait_at_gate, break_down),
        consolidation=SUMMARIZED,
    ),
    Agent(
        name="quoted",
        provider="quoting",
        model="m",
        window_tokens=8_000,
        counter="o200k_base",
    ),
    Agent(
        name="journalist",
        model="m",
        window_tokens=32_000,
        counter="o200k_base",
        consolidation=SUMMARIZED,
        handoff=SUMMARIES,
        journal=Journal(digest=SUMMARIES),
    ),
    Agent(
        name="chunked",
        model="m",
        window_tokens=8_000,
        counter="o200k_base",
        consolidation=SUMMARIZED.model_copy(update={"window_tokens": 4_000}),
    ),
    *(
        Agent(
            name=f"ageing-{policy.kind}",
            model="m",
            window_tokens=window_tokens,
            counter="o200k_base",
            policy=policy,
            consolidation=SUMMARIZED,
            notes_tool=True,
        )
        for policy, window_tokens in SMALL_WINDOWS
    ),
]
PROVIDERS = {"default": _provider, "quoting": _quoting}
