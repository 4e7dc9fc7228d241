"""Plants of users on a running platform: FMUs registered, controlled by models, with equal results and replays."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.plants import PLANT, THERMOSTAT, dataset_files, room
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.system.test_datasets import register
from tests.waiting import until

#: A room whose library and memory keep something of every step, if they are kept.
FORGETFUL = {
    "REMEMBERED": "1e-3 * calls + (m->i[COUNT] == 1 && m->noise[7] != 0 ? 0.5 : 0)",
    "FAULT": "m->noise[7] = 1",
}


def submitted(platform: PlatformProcess, dataset: str, **members: Any) -> dict[str, Any]:
    """Simulate a dataset with the thermostat; return the ended simulation."""
    return platform.run(model=THERMOSTAT, filename="thermostat.py", dataset=dataset, **members)


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_a_plant_is_registered_controlled_and_replayed(platform: PlatformProcess, fmi: str) -> None:
    lines = [{"name": f"day-{day}", "parameters": {"outside": float(5 - day), "T": 17.0}} for day in range(6)]
    version = register(platform, f"room-{fmi}", dataset_files(room(fmi), PLANT, lines))
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 6, "plant"), version
    assert "template" not in version and version["plant"]["fmi"] == fmi
    assert version["interface"]["action"]["names"] == ["heating", "mode", "window"]
    ended = submitted(platform, f"room-{fmi}", workers=2)
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), ended
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 6)
    assert {result["metrics"]["outcome"] for result in results} == {"kept"}
    energy = [result["metrics"]["energy"] for result in results]
    assert energy == sorted(energy) and energy[0] < energy[-1], "colder days need more energy"
    summary = platform.summary(ended["id"])
    assert summary["score"]["metric"] == "return"
    path = f"/v1/simulations/{ended['id']}/tasks/1/replay"
    until(lambda: platform.get_until_answered(path).status_code == 200, message="no replay")
    replay = platform.http.get(path).json()
    assert replay["scene"]["kind"] == "signals" and len(replay["frames"]) == 61
    assert [entry["name"] for entry in replay["scene"]["observation"]] == ["T", "power", "count"]
    assert replay["frames"][0]["observation"][0] == 17.0 and replay["frames"][-1]["reward"] is not None
    picture = platform.http.get(path, params={"format": "svg"}).content
    assert b"heating" in picture
    ElementTree.fromstring(picture)


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_a_plant_with_state_in_globals_has_equal_results_for_any_number_of_workers(
    platform: PlatformProcess, fmi: str
) -> None:
    lines = [{"name": f"day-{day}", "parameters": {"T": 15.0 + day}} for day in range(12)]
    name = f"forgetful-{fmi}"
    version = register(platform, name, dataset_files(room(fmi, **FORGETFUL), PLANT, lines))
    assert version["state"] == "ready", version
    digests = {
        platform.summary(submitted(platform, name, workers=workers)["id"])["results_digest"] for workers in (1, 2, 2)
    }
    assert len(digests) == 1


def test_the_template_cannot_be_simulated_itself(platform: PlatformProcess) -> None:
    answer = platform.http.post("/v1/simulations", json={"dataset": "fmu", "runtime": "python"})
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/not-playable", answer.text
    assert "register a dataset that extends it" in answer.json()["detail"]
    assert platform.http.get("/v1/datasets/fmu").json()["tasks"] == 0
    assert json.loads(platform.http.get("/v1/datasets/fmu/scenarios").text)["items"] == []
