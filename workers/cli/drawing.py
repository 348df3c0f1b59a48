"""A session drawn: its tiers, how full its window is, and why it rotates or does not. Values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from rich.table import Table

from sessionlib.bands import Bands
from sessionlib.entries import Entry, render
from sessionlib.layout import Layout, Method, Record, RecordKind
from sessionlib.stores.contract import Event, SessionView, Trim
from sessionlib.window import Budgets
from sessionlib.window_facts import WindowFact, WindowSource
from workers.cli.printing import age_text, bytes_text, printable

BAR_COLUMNS = 80
OLDER, FRESH, CARRIED, LIVE, FREE = "▓", "▒", "◆", "█", "·"
LINE, LIMIT = "┆", "┃"
LEGEND = f"{OLDER} records of tier 2 and above  {FRESH} tier 1  {CARRIED} carried input  {LIVE} tier 0, verbatim"


class Part(NamedTuple):
    """A stretch of the window."""

    glyph: str
    tokens: int


def parts_of(layout: Layout) -> list[Part]:
    """A layout as the stretches of its window, in the order in which they are sent."""
    records = [Part(FRESH if record.tier == 1 else OLDER, record.tokens) for record in layout.records]
    carried = [Part(CARRIED, layout.carried.tokens)] if layout.carried else []
    return [*records, *carried, Part(LIVE, layout.live.tokens)]


def bar(parts: Sequence[Part], budgets: Budgets, columns: int = BAR_COLUMNS) -> str:
    """The effective window from empty to full, with the rotation line and the limit marked. Parts end where they end
    in the sum, so that rounding never adds up; what is beyond the window is cut off."""
    total = max(1, budgets.effective_tokens)

    def column(tokens: int) -> int:
        return min(columns, round(tokens * columns / total))

    ends = [column(tokens) for tokens in accumulate(part.tokens for part in parts)]
    cells: list[str] = []
    for part, end in zip(parts, ends, strict=True):
        cells.extend(part.glyph * (end - len(cells)))
    cells.extend(FREE * (columns - len(cells)))
    for mark, tokens in ((LINE, budgets.line_tokens), (LIMIT, budgets.limit_tokens)):
        cells[min(columns - 1, column(tokens))] = mark
    return "".join(cells)


def small_bar(fraction: float, columns: int = 10) -> str:
    """A share as a bar of a few columns."""
    filled = min(columns, max(0, round(fraction * columns)))
    return LIVE * filled + FREE * (columns - filled)


def heading(view: SessionView) -> str:
    """Who and where: session, state, agent, epoch, entries."""
    pinned = ", pinned" if view.agent.is_pinned else ""
    archived = f"{view.live_from - 1:,} of them archived ({bytes_text(view.archived_bytes)})"
    return (
        f"session {view.session_id}: {view.state}, epoch {view.epoch}\n"
        f"agent {view.agent.name} ({view.agent.digest[:12]}{pinned})\n"
        f"{view.next_seq - 1:,} entries, {archived}"
    )


WINDOW_SOURCES = {
    WindowSource.DECLARED: "declared by the agent",
    WindowSource.REPORTED: "reported by the provider, smaller than declared",
    WindowSource.REFUSED: "the provider refused more",
    WindowSource.TABLE: "what is known of its model",
    WindowSource.DEFAULT: "nobody says how large it is",
}


def window_text(window: WindowFact, view: SessionView) -> str:
    """How large the window is and who says so; how the provider's tokens compare with ours, as far as it reported."""
    text = f"window {window.tokens:,} tokens: {WINDOW_SOURCES[window.source]}"
    if view.calibration > 1:
        text += f"; the provider counts up to {view.calibration:.2f} × our tokens"
    return text


def tier_table(layout: Layout) -> Table:
    """One row for each record, the carried input and the live entries, oldest first."""
    table = Table("tier", "entries", box=None, pad_edge=False)
    table.add_column("tokens", justify="right")
    table.add_column("what it is")
    for record in layout.records:
        span = f"{record.first_seq:,}–{record.last_seq:,}"
        table.add_row(str(record.tier), span, f"{record.tokens:,}", record_note(record))
    if layout.carried:
        what = "the running turn's input, carried"
        table.add_row("", f"{layout.carried.seq:,}", f"{layout.carried.tokens:,}", what)
    live = layout.live
    span = f"{live.first_seq:,}–{live.next_seq - 1:,}" if live.entries else "none"
    table.add_row("0", span, f"{live.tokens:,}", f"{len(live.entries):,} entries, verbatim")
    return table


def record_note(record: Record) -> str:
    """Where a record comes from."""
    if record.kind is RecordKind.LEDGER:
        return "ledger: what was done, without a model"
    if record.kind is RecordKind.OPENING:
        return f"opening of a fresh window, after {record.source_tokens:,} tokens"
    source = f"record of {record.source_tokens:,} tokens" if record.source_tokens else "record"
    rewrites = f"rewritten {record.rewrite_count} times" if record.rewrite_count > 1 else "written once"
    method = [str(record.method)] if record.method is not Method.NORMAL else []
    count = len(record.unsupported_values)
    unsupported = [f"{count} value{'s' * (count > 1)} not in its source"] if count else []
    return ", ".join([source, rewrites, *method, *unsupported])


