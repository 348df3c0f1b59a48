"""What travels between the typed store and its scripts of jobs and digests."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sessionlib.stores.contract import JobState, JobView, JournalEntry, Lane
from workers import wire


def read_job(lane: Lane, job_id: str, flat: Sequence[bytes]) -> JobView | None:
    job = wire.fields_of(flat)
    if not job:
        return None
    return JobView(
        job_id=job_id,
        lane=lane,
        state=JobState(job["state"]),
        first_seq=int(job["first_seq"]),
        last_seq=int(job["last_seq"]),
        result=job.get("result", ""),
        error_code=job.get("error_code", ""),
        error=job.get("error", ""),
        attempt=wire.count(job, "attempts"),
        submitted_at=float(job["submitted"]),
        finished_at=float(job.get("finished", 0.0)),
    )


def digest(entry: JournalEntry) -> str:
    """A digest as it lies in a journal, under its name: the text last, which may have lines."""
    head = f"{entry.first_seq}\n{entry.last_seq}\n{wire.seconds(entry.at)}\n{wire.json_text(entry.figures)}"
    return f"{head}\n{entry.text}"


def read_digest(session_id: str, digest_id: str, raw: bytes, *, is_published: bool) -> JournalEntry:
    first_seq, last_seq, at, figures, text = raw.decode().split("\n", 4)
    return JournalEntry(
        session_id=session_id,
        digest_id=digest_id,
        first_seq=int(first_seq),
        last_seq=int(last_seq),
        text=text,
        at=float(at),
        is_published=is_published,
        figures=json.loads(figures),
    )


def oldest_first(flat: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """Names and digests as scripts return them: newest first."""
    return [(name.decode(), raw) for name, raw in zip(flat[-2::-2], flat[-1::-2], strict=True)]
