"""Extensions of one file or one folder: the recipes of the documentation, in a copy of the platform that runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runtimes import catalogue
from runtimes.images import image_names
from tests.document_commands import Treatment, blocks
from tests.system.platform_process import ROOT, PlatformProcess, has_one_result_per_task, share_environments
from tests.system.test_datasets import dataset_json, register, scenarios
from tests.waiting import until

#: The recipes: a page of the documentation, and the file that it describes.
RECIPES = {
    "docs/executors.md": "workers/executors/subprocesses.py",
    "docs/model-formats.md": "runtimes/harness/models/linear.py",
}
#: The recipe of a simulator: a page, and the folder that it describes.
SIMULATOR_PAGE, SIMULATOR = "docs/simulators.md", "runtimes/harness/simulators/tank"
#: Balances the pole: pushes to the side to which it falls.
POLICY = b"# linear policy\n2,5,100,50,0.5\n"


def recipe_code(page_path: str, file: str) -> str:
    """Return the only Python block of a page, which must name the file of the block."""
    page = (ROOT / page_path).read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert f"`{file}`" in page
    return str(block)


def recipe_files() -> Mapping[str, str]:
    """Return the files of the simulator of the recipe; its lock is that of the same packages."""
    found = {
        block.note: block.text
        for block in blocks((ROOT / SIMULATOR_PAGE).read_text())
        if block.treatment is Treatment.FILE
    }
    same = catalogue.SIMULATORS / "noop"
    assert found[catalogue.REQUIREMENTS] == (same / catalogue.REQUIREMENTS).read_text()
    return found | {catalogue.LOCK: (same / catalogue.LOCK).read_text()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the platform's code, to which the files of the recipes are added."""
    root = tmp_path_factory.mktemp("tree")
    for name in image_names.files((*image_names.SERVER, "local_play"), ROOT):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for page, file in RECIPES.items():
        assert not (root / file).exists()
        (root / file).write_text(recipe_code(page, file))
    assert not (root / SIMULATOR).exists()
    for file, text in recipe_files().items():
        (root / SIMULATOR / file).parent.mkdir(parents=True, exist_ok=True)
        (root / SIMULATOR / file).write_text(text)
    return root


@pytest.fixture(scope="module")
def extended_platform(
    root: Path, prepared_environments: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformProcess]:
    """A platform of this code, configured with the executor of the recipe and a local executor."""
    executors = [
        {"name": "children", "kind": "subprocesses", "workers": 2, "options": {"niceness": 1}},
        {"name": "agent", "kind": "local", "workers": 2},
    ]
    executors_file = root / "executors.json"
    executors_file.write_text(json.dumps({"executors": executors}))
    home = tmp_path_factory.mktemp("extended")
    process = PlatformProcess(home, settings={"EXECUTORS": str(executors_file), "WORKERS": "2"}, root=root)
    try:
        yield process.start()
    finally:
        process.stop()


def test_the_executor_of_the_recipe_runs_a_simulation_to_its_end(extended_platform: PlatformProcess) -> None:
    kinds = {item["name"]: item["kind"] for item in extended_platform.http.get("/v1/executors").json()["items"]}
    assert kinds == {"children": "subprocesses", "agent": "local"}
    id = extended_platform.submit(
        runtime="python", dataset="cartpole", scenarios={"range": [0, 8]}, placement=on("children")
    )["id"]
    ended = extended_platform.wait_for_end(id)
    assert (ended["state"], ended["executor"]) == ("succeeded", "children"), ended
    results = extended_platform.results(id)
    assert has_one_result_per_task(results, 8) and {result["status"] for result in results} == {"ok"}
    log = extended_platform.http.get(f"/v1/simulations/{id}/logs").text
    assert (extended_platform.home / "subprocesses").is_dir() and "Traceback" not in log


def test_the_executor_of_the_recipe_ends_a_simulation_that_is_cancelled(extended_platform: PlatformProcess) -> None:
    slow = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 2000]}, "params": {"sleep_ms": 20}}
    id = extended_platform.submit(**slow, placement=on("children"))["id"]
    until(lambda: extended_platform.get(id)["tasks"]["done"] > 0, message="no task is done")
    assert standalone_runners(extended_platform)
    assert extended_platform.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
    assert extended_platform.wait_for_end(id)["state"] == "cancelled"
    until(lambda: not standalone_runners(extended_platform), message="the runner outlives its launch")


def test_the_format_of_the_recipe_is_listed_with_its_properties(extended_platform: PlatformProcess) -> None:
    linear = extended_platform.http.get("/v1/runtimes/linear").json()
    assert linear in extended_platform.http.get("/v1/runtimes").json()["items"]
    (format,) = linear["formats"]
    assert (format["name"], format["title"], format["suffixes"]) == ("linear", "Linear policy", [".csv"])
    assert (format["environment"], format["max_size"], format["ready"]) == ("python", 1 << 20, True)


