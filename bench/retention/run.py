"""Runs: which conversations, seeds and arrangements, over a process or two, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

from bench.retention.arrangements import (
    LOSSY,
    Arrangement,
    arrangements,
    checked_flat,
    controls,
    extractive,
    room_of,
)
from bench.retention.conversation import Conversation
from bench.retention.datasets import DATA_SETS, data_directory, planted
from bench.retention.made import BLOCKS, made
from bench.retention.play import Played, Prepared, play

WINDOWS = {"made": 16_000, "locomo": 8_000, "tau": 8_000, "coding": 32_000}
"""Window of each data set, in tokens. In the made conversation the flat record rotates 50 times; the others are
shorter, or come in rounds of thousands of tokens."""

SEEDS, RECORDED_SEEDS, EXTRACTIVE_SEEDS = 20, 5, 5
"""A seed draws what is planted and what survives. Recorded conversations differ by what is planted only; the
extractive summarizer draws nothing."""

Key = tuple[str, str, str]
"""Data set, policy, summarizer."""


@dataclass(frozen=True, slots=True)
class Task:
    """One conversation with one seed, through all its arrangements: what is computed once serves them all."""

    data_set: str
    seed: int
    blocks: int
    """Of the made conversation."""
    is_extractive: bool
    """Whether the extractive summarizer is asked too."""


@lru_cache(maxsize=4)
def _recorded(name: str) -> Conversation:
    return DATA_SETS[name](data_directory())


def conversation_of(task: Task) -> Conversation:
    """The conversation, with its decisions planted."""
    if task.data_set == "made":
        return made(task.seed, blocks=task.blocks)
    return planted(_recorded(task.data_set), task.seed)


def perform(task: Task) -> dict[Key, Played]:
    """Play a task's conversation through everything that it is compared in."""
    prepared = Prepared.of(conversation_of(task), task.seed)
    return {
        (task.data_set, each.policy_name, each.summarizer_name): play(prepared, each, task.seed)
        for each in _compared(task)
    }


def _compared(task: Task) -> Iterator[Arrangement]:
    window_tokens = WINDOWS[task.data_set]
    yield from arrangements(window_tokens, LOSSY)
    if task.is_extractive:
        yield from arrangements(window_tokens, {"extractive": extractive})
    yield from controls(window_tokens)
    if task.data_set == "made":
        yield checked_flat(room_of(window_tokens))


def tasks(data_sets: Iterable[str], seeds: int, *, blocks: int = BLOCKS) -> list[Task]:
    """All tasks, the made conversation with *seeds* seeds and the recorded ones with a few."""
    return [
        Task(name, seed, blocks, is_extractive=seed < EXTRACTIVE_SEEDS)
        for name in data_sets
        for seed in range(seeds if name == "made" else min(seeds, RECORDED_SEEDS))
    ]


@contextmanager
def mapping(processes: int) -> Iterator[Any]:
    """An unordered map over so many processes; this one alone for 1."""
    if processes == 1:
        yield map
        return
    with get_context("spawn").Pool(processes) as pool:
        yield pool.imap


def summed(results: Iterable[Mapping[Key, Played]]) -> dict[Key, Played]:
    """What all results add up to, by data set, policy and summarizer."""
    sums: dict[Key, Played] = {}
    for result in results:
        for key, played in result.items():
            if key in sums:
                sums[key].add(played)
            else:
                sums[key] = played
    return sums


def measure(todo: Sequence[Task], processes: int) -> dict[Key, Played]:
    """Perform tasks and add up."""
    with mapping(processes) as run:
        return summed(run(perform, todo))
