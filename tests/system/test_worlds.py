"""Worlds on a running platform: from a submission without a model to the pictures of its tasks; users extend them."""

import json
from xml.etree import ElementTree

import pytest

from datasets.catalogue import datasets
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

#: One dataset of each kind of environment.
WORLDS = (
    "car_street",
    "cartpole",
    "highway",
    "mujoco_reacher",
    "noop",
    "pettingzoo_tictactoe",
    "pettingzoo_simple_tag",
)


@pytest.mark.parametrize("dataset", WORLDS)
def test_a_world_is_played_by_its_baseline_and_has_a_picture_of_each_task(
    platform: PlatformProcess, dataset: str
) -> None:
    ended = platform.run(runtime="python", dataset=dataset, scenarios={"range": [0, 2]})
    assert ended["state"] == "succeeded" and ended["provenance"]["dataset"]["name"] == dataset
    assert {result["status"] for result in platform.results(ended["id"])} == {"ok"}
    path = f"/v1/simulations/{ended['id']}/tasks/1/replay"
    until(lambda: platform.get_until_answered(path).status_code == 200, message=f"no replay of {dataset}")
    kind = platform.http.get(path).json()["scene"]["kind"]
    assert kind == {"car_street": "street", "noop": "result"}.get(dataset, "drawing")
    picture = platform.http.get(path, params={"format": "svg"})
    assert picture.status_code == 200 and picture.headers["content-type"].startswith("image/svg+xml")
    ElementTree.fromstring(picture.content)


@pytest.mark.parametrize("dataset", WORLDS)
def test_a_replay_that_is_not_there_is_a_problem_without_an_exception(platform: PlatformProcess, dataset: str) -> None:
    ended = platform.run(runtime="python", dataset=dataset, scenarios={"range": [0, 1]}, record="none")
    simulation = f"/v1/simulations/{ended['id']}"
    card = platform.http.get(f"{simulation}/tasks/0/replay", params={"format": "svg"})
    assert card.status_code == 200, "a task whose actions were not recorded has its result as a picture"
    for missing in ("tasks/1/replay", "tasks/7/replay?format=svg", "artifacts/0/trace.f32.zz", "artifacts/0/x"):
        answer = platform.http.get(f"{simulation}/{missing}")
        problem = answer.json()
        assert answer.status_code == 404 and problem["type"] == "/problems/unknown-artifact", missing
        assert not any(word in json.dumps(problem) for word in ("Error", "Traceback", "simulator:", "File "))


def test_every_dataset_is_listed_with_its_simulator(platform: PlatformProcess) -> None:
    listed = platform.http.get("/v1/datasets", params={"limit": 100}).json()["items"]
    built_in = {item["name"]: item["simulator"] for item in listed if not item["registered"]}
    assert built_in == {name: dataset.simulator for name, dataset in datasets().items()}
    simulators = {item["name"]: item["datasets"] for item in platform.http.get("/v1/simulators").json()["items"]}
    assert len(simulators["mujoco"]) == 11 and len(simulators["pettingzoo"]) == 5
