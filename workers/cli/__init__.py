"""`sessionctl`: sessions, workers and their health from a terminal."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point. Text that the terminal's encoding lacks is written as escapes, never an error."""
    from workers.cli.app import build_app

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    build_app()()
