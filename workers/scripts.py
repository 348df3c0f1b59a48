"""The Lua scripts of `workers/lua`, loaded once a store and run by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError, ResponseError

from sessionlib.stores.contract import Limits
from workers.connection import Client, store_errors

DIRECTORY = Path(__file__).parent / "lua"
LIBRARIES = ("_lib", "_capturing", "_turns", "_rotations", "_rooms", "_notes", "_jobs", "_begin")
"""What scripts may use, in this order: each uses those before it."""
FIRST = "save_step"
"""It is sent along before others, so a server has it before them: else it would run those without it."""
NO_FLAGS_ERROR = "near '#'"
"""What a server answers that does not know script flags: fakeredis, whose Lua cannot read the `#!lua` line."""

STATEMENT = re.compile(r"^(?![ -]).+\n(?:(?: .*|end|[)}].*|)\n)*", re.MULTILINE)
"""A statement of a library: it begins at a line's start, where nothing else does but comments and its own end."""
DEFINED = re.compile(r"local (?:function )?([\w, ]+)")
"""The names that a statement defines: a local's stand before its value, a function's before its parameters."""
WORD = re.compile(r"\w+")

Argument = str | bytes | int | float
Call = tuple[str, Sequence[Argument]]
"""A script by its name, and its arguments."""
KeyedCall = tuple[str, Sequence[str], Sequence[Argument]]
"""The same with the keys that it is on."""


class Scripts:
    """Scripts with a store's constants compiled in. A server that lost them is sent them again."""

    def __init__(self, client: Client, hints: str, limits: Limits) -> None:
        self._client = client
        constants = _constants(hints, limits)
        self._scripts = {
            path.stem: client.register_script(_assembled(path.stem, constants))
            for path in sorted(DIRECTORY.glob("*.lua"))
            if path.stem not in LIBRARIES
        }

    def run(self, name: str, keys: Sequence[str], *args: Argument) -> Any:
        """The reply of a script. Raises StoreUnavailable or StoreFull."""
        return self.run_last([(name, args)], keys)

    def run_last(self, calls: Sequence[Call], keys: Sequence[str]) -> Any:
        """The reply of the last of *calls*: all are on *keys*, sent at once, and run in order, whatever one replies.

        Raises StoreUnavailable or StoreFull.
        """
        with store_errors():
            last = self._replies([(name, keys, args) for name, args in calls])[-1]
            if isinstance(last, ResponseError):
                raise last
            return last

    def run_each(self, calls: Sequence[KeyedCall]) -> Sequence[Any]:
        """The replies of *calls*: sent at once and run in order, each on keys of its own.

        Raises StoreUnavailable or StoreFull, or what one of the scripts ended with: the others were run all the same.
        """
        with store_errors():
            replies = self._replies(calls)
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return replies

    def _replies(self, calls: Sequence[KeyedCall]) -> list[Any]:
        """What the server replies to *calls*, errors among it. A server that lost its scripts is sent them again."""
        replies = self._exchanged(calls)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            self._load()
            replies = []
        return replies or [self._asked(name, keys, args) for name, keys, args in calls]

    def _load(self) -> None:
        """Send all scripts, in the order in which a server may have them; any order will do where calls go singly."""
        if not isinstance(self._client, redis.Redis):
            return
        with self._client.pipeline(transaction=False) as pipeline:
            for name in sorted(self._scripts, key=lambda name: name != FIRST):
                pipeline.script_load(str(self._scripts[name].script))
            pipeline.execute()

    def _exchanged(self, calls: Sequence[KeyedCall]) -> list[Any]:
        """What the server replies to *calls*, errors among it, over one connection; nothing with a cluster's client,
        which has no single pool.

        The client's own way takes one command at a time, and 0.05 to 0.1 ms more of a thread for each. Retries are as
        there.
        """
        if not isinstance(self._client, redis.Redis):
            return []
        commands = [("EVALSHA", self._scripts[name].sha, len(keys), *keys, *args) for name, keys, args in calls]
        pool = self._client.connection_pool
        connection = pool.get_connection()
        try:
            return connection.retry.call_with_retry(
                lambda: _exchange(connection, commands),
                lambda _: connection.disconnect(),  # type: ignore[no-untyped-call]
            )
        finally:
            pool.release(connection)

    def _asked(self, name: str, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """What the server replies, an error too, to a script that it is sent if it does not have it."""
        for _ in range(2):
            try:
                return self._scripts[name](keys, args)
            except ResponseError as exc:
                error = exc
            if NO_FLAGS_ERROR not in str(error):
                break
            self._drop_flags()
        return error

    def _drop_flags(self) -> None:
        self._scripts = {name: self._without_flags(script) for name, script in self._scripts.items()}
        self._load()

    def _without_flags(self, script: Script) -> Script:
        return self._client.register_script(str(script.script).partition("\n")[2])


def _exchange(connection: Any, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    connection.send_packed_command(connection.pack_commands(commands))
    return [_reply(connection) for _ in commands]


def _reply(connection: Any) -> Any:
    """A reply, or the error that a script ended with: the connection goes on to the next reply."""
    try:
        return connection.read_response()
    except ResponseError as exc:
        return exc


def _assembled(name: str, constants: str) -> str:
    """One script: its flags, which must come first, the constants, what it needs of the libraries, its own part."""
    flags, _, body = _source(name).partition("\n")
    library = "\n".join(map(_source, LIBRARIES))
    return "\n".join([flags, constants, _needed(library, body), body])


def _needed(library: str, body: str) -> str:
    """The definitions of *library* that *body* names, and those that these name; statements that define nothing.

    A script makes anew, at each call, every function that stands in it: all of the libraries took a server that is not
    kept busy 75 µs a call, as long as what most scripts are there for. A word in a text or a comment keeps a definition
    that nobody needs; that does no harm.
    """
    kept: list[str] = []
    words = set(WORD.findall(body))
    for statement in reversed(STATEMENT.findall(library)):
        defined = DEFINED.match(statement)
        if defined is None or not words.isdisjoint(WORD.findall(defined[1])):
            kept.append(statement)
            words.update(WORD.findall(statement))
    return "".join(reversed(kept))


@cache
def _source(name: str) -> str:
    return (DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")


def _constants(hints: str, limits: Limits) -> str:
    fields = ", ".join(f"{name} = {value!r}" for name, value in asdict(limits).items())
    return f'local HINTS = "{hints}"\nlocal LIMITS = {{{fields}}}'
