"""Play without a server: results, checks and errors are those of a platform, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.services.uploads.shipped_models import shipped
from tests.maps import town
from tests.system.platform_process import PlatformProcess, share_environments
from tests.system.test_datasets import dataset_json, register, scenarios
from tests.waiting import until
from windtunnel import Client, Result, WindtunnelError, local
from windtunnel.conversations import Conversation

BASELINES = shipped()
ACTING = "class Model:\n    def act(self, observation):\n        {}\n"
#: Models that do not work, by what is wrong with them.
BROKEN = {
    "it is not Python": "class Model:\n    def act(self, observation: return 0\n",
    "it has no class Model": "class Controller:\n    def act(self, observation):\n        return [0.0]\n",
    "its action has another shape": ACTING.format("return [0.0, 1.0, 2.0]"),
    "it raises": ACTING.format("raise ValueError('no')"),
    "it ends its process": ACTING.format("import os; os._exit(3)"),
    "it does not answer": ACTING.format("\n        while True: pass"),
}


@pytest.fixture(autouse=True)
def home(prepared_environments: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with the environments of other tests; its path has a blank."""
    folder = tmp_path / "my home"
    folder.mkdir()
    share_environments(folder)
    monkeypatch.setenv("WINDTUNNEL_HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


@pytest.fixture
def client(platform: PlatformProcess) -> Iterator[Client]:
    with Client(platform.url) as client:
        yield client


def without_timing(results: list[Result]) -> list[dict[str, Any]]:
    return [{name: value for name, value in result.raw.items() if name != "timing"} for result in results]


def comparable(check: Any) -> dict[str, Any]:
    """Return what is equal in two checks of a model: all but what was measured."""
    return {name: check.raw[name] for name in ("fits", "reason", "dataset", "runtime", "format", "model")}


@pytest.mark.parametrize(
    ("model", "dataset", "options"),
    [
        (BASELINES["idm"], "car_street", {"scenarios": "0-3"}),
        (BASELINES["cartpole"], "cartpole", {"scenarios": [7, 3], "seed": 5, "repeat": 2}),
        (BASELINES["cartpole"], "cartpole", {"scenarios": [0], "sweep": {"latency_steps": [0, 3]}}),
        ("idm_mobil", "car_street", {"scenarios": [9]}),
    ],
)
def test_the_results_are_those_of_a_simulation(client: Client, model: Any, dataset: str, options: Any) -> None:
    simulation = client.simulations.run(model, dataset, **options)
    played = local.play(model, dataset, **options)
    assert played.ok and played.simulation.score is not None
    assert played.simulation.model.digest == simulation.model.digest
    assert played.simulation.dataset == simulation.dataset
    assert played.simulation.metrics == simulation.metrics
    assert without_timing(list(played.results)) == without_timing(list(client.simulations.results(simulation.id)))


def test_a_model_may_be_trusted_on_ones_own_machine_whatever_a_server_there_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WINDTUNNEL_TRUSTED", "no")
    trusted, isolated = (local.play("cartpole", "cartpole", scenarios=range(2), trusted=each) for each in (True, None))
    assert trusted.ok and trusted.simulation.trusted and not isolated.simulation.trusted, trusted
    assert trusted.simulation.results_digest == isolated.simulation.results_digest


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_model_is_refused_as_by_a_platform(client: Client, tmp_path: Path, fault: str) -> None:
    model = tmp_path / "model.py"
    model.write_text(BROKEN[fault])
    check = local.check(model, "cartpole")
    assert not check.fits and check.reason
    assert comparable(check) == comparable(client.simulations.check(model, "cartpole"))


def test_a_model_that_fails_while_it_plays_has_results_that_say_so(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(ACTING.format("print('hello'); return [0.0] if observation[0] < 0 else None"))
    played = local.play(model, "cartpole", scenarios=range(4))
    assert not played.ok and [result.task for result in played.results] == [0, 1, 2, 3]
    assert {"ok", "invalid"} >= {result.status for result in played.results} > set()
    assert "hello" in played.output
    model.write_text(BROKEN["it has no class Model"])
    played = local.play(model, "cartpole", scenarios=[0])
    assert played.simulation.state == "failed" and "no class `Model`" in str(played) and not played.results


def test_a_model_that_prints_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(ACTING.format("print('x' * 10_000_000); return [0.0]"))
    played = local.play(model, "cartpole", scenarios=[0])
    assert played.results and 0 < len(played.output) <= local.KEPT  # printing may take all of its time


@pytest.mark.parametrize(
    ("model", "dataset", "options", "text"),
    [
        ("idm", "car_strete", {}, "Did you mean car_street?"),
        ("idm", "program", {}, "no scenarios to step through"),
        ("idm", "car_street", {"scenarios": [10_000_000]}, "is not one of them"),
        ("idm", "car_street", {"params": {"speed": 3}}, "speed"),
        ("idm", "car_street", {"runtime": "nothing"}, "nothing"),
        ("idmm", "car_street", {}, "Did you mean idm"),
        ("s3://bucket/model.onnx", "car_street", {}, "read by a platform only"),
        (None, "car_street", {}, "runtime"),
        ("idm", "car_street", {"server": "http://127.0.0.1:9"}, "does not answer"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_next_step(
    model: str | None, dataset: str, options: Any, text: str
) -> None:
    with pytest.raises(WindtunnelError, match=text):
        local.play(model, dataset, **options)


def test_a_home_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_HOME", "/proc/windtunnel")
    with pytest.raises(WindtunnelError, match=r"/proc/windtunnel.*WINDTUNNEL_HOME"):
        local.check("idm", "car_street")


@pytest.fixture
def small_home(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home on a file system of 300 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.fail("a small file system can only be mounted by root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "home-test", str(folder)], check=True)
    share_environments(folder)
    monkeypatch.setenv("WINDTUNNEL_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_laptop_with_little_free_space_plays_and_below_the_floor_is_told_what_to_set(
    small_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_home / "model.py"
    model.write_text(ACTING.format("return [1.0]"))
    assert local.check(model, "cartpole").fits
    monkeypatch.setenv("WINDTUNNEL_DISK_FLOOR", str(1 << 30))
    with pytest.raises(WindtunnelError, match=r"MB of the disk of .* are free, .*set WINDTUNNEL_DISK_FLOOR to fewer"):
        local.check(model, "cartpole")


def test_a_model_that_loads_for_long_is_said_to_load(tmp_path: Path) -> None:
    model = tmp_path / "slow.py"
    model.write_text(
        "import time\nclass Model:\n    def __init__(self):\n        time.sleep(7)\n"
        "    def act(self, observation):\n        return [1.0]\n"
    )
    told: list[str] = []
    assert local.check(model, "cartpole", progress=lambda message, done, total: told.append(message)).fits
    assert "the model is loading (at most 300 s) ..." in told


def test_a_folder_is_a_model_too(tmp_path: Path) -> None:
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "model.py").write_text("from gains import GAIN\n" + ACTING.format("return [GAIN]"))
    (folder / "gains.py").write_text("GAIN = 1.0\n")
    assert local.play(folder, "cartpole", scenarios=[0]).ok


def test_two_play_at_once_and_leave_nothing(home: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        played = list(pool.map(lambda seed: local.play("idm", "car_street", scenarios=[0], seed=seed), (0, 0)))
    assert without_timing(list(played[0].results)) == without_timing(list(played[1].results))
    assert [path.name for path in (home / "local").iterdir() if path.is_dir()] == ["cache"]


def test_a_play_ends_with_the_program_that_waits_for_it_and_its_files_with_the_next(home: Path) -> None:
    program = (
        "from windtunnel import local\n"
        "local.play('idm', 'car_street', progress=lambda text, done, total: print(done, flush=True))\n"
    )
    waiting = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ))
    assert waiting.stdout is not None
    until(lambda: waiting.stdout is not None and waiting.stdout.readline().strip().isdigit(), message="nothing is done")
    [child] = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text().split()
    waiting.kill()
    waiting.wait()
    waiting.stdout.close()
    until(lambda: not Path(f"/proc/{child}").exists(), message="the process outlives the program")
    (home / "local" / "left" / "objects").mkdir(parents=True)  # as by a process that was killed
    local.check("idm", "car_street")
    assert [path.name for path in (home / "local").iterdir() if path.is_dir()] == ["cache"]


def test_a_process_that_is_killed_is_an_error_that_says_so() -> None:
    with Conversation("play", ["idm", "car_street", "--submission"]) as conversation:
        conversation.send({})
        conversation.receive()
        os.kill(conversation.pid, signal.SIGKILL)
        with pytest.raises(WindtunnelError, match="was killed by SIGKILL"):
            for _ in conversation.messages():
                pass


@pytest.mark.parametrize("world", ["cartpole", "a map"])
def test_a_registered_dataset_is_played_from_its_platform(
    client: Client, platform: PlatformProcess, world: str
) -> None:
    name = f"own-{world.replace(' ', '-')}"
    files = {"dataset.json": dataset_json("cartpole"), "lines.ndjson": scenarios(3)}
    if world == "a map":
        description = {
            "extends": "car_street",
            "maps": [{"name": "town", "file": "town.xodr"}],
            "generate": {"count": 2},
        }
        files = {"dataset.json": json.dumps(description).encode(), "town.xodr": town()}
    version = register(platform, name, files)
    assert version["state"] == "ready", version
    model = "idm" if world == "a map" else BASELINES["cartpole"]
    simulation = client.simulations.run(model, name)
    played = local.play(model, f"{name}@1", server=platform.url)
    assert played.ok and played.results
    assert without_timing(list(played.results)) == without_timing(list(client.simulations.results(simulation.id)))
