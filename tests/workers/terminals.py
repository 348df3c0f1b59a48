"""A command at a terminal: a pseudo-terminal that a test types into and reads."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

PATIENCE_SECONDS = 60.0

AT_TERMINAL = 'terminal=$1 output=$2; shift 2; exec "$@" <"$terminal" 2>"$terminal" >"$output"'
"""A shell that leads a session of processes and has no terminal takes the first that it opens (setsid(2)): that Ctrl-C
is sent to. It is the command then, under the same process id."""


class Terminal:
    """What is typed at a command, and what it shows. Lines end as a terminal is sent them: `\\r\\n`."""

    def __init__(self, keyboard: int, screen: int, process: subprocess.Popen[bytes]) -> None:
        self._keyboard, self._screen, self._process = keyboard, screen, process
        self._unread = b""

    def type(self, keys: str | bytes) -> None:
        os.write(self._keyboard, keys.encode() if isinstance(keys, str) else keys)

    def interrupt(self) -> None:
        """Type Ctrl-C while the command waits. CPython does not notice a signal that comes in the microseconds before
        it begins to: nobody types so fast, but a test that was just shown the prompt does."""
        wait_for(self._is_waiting, PATIENCE_SECONDS, "a command that waits")
        self.type("\x03")

    def shows(self, text: str) -> str:
        """All that is shown before *text*, from where the last call ended. Raises AssertionError if it does not come.

        Bytes that are no UTF-8 are in it as escapes.
        """
        deadline, awaited = time.monotonic() + PATIENCE_SECONDS, text.encode()
        while awaited not in self._unread:
            left_seconds = max(0.0, deadline - time.monotonic())
            if not select.select([self._keyboard], [], [], left_seconds)[0]:
                raise AssertionError(f"{text!r} was not shown, but {self._unread!r}")
            self._unread += os.read(self._keyboard, 65_536)
        before, _, self._unread = self._unread.partition(awaited)
        return before.decode(errors="backslashreplace")

    def modes(self) -> list[Any]:
        """How the terminal treats what is typed and shown: a shell expects it as it left it."""
        return termios.tcgetattr(self._screen)

    def exit_code(self) -> int:
        """The command's, when it has ended."""
        return self._process.wait(PATIENCE_SECONDS)

    def _is_waiting(self) -> bool:
        """Whether its main thread sleeps (proc(5): the state follows the name, which is in parentheses)."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextmanager
def terminal(
    *command: str, directory: Path, environment: Mapping[str, str], output: Path | None = None
) -> Iterator[Terminal]:
    """*command* at a terminal of its own, its stdout in the file *output* if that is given. Killed at the end."""
    keyboard, screen = pty.openpty()
    name = os.ttyname(screen)
    process = subprocess.Popen(
        ["/bin/sh", "-c", AT_TERMINAL, "sh", name, str(output or name), *command],
        cwd=directory,
        env={**environment, "TERM": "xterm"},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Terminal(keyboard, screen, process)
    finally:
        process.kill()
        process.wait()
        os.close(keyboard)
        os.close(screen)
