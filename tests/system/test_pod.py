"""A pod of courier, player and host as three containers: whoever dies, every task has one result, and all of it ends."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets import playing
from datasets.catalogue import datasets
from tests.contracts.crew import play_of
from tests.system.drivers import LAUNCH, TOKEN, Drivers
from tests.system.pod import Image, Pod

ZERO = (Path(__file__).parents[2] / "runtimes" / "baselines" / "zero.py").read_bytes()
DONE, BEREFT, STOPPED = 0, 77, 143


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An interpreter that every container's user may run."""
    folder = tmp_path_factory.mktemp("image")
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o055)
    return Image(folder)


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Callable[..., Drivers]]:
    made: list[Drivers] = []

    def make(total: int, model: bytes = ZERO, **params: Any) -> Drivers:
        play = play_of("noop", select={"range": [0, total]}, params=params) | {"params": params}
        packed = playing.pack(datasets()["noop"].folder)
        made.append(Drivers(tmp_path, total=total, play=play, model=model, packed=packed))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def pod(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Pod]]:
    made: list[Pod] = []

    def make(drivers: Drivers, **document: Any) -> Pod:
        folder = tmp_path_factory.mktemp("pod")
        kit = {"format": "python", "isolation": "launch"} | document.pop("kit", {})
        made.append(Pod(image, folder, {"id": LAUNCH, "url": drivers.url, "kit": kit} | document, TOKEN))
        return made[-1]

    yield make
    for one in made:
        one.end()


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def work_off(one: Pod, drivers: Drivers, seconds: float = 60.0) -> None:
    """Play the dispatcher until the courier has ended."""
    deadline = time.monotonic() + seconds
    while one.courier.process.poll() is None:
        assert time.monotonic() < deadline, f"still at it: {drivers.asked[-20:]}"
        drivers.settle()
        time.sleep(0.05)


def test_every_task_gets_one_result_and_the_three_end_in_a_chain(
    drivers: Callable[..., Drivers], pod: Callable[..., Pod]
) -> None:
    at = drivers(3000)
    one = pod(at)
    work_off(one, at)
    codes = [container.wait() for container in one.containers]
    assert codes == [DONE, DONE, DONE], [container.said for container in one.containers]
    results = at.results()
    assert [result["task"] for result in results] == list(range(3000))
    assert {result["status"] for result in results} == {"ok"}
    assert "confines at level" in one.courier.said
