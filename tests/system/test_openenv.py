"""An OpenEnv environment as a dataset on a running platform, with the package `openenv`: registered and played."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.openenv_folders import CORRIDOR
from tests.system.platform_process import FINAL, PlatformProcess
from tests.system.test_datasets import register
from tests.waiting import until

pytestmark = pytest.mark.timeout(1200)  # 450 MB of packages are downloaded and compiled

FILES: Mapping[str, bytes] = {
    path.relative_to(CORRIDOR).as_posix(): path.read_bytes()
    for path in sorted(CORRIDOR.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
}
WALKER = b"""
class Model:
    def act(self, observation):
        position, door = observation[0], observation[1]
        return [0 if abs(position - door) < 0.5 else 2 if door > position else 1, 1.0]
"""
OPENENV = {
    "steps": 40,
    "outcome": "door.open",
    "outcomes": {"true": "found", "steps": "lost"},
    "failures": ["lost"],
    "metrics": [{"name": "episodes", "path": "episodes", "aggregation": "max"}],
}


def run(platform: PlatformProcess, dataset: str, **fields: str) -> dict[str, Any]:
    """Simulate the walker on a dataset; return the simulation when it has ended."""
    data = {"dataset": dataset, **fields}
    answer = platform.http.post("/v1/simulations", files={"model": ("walker.py", WALKER)}, data=data)
    assert answer.status_code in {201, 202}, answer.text
    path = f"/v1/simulations/{answer.json()['id']}"
    until(lambda: platform.get_until_answered(path).json()["state"] in FINAL, 180.0, message="it does not end")
    return dict(platform.get_until_answered(path).json())


def test_an_environment_is_registered_played_and_repeated_with_equal_results(platform: PlatformProcess) -> None:
    described = {"extends": "openenv", "title": "Corridor", "generate": {"count": 8}, "openenv": OPENENV}
    version = register(platform, "corridor", {**FILES, "dataset.json": json.dumps(described).encode()}, timeout=400.0)
    assert (version["state"], version["tasks"]) == ("ready", 8), version
    assert version["openenv"]["transport"] == "websocket" and version["openenv"]["reproducible"]
    ended = [run(platform, "corridor", workers=workers) for workers in ("1", "2")]
    assert {simulation["state"] for simulation in ended} == {"succeeded"}, ended
    digests = {platform.summary(simulation["id"])["results_digest"] for simulation in ended}
    assert len(digests) == 1, "results depend on the number of workers"
    metrics = [result["metrics"] for result in platform.results(ended[0]["id"])]
    assert {entry["outcome"] for entry in metrics} == {"found"} and {entry["episodes"] for entry in metrics} == {1.0}
    assert len({entry["length"] for entry in metrics}) > 1, "scenarios differ in their seeds"
    replay = f"/v1/simulations/{ended[0]['id']}/tasks/1/replay"
    until(lambda: platform.get_until_answered(replay).status_code == 200, 60.0, message="there is no replay")
    assert platform.http.get(replay).json()["scene"]["kind"] == "signals"
    refused = platform.http.post("/v1/simulations", json={"dataset": "openenv", "runtime": "python"})
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/not-playable")


def test_scenarios_of_a_file_set_parameters_and_a_fault_is_the_environments(platform: PlatformProcess) -> None:
    lines = [{"name": "near", "reset": {"door": 1}}, {"name": "broken", "reset": {"door": 5, "fault": "crash"}}]
    files = {
        **FILES,
        "dataset.json": json.dumps({"extends": "openenv", "scenarios": "lines.ndjson", "openenv": OPENENV}).encode(),
        "lines.ndjson": b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, lines[0]]),
    }
    version = register(platform, "doors", files, timeout=400.0)
    assert (version["state"], version["tasks"]) == ("ready", 3), version
    ended = run(platform, "doors")
    near, broken, again = platform.results(ended["id"])
    assert near["metrics"] == again["metrics"] and near["metrics"]["length"] == 1
    assert broken["status"] == "failed" and "killed by SIGABRT (the floor gives way)" in broken["error"], broken
    assert broken["scenario"]["name"] == "broken"


def test_the_documented_example_is_what_the_code_reads(platform: PlatformProcess) -> None:
    text = (Path(__file__).parents[2] / "docs" / "openenv.md").read_text()
    example = next(line for line in text.splitlines() if 'echo \'{"extends"' in line).split("'")[1]
    version = register(platform, "documented", {**FILES, "dataset.json": example.encode()}, timeout=400.0)
    assert (version["state"], version["tasks"]) == ("ready", 200), version
