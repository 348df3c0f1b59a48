"""Handoffs, digests and journals in the Redis store."""

from __future__ import annotations

from collections.abc import Sequence

from sessionlib.errors import HandoffConflict, InvalidInput
from sessionlib.ids import require_id
from sessionlib.stores import checks
from sessionlib.stores.contract import Grant, HandoffRequest, JobSettled, JobView, JournalEntry, Lane, Settled
from workers import wire, wire_jobs
from workers.keys import TURN_SEPARATOR
from workers.scripted import ScriptedStore, require_reply


class StoreJobs(ScriptedStore):
    """What SessionStore promises of jobs and of what they leave."""

    def request_handoff(self, request: HandoffRequest) -> JobView:
        checks.check_handoff(request)
        code, *reply = self._run(
            "request_handoff",
            request.session_id,
            request.job_id,
            request.digest,
            request.request,
            wire.seconds(request.timeout_seconds),
        )
        if code == HandoffConflict.code.encode():
            raise HandoffConflict(request.session_id, request.job_id)
        if code == InvalidInput.code.encode():
            raise InvalidInput("session_id", request.session_id, "has no entries yet: there is nothing to hand off")
        require_reply(b"job", code, request.session_id, reply)
        view = wire_jobs.read_job(Lane.HANDOFF, request.job_id, reply[0])
        assert view is not None, "the script answers with the job that it found or made"
        return view

    def capture(self, session_id: str, reason: str) -> str | None:
        checks.check_text("reason", reason)
        return self._known("capture", session_id, reason).decode() or None

    def settle(self, grant: Grant, settled: Settled) -> JobSettled:
        checks.check_settled(grant, settled)
        rule, next_job, capture, publication = self._held(
            "settle",
            grant,
            settled.settle_token,
            settled.result,
            settled.last_seq,
            "1" if settled.is_empty else "",
            wire.json_text(settled.figures),
        )
        if rule:
            raise InvalidInput("last_seq", settled.last_seq, rule.decode())
        return JobSettled(
            next_job_id=next_job.decode() or None, capture=capture == b"1", publication=publication == b"1"
        )

    def job(self, session_id: str, lane: Lane, job_id: str) -> JobView | None:
        checks.check_job_lane(lane)
        return wire_jobs.read_job(lane, job_id, self._run("job", session_id, lane, require_id("job_id", job_id)))

    def journal(self, session_id: str, limit: int = 1_000) -> Sequence[JournalEntry]:
        checks.check_count("limit", limit)
        flat, unpublished = self._run("journal", session_id, limit)
        return [
            wire_jobs.read_digest(session_id, name, raw, is_published=name.encode() not in unpublished)
            for name, raw in wire_jobs.oldest_first(flat)
        ]

    def unpublished(self, session_id: str) -> Sequence[JournalEntry]:
        flat = self._run("unpublished", session_id)
        return [
            wire_jobs.read_digest(session_id, name, raw, is_published=False)
            for name, raw in wire_jobs.oldest_first(flat)
        ]

    def publish(self, agent_name: str, entry: JournalEntry) -> None:
        checks.check_published(agent_name, entry)
        self._check_once()
        name = f"{entry.session_id}{TURN_SEPARATOR}{entry.digest_id}"
        keys = self.keys.of_agent(agent_name)
        self.scripts.run("publish", keys, name, wire.seconds(entry.at), wire_jobs.digest(entry))

    def published(self, session_id: str, digest_id: str) -> None:
        self._run("published", session_id, require_id("digest_id", digest_id))

    def recent_digests(self, agent_name: str, limit: int = 5) -> Sequence[JournalEntry]:
        checks.check_count("limit", limit)
        keys = self.keys.of_agent(require_id("agent_name", agent_name))
        self._check_once()
        named = [
            (name.split(TURN_SEPARATOR), raw)
            for name, raw in wire_jobs.oldest_first(self.scripts.run("recent_digests", keys, limit))
        ]
        return [
            wire_jobs.read_digest(session_id, digest_id, raw, is_published=True)
            for (session_id, digest_id), raw in named
        ]
