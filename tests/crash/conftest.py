"""One cluster for all crash tests that do not need their own, and a report of what was killed and measured."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest

from tests.crash.checks import Kills
from tests.crash.cluster import Cluster
from tests.crash.state import state_of

FIGURES = pytest.StashKey[list[str]]()

Report = Callable[[str], None]


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, all workers ready, nothing held and nothing to do; tests keep to sessions of their own.

    What a provider holds is held of all sessions: a rotation that a test left would be counted by the next.
    """
    shared_cluster.wait_ready(*shared_cluster.fronts, *shared_cluster.backgrounds)
    yield shared_cluster
    shared_cluster.provider.release()
    shared_cluster.provider.change(latency_seconds=0.0, summary_latency_seconds=0.0)
    shared_cluster.wait_idle()


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> Kills:
    """The test's kills; if it fails, its report names what was in flight at each."""
    return Kills(report=lambda kill: request.node.add_report_section("call", "killed", kill))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Report:
    """Say a measured figure at the end of the run."""
    lines = request.config.stash.setdefault(FIGURES, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a failed test's cluster was doing goes into its report."""
    report = yield
    if report.failed:
        used = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Cluster)]
        report.sections.extend((f"cluster in {cluster.directory}", state_of(cluster)) for cluster in used[-1:])
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(FIGURES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
