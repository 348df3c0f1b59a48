"""Child processes that never outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import IO

LOOK_SECONDS = 0.01
"""How soon `await_end` notices that a child has ended."""

# Asks the kernel for SIGKILL when the parent dies, then becomes the command: same process, no memory kept.
# 1 is PR_SET_PDEATHSIG (linux/prctl.h). A parent that died before the call is noticed by its changed id.
_BECOME = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start *command* (first item: the path of a program) in a session and process group of its own.

    On Linux it is killed when this process dies, however that happens; elsewhere only `end` ends it. *output* receives
    both of its streams; None leaves them where this process has its own. Raises OSError if it cannot be started.
    """
    return _starter(os.getpid()).submit(_start, command, environment, output, pass_fds).result()


def _start(
    command: Sequence[str], environment: Mapping[str, str] | None, output: IO[bytes] | int | None, fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    become = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())] if sys.platform == "linux" else []
    return subprocess.Popen(
        [*become, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        pass_fds=fds,
        start_new_session=True,
    )


@cache
def _starter(_pid: int) -> ThreadPoolExecutor:
    """The one thread of this process that starts children.

    A parent-death signal is sent when the *thread* that forked ends (prctl(2)): this one ends with the process.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="children")


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended. It is not reaped yet, so that its id still names its group for `kill`."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the child and whatever it started in its group; returns when the child is gone. Harmless twice."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def terminate(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the child alone, which tells its own children."""
    if not has_exited(process):
        process.send_signal(signal.SIGTERM)


def await_end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Wait at most *grace_seconds* for the child's end, then SIGKILL whatever is left of its group."""
    deadline = time.monotonic() + grace_seconds
    while not has_exited(process) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    kill(process)


def end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """SIGTERM, at most *grace_seconds* to finish, then SIGKILL."""
    terminate(process)
    await_end(process, grace_seconds)
