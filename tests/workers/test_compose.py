"""docker-compose.yml, without an engine: each service's command, environment and health check as local processes."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sessionlib.catalog import load_catalog
from tests.waiting import wait_for
from workers import children
from workers.client import Sessions
from workers.settings import Settings

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
WORKERS = ("front", "background")

needs_server = pytest.mark.skipif(
    shutil.which("redis-server") is None or shutil.which("redis-cli") is None,
    reason="the redis service's own commands are not installed here (Debian: redis-server)",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Deployment:
    """The services as local processes: other ports and paths, all else as the file says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.redis_port, self.flower_port = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def environment(self, service: str) -> dict[str, str]:
        """The service's environment, with this deployment's places in it."""
        given = {
            name: value.replace("redis:6379", f"127.0.0.1:{self.redis_port}")
            .replace("${SESSIONLIB_AGENTS:-/agents/agents.toml}", str(ROOT / "agents" / "agents.toml"))
            .replace("${FLOWER_BASIC_AUTH:?set FLOWER_BASIC_AUTH=user:password in .env}", "user:password")
            for name, value in SERVICES[service].get("environment", {}).items()
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.directory), **given}

    def start(self, service: str) -> None:
        """Run the service's command."""
        command = self._here(SERVICES[service]["command"])
        if service == "redis":
            command += f" --port {self.redis_port} --bind 127.0.0.1 --dir {self.directory}"
        program, *arguments = shlex.split(command)
        environment = self.environment(service)
        found = shutil.which(program, path=environment["PATH"])
        assert found is not None, f"{program} is not on the image's path"
        with (self.directory / f"{service}.log").open("ab") as output:
            self._processes.append(children.start([found, *arguments], environment=environment, output=output))

    def is_healthy(self, service: str) -> bool:
        """Run the service's health check once."""
        check = self._here(SERVICES[service]["healthcheck"]["test"])
        done = subprocess.run(check, shell=True, env=self.environment(service), capture_output=True, check=False)
        return done.returncode == 0

    def _here(self, command: str) -> str:
        return (
            command.replace("redis-cli", f"redis-cli -p {self.redis_port}")
            .replace("--address=0.0.0.0", "--address=127.0.0.1")
            .replace("5555", str(self.flower_port))
        )

    def stop(self) -> None:
        for process in reversed(self._processes):
            children.end(process, grace_seconds=10)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.stop()


@needs_server
def test_every_service_starts_as_the_file_says_and_its_check_judges_it(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unhealthy before it runs, healthy after; and the whole answers a turn."""
    order = ("redis", *WORKERS, "flower")
    assert not any(deployment.is_healthy(service) for service in order)
    for service in order:
        deployment.start(service)
        if service == "redis":
            wait_for(lambda: deployment.is_healthy("redis"), what="the redis service")
    for service in order:
        wait_for(lambda name=service: deployment.is_healthy(name), 60, what=f"a healthy {service}")  # type: ignore[misc]
    settings = Settings.read(
        store_url=f"redis://127.0.0.1:{deployment.redis_port}/0", agents=str(ROOT / "agents" / "agents.toml")
    )
    reply = Sessions.connect(settings=settings).open("s", "assistant").send("hello", timeout_seconds=30)
    assert reply.text.startswith("This is the scripted provider")


def test_redis_keeps_what_it_acknowledged_and_evicts_nothing() -> None:
    """Append-only, noeviction, on a volume."""
    command = shlex.split(SERVICES["redis"]["command"])
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert SERVICES["redis"]["volumes"] == ["redis:/data"]


@pytest.mark.parametrize("service", SERVICES)
def test_services_come_back_and_have_a_health_check(service: str) -> None:
    """Whatever exits is started again."""
    assert SERVICES[service]["restart"] == "unless-stopped"
    assert SERVICES[service]["healthcheck"]["test"]


@pytest.mark.parametrize("service", WORKERS)
def test_workers_are_killed_later_than_they_give_back(service: str) -> None:
    """The grace period is longer than the workers' own."""
    period_seconds = float(SERVICES[service]["stop_grace_period"].removesuffix("s"))
    assert period_seconds > float(SERVICES[service]["environment"]["SESSIONLIB_GRACE_SECONDS"])


def test_ports_are_open_on_loopback_only() -> None:
    """Store and Flower are for this host."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_shipped_agents_file_loads() -> None:
    """The file that the workers mount needs no key."""
    assert list(load_catalog(str(ROOT / "agents" / "agents.toml")).agents) == ["assistant"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed here")
def test_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    """`docker-compose config -q` finds nothing wrong."""
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    (tmp_path / ".env").write_text("FLOWER_BASIC_AUTH=user:password\n")
    subprocess.run(["docker-compose", "config", "-q"], cwd=tmp_path, check=True)
