"""Whether answers wait on summaries: the same load without rotations, with them in the background, and inline.

`python -m bench.never_wait` sends turns of 32 sessions to one front worker in open loop (Poisson arrivals, a turn's
time counts from its intended start) at 50 % and 80 % of the capacity (turns a second with rotations in the background)
that it measures at the beginning of each round:

- off: an agent whose window is so large that it never rotates; its sessions begin as full as the others;
- background: an agent that rotates every 30 turns or so, by a background worker at lower priority (nice 10);
- inline: the same, but a turn first runs its session's pending rotation. This control exists only here.

The model answers in a fixed time and costs no CPU. A consolidation costs the CPU of an extractive summary of the real
material and takes half a second at least, as a model would. The three are measured in blocks by turns, on new sessions
and the same arrivals; the ratios are medians over these rounds. The generator's own lateness is part of every time and
printed beside it.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Any

from bench.agents import RESTING, ROTATING, message, read_traces
from bench.figures import percentile, print_json
from bench.histories import ENTRY_TOKENS, conversation
from bench.load import Arrival, Generator, Timed, poisson
from bench.stage import Stage, staged
from bench.tasks import InlineDispatch
from bench.waits import Notes, answered_meanwhile, pauses_across, waited
from sessionlib.counters import counter_named
from workers.client import ClientSession, Sessions, Turn

LOADS = (0.5, 0.8)
"""Shares of the capacity."""
ROUNDS, BLOCK_SECONDS, CAPACITY_SECONDS = 4, 4.0, 2.0
QUICK_ROUNDS, QUICK_BLOCK_SECONDS, QUICK_CAPACITY_SECONDS = 1, 2.0, 1.0
SESSIONS = 32
MODEL_SECONDS, SUMMARY_SECONDS = 0.05, 0.5
ROTATIONS_CONCURRENCY = 2
"""Background processes: as many as the smallest machine has cores, since a consolidation mostly waits."""

P50_TARGET, P99_TARGET = 1.10, 1.5
"""Background ÷ off: at most this."""

SETTLE_SECONDS = 20.0
"""How long rotations may go on after a block, before they are dropped."""
LOOK_SECONDS = 0.1
FILL_FRACTIONS = (0.2, 0.95)
"""How full the sessions of a block begin, as shares of the rotation line, evenly spread: rotations come one by one."""


class Mode(StrEnum):
    """How a block's sessions are rotated."""

    OFF = "off"
    BACKGROUND = "background"
    INLINE = "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One stretch of one mode."""

    mode: Mode
    load: float
    turns: Sequence[Timed]
    rotation_count: int

    def milliseconds(self, share: float) -> float:
        """A percentile of the answers' times."""
        return percentile([turn.seconds for turn in self.turns], share) * 1_000

    def late_milliseconds(self, share: float) -> float:
        """A percentile of the generator's own lateness."""
        return percentile([turn.begun - turn.intended for turn in self.turns], share) * 1_000


