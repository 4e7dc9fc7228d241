"""The runner that stands alone with children of its own, as on a batch system's node, against the real leases."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from tests.contracts.harness_processes import kit, play_of
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ROOT = Path(__file__).parents[2]
ZERO = (ROOT / "runtimes" / "baselines" / "zero.py").read_bytes()


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    made: list[RunnerApi] = []

    def make(total: int, **params: Any) -> RunnerApi:
        play = play_of("noop", select={"range": [0, total]}, params=params)
        made.append(RunnerApi(tmp_path, total=total, play=play, model=ZERO, packed=packed()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def packed() -> bytes:
    """What an evaluator sees, as the stager packs it."""
    return scenario_folder.pack(datasets()["noop"].folder)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    made: list[subprocess.Popen[str]] = []

    def start(url: str, *, token: str = TOKEN, **document: Any) -> "subprocess.Popen[str]":
        (tmp_path / "token").write_text(token)
        alone = kit(dataset="noop", sandbox=0).describe() | {"dataset": ""}
        given = {"id": LAUNCH, "url": url, "token_file": str(tmp_path / "token"), "workers": 2, "worker_spec": alone}
        given["files"] = str(tmp_path / "files")
        (tmp_path / "launch.json").write_text(json.dumps(given | document))
        command = [sys.executable, "-m", "workers.standalone_runner", "--launch", str(tmp_path / "launch.json")]
        made.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def work_off(one: "subprocess.Popen[str]", runner_api: RunnerApi) -> str:
    """Play the dispatcher until the runner has ended; return what it said."""
    runner_api.settle_until_exit(one)
    return one.communicate()[0]


def test_it_fetches_what_it_lacks_and_sees_its_launch_through(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    at = runner_api(2000)
    one = runner(at.url)
    assert "there is no more work (0)" in work_off(one, at)
    assert one.returncode == 0
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(2000)]
    assert "exited before use" not in at.logs()


def test_what_it_is_told_it_does_not_fetch(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    at = runner_api(200)
    (tmp_path / "model").write_bytes(ZERO)
    one = runner(at.url, model=str(tmp_path / "model"), worker_spec=kit(dataset="noop", sandbox=0).describe())
    work_off(one, at)
    assert one.returncode == 0
    assert len(at.results()) == 200
    assert not {"model", "play"} & set(at.asked)


def test_told_to_stop_it_gives_back_what_it_has_not_played(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    at = runner_api(400, sleep_ms=20)
    one = runner(at.url)
    until(lambda: "report" in at.asked)
    one.send_signal(signal.SIGTERM)
    assert one.wait(30.0) == 143
    assert at.held() == 0
    assert "leave" in at.asked
    assert "death" not in at.asked
    following = runner(at.url)
    work_off(following, at)
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(400)]


def test_a_launch_that_is_over_before_it_begins_ends_it(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    at = runner_api(10)
    assert runner(at.url, token="guessed").wait(30.0) == 0
    assert at.results() == []


def test_a_launch_that_cannot_be_read_says_so(runner: Callable[..., "subprocess.Popen[str]"]) -> None:
    one = runner("http://127.0.0.1:9", token_file="/nowhere")
    said, _ = one.communicate(timeout=30.0)
    assert one.returncode == 76
    assert "the launch document cannot be read" in said
