"""What tests over workers in this process share. Each module has its own `workers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workers.local import LocalWorkers, connected
from workers.client import Connection


@pytest.fixture
def connection(workers: LocalWorkers) -> Iterator[Connection]:
    with connected(workers) as connection:
        yield connection
