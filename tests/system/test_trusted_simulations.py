"""Trusted simulations on a platform: equal digests, a score that a model has written, and models that end or hang."""

import zipfile
from io import BytesIO

import httpx
import pytest

from tests.system.conftest import StartPlatform
from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task

FASTER = b"class Model:\n    def act(self, observation):\n        return 3\n"
#: Replaces what the simulator says of a scenario, wherever it is loaded.
CHEAT = b"""
import sys
for module in list(sys.modules.values()):
    if hasattr(module, "GymnasiumSimulator"):
        kind = module.GymnasiumSimulator
        outcome = kind.outcome
        kind.outcome = lambda self, fault: outcome(self, fault) | {"return": 1e6}
class Model:
    def act(self, observation):
        return 3
"""


@pytest.mark.parametrize("dataset", ["cartpole", "car_street"])
def test_a_baseline_has_one_digest_trusted_and_isolated(platform: PlatformProcess, dataset: str) -> None:
    fields = {"cartpole": {"runtime": "python"}, "car_street": {"model": "idm"}}[dataset]
    ended = [
        platform.run(dataset=dataset, scenarios={"range": [0, 12]}, trusted=trusted, workers=2, **fields)
        for trusted in (True, False)
    ]
    assert [run["state"] for run in ended] == ["succeeded"] * 2, [run["reason"] for run in ended]
    assert ended[0]["results_digest"] == ended[1]["results_digest"]
    assert ended[0]["provenance"]["play"]["trusted"] is True


def test_a_trusted_model_that_writes_its_score_is_on_no_leaderboard(platform: PlatformProcess) -> None:
    cheat = platform.run(model=CHEAT, filename="cheat.py", dataset="highway", trusted=True, workers=2)
    assert cheat["state"] == "succeeded", cheat["reason"]
    score = platform.summary(cheat["id"])["metrics"]["return"]["mean"]
    assert score == 1e6, "the wall has fallen, as documented"
    board = "/v1/datasets/highway/leaderboard"
    places = platform.http.get(board).json()
    assert "cheat" not in {place["model"]["name"] for place in places["items"]} and places["trusted_left_out"] >= 1
    asked = platform.http.get(board, params={"trusted": "true"}).json()
    assert [place["trusted"] for place in asked["items"] if place["model"]["name"] == "cheat"] == [True]


def test_a_trusted_model_that_ends_its_process_is_blamed_for_its_tasks_alone(platform: PlatformProcess) -> None:
    ended = platform.run(
        model=MODELS / "exits.py", dataset="noop", scenarios={"range": [0, 8]}, trusted=True, workers=2
    )
    results = platform.results(ended["id"])
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(results, 8)
    assert {result["status"] for result in results} == {"ok", "crashed"}
    assert "trusted" in next(result["error"] for result in results if result["status"] == "crashed")


def test_an_operator_that_forbids_it_is_obeyed(start_platform: StartPlatform) -> None:
    platform = start_platform(trusted="no")
    answer = platform.post(model=FASTER, dataset="car_street", trusted=True)
    assert isinstance(answer, httpx.Response) and answer.status_code == 422
    assert answer.json()["type"].endswith("trusted-not-allowed")


def test_a_model_that_starts_programs_is_not_trusted(platform: PlatformProcess) -> None:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("program", "#!/bin/sh\n")
    answer = platform.post(model=archive.getvalue(), filename="run.zip", dataset="noop", trusted=True)
    assert answer.status_code == 422 and "starts" in answer.json()["detail"], answer.text
