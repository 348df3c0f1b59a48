"""Every key of the store, under one hash tag a partition: `{sl:p07}:head:<session>`.

The kind stands first and session and turn are parted by `|`, which no id may hold: no two things share a key.
"""

from __future__ import annotations

import binascii

TURN_SEPARATOR = "|"
ENDED = TURN_SEPARATOR + "ended"
"""What follows the turn in the hint that it ended."""

PARTITION_KINDS = ("due", "timers", "sweeps", "counters", "index", "agents")
"""KEYS[1..6] of every script."""

SESSION_KINDS = (
    *("head", "layout", "live", "inbox", "handoffs"),
    *("steps:turn", "steps:rotation", "steps:handoff", "steps:digest"),
    *("archive", "audit", "turns", "jobs", "journal", "digests", "unpublished"),
    *("postings", "postings_index", "notes"),
)
"""KEYS[7..25] of every script that works on a session."""

AGENT_KINDS = ("published", "published_digests")
"""KEYS[7] and [8] of the scripts that work on an agent's journal."""


class Keys:
    """The keys of one namespace with a fixed number of partitions."""

    def __init__(self, namespace: str, partition_count: int) -> None:
        self.namespace, self.partition_count = namespace, partition_count
        self.hints = f"{namespace}:hints"
        """Channel of the published hints: `<session>|<turn>`, with `|ended` after it if the turn did, or `<session>|`
        to those who watch the session."""
        self.partitions = f"{namespace}:partitions"
        """How many partitions the store was started with."""

    def partition(self, session_id: str) -> int:
        """Where a session lives. Redis's own CRC16 (XMODEM) is Python's `crc_hqx`."""
        return binascii.crc_hqx(session_id.encode(), 0) % self.partition_count

    def tag(self, partition: int) -> str:
        """The hash tag that keeps all keys of a partition in one slot of a cluster."""
        return f"{{{self.namespace}:p{partition:02d}}}:"

    def of_partition(self, partition: int) -> list[str]:
        """What a partition's sessions share, in the order of PARTITION_KINDS."""
        tag = self.tag(partition)
        return [tag + kind for kind in PARTITION_KINDS]

    def of_session(self, session_id: str) -> list[str]:
        """The keys of a session's partition, then its own, in the order of SESSION_KINDS."""
        partition = self.partition(session_id)
        tag = self.tag(partition)
        return [*self.of_partition(partition), *(f"{tag}{kind}:{session_id}" for kind in SESSION_KINDS)]

    def of_agent(self, agent_name: str) -> list[str]:
        """The keys of an agent's partition, then those of its journal, in the order of AGENT_KINDS.

        It lies where a session of this name would: one script reads what sessions of all partitions published.
        """
        journal = [self.own(kind, agent_name) for kind in AGENT_KINDS]
        return [*self.of_partition(self.partition(agent_name)), *journal]

    def shared(self, kind: str, partition: int) -> str:
        """One key of a partition."""
        return self.tag(partition) + kind

    def own(self, kind: str, session_id: str) -> str:
        """One key of a session, or of an agent by its name."""
        return f"{self.tag(self.partition(session_id))}{kind}:{session_id}"

    def turn(self, session_id: str, turn_id: str) -> str:
        return f"{self.own('turn', session_id)}{TURN_SEPARATOR}{turn_id}"

    def job(self, session_id: str, lane: str, job_id: str) -> str:
        return f"{self.own(lane, session_id)}{TURN_SEPARATOR}{job_id}"

    def events(self, session_id: str, turn_id: str) -> str:
        return f"{self.own('events', session_id)}{TURN_SEPARATOR}{turn_id}"

    def deltas(self, session_id: str, turn_id: str) -> str:
        return f"{self.own('deltas', session_id)}{TURN_SEPARATOR}{turn_id}"