@pytest.mark.parametrize("executor", ["agent", "children"])
def test_a_model_of_the_recipes_format_is_detected_and_simulated(
    extended_platform: PlatformProcess, executor: str
) -> None:
    model = extended_platform.http.post("/v1/models", files={"file": ("policy.csv", POLICY)}).json()
    assert model["format"] == "linear"
    simulation = extended_platform.run(
        model=model["id"], dataset="cartpole", scenarios={"range": [0, 8]}, placement=on(executor)
    )
    assert (simulation["state"], simulation["executor"], simulation["runtime"]["name"]) == (
        "succeeded",
        executor,
        "linear",
    ), simulation
    results = extended_platform.results(simulation["id"])
    assert has_one_result_per_task(results, 8)
    assert min(result["metrics"]["length"] for result in results) > 400, "with ignored weights, the pole falls at once"


def test_models_that_the_format_of_the_recipe_rejects_are_refused_with_its_message(
    extended_platform: PlatformProcess,
) -> None:
    responses = {
        "headless": extended_platform.http.post("/v1/models", files={"file": ("policy.csv", b"1,2,3,4,5\n")}),
        "large": extended_platform.http.post("/v1/models", files={"file": ("policy.csv", POLICY + b"#" * (1 << 20))}),
        "elsewhere": extended_platform.post(model=POLICY, filename="policy.csv", dataset="cartpole", runtime="onnx"),
        "unknown": extended_platform.http.post("/v1/models", files={"file": ("model", b"\x7fELF" + bytes(100))}),
    }
    assert responses["headless"].status_code == 422
    assert "begins with the line `# linear policy`" in responses["headless"].json()["detail"]
    assert responses["large"].status_code == 413
    assert "a file of the format linear has at most 1,048,576" in responses["large"].json()["detail"]
    assert "Use the runtime linear." in responses["elsewhere"].json()["detail"]
    assert "linear (.csv)" in responses["unknown"].json()["detail"]
    narrow = extended_platform.run(
        model=b"# linear policy\n1,2\n", filename="p.csv", dataset="cartpole", max_failures=8
    )
    assert narrow["state"] == "failed" and "it needs 1 lines of 5 numbers" in narrow["reason"], narrow


def test_the_simulator_of_the_recipe_is_listed_with_its_dataset_and_baseline(
    extended_platform: PlatformProcess,
) -> None:
    simulators = {item["name"]: item for item in extended_platform.http.get("/v1/simulators").json()["items"]}
    assert simulators["tank"] == {"name": "tank", "ready": True, "datasets": ["tank"]}
    assert extended_platform.http.get("/v1/datasets/tank").json()["tasks"] == 100
    assert extended_platform.http.get("/v1/runtimes/python").json()["baselines"]["tank"] == "tank"
    assert extended_platform.http.get("/v1/models/tank").json()["baseline"]


def test_the_baseline_of_the_recipe_is_simulated_and_drawn(extended_platform: PlatformProcess) -> None:
    submission = {"dataset": "tank", "runtime": "python", "scenarios": {"range": [0, 3]}, "record": "all"}
    simulation = extended_platform.run(**submission)
    assert simulation["state"] == "succeeded", simulation
    results = extended_platform.results(simulation["id"])
    assert has_one_result_per_task(results, 3) and min(result["metrics"]["return"] for result in results) > -60
    address = f"/v1/simulations/{simulation['id']}/tasks/0/replay"
    until(lambda: extended_platform.http.get(address).status_code == 200, message="there is no replay")
    replay = extended_platform.http.get(address).json()
    assert replay["scene"]["kind"] == "drawing" and len(replay["frames"]) == 61
    assert {"water", "target"} == set(replay["frames"][-1]["drawing"]["at"])


def test_the_baseline_of_the_recipe_is_played_without_a_server(
    prepared_environments: None, root: Path, tmp_path: Path
) -> None:
    share_environments(tmp_path)
    command = [sys.executable, "-m", "local_play", "play", "tank", "tank", "--scenarios", "0-2"]
    environ = os.environ | {"WINDTUNNEL_HOME": str(tmp_path)}
    output = subprocess.run(command, cwd=root, env=environ, check=True, capture_output=True, text=True)
    results = [message["result"] for message in map(json.loads, output.stdout.splitlines()) if "result" in message]
    assert has_one_result_per_task(results, 3) and {result["status"] for result in results} == {"ok"}


def test_datasets_of_users_extend_that_of_the_recipe_by_its_fields_alone(extended_platform: PlatformProcess) -> None:
    files = {"dataset.json": dataset_json("tank"), "lines.ndjson": scenarios(2, level=0.5)}
    version = register(extended_platform, "half", files)
    assert (version["state"], version["simulator"]) == ("ready", "tank"), version
    assert extended_platform.run(dataset="half", runtime="python")["state"] == "succeeded"
    version = register(extended_platform, "over", files | {"lines.ndjson": scenarios(2, level=3)})
    assert version["state"] == "failed" and "`level`: it lies in 0..2" in str(version), version


def on(executor: str) -> dict[str, str]:
    return {"executor": executor}


def standalone_runners(platform: PlatformProcess) -> list[int]:
    """Return the processes of the platform that run `workers.standalone_runner`."""
    return [pid for pid in platform.processes() if b"workers.standalone_runner" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
