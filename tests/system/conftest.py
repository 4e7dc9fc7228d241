"""Fixtures of system tests: platforms as processes, each with its own home and ports, stopped after the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS
from tests.system.platform_process import PlatformProcess, share_environments

StartPlatform = Callable[..., PlatformProcess]
FORMATS = [("python", "python"), ("onnx", "onnx"), ("tensorflow", "tflite")]


@pytest.fixture(scope="session")
def prepared_environments() -> None:
    """Prepare the environments that these tests use, once per machine, so that no test waits for a download."""
    specs = [*catalogue.simulators().values(), *catalogue.converters().values()]
    specs += [catalogue.runtimes()[name].formats[format].environment for name, format in FORMATS]
    for environment in specs:
        environments.prepare(environment, ENVIRONMENTS, lambda message, fraction: None)


@pytest.fixture
def home(prepared_environments: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own for a client that plays on this machine, with the environments of other tests."""
    share_environments(tmp_path)
    monkeypatch.setenv("WINDTUNNEL_HOME", str(tmp_path))


@pytest.fixture(scope="session")
def platform(prepared_environments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A running platform that all tests of this process share: no test may kill or change it."""
    process = PlatformProcess(tmp_path_factory.mktemp("platform"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture
def start_platform(prepared_environments: None, tmp_path: Path) -> Iterator[StartPlatform]:
    """A function that starts a platform which a test may kill; each ends with the test."""
    started: list[PlatformProcess] = []

    def start(**settings: Any) -> PlatformProcess:
        environment = {name.upper(): str(value) for name, value in settings.items()}
        started.append(PlatformProcess(tmp_path / f"home-{len(started)}", settings=environment))
        return started[-1].start()

    yield start
    for platform in started:
        platform.stop()
