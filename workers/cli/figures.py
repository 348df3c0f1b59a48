"""Sessions, layouts and turns as plain values: what `--json` prints. No content unless it is asked for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sessionlib.layout import Layout
from sessionlib.stores.contract import Event, SessionView, TurnView
from sessionlib.window import Budgets


def fill_of(view: SessionView, budgets: Budgets | None) -> float | None:
    """Conversation tokens as a share of what the window leaves for them; None if the window is not known."""
    return round(view.conversation_tokens / budgets.effective_tokens, 4) if budgets else None


def window_figures(budgets: Budgets) -> dict[str, int]:
    """A window's figures, in the counter's tokens at the session's calibration."""
    return {
        "window_tokens": budgets.window_tokens,
        "fixed_tokens": budgets.fixed_tokens,
        "effective_tokens": budgets.effective_tokens,
        "line_tokens": budgets.line_tokens,
        "limit_tokens": budgets.limit_tokens,
    }


def session_figures(view: SessionView, budgets: Budgets | None) -> dict[str, Any]:
    """A session without its content. *budgets* None: its agent's description cannot be used."""
    return {
        "session_id": view.session_id,
        "state": view.state,
        "agent": {"name": view.agent.name, "digest": view.agent.digest, "is_pinned": view.agent.is_pinned},
        "epoch": view.epoch,
        "fill": fill_of(view, budgets),
        "conversation_tokens": view.conversation_tokens,
        "record_tokens": view.record_tokens,
        "carried_tokens": view.carried_tokens,
        "live_tokens": view.live_tokens,
        "window": window_figures(budgets) if budgets else None,
        "calibration": view.calibration,
        "trim": asdict(view.trim),
        "room": {"window": view.epoch + 1, **asdict(view.room)},
        "live_from": view.live_from,
        "next_seq": view.next_seq,
        "archived_bytes": view.archived_bytes,
        "running": view.running,
        "queued": list(view.queued),
        "queued_count": len(view.queued),
        "rotation": {"id": view.rotation_id, "state": view.rotation_state},
        "open_calls": [{"call_id": call.call_id, "name": call.name} for call in view.open_calls],
        "created_at": view.created_at,
        "updated_at": view.updated_at,
    }


def layout_figures(layout: Layout, *, with_text: bool = False) -> dict[str, Any]:
    """A layout by its tiers, oldest first. *with_text* adds what the records and live entries say."""
    live = layout.live
    figures: dict[str, Any] = {
        "records": [
            {
                "kind": record.kind,
                "tier": record.tier,
                "first_seq": record.first_seq,
                "last_seq": record.last_seq,
                "tokens": record.tokens,
                "source_tokens": record.source_tokens,
                "rewrite_count": record.rewrite_count,
                "method": record.method,
                "unsupported_count": len(record.unsupported_values),
                **({"text": record.text, "unsupported_values": record.unsupported_values} if with_text else {}),
            }
            for record in layout.records
        ],
        "carried": {"seq": layout.carried.seq, "tokens": layout.carried.tokens} if layout.carried else None,
        "live": {
            "first_seq": live.first_seq,
            "last_seq": live.next_seq - 1,
            "count": len(live.entries),
            "tokens": live.tokens,
        },
    }
    if with_text:
        figures["live"]["entries"] = [
            {
                "seq": live.first_seq + index,
                "kind": entry.kind,
                "text": entry.readable,
                "tool_call_id": entry.tool_call_id,
                "tool_name": entry.tool_name,
            }
            for index, entry in enumerate(live.entries)
        ]
    return figures


def turn_figures(view: TurnView) -> dict[str, Any]:
    """A turn with its answer."""
    return asdict(view)


def event_figures(event: Event) -> dict[str, Any]:
    return asdict(event)
