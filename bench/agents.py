"""Agents and providers of the benches: real-sized text, no model. Worker processes load them from a written file."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.samples import fresh_samples
from sessionlib.agent import Agent
from sessionlib.agents_file import Parts
from sessionlib.counters import counter_named
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Shape
from sessionlib.testing.answers import record_of
from sessionlib.workloads import ConsolidationWorkload

WINDOW_TOKENS = 16_000
NEVER_ROTATING_WINDOW_TOKENS = 100 * WINDOW_TOKENS
"""A window whose rotation line no session of a bench reaches."""

MESSAGE_SENTENCES = 6
ANSWER_SENTENCES = 10
"""About 100 and 160 tokens: what people and models say to each other, without tool output."""

ROTATING, RESTING = "rotating", "resting"

TRACE_PREFIX = "trace-"
SESSION_PATTERN = re.compile(r"\b(s-[0-9a-z-]+) says")


def message(session_id: str, number: int) -> str:
    """The message *number* of a session, which names the session, as a trace of its consolidations needs it."""
    return f"{session_id} says {number}: {_prose(f'{session_id} {number}', MESSAGE_SENTENCES)}"


def answer(key: str) -> str:
    """What the model says to the call *key*."""
    return _prose(key, ANSWER_SENTENCES)


def _prose(seed: str, sentence_count: int) -> str:
    return " ".join(random.Random(seed).choices(_SENTENCES, k=sentence_count))


_SENTENCES = [sentence.strip() + "." for sentence in fresh_samples()["english"].split(".") if sentence.strip()]


def write_agents(directory: Path, *, answer_seconds: float, summary_seconds: float, is_traced: bool) -> Path:
    """Write a file that worker processes load their agents from. They must find `bench` on their path."""
    trace = str(directory) if is_traced else None
    path = directory / "bench_agents.py"
    path.write_text(
        "from bench.agents import parts\n"
        f"parts_ = parts({answer_seconds!r}, {summary_seconds!r}, {trace!r})\n"
        "AGENTS, PROVIDERS = parts_[0].values(), parts_[1]\n",
        encoding="utf-8",
    )
    return path


def parts(answer_seconds: float, summary_seconds: float, trace: str | None) -> Parts:
    """Agents that differ in the size of their window only, and the providers that they name."""
    log = Trace(Path(trace)) if trace else None
    providers: dict[str, Any] = {"answers": Answers(answer_seconds, log), "summaries": Summaries(summary_seconds, log)}
    windows = {ROTATING: WINDOW_TOKENS, RESTING: NEVER_ROTATING_WINDOW_TOKENS}
    return {name: _agent(name, window_tokens) for name, window_tokens in windows.items()}, providers, {}


def _agent(name: str, window_tokens: int) -> Agent:
    workload = ConsolidationWorkload(summarizer="model", provider="summaries")
    return Agent(
        name=name,
        provider="answers",
        instructions="You run a small town's front desk. Answer in plain words.",
        window_tokens=window_tokens,
        consolidation=workload,
    )


class Trace:
    """Notes when a provider was busy, a file for each process: `session_id` is "" where nothing names one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def note(self, kind: str, session_id: str, turn_id: str, started: float) -> None:
        noted = {"kind": kind, "session_id": session_id, "turn_id": turn_id, "started": started, "ended": time.time()}
        with (self._directory / f"{TRACE_PREFIX}{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(noted) + "\n")


def read_traces(directory: Path) -> Mapping[int, list[dict[str, str | float]]]:
    """What was noted, by process id."""
    files = directory.glob(f"{TRACE_PREFIX}*.jsonl")
    return {
        int(path.stem.removeprefix(TRACE_PREFIX)): [json.loads(line) for line in path.read_text().splitlines()]
        for path in files
    }


class Answers:
    """A model that takes a fixed time and costs no CPU."""

    shape = Shape.STATELESS

    def __init__(self, seconds: float, trace: Trace | None = None) -> None:
        self._seconds, self._trace = seconds, trace

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        del on_delta
        started = time.time()
        if self._seconds:
            time.sleep(self._seconds)
        if self._trace:
            self._trace.note("model", request.session_id, request.turn_id, started)
        return ModelReply(text=answer(request.turn_id))

    def dispose(self, handle: str, until: str = "") -> None:
        """Nothing is held."""


class Summaries:
    """A summarizer whose answers are as long as a model's, which is hard work here, and take at least a fixed time."""

    shape = Shape.STATELESS

    def __init__(self, seconds: float, trace: Trace | None = None) -> None:
        self._seconds, self._trace = seconds, trace

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        del on_delta
        started = time.time()
        text = request.entries[-1].text
        said = record_of([{"content": request.instructions}, {"content": text}], counter_named("auto"))
        time.sleep(max(0.0, started + self._seconds - time.time()))
        if self._trace:
            named = SESSION_PATTERN.search(text)
            self._trace.note("consolidation", named[1] if named else "", request.step, started)
        return ModelReply(text=said.text)

    def dispose(self, handle: str, until: str = "") -> None:
        """Nothing is held."""
