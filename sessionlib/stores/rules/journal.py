"""The journal of a session, and the digests of an agent's sessions that were published from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from sessionlib.stores.contract import DueKind, JournalEntry, Limits
from sessionlib.stores.rules.capturing import begin_retention
from sessionlib.stores.rules.operation import Operation, dumps
from sessionlib.stores.rules.shelf import Journal
from sessionlib.stores.rules.state import StoredDigest


def keep(journal: Journal, digest: StoredDigest, now: float, limits: Limits) -> None:
    """Add a digest; what is too old or too many goes."""
    journal.put(digest)
    journal.cut(now - limits.journal_seconds, limits.journal_limit)


def newest(journal: Journal, now: float, limits: Limits, limit: int) -> Sequence[JournalEntry]:
    """The newest *limit* digests that are not too old, oldest first."""
    return [_entry(digest) for digest in journal.digests(now - limits.journal_seconds, limit)]


def of_session(op: Operation, limit: int) -> Sequence[JournalEntry]:
    return () if op.is_gone else newest(op.shelf.journal, op.now, op.limits, limit)


def unpublished(op: Operation) -> Sequence[JournalEntry]:
    """Without any the due publication goes: what was to be published may have grown too old."""
    if op.is_gone:
        return ()
    digests = op.shelf.journal.unpublished(op.now - op.limits.journal_seconds)
    if not digests:
        op.shelf.drop_due(DueKind.PUBLICATION, "")
        begin_retention(op)
    return [_entry(digest) for digest in digests]


def published(op: Operation, digest_id: str) -> None:
    if op.is_gone:
        return
    digest = op.shelf.journal.digest(op.session_id, digest_id)
    if digest is not None:
        op.shelf.journal.put(replace(digest, is_published=True))
    unpublished(op)


def publish(journal: Journal, entry: JournalEntry, now: float, limits: Limits) -> None:
    """Put a session's digest into the journal of its agent."""
    digest = StoredDigest(
        session_id=entry.session_id,
        digest_id=entry.digest_id,
        first_seq=entry.first_seq,
        last_seq=entry.last_seq,
        text=entry.text,
        at=entry.at,
        is_published=True,
        figures=dumps(entry.figures),
    )
    keep(journal, digest, now, limits)


def _entry(digest: StoredDigest) -> JournalEntry:
    return JournalEntry(
        session_id=digest.session_id,
        digest_id=digest.digest_id,
        first_seq=digest.first_seq,
        last_seq=digest.last_seq,
        text=digest.text,
        at=digest.at,
        is_published=digest.is_published,
        figures=json.loads(digest.figures),
    )