class Bench:
    """The stage, and what plays on it."""

    def __init__(self, stage: Stage, generator: Generator, session_count: int) -> None:
        self._generator, self._session_count = generator, session_count
        connection = stage.sessions.connection
        inline = Sessions(replace(connection, dispatch=InlineDispatch(stage.sender)))
        self._agents = connection.catalog
        self._sessions = {Mode.OFF: stage.sessions, Mode.BACKGROUND: stage.sessions, Mode.INLINE: inline}

    def capacity(self, seconds: float) -> float:
        """Turns a second at most, as the deployment serves them: rotations run beside, and take their share."""
        opened = self._opened(Mode.BACKGROUND)
        turns_per_second = self._generator.saturate(len(opened), seconds, _submitting(opened))
        _settle(opened)
        return turns_per_second

    def block(self, mode: Mode, load: float, arrivals: Sequence[Arrival]) -> Block:
        """Play *arrivals* on new sessions, and wait until what they left behind is done."""
        opened = self._opened(mode)
        turns = self._generator.play(arrivals, _submitting(opened))
        _settle(opened)
        count = sum(session.view().epoch for session in opened)
        return Block(mode=mode, load=load, turns=turns, rotation_count=count)

    def _opened(self, mode: Mode) -> list[ClientSession]:
        """New sessions, each with a history that the front worker knows already."""
        name, low, high = uuid.uuid4().hex[:8], *FILL_FRACTIONS
        shares = [low + (high - low) * (i + 0.5) / self._session_count for i in range(self._session_count)]
        opened = [self._open(mode, f"s-{name}-{i:02}", share) for i, share in enumerate(shares)]
        arrivals = [Arrival(0.0, i) for i in range(self._session_count)]
        self._generator.play(arrivals, _submitting(opened))
        return opened

    def _open(self, mode: Mode, session_id: str, share: float) -> ClientSession:
        line_tokens = self._agents.agent(ROTATING).budgets(counter_named("auto")).line_tokens
        exchange_count = int(share * line_tokens / ENTRY_TOKENS) // 2
        agent = RESTING if mode is Mode.OFF else ROTATING
        history = tuple(conversation(session_id, 2 * exchange_count))
        return self._sessions[mode].open(session_id, agent, history=history)


def _submitting(opened: Sequence[ClientSession]) -> Callable[[int], Turn]:
    def submit(position: int) -> Turn:
        session, turn_id = opened[position], uuid.uuid4().hex
        return session.submit(message(session.session_id, int(turn_id[:6], 16)), turn_id=turn_id)

    return submit


