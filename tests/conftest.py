"""What tests share: a real server, a part of it for each test, and the real transcripts where they are."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from workers.embedded import EmbeddedServer

# How long an example takes says more of the machine than of the code: a busy one pauses for a second.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def valkey() -> Iterator[EmbeddedServer]:
    """A real server for the whole run. Tests that kill servers start their own."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def valkey_url(valkey: EmbeddedServer) -> str:
    """The server's URL; each test keeps to its own `namespace`."""
    return valkey.url


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real transcripts, beside the checkout or where SESSIONLIB_DATA says."""
    directory = Path(os.environ.get("SESSIONLIB_DATA") or Path(__file__).parents[1].parent / "shared" / "data")
    if not directory.is_dir():
        pytest.skip(f"no transcripts in {directory}; set SESSIONLIB_DATA")
    return directory
