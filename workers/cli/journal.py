"""`sessionctl journal`: the digests of a session."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sessionlib.errors import InvalidInput
from workers.cli.common import Call, SessionId, TimeoutSeconds, shared
from workers.cli.faults import DigestTimeout, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessionlib.stores.contract import Event, JournalEntry
    from workers.client import ClientSession

ENDINGS = frozenset({"digested", "digest_failed"})
"""Audit kinds that end a digest."""

LOOK_SECONDS = 2.0
"""How often it is looked whether the session is there still: nothing more is heard of one that was purged."""


def register(app: typer.Typer) -> None:
    app.command("journal")(shared(journal))


def journal(
    call: Call,
    session_id: SessionId,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="The newest N digests.")] = 20,
    digest: Annotated[
        bool, typer.Option("--digest", help="First make one of what is finished and not yet digested.")
    ] = False,
    timeout_seconds: TimeoutSeconds = None,
) -> None:
    """Print what was done, learned, surprising and unfinished in a session: its digests, oldest first.

    Digests are made in the background when a stretch of a session is finished: when it is closed, when nobody spoke for
    a while, or when it rotates, as the agent's journal settings say. Open a new session with the newest ones of its
    agent by `sessionctl open --recent-digests`.

    \b
    Examples:
      sessionctl journal trip-1
      sessionctl journal trip-1 --digest --timeout 120
      sessionctl journal trip-1 --limit 1 --json

    Exit codes: 0 fine; 1 the digest failed (the reason is printed); 2 unknown session; 3 store; 4 not done in time
    (it goes on).
    """
    if limit < 1:
        raise InvalidInput("--limit", limit, "must be at least 1")
    from sessionlib.inputs import require_timeout

    require_timeout(timeout_seconds)
    session = call.session(session_id)
    failed = _digested(call, session, timeout_seconds) if digest else ""
    entries = session.journal(limit)
    document: dict[str, Any] = {"session_id": session_id, "digests": [entry_figures(entry) for entry in entries]}
    if failed:
        document["digest_failed"] = failed
    call.answer(document, journal_text(entries))
    if failed:
        raise typer.Exit(ExitCode.FAILED)


def _digested(call: Call, session: ClientSession, timeout_seconds: float | None) -> str:
    """Make a digest and wait for it; the code of what went wrong, "" if nothing did."""
    digest_id = session.digest()
    if digest_id is None:
        call.say("nothing is finished that has no digest yet")
        return ""
    call.say(f"digest {digest_id} requested")
    ending = _ending(session, digest_id, timeout_seconds)
    code = str(ending.data.get("code", "")) if ending.kind == "digest_failed" else ""
    if code:
        reason = f": {ending.data['reason']}" if ending.data.get("reason") else ""
        call.say(f"digest {digest_id} failed ({code}){reason}; the stretch is tried again later, three times at most")
    return code


def _ending(session: ClientSession, digest_id: str, timeout_seconds: float | None) -> Event:
    """The audit line that ends the digest. Raises DigestTimeout; UnknownSession if the session is purged meanwhile."""
    deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
    after = ""
    while True:
        for event in session.watch(after, max(0.01, min(LOOK_SECONDS, deadline - time.monotonic()))):
            after = event.id
            if event.kind in ENDINGS and event.data.get("digest_id") == digest_id:
                return event
        if time.monotonic() >= deadline:
            raise DigestTimeout(digest_id, timeout_seconds or 0.0)
        session.view()


def entry_figures(entry: JournalEntry) -> dict[str, Any]:
    """A digest as a document."""
    from sessionlib.codec import plain

    document: dict[str, Any] = plain(entry)
    return document


def journal_text(entries: Sequence[JournalEntry]) -> str:
    """Digests for people. Times are UTC."""
    if not entries:
        return (
            "no digests yet: --digest makes one, and the agent's journal settings say when they are made by themselves"
        )
    return "\n\n".join(f"{_title(entry)}\n{entry.text}" for entry in entries)


def _title(entry: JournalEntry) -> str:
    at = datetime.fromtimestamp(entry.at, UTC)
    count = entry.figures.get("unsupported_count", 0)
    unsupported = f"  {count} value{'s' * (count > 1)} not in its source" if count else ""
    return f"{entry.digest_id}  {at:%Y-%m-%d %H:%M:%S}  entries {entry.first_seq:,}–{entry.last_seq:,}{unsupported}"
