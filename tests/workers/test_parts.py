"""A worker process's parts: built once, lazily, and again in a forked child."""

from __future__ import annotations

import subprocess
import sys

from workers.settings import Settings

SCRIPT = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from workers.parts import parts

with ThreadPoolExecutor(8) as threads:
    built = {id(made) for made in threads.map(lambda _: parts(), range(64))}
assert len(built) == 1, built
before = parts()
if os.fork() == 0:
    os._exit(0 if parts() is not before and parts() is parts() else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_t108_parts_are_built_once_a_process(valkey_url: str) -> None:
    """All threads share them; a forked child does not share its parent's connections."""
    environment = Settings().for_embedded(valkey_url).environment()
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=60)
