"""Extensions in one file: the recipes of the documentation are written into a copy of the platform, which then runs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.images import image_names
from tests.system.platform_process import ROOT, PlatformProcess, whole
from tests.waiting import until

#: Where each recipe lies: a page, and the file that it says to write.
RECIPES = {
    "docs/executors.md": "workers/executors/subprocesses.py",
    "docs/model-formats.md": "runtimes/harness/models/linear.py",
}
#: Balances the pole: pushes to the side to which it falls.
POLICY = b"# linear policy\n2,5,100,50,0.5\n"


def recipe(page: str, file: str) -> str:
    """Return the one block of Python on a page, if the page names the file to write it to."""
    text = (ROOT / page).read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert f"`{file}`" in text
    return str(block)


@pytest.fixture(scope="module")
def extended(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform with one more file for each recipe, which runs simulations on the executor of the first."""
    root = tmp_path_factory.mktemp("tree")
    for name in image_names.files(image_names.SERVER, ROOT):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for page, file in RECIPES.items():
        assert not (root / file).exists()
        (root / file).write_text(recipe(page, file))
    executors = [
        {"name": "children", "kind": "subprocesses", "workers": 2, "options": {"niceness": 1}},
        {"name": "agent", "kind": "local", "workers": 2},
    ]
    configured = root / "executors.json"
    configured.write_text(json.dumps({"executors": executors}))
    home = tmp_path_factory.mktemp("extended")
    started = PlatformProcess(home, settings={"EXECUTORS": str(configured), "WORKERS": "2"}, root=root)
    try:
        yield started.start()
    finally:
        started.stop()


def test_the_executor_of_the_recipe_runs_a_simulation_to_its_end(extended: PlatformProcess) -> None:
    listed = {one["name"]: one["kind"] for one in extended.http.get("/v1/executors").json()["items"]}
    assert listed == {"children": "subprocesses", "agent": "local"}
    id = extended.submit(runtime="python", dataset="cartpole", scenarios={"range": [0, 8]}, placement=on("children"))[
        "id"
    ]
    ended = extended.wait_for_end(id)
    assert (ended["state"], ended["executor"]) == ("succeeded", "children"), ended
    results = extended.results(id)
    assert whole(results, 8) and {one["status"] for one in results} == {"ok"}
    log = extended.http.get(f"/v1/simulations/{id}/logs").text
    assert (extended.home / "subprocesses").is_dir() and "Traceback" not in log


def test_the_executor_of_the_recipe_ends_a_simulation_that_is_cancelled(extended: PlatformProcess) -> None:
    slow = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 2000]}, "params": {"sleep_ms": 20}}
    id = extended.submit(**slow, placement=on("children"))["id"]
    until(lambda: extended.get(id)["tasks"]["done"] > 0, message="no result comes")
    assert standalone_runners(extended)
    assert extended.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
    assert extended.wait_for_end(id)["state"] == "cancelled"
    until(lambda: not standalone_runners(extended), message="the runner outlives its launch")


def test_the_format_of_the_recipe_is_listed_with_what_its_file_says(extended: PlatformProcess) -> None:
    linear = extended.http.get("/v1/runtimes/linear").json()
    assert linear in extended.http.get("/v1/runtimes").json()["items"]
    (format,) = linear["formats"]
    assert (format["name"], format["title"], format["suffixes"]) == ("linear", "Linear policy", [".csv"])
    assert (format["environment"], format["max_size"], format["ready"]) == ("python", 1 << 20, True)


@pytest.mark.parametrize("executor", ["agent", "children"])
def test_a_model_of_the_recipes_format_is_recognised_and_drives_to_the_end(
    extended: PlatformProcess, executor: str
) -> None:
    model = extended.http.post("/v1/models", files={"file": ("policy.csv", POLICY)}).json()
    assert model["format"] == "linear"
    run = extended.run(model=model["id"], dataset="cartpole", scenarios={"range": [0, 8]}, placement=on(executor))
    assert (run["state"], run["executor"], run["runtime"]["name"]) == ("succeeded", executor, "linear"), run
    results = extended.results(run["id"])
    assert whole(results, 8)
    assert min(one["metrics"]["length"] for one in results) > 400, "the pole falls at once if the weights do not count"


def test_what_the_format_of_the_recipe_refuses_is_refused_in_its_words(extended: PlatformProcess) -> None:
    answers = {
        "headless": extended.http.post("/v1/models", files={"file": ("policy.csv", b"1,2,3,4,5\n")}),
        "large": extended.http.post("/v1/models", files={"file": ("policy.csv", POLICY + b"#" * (1 << 20))}),
        "elsewhere": extended.post(model=POLICY, filename="policy.csv", dataset="cartpole", runtime="onnx"),
        "unknown": extended.http.post("/v1/models", files={"file": ("model", b"\x7fELF" + bytes(100))}),
    }
    assert answers["headless"].status_code == 422
    assert "begins with the line `# linear policy`" in answers["headless"].json()["detail"]
    assert answers["large"].status_code == 413
    assert "a model of the format linear has at most 1,048,576" in answers["large"].json()["detail"]
    assert "Use the runtime linear." in answers["elsewhere"].json()["detail"]
    assert "linear (.csv)" in answers["unknown"].json()["detail"]
    narrow = extended.run(model=b"# linear policy\n1,2\n", filename="p.csv", dataset="cartpole", max_failures=8)
    assert narrow["state"] == "failed" and "it needs 1 lines of 5 numbers" in narrow["reason"], narrow


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
