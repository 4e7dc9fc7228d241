"""What system tests share: whole platforms, each in a home and on ports of its own, ended with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS
from tests.system.house import Platform

Found = Callable[..., Platform]
FORMATS = [("python", "python"), ("onnx", "onnx"), ("tensorflow", "tflite")]


@pytest.fixture(scope="session")
def prepared() -> None:
    """Make what these tests drive with, once per machine, so that none of them waits for a download."""
    wanted = [*catalogue.simulators().values()]
    wanted += [catalogue.runtimes()[name].formats[format].environment for name, format in FORMATS]
    for environment in wanted:
        environments.prepare(environment, ENVIRONMENTS, lambda message, fraction: None)


@pytest.fixture(scope="session")
def platform(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A running platform that all tests of this process share: none may kill or change it."""
    started = Platform(tmp_path_factory.mktemp("platform"))
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture
def found(prepared: None, tmp_path: Path) -> Iterator[Found]:
    """Start platforms that a test may kill; each is ended with it."""
    made: list[Platform] = []

    def start(**settings: Any) -> Platform:
        made.append(Platform(tmp_path / f"home-{len(made)}", settings={k.upper(): str(v) for k, v in settings.items()}))
        return made[-1].start()

    yield start
    for one in made:
        one.stop()
