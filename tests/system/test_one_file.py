"""Extensions in one file: the recipes of the documentation are written into a copy of the platform, which then runs."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.images import names
from tests.system.house import ROOT, Platform, whole
from tests.waiting import until

#: Where each recipe lies: a page, and the file that it says to write.
RECIPES = {"docs/executors.md": "workers/executors/subprocesses.py"}


def recipe(page: str, file: str) -> str:
    """Return the one block of Python on a page, if the page names the file to write it to."""
    text = (ROOT / page).read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert f"`{file}`" in text
    return str(block)


@pytest.fixture(scope="module")
def extended(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with one more file for each recipe, which runs simulations on the executor of the first."""
    root = tmp_path_factory.mktemp("tree")
    for name in names.files(names.SERVER, ROOT):
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
    started = Platform(home, settings={"EXECUTORS": str(configured), "WORKERS": "2"}, root=root)
    try:
        yield started.start()
    finally:
        started.stop()


def test_the_executor_of_the_recipe_runs_a_simulation_to_its_end(extended: Platform) -> None:
    listed = {one["name"]: one["kind"] for one in extended.http.get("/v1/executors").json()["items"]}
    assert listed == {"children": "subprocesses", "agent": "local"}
    id = extended.submit(runtime="python", dataset="cartpole", scenarios={"range": [0, 8]}, placement=on("children"))[
        "id"
    ]
    ended = extended.ended(id)
    assert (ended["state"], ended["executor"]) == ("succeeded", "children"), ended
    results = extended.results(id)
    assert whole(results, 8) and {one["status"] for one in results} == {"ok"}
    log = extended.http.get(f"/v1/simulations/{id}/logs").text
    assert (extended.home / "subprocesses").is_dir() and "Traceback" not in log


def test_the_executor_of_the_recipe_ends_a_simulation_that_is_cancelled(extended: Platform) -> None:
    slow = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 2000]}, "params": {"sleep_ms": 20}}
    id = extended.submit(**slow, placement=on("children"))["id"]
    until(lambda: extended.get(id)["tasks"]["done"] > 0, message="no result comes")
    assert standalone_runners(extended)
    assert extended.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
    assert extended.ended(id)["state"] == "cancelled"
    until(lambda: not standalone_runners(extended), message="the runner outlives its launch")


def on(executor: str) -> dict[str, str]:
    return {"executor": executor}


def standalone_runners(platform: Platform) -> list[int]:
    """Return the processes of the platform that run `workers.standalone_runner`."""
    return [pid for pid in platform.processes() if b"workers.standalone_runner" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
