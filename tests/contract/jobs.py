"""Short forms for the tests of handoffs, digests and the journal."""

from __future__ import annotations

from typing import Any

from sessionlib.stores.contract import (
    Grant,
    HandoffRequest,
    JobSettled,
    JobView,
    JournalEntry,
    JournalRules,
    Lane,
    Settled,
)
from tests.contract.arena import SESSION, Arena

REQUEST = '{"task": "go on"}'
DIGEST = "## Done\n\n- asked\n"


def hand_off(arena: Arena, job_id: str = "h1", request: str = REQUEST, **fields: Any) -> JobView:
    fields = {"session_id": SESSION, **fields}
    return arena.store.request_handoff(HandoffRequest(job_id=job_id, request=request, **fields))


def view(arena: Arena, job_id: str = "h1", lane: Lane = Lane.HANDOFF) -> JobView:
    found = arena.store.job(SESSION, lane, job_id)
    assert found is not None, f"{lane} {job_id} is not known"
    return found


def request(arena: Arena, lane: Lane) -> str:
    """Ask for a job of that lane; its id."""
    if lane is Lane.HANDOFF:
        return hand_off(arena).job_id
    digest_id = arena.store.capture(SESSION, "test")
    assert digest_id is not None
    return digest_id


def begun(arena: Arena, lane: Lane) -> Grant:
    """A job of that lane, requested and begun."""
    request(arena, lane)
    return arena.begin(lane)


def result(arena: Arena, grant: Grant, text: str = DIGEST, **fields: Any) -> Settled:
    """What settles a job, a digest to the end of its span."""
    defaults: dict[str, Any] = {"settle_token": arena.token("s"), "last_seq": grant.last_seq}
    return Settled(**{**defaults, "result": text, **fields})


def settle(arena: Arena, grant: Grant, text: str = DIGEST, **fields: Any) -> JobSettled:
    return arena.store.settle(grant, result(arena, grant, text, **fields))


def digest(arena: Arena, text: str = DIGEST, **fields: Any) -> JobSettled:
    """Digest what is finished, from its request to its end."""
    return settle(arena, begun(arena, Lane.DIGEST), text, **fields)


def journal(arena: Arena, limit: int = 1_000) -> list[JournalEntry]:
    return list(arena.store.journal(SESSION, limit))


def talk(arena: Arena, *turn_ids: str, **rules: Any) -> Arena:
    """A session with these turns answered, under these journal rules."""
    arena.open(journal=JournalRules(**rules))
    for turn_id in turn_ids or ("t1",):
        arena.answer(turn_id)
    return arena


def audit_data(arena: Arena, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in arena.store.audit(SESSION) if event.kind == kind]