def _settle(opened: Sequence[ClientSession]) -> None:
    """Wait until no rotation is pending, or drop those that are: the next block shall not pay for this one."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(session.view().rotation_id for session in opened):
        if time.monotonic() >= deadline:
            for session in opened:
                session.cancel_rotation()
        time.sleep(LOOK_SECONDS)


def measure(
    *,
    loads: Sequence[float],
    session_count: int,
    rounds: int,
    block_seconds: float,
    capacity_seconds: float,
    model_seconds: float,
) -> dict[str, Any]:
    """In each round the capacity, then all blocks by turns; in the end what the providers noted."""
    with (
        staged(
            ("front", "background"),
            answer_seconds=model_seconds,
            summary_seconds=SUMMARY_SECONDS,
            is_traced=True,
            rotations_concurrency=ROTATIONS_CONCURRENCY,
        ) as stage,
        closing(Generator()) as generator,
    ):
        bench = Bench(stage, generator, session_count)
        capacities: list[float] = []
        blocks: list[Block] = []
        for number in range(rounds):
            capacities.append(bench.capacity(capacity_seconds))
            for load in loads:
                arrivals = poisson(load * capacities[-1], block_seconds, session_count, (number, load))
                modes = tuple(Mode) if number % 2 == 0 else tuple(reversed(Mode))
                blocks += [bench.block(mode, load, arrivals) for mode in modes]
        notes = Notes.of(read_traces(stage.directory))
    return {
        "capacity_turns_per_second": median(capacities),
        "model_seconds": model_seconds,
        "summary_seconds": SUMMARY_SECONDS,
        "targets": {"p50": P50_TARGET, "p99": P99_TARGET},
        "loads": [
            _compared(load, [block for block in blocks if block.load == load], notes, session_count) for load in loads
        ],
    }


def _compared(load: float, blocks: Sequence[Block], notes: Notes, session_count: int) -> dict[str, Any]:
    """The modes at one load: medians over the blocks, and of the ratios to the `off` block of the same round."""
    by_mode: dict[Mode, list[Block]] = defaultdict(list)
    for block in blocks:
        by_mode[block.mode].append(block)
    return {
        "load": load,
        "modes": {mode: _figures(by_mode[mode], by_mode[Mode.OFF], notes, session_count) for mode in Mode},
    }


def _figures(blocks: Sequence[Block], off: Sequence[Block], notes: Notes, session_count: int) -> dict[str, Any]:
    turns = [turn for block in blocks for turn in block.turns]
    figures: dict[str, Any] = {"turns": len(turns), "rotations": sum(block.rotation_count for block in blocks)}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        times = [block.milliseconds(share) for block in blocks]
        figures[f"{name}_milliseconds"] = median(times)
        figures[f"{name}_ratio"] = median(
            time / other.milliseconds(share) for time, other in zip(times, off, strict=True)
        )
        figures[f"generator_late_{name}_milliseconds"] = median(block.late_milliseconds(share) for block in blocks)
    figures["waited"] = waited(turns, notes)
    figures["pauses_across_a_consolidation"], figures["by_chance"] = pauses_across(turns, notes, session_count)
    figures["answered_during_own_consolidation"] = answered_meanwhile(turns, notes)
    return figures


def print_report(found: Mapping[str, Any]) -> None:
    """The figures as tables."""
    print(
        f"capacity {found['capacity_turns_per_second']:.0f} turns/s; the model answers in "
        f"{found['model_seconds'] * 1_000:.0f} ms, a consolidation takes {found['summary_seconds']:g} s or more"
    )
    for compared in found["loads"]:
        print(f"\nat {compared['load']:.0%} of capacity")
        print(
            f"{'rotations':<12}{'turns':>8}{'rotated':>9}{'p50 ms':>9}{'÷ off':>7}{'p99 ms':>9}{'÷ off':>7}"
            f"{'waited':>8}{'pauses':>8}{'chance':>8}{'meanwhile':>11}{'late p50':>10}{'p99 ms':>8}"
        )
        for mode, row in compared["modes"].items():
            print(
                f"{mode:<12}{row['turns']:>8,}{row['rotations']:>9}{row['p50_milliseconds']:>9.1f}"
                f"{row['p50_ratio']:>7.2f}{row['p99_milliseconds']:>9.1f}{row['p99_ratio']:>7.2f}{row['waited']:>8}"
                f"{row['pauses_across_a_consolidation']:>8}{row['by_chance']:>8.1f}"
                f"{row['answered_during_own_consolidation']:>11}{row['generator_late_p50_milliseconds']:>10.1f}"
                f"{row['generator_late_p99_milliseconds']:>8.1f}"
            )
    print(f"\nbackground ÷ off: at most {P50_TARGET:.2f} on p50, {P99_TARGET:.1f} on p99; waited: 0")
    print("waited: a consolidation was made inside the turn, by the process that ran it")
    print(
        "pauses: before the model call, across the end of a consolidation of the session elsewhere; by chance: across"
    )
    print("        one of any other session")
    print("meanwhile: turns sent and answered while a consolidation of their own session ran")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.never_wait", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--quick", action="store_true", help="one round of short blocks: under a minute on an idle machine"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"{ROUNDS} by default")
    parser.add_argument("--block-seconds", type=float, metavar="S", help=f"{BLOCK_SECONDS:g} by default")
    parser.add_argument("--capacity-seconds", type=float, metavar="S", help=f"{CAPACITY_SECONDS:g} by default")
    parser.add_argument("--sessions", type=int, default=SESSIONS, metavar="N", help=f"{SESSIONS} by default")
    parser.add_argument(
        "--model-seconds", type=float, default=MODEL_SECONDS, metavar="S", help=f"{MODEL_SECONDS:g} by default"
    )
    parser.add_argument(
        "--loads", type=float, nargs="+", default=LOADS, metavar="SHARE", help="of the capacity; 0.5 0.8 by default"
    )
    chosen = parser.parse_args(arguments)
    found = measure(
        loads=chosen.loads,
        session_count=chosen.sessions,
        rounds=chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS),
        block_seconds=chosen.block_seconds or (QUICK_BLOCK_SECONDS if chosen.quick else BLOCK_SECONDS),
        capacity_seconds=chosen.capacity_seconds or (QUICK_CAPACITY_SECONDS if chosen.quick else CAPACITY_SECONDS),
        model_seconds=chosen.model_seconds,
    )
    if chosen.json:
        print_json(found)
    else:
        print_report(found)


if __name__ == "__main__":
    main()
