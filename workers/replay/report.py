"""The report of a replay: figures from what was observed, and the promises that they break. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sessionlib.layout import Layout
from sessionlib.recordings import Recording
from workers.replay import waits
from workers.replay.breaks import OTHER, prefix_breaks
from workers.replay.history import compared, recorded_entries
from workers.replay.observed import Observed, place_of, turn_id_of


def figures(recording: Recording, observed: Observed) -> dict[str, Any]:
    """What a replay came to, as JSON values; docs/replay.md says what each means."""
    comparison = compared(list(recorded_entries(recording)), observed.history)
    added = waits.added_seconds(observed)
    return {
        "turns": len(observed.turns),
        "rounds": len(observed.rounds),
        "rotations": len(observed.rotations),
        "consolidations": sum(data["consolidation_count"] for data in observed.rotations),
        "waited": waited_count(observed),
        "noise_ms": round(1000 * waits.noise_seconds(observed), 1),
        "max_fill": round(observed.largest_request_tokens / observed.window_tokens, 4),
        "refused": observed.refused_count,
        "unanswered": len(unanswered(recording, observed)),
        "lost": comparison.lost,
        "doubled": comparison.doubled,
        "out_of_order": comparison.out_of_order,
        "foreign": comparison.foreign,
        "prefix_breaks": prefix_breaks(observed),
        "asked_again": sum(count - 1 for count in observed.asked_again.values()),
        "paid_again": paid_again(observed),
        "added_p50_ms": round(1000 * waits.percentile(added, 0.50), 1),
        "added_p99_ms": round(1000 * waits.percentile(added, 0.99), 1),
        "summarizer_tokens": observed.summarizer_tokens,
        "tier_tokens": tier_tokens(observed.layout),
        "kills": [
            {
                "worker": kill.worker,
                "in_flight": list(waits.in_flight(kill, observed)),
                "recovered_seconds": _rounded(waits.recovery_seconds(kill, observed)),
            }
            for kill in observed.kills
        ],
    }


def waited_count(observed: Observed) -> int | None:
    """How many answers waited on a summary; None if that cannot be told: there were consolidations, and they did not go
    through the provider."""
    is_seen = bool(observed.consolidations) or not any(data["consolidation_count"] for data in observed.rotations)
    return len(waits.waited_turns(observed)) if is_seen else None


def unanswered(recording: Recording, observed: Observed) -> tuple[str, ...]:
    """Ids of the recorded turns that did not get the recorded answer."""
    answers = {turn.turn_id: turn.answer for turn in observed.turns}
    expected = ((turn_id_of(index), turn.rounds[-1].text) for index, turn in enumerate(recording.turns))
    return tuple(turn_id for turn_id, text in expected if answers.get(turn_id) != text)


def paid_again(observed: Observed) -> int:
    """Model calls that were asked again although nothing had interrupted them: their result was saved, or should
    have been."""
    interrupted = {
        place_of(span.key)
        for kill in observed.kills
        for span in observed.spans
        if span.kind == "model" and span.started <= kill.at <= span.ended
    }
    return sum(count - 1 for key, count in observed.asked_again.items() if place_of(key) not in interrupted)


def tier_tokens(layout: Layout) -> dict[str, int]:
    """Tokens of a layout by tier: 0 the live entries, then the records."""
    tokens = {"0": layout.live.tokens}
    for record in sorted(layout.records, key=lambda record: record.tier):
        tier = str(record.tier)
        tokens[tier] = tokens.get(tier, 0) + record.tokens
    return tokens


def broken_promises(report: dict[str, Any]) -> tuple[str, ...]:
    """The promises that a report's figures break, each in words."""
    return tuple(_broken(report))


def _broken(report: dict[str, Any]) -> Iterator[str]:
    if report["waited"]:
        yield f"an answer never waits on a summary: {report['waited']} did"
    if report["max_fill"] > 1 or report["refused"]:
        yield f"the window is never exceeded: {report['max_fill']:.1%} was sent, {report['refused']} requests refused"
    if report["unanswered"]:
        yield f"every turn is answered once: {report['unanswered']} were not, or with another answer"
    wrong = {name: report[name] for name in ("lost", "doubled", "out_of_order", "foreign") if report[name]}
    if wrong:
        yield f"nothing is lost: {_named(wrong)} entries"
    if report["paid_again"]:
        yield f"no model call whose result was saved is paid again: {report['paid_again']} were"
    if report["prefix_breaks"][OTHER]:
        yield f"the prompt only grows at its end: {report['prefix_breaks'][OTHER]} breaks without a reason"


def _named(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def texts_of(layout: Layout) -> str:
    """All that a layout tells: records, carried input, live entries."""
    carried: Sequence[str] = [layout.carried.entry.text] if layout.carried else []
    return "\n".join([*(record.text for record in layout.records), *carried, *(e.text for e in layout.live.entries)])
