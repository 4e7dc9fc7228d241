"""Determinism: the same model, dataset, parameters and seed give equal results, also from an archive."""

import json
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task, untimed

ONNX_MODELS = Path(__file__).parents[1] / "contracts" / "onnx_models"
SAMPLE = {"dataset": "car_street", "scenarios": {"sample": 24, "seed": 3}}
#: The baseline of each runtime for `car_street`, and an uploaded model that would keep state across scenarios.
MODELS_OF_STREETS: Mapping[str, Mapping[str, Any]] = {
    "idm": {"runtime": "python", "model": "idm"},
    "onnx": {"runtime": "onnx"},
    "tflite": {"runtime": "tensorflow"},
    "keeps_state": {"model": MODELS / "keeps_state.py"},
}


def run_sample(platform: PlatformProcess, **fields: Any) -> tuple[list[bytes], str]:
    """Run a simulation; return its results without timing, and the digest of its results."""
    ended = platform.run(**{**SAMPLE, **fields}, wait_timeout=120.0)
    assert ended["state"] == "succeeded", ended["reason"]
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, ended["tasks"]["total"])
    assert [result for result in results if result["status"] != "ok"] == []
    return [untimed(line) for line in platform.lines(ended["id"])], platform.summary(ended["id"])["results_digest"]


@pytest.mark.parametrize("model", MODELS_OF_STREETS)
def test_results_are_identical_for_any_number_of_workers_and_repetitions(platform: PlatformProcess, model: str) -> None:
    first, digest = run_sample(platform, **MODELS_OF_STREETS[model], workers=1)
    for workers in (2, 2):
        again, same = run_sample(platform, **MODELS_OF_STREETS[model], workers=workers)
        assert again == first
        assert same == digest


def test_a_recurrent_model_gives_identical_results_for_any_number_of_workers(platform: PlatformProcess) -> None:
    """Its state, an input and an output of an ONNX graph, ends with the scenario."""
    fields = {"dataset": "cartpole", "model": ONNX_MODELS / "lstm.onnx", "scenarios": {"range": [0, 60]}}
    first, digest = run_sample(platform, **fields, workers=1)
    for workers in (1, 2):
        assert run_sample(platform, **fields, workers=workers) == (first, digest)


def test_another_seed_gives_other_results(platform: PlatformProcess) -> None:
    fields = {**MODELS_OF_STREETS["keeps_state"], "scenarios": {"range": [0, 6]}}
    assert run_sample(platform, **fields)[0] != run_sample(platform, **fields, seed=1)[0]


def test_a_scenario_gives_the_same_result_in_any_selection(platform: PlatformProcess) -> None:
    """The scenarios before it and its position do not change the result of a scenario."""

    def by_scenario(tasks: list[int]) -> dict[int, Any]:
        id = platform.run(**MODELS_OF_STREETS["idm"], dataset="car_street", scenarios={"tasks": tasks})["id"]
        return {result["scenario"]["index"]: result["metrics"] for result in platform.results(id)}

    forwards, backwards = by_scenario([3, 80, 150, 200, 260]), by_scenario([260, 200, 7, 150, 80, 3])
    assert forwards == {index: backwards[index] for index in forwards}


def test_results_of_batched_scenarios_do_not_depend_on_the_leases(platform: PlatformProcess) -> None:
    fields = {
        "dataset": "noop",
        "model": MODELS / "echo.py",
        "scenarios": {"range": [0, 3001]},
        "params": {"batch": 16},
    }
    first, digest = run_sample(platform, **fields, workers=1)
    again, same = run_sample(platform, **fields, workers=2)
    assert (again, same) == (first, digest)


def test_the_archive_suffices_to_repeat_the_simulation(platform: PlatformProcess) -> None:
    ended = platform.run(
        model=MODELS / "keeps_state.py",
        dataset="car_street",
        scenarios={"sample": 8, "seed": 2},
        sweep={"latency_steps": [0, 3]},
        seed=11,
        labels={"why": "again"},
    )
    response = platform.http.get(f"/v1/simulations/{ended['id']}/archive")
    with zipfile.ZipFile(BytesIO(response.content)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("simulation.json"))
        document = archive.read(name)
    again = platform.http.post("/v1/simulations", content=document, headers={"Content-Type": "application/json"})
    assert again.status_code == 201, again.text
    second = platform.wait_for_end(again.json()["id"])
    assert second["tasks"]["total"] == 16
    assert second["provenance"]["play"] == ended["provenance"]["play"]
    digests = [platform.summary(simulation["id"])["results_digest"] for simulation in (ended, second)]
    assert digests[0] == digests[1]
    assert json.loads(document)["provenance"]["model"]["digest"] == second["model"]["digest"]
