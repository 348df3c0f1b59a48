"""The Lua scripts of `workers/lua`, loaded once a store and run by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from redis.commands.core import Script
from redis.exceptions import ResponseError

from sessionlib.stores.contract import Limits
from workers.connection import Client, store_errors

DIRECTORY = Path(__file__).parent / "lua"
LIBRARY = "_lib"
NO_FLAGS_ERROR = "near '#'"
"""What a server answers that does not know script flags: fakeredis, whose Lua cannot read the `#!lua` line."""

Argument = str | bytes | int | float


class Scripts:
    """Scripts with a store's constants compiled in. A server that lost them is sent them again."""

    def __init__(self, client: Client, hints: str, limits: Limits) -> None:
        self._client = client
        constants = _constants(hints, limits)
        self._scripts = {
            path.stem: client.register_script(_assembled(path.stem, constants))
            for path in sorted(DIRECTORY.glob("*.lua"))
            if path.stem != LIBRARY
        }

    def run(self, name: str, keys: Sequence[str], *args: Argument) -> Any:
        """The reply of a script. Raises StoreUnavailable or StoreFull."""
        with store_errors():
            try:
                return self._scripts[name](keys, args)
            except ResponseError as exc:
                if NO_FLAGS_ERROR not in str(exc):
                    raise
            self._drop_flags()
            return self._scripts[name](keys, args)

    def _drop_flags(self) -> None:
        self._scripts = {name: self._without_flags(script) for name, script in self._scripts.items()}

    def _without_flags(self, script: Script) -> Script:
        return self._client.register_script(str(script.script).partition("\n")[2])


def _assembled(name: str, constants: str) -> str:
    """One script: its flags, which must come first, the constants, what all scripts share, its own part."""
    flags, _, body = _source(name).partition("\n")
    return "\n".join([flags, constants, _source(LIBRARY), body])


@cache
def _source(name: str) -> str:
    return (DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")


def _constants(hints: str, limits: Limits) -> str:
    fields = ", ".join(f"{name} = {value!r}" for name, value in asdict(limits).items())
    return f'local HINTS = "{hints}"\nlocal LIMITS = {{{fields}}}'