def fill_text(layout: Layout, budgets: Budgets) -> str:
    """The bar with its figures."""
    tokens, room = layout.conversation_tokens, budgets.effective_tokens
    return (
        f"{bar(parts_of(layout), budgets)}\n"
        f"{LEGEND}\n"
        f"{tokens:,} of {room:,} tokens ({tokens / room:.0%}); "
        f"{LINE} rotation line {budgets.line_tokens:,}; {LIMIT} limit {budgets.limit_tokens:,}; "
        f"{budgets.fixed_tokens:,} more are always sent"
    )


def why(view: SessionView, budgets: Budgets | None) -> str:
    """Why the session rotates, or why it does not. *budgets* None: its agent's description cannot be used."""
    if view.rotation_state == "running":
        return f"rotation {view.rotation_id} is running"
    if view.rotation_id:
        return f"rotation {view.rotation_id} was requested and waits for a background worker, or for its next attempt"
    if view.rotation_state:
        return f"no rotation is requested for now, {view.rotation_state}; requests are trimmed where they must be"
    if budgets is None:
        return "the stored description of its agent cannot be used, so its rotation line is not known here"
    if budgets.bands is not None:
        return room_text(view, budgets.bands)
    tokens, line = view.conversation_tokens, budgets.line_tokens
    if tokens >= line:
        return f"past the rotation line ({tokens:,} of {line:,} tokens): the next commit requests a rotation"
    return f"no rotation is due: {tokens:,} of the {line:,} tokens at which one is requested, {line - tokens:,} left"


def room_text(view: SessionView, bands: Bands) -> str:
    """Where a session that begins fresh windows stands in this one."""
    used, total = bands.used_tokens(view.conversation_tokens), bands.work_tokens + bands.buffer_tokens
    window = f"window {view.epoch + 1:03d}: {used:,} of {bands.work_tokens:,} tokens of work room are used"
    if view.room.is_braked:
        return f"{window}; braked: no fresh window begins until `sessionctl brake {view.session_id} --lift`"
    told = "the model was told; " if view.room.is_reminded else ""
    if used >= total:
        return f"{window}; {told}a fresh window begins with the next round"
    return f"{window}; {told}a fresh one begins beyond {total:,}"


def notes(view: SessionView) -> list[str]:
    """What else is worth a line: turns, open calls, trim, calibration."""
    lines = []
    if view.running:
        lines.append(f"turn {view.running} is running")
    if view.queued:
        lines.append(f"{len(view.queued):,} queued: {', '.join(view.queued[:5])}{' …' if len(view.queued) > 5 else ''}")
    if view.open_calls:
        calls = ", ".join(f"{call.name} [{call.call_id}]" for call in view.open_calls)
        lines.append(f"calls wait for their results: {calls}")
    if view.trim != Trim():
        lines.append(f"requests are trimmed until the next rotation: {trim_text(view.trim)}")
    if view.calibration > 1:
        lines.append(f"the provider counts up to {view.calibration:.2f} times our tokens; all figures allow for it")
    return lines


def trim_text(trim: Trim) -> str:
    """What a trim leaves out."""
    parts = []
    if trim.records_dropped:
        parts.append("records are sent as a marker")
    if trim.dropped_before_seq:
        parts.append(f"entries before {trim.dropped_before_seq:,} are sent as a marker")
    if trim.pointers_before_seq:
        parts.append(f"tool results before {trim.pointers_before_seq:,} are sent as pointers")
    return ", ".join(parts)


def last_rotation(audit: Iterable[Event]) -> Event | None:
    """The newest adopted rotation of an audit."""
    return next((event for event in reversed(list(audit)) if event.kind == "rotated"), None)


def rotation_text(event: Event, now: float) -> str:
    """A rotation that was adopted, in a line."""
    data = event.data
    saturated = f", {len(data['saturations'])} saturated" if data.get("saturations") else ""
    redacted = f", {data['redaction_count']} secrets replaced" if data.get("redaction_count") else ""
    refused = "".join(f"\n  refused an answer: {reason}" for reason in data.get("fault_reasons", ()))
    return (
        f"rotation {data.get('rotation_id', '?')} ({data.get('reason', '?')}), {age_text(now - event.at)} ago: "
        f"{data.get('tokens_before', 0):,} to {data.get('tokens_after', 0):,} tokens, "
        f"{data.get('consolidation_count', 0)} consolidations{saturated}{redacted}{refused}"
    )


def failed_summaries(audit: Iterable[Event], now: float) -> list[str]:
    """The newest handoff and the newest digest that failed, each in a line with its reason."""
    newest = {event.kind: event for event in audit if event.kind in ("handoff_failed", "digest_failed")}
    return [
        f"{kind.partition('_')[0]} {event.data.get('job_id') or event.data.get('digest_id')} failed "
        f"{age_text(now - event.at)} ago ({event.data.get('code')}): {event.data.get('reason', '')}".rstrip(": ")
        for kind, event in sorted(newest.items())
    ]


def text_of(layout: Layout) -> str:
    """What a layout says: its records, then its entries, under their numbers."""
    records = [
        f"[{record.first_seq}-{record.last_seq}, tier {record.tier}]\n{record.text}" for record in layout.records
    ]
    carried = [_numbered(layout.carried.seq, layout.carried.entry)] if layout.carried else []
    live = layout.live
    entries = [_numbered(live.first_seq + index, entry) for index, entry in enumerate(live.entries)]
    return printable("\n\n".join([*records, *carried, *entries]))


def _numbered(seq: int, entry: Entry) -> str:
    return f"[{seq}] {render([entry]) or 'reasoning, which only its provider can read'}"
