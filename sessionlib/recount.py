"""Sizes after a new version of an agent: its counter, its result cap or its label may differ from those before it."""

from __future__ import annotations

from dataclasses import replace

from sessionlib.agent import Agent
from sessionlib.layout import Layout, Record, seeded_record
from sessionlib.projection import sent_size
from sessionlib.stores.contract import Snapshot
from sessionlib.tokens import Counter
from sessionlib.transcript import Transcript


def recounted(snapshot: Snapshot, agent: Agent, counter: Counter) -> Snapshot:
    """*snapshot* with every size as *agent* sends it, in tokens of *counter*.

    Only what was sized for another version is counted again: nothing in most sessions, and after a new version no more
    than a window holds, until the next rotations have taken it away.
    """
    layout, before_seq = snapshot.layout, snapshot.sized_from_seq
    oldest_seq = layout.records[0].first_seq if layout.records else layout.live.first_seq
    if before_seq <= oldest_seq:
        return snapshot
    cap_tokens = agent.budgets(counter).result_cap_tokens
    return replace(snapshot, layout=_recounted(layout, before_seq, cap_tokens, counter, agent.history_tool))


def _recounted(layout: Layout, before_seq: int, cap_tokens: int, counter: Counter, show_span: bool) -> Layout:
    def record(stale: Record) -> Record:
        return replace(stale, tokens=counter.entry(seeded_record(stale, show_span=show_span)))

    live, carried = layout.live, layout.carried
    older, newer = live.split_at(min(max(0, before_seq - live.first_seq), len(live)))
    sizes = (sent_size(entry, cap_tokens, counter) for entry in older.entries)
    if carried is not None and carried.seq < before_seq:
        carried = replace(carried, tokens=sent_size(carried.entry, cap_tokens, counter))
    return Layout(
        records=tuple(record(each) if each.first_seq < before_seq else each for each in layout.records),
        carried=carried,
        live=Transcript(first_seq=live.first_seq)
        .append(older.entries, tuple(sizes))
        .append(newer.entries, newer.sizes),
    )
