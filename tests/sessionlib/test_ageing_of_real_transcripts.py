"""Real agent transcripts age within their budgets, counted exactly and consolidated without a model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sessionlib.counters import counter_named
from sessionlib.entries import Entry
from sessionlib.layout import Layout
from sessionlib.policies.contract import Policy
from sessionlib.policies.log_merge import LogMerge
from sessionlib.policies.tiers import Tiers
from sessionlib.recordings.reading import read_recording
from sessionlib.recordings.values import Recording
from sessionlib.rotation import plan_for
from sessionlib.summaries.extractive import extract
from tests.sessionlib.rotating import Driven, room, source_of

COUNTER = counter_named("o200k_base")


def rounds_of(recording: Recording) -> Iterator[list[Entry]]:
    """The entries of each round, the first of a turn with its input."""
    for turn in recording.turns:
        entries = [Entry.user(turn.input)]
        for played in turn.rounds:
            entries += [Entry.assistant(played.text)] if played.text else []
            entries += [Entry.tool_call(call.call_id, call.arguments, call.name) for call in played.calls]
            entries += [Entry.tool_result(call_id, text) for call_id, text in played.results]
            yield entries
            entries = []


@pytest.mark.parametrize("name", ["claude_code_258c7280.json", "tau_airline_gpt4o.json"])
@pytest.mark.parametrize("policy", [LogMerge(), Tiers()], ids=["log_merge", "tiers"])
def test_every_rotation_lands_below_its_line(data_dir: Path, name: str, policy: Policy) -> None:
    """Records within their budget and without gap, the layout within 0.8 of the line, a dozen rotations or so."""
    budgets = policy.budgets(room(32_000), COUNTER, show_span=True)
    rotation_count, layout = 0, Layout()
    for entries in rounds_of(read_recording((data_dir / name).read_bytes(), name)):
        sizes = [min(COUNTER.entry(entry), budgets.result_cap_tokens) for entry in entries]
        layout = layout.with_live(layout.live.append(entries, sizes))
        if layout.conversation_tokens < budgets.line_tokens:
            continue
        boundary_seq = layout.live.next_seq - 1
        plan = plan_for(layout, boundary_seq, budgets=budgets, counter=COUNTER, show_span=True)
        driven = Driven(lambda request: extract(source_of(request), request.budget_tokens, COUNTER))
        layout = driven.rotate(plan, policy).layout
        rotation_count += 1
        assert layout.record_tokens <= budgets.record_tokens
        assert layout.conversation_tokens <= 0.8 * budgets.line_tokens
        assert layout.records[-1].last_seq == layout.live.first_seq - 1
        assert all(older.last_seq + 1 == newer.first_seq for older, newer in pairwise(layout.records))
    assert rotation_count >= 5
