"""How much of a prompt comes from the provider's cache: real sessions, played again against the fake provider.

`python -m bench.cache` plays the recordings of a directory with each policy and each kind of provider, and adds up what
the provider read from its prompt cache, which works by each vendor's rules (`sessionlib.testing.prefix_cache`). Told
are, in shares of prompt tokens:

- cached: of all requests;
- between: of what a request has in common with the one before it, as far as a cache of that vendor can hold it, where
  it only extends it. That is what must be 100 %;
- across: of the requests that do not extend the one before: the first after a rotation, or after a trim.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.apis import APIS
from bench.figures import print_json
from sessionlib.agent import Agent
from sessionlib.errors import SessionError, TurnFailed
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.slots import Slots
from sessionlib.policies.tiers import Tiers
from sessionlib.policies.work_room import WorkRoom
from sessionlib.providers.contract import ModelReply, ModelRequest, OnDelta, Provider, Shape, ToolDeclaration
from sessionlib.recordings import Recording, read_recording
from sessionlib.session import Session
from sessionlib.testing.prefix_cache import MINIMUM_TOKENS, STEP_TOKENS
from sessionlib.testing.server import FakeProviderServer
from sessionlib.tokens import Usage
from sessionlib.tools.declaration import Tool, ToolContext
from sessionlib.workloads import ConsolidationWorkload

POLICIES: Mapping[str, Callable[[], Any]] = {
    "log_merge": LogMerge,
    "tiers": Tiers,
    "slots": Slots,
    "work_room": WorkRoom,
}
WINDOW_TOKENS = 32_000
ROUNDS = 150
DATA = Path(__file__).parents[1].parent / "shared" / "data"
PATTERN = "[ct]*_*_*.json"
"""The recordings that hold one session each."""

CLOSING_TOKENS = 4
"""What ends the JSON of a request: the next one goes on before it."""

SESSION = "played"
ROTATION_SECONDS = 60.0
LOOK_SECONDS = 0.005


@dataclass(slots=True)
class Shares:
    """Tokens, added up over sessions."""

    calls: int = 0
    breaks: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    stable_tokens: int = 0
    """What could come from the cache where a request extends the one before."""
    stable_cached_tokens: int = 0
    across_tokens: int = 0
    """Prompts of the requests that do not."""
    across_cached_tokens: int = 0

    def add(self, used: Usage, before: Usage | None, *, is_marked: bool, is_break: bool) -> None:
        self.calls += 1
        self.prompt_tokens += used.prompt_tokens
        self.cached_tokens += used.cached_tokens
        if is_break:
            self.breaks += 1
            self.across_tokens += used.prompt_tokens
            self.across_cached_tokens += used.cached_tokens
        elif before is not None:
            stable_tokens = _cacheable(before, is_marked=is_marked)
            self.stable_tokens += stable_tokens
            self.stable_cached_tokens += min(used.cached_tokens, stable_tokens)

    def figures(self) -> dict[str, float]:
        return {
            "calls": self.calls,
            "breaks": self.breaks,
            "cached": self.cached_tokens / max(1, self.prompt_tokens),
            "between": self.stable_cached_tokens / max(1, self.stable_tokens),
            "across": self.across_cached_tokens / max(1, self.across_tokens),
        }


def _cacheable(before: Usage, *, is_marked: bool) -> int:
    """What a cache can hold of the request before: up to its last breakpoint, or in whole steps."""
    if is_marked:
        return before.cached_tokens + before.written_tokens
    steps = (before.prompt_tokens - CLOSING_TOKENS) // STEP_TOKENS * STEP_TOKENS
    return steps if steps >= MINIMUM_TOKENS else 0


@dataclass(slots=True)
class _Watched:
    """A provider that keeps what each call used, by its key."""

    provider: Provider
    used: list[tuple[str, Usage]] = field(default_factory=list)

    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        self.shape = self.provider.shape

    def complete(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        reply = self.provider.complete(request, on_delta)
        if reply.usage is not None:
            self.used.append((request.idempotency_key, reply.usage))
        return reply

    def dispose(self, handle: str, until: str = "") -> None:
        self.provider.dispose(handle, until)


def play(recording: Recording, policy: str, provider: str, rounds: int, shares: Shares) -> None:
    """Play *recording* for so many rounds, and add what its calls used to *shares*."""
    with FakeProviderServer(window_tokens=WINDOW_TOKENS) as server:
        server.record(SESSION, {"answers": _answers(recording)})
        adapter = APIS[provider](server)
        watched = _Watched(adapter)
        with Session(_agent(recording, policy), {"default": watched}, session_id=SESSION) as session:
            for number, turn in enumerate(recording.turns):
                if len(watched.used) >= rounds:
                    break
                try:
                    session.send(turn.input, turn_id=f"t{number}")
                except TurnFailed as exc:
                    sys.stderr.write(f"{recording.source}, turn {number}: {exc.reason_code}\n")
                _settle(session)
        adapter.close()
        breaks = {seen["key"] for seen in server.report([SESSION])["sessions"][SESSION]["breaks"]}
    before = None
    for key, used in watched.used:
        shares.add(used, before, is_marked=provider == "anthropic", is_break=key in breaks)
        before = used


def _answers(recording: Recording) -> dict[str, Any]:
    """What the model says, by turn and round; the same at a second attempt."""
    return {
        f"{SESSION}/t{turn}/model:{number}{attempt}": {
            "text": reply.text,
            "calls": [{"call_id": c.call_id, "name": c.name, "arguments": c.arguments} for c in reply.calls],
        }
        for (turn, number), reply in recording.provider_replies().items()
        for attempt in ("", ":1")
    }


def _agent(recording: Recording, policy: str) -> Agent:
    results = recording.tool_results()

    def run(_arguments: str, context: ToolContext) -> str:
        return results[context.call_id]

    declared = (
        ToolDeclaration(name=name, description="A recorded tool.", parameters={"type": "object"})
        for name in recording.tool_names
    )
    return Agent(
        name="played",
        model="recorded",
        instructions=recording.instructions,
        tools=tuple(Tool(declaration, run) for declaration in declared),
        window_tokens=WINDOW_TOKENS,
        policy=POLICIES[policy](),
        consolidation=ConsolidationWorkload(summarizer="extractive"),
    )


def _settle(session: Session) -> None:
    """Let a rotation that is asked for end, so that every run is the same."""
    deadline = time.monotonic() + ROTATION_SECONDS
    while session.view().rotation_id is not None and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def measured(
    recordings: Sequence[Recording], policies: Sequence[str], providers: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """A row for each policy and provider."""
    rows = []
    for policy in policies:
        for provider in providers:
            shares = Shares()
            for recording in recordings:
                play(recording, policy, provider, rounds, shares)
            rows.append({"policy": policy, "provider": provider, **shares.figures()})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cache", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA, help="directory of recordings")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each recording")
    parser.add_argument("--policy", choices=POLICIES, action="append", help="only this one; may be repeated")
    parser.add_argument("--provider", choices=APIS, action="append", help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        recordings = [read_recording(path.read_bytes(), path.name) for path in sorted(options.data.glob(PATTERN))]
    except SessionError as exc:
        parser.error(str(exc))
    if not recordings:
        parser.error(f"no recordings in {options.data}")
    rows = measured(recordings, options.policy or list(POLICIES), options.provider or list(APIS), options.rounds)
    if options.json:
        print_json({"recordings": len(recordings), "rounds": options.rounds, "rows": rows})
        return
    print(f"{'policy':<10} {'provider':<17} {'calls':>6} {'breaks':>6} {'cached':>7} {'between':>8} {'across':>7}")
    for row in rows:
        print(
            f"{row['policy']:<10} {row['provider']:<17} {row['calls']:>6} {row['breaks']:>6}"
            f" {row['cached']:>7.1%} {row['between']:>8.2%} {row['across']:>7.1%}"
        )


if __name__ == "__main__":
    main()
