"""Recordings that a command is given as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sessionlib.errors import InvalidInput

if TYPE_CHECKING:
    from sessionlib.recordings import Recording


def read_file(file: Path, conversation: str) -> Recording:
    """The recording in *file*. Raises InvalidInput, naming file, place and rule."""
    from sessionlib.recordings import read_recording

    try:
        data = file.read_bytes()
    except OSError as exc:
        raise InvalidInput("FILE", str(file), f"must be a readable file ({type(exc).__name__})") from None
    return read_recording(data, file.name, conversation)
