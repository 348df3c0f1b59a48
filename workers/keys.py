"""Every key of the store, under one hash tag a partition: `{sl:p07}:head:<session>`.

The kind stands first and session and turn are parted by `|`, which no id may hold: no two things share a key.
"""

from __future__ import annotations

import binascii

TURN_SEPARATOR = "|"


class Keys:
    """The keys of one namespace with a fixed number of partitions."""

    def __init__(self, namespace: str, partition_count: int) -> None:
        self.namespace, self.partition_count = namespace, partition_count
        self.hints = f"{namespace}:hints"
        """Channel of the published hints: `<session>|<turn>`, or `<session>|` to those who watch the session."""
        self.partitions = f"{namespace}:partitions"
        """How many partitions the store was started with."""

    def partition(self, session_id: str) -> int:
        """Where a session lives. Redis's own CRC16 (XMODEM) is Python's `crc_hqx`."""
        return binascii.crc_hqx(session_id.encode(), 0) % self.partition_count

    def tag(self, partition: int) -> str:
        return f"{{{self.namespace}:p{partition:02d}}}:"

    def of_partition(self, partition: int) -> list[str]:
        """KEYS[1..6] of every script."""
        tag = self.tag(partition)
        return [tag + kind for kind in ("due", "timers", "sweeps", "counters", "index", "agents")]

    def of_session(self, session_id: str) -> list[str]:
        """KEYS[1..15] of every script that works on a session: its partition's, then its own."""
        partition = self.partition(session_id)
        tag = self.tag(partition)
        return [
            *self.of_partition(partition),
            f"{tag}head:{session_id}",
            f"{tag}layout:{session_id}",
            f"{tag}live:{session_id}",
            f"{tag}inbox:{session_id}",
            f"{tag}steps:turn:{session_id}",
            f"{tag}steps:rotation:{session_id}",
            f"{tag}archive:{session_id}",
            f"{tag}audit:{session_id}",
            f"{tag}turns:{session_id}",
        ]

    def head(self, session_id: str) -> str:
        return f"{self.tag(self.partition(session_id))}head:{session_id}"

    def archive(self, session_id: str) -> str:
        return f"{self.tag(self.partition(session_id))}archive:{session_id}"

    def audit(self, session_id: str) -> str:
        return f"{self.tag(self.partition(session_id))}audit:{session_id}"

    def turn(self, session_id: str, turn_id: str) -> str:
        return f"{self.tag(self.partition(session_id))}turn:{session_id}{TURN_SEPARATOR}{turn_id}"

    def events(self, session_id: str, turn_id: str) -> str:
        return f"{self.tag(self.partition(session_id))}events:{session_id}{TURN_SEPARATOR}{turn_id}"

    def agents(self, partition: int) -> str:
        return f"{self.tag(partition)}agents"

    def index(self, partition: int) -> str:
        return f"{self.tag(partition)}index"

    def counters(self, partition: int) -> str:
        return f"{self.tag(partition)}counters"
