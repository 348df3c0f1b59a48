"""What tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessionlib.testing.server import FakeProviderServer
from tests.sessionlib.official import fault_in


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProviderServer]:
    """A fake provider that also holds every request against the types of the official clients."""
    with FakeProviderServer(check=fault_in) as server:
        yield server
