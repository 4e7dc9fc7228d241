"""Standalone runner with processes as its children, as in a batch job, against the real lease service."""

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
from tests.contracts.harness_processes import play_of, worker_spec
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ROOT = Path(__file__).parents[2]
ZERO_MODEL = (ROOT / "runtimes/harness/simulators/noop/baselines/zero.py").read_bytes()


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    apis: list[RunnerApi] = []

    def make(total: int, **params: Any) -> RunnerApi:
        play = play_of("noop", select={"range": [0, total]}, params=params)
        apis.append(RunnerApi(tmp_path, total=total, play=play, model=ZERO_MODEL, packed=packed()))
        return apis[-1]

    yield make
    for api in apis:
        api.close()


def packed() -> bytes:
    """Return the packed dataset folder, as staging packs it."""
    return scenario_folder.pack(datasets()["noop"].folder)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(url: str, *, token: str = TOKEN, **document: Any) -> "subprocess.Popen[str]":
        (tmp_path / "token").write_text(token)
        spec = worker_spec(dataset="noop", sandbox=0).describe() | {"dataset": ""}
        default = {"id": LAUNCH, "url": url, "token_file": str(tmp_path / "token"), "workers": 2, "worker_spec": spec}
        default["files"] = str(tmp_path / "files")
        (tmp_path / "launch.json").write_text(json.dumps(default | document))
        command = [sys.executable, "-m", "workers.standalone_runner", "--launch", str(tmp_path / "launch.json")]
        started.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def run_to_end(process: "subprocess.Popen[str]", runner_api: RunnerApi) -> str:
    """Do the dispatcher's part until the runner has exited; return the runner's output."""
    runner_api.settle_until_exit(process)
    return process.communicate()[0]


def test_a_standalone_runner_downloads_missing_inputs_and_runs_its_launch(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    api = runner_api(2000)
    process = runner(api.url)
    assert "there is no more work (0)" in run_to_end(process, api)
    assert process.returncode == 0
    assert [(result["task"], result["status"]) for result in api.results()] == [(task, "ok") for task in range(2000)]
    assert "ended before it was used" not in api.logs()


def test_inputs_with_a_path_are_not_downloaded(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    api = runner_api(200)
    (tmp_path / "model").write_bytes(ZERO_MODEL)
    process = runner(
        api.url, model=str(tmp_path / "model"), worker_spec=worker_spec(dataset="noop", sandbox=0).describe()
    )
    run_to_end(process, api)
    assert process.returncode == 0
    assert len(api.results()) == 200
    assert not {"model", "play"} & set(api.requests)


def test_a_standalone_runner_releases_its_unfinished_leases_on_sigterm(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    api = runner_api(400, sleep_ms=20)
    process = runner(api.url)
    until(lambda: "report" in api.requests)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30.0) == 143
    assert api.count_leases() == 0
    assert "leave" in api.requests
    assert "death" not in api.requests
    following = runner(api.url)
    run_to_end(following, api)
    assert [(result["task"], result["status"]) for result in api.results()] == [(task, "ok") for task in range(400)]


def test_a_standalone_runner_exits_with_code_0_if_the_launch_is_over(
    runner_api: Callable[..., RunnerApi], runner: Callable[..., "subprocess.Popen[str]"]
) -> None:
    api = runner_api(10)
    assert runner(api.url, token="guessed").wait(30.0) == 0
    assert api.results() == []


def test_an_unreadable_launch_document_is_reported(runner: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = runner("http://127.0.0.1:9", token_file="/nowhere")
    output, _ = process.communicate(timeout=30.0)
    assert process.returncode == 76
    assert "the launch document cannot be read" in output
