"""What became of the demo session's planted decisions, beside a plain truncation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sessionlib.entries import Entry
from sessionlib.projection import sent_size
from sessionlib.tokens import Counter
from sessionlib.transcript import Transcript
from workers.demo import DemoSession
from workers.replay.observed import Observed
from workers.replay.report import texts_of


def planted_figures(session: DemoSession, observed: Observed, counter: Counter) -> dict[str, int]:
    """How many decisions were planted; how many the layout still tells; how many the store has word for word (archive,
    and what has not left the window yet); how many a truncation to the layout's own size would still tell."""
    kept_tokens = observed.layout.conversation_tokens
    truncated = truncation(observed.history, kept_tokens, counter)
    return {
        "planted": len(session.planted),
        "in_layout": len(session.found_in(texts_of(observed.layout))),
        "in_archive": len(session.found_in(_joined(observed.history))),
        "planted_after_truncation": len(session.found_in(_joined(truncated))),
    }


def broken_archive(planted: dict[str, int]) -> Iterator[str]:
    """The promise that is broken if the store does not have every decision."""
    if planted["in_archive"] < planted["planted"]:
        yield f"nothing is lost: of {planted['planted']} planted decisions {planted['in_archive']} can be found again"


def truncation(entries: tuple[Entry, ...], budget_tokens: int, counter: Counter) -> tuple[Entry, ...]:
    """The newest entries that fit: what is left where old messages are just dropped."""
    sizes = tuple(sent_size(entry, budget_tokens, counter) for entry in entries)
    return Transcript(entries, sizes).split_at_budget(budget_tokens).retained.entries


def _joined(entries: Iterable[Entry]) -> str:
    return "\n".join(entry.text for entry in entries)
