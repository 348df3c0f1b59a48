"""A server with its keys and scripts: what every part of the Redis store stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessionlib.errors import InvalidInput, LeaseLost, SessionBusy, SessionClosed, UnknownSession
from sessionlib.ids import require_id
from sessionlib.stores.contract import Grant, Limits
from workers.connection import Client, close_client, require_version, store_errors
from workers.keys import Keys
from workers.scripts import Argument, Call, Scripts

LEASE_LOST = LeaseLost.code.encode()


class ScriptedStore:
    """A client with its keys and scripts."""

    def __init__(
        self, client: Client, *, namespace: str = "sl", partitions: int = 1, limits: Limits | None = None
    ) -> None:
        """Sends nothing. The number of partitions is compared with the stored one at the first call."""
        self.limits = limits or Limits()
        self.partition_count = partitions
        self.client: Any = client  # redis-py types every reply as bytes or text; ours are bytes
        self.keys = Keys(namespace, partitions)
        self.scripts = Scripts(client, self.keys.hints, self.limits)
        self._is_checked = False

    def check(self) -> None:
        """Store the number of partitions at the very first start, compare it at every other.

        Raises InvalidInput naming both if they differ: sessions would be looked for where they are not; StoreError for
        a server that is too old.
        """
        with store_errors():
            require_version(self.client)
            stored = self.client.get(self.keys.partitions)
            if stored is None:  # asked first: a full server still lets workers start
                self.client.set(self.keys.partitions, self.partition_count, nx=True)
                stored = self.client.get(self.keys.partitions)
        if int(stored) != self.partition_count:
            rule = f"must be {int(stored)}, as at the first start of namespace {self.keys.namespace}"
            raise InvalidInput("partitions", self.partition_count, rule)
        self._is_checked = True

    def close_connections(self) -> None:
        """Give the connections back to the system."""
        close_client(self.client)

    def _run(self, name: str, session_id: str, *args: Argument) -> Any:
        """Run a script on a session."""
        return self._run_last(session_id, [(name, args)])

    def _run_last(self, session_id: str, calls: Sequence[Call]) -> Any:
        """Run scripts on a session, in order; the reply of the last."""
        keys = self.keys.of_session(require_id("session_id", session_id))
        self._check_once()
        return self.scripts.run_last(calls, keys)

    def _known(self, name: str, session_id: str, *args: Argument) -> Any:
        """What a script answers for a session that is there. Raises UnknownSession."""
        reply = self._run(name, session_id, *args)
        if reply is None:
            raise UnknownSession(session_id)
        return reply

    def _held(self, name: str, grant: Grant, *args: Argument, before: Call | None = None) -> list[Any]:
        """What a script answers to the holder of a lane. Raises LeaseLost to anybody else.

        *before*: another of the holder's, sent along and run first; what it answers does not matter.
        """
        holder = (grant.lane, grant.token, grant.work_id)
        calls = [(called, (*holder, *own)) for called, own in filter(None, [before, (name, args)])]
        reply: list[Any]
        code, *reply = self._run_last(grant.session_id, calls)
        if code == LEASE_LOST:
            raise LeaseLost(grant.session_id, grant.lane)
        return reply

    def _hold_each(self, calls: Sequence[tuple[Any, ...]]) -> Sequence[bool]:
        """Run what holders of lanes ask for, each a script, its grant and its arguments, all sent at once; whether each
        holds its lane."""
        self._check_once()
        keyed = [
            (name, self.keys.of_session(grant.session_id), (grant.lane, grant.token, grant.work_id, *args))
            for name, grant, *args in calls
        ]
        return [reply[0] != LEASE_LOST for reply in self.scripts.run_each(keyed)]

    def _check_once(self) -> None:
        if not self._is_checked:
            self.check()

    def _require_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partition_count:
            raise InvalidInput("partition", partition, f"must be below {self.partition_count}")
        self._check_once()


def require_reply(expected: bytes, code: bytes, session_id: str, reply: Sequence[Any]) -> None:
    """Raise what a script refused with, unless it answered as *expected*."""
    if code == expected:
        return
    if code == SessionBusy.code.encode():
        raise SessionBusy(session_id, reply[0].decode())
    raise {SessionClosed.code: SessionClosed, UnknownSession.code: UnknownSession}[code.decode()](session_id)
