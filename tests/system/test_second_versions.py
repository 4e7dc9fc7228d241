"""A second version of a built-in dataset: what both measure is equal, and the bare name is the first."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import windtunnel.gym  # noqa: F401 - registers the ids
from tests.system.platform_process import PlatformProcess

BASELINE = {"model": "idm", "scenarios": {"range": [240, 244]}, "seed": 3}


def results(platform: PlatformProcess, dataset: str) -> list[dict[str, Any]]:
    simulation = platform.run(dataset=dataset, **BASELINE)
    assert simulation["state"] == "succeeded", simulation["reason"]
    return [result | {"timing": None, "artifacts": None} for result in platform.results(simulation["id"])]


def test_the_second_version_of_car_street_has_the_results_of_the_first_and_a_metric_more(
    platform: PlatformProcess,
) -> None:
    first, second = results(platform, "car_street"), results(platform, "car_street@2")
    assert results(platform, "car_street@1") == first
    least = [result["metrics"].pop("min_ttc_any") for result in second]
    assert second == first
    pairs = list(zip(least, (result["metrics"]["min_ttc"] for result in first), strict=True))
    assert all(any_user <= leader for any_user, leader in pairs) and any(one < other for one, other in pairs)


@pytest.mark.usefixtures("home")
def test_an_environment_of_a_version_is_named_with_it() -> None:
    worlds = [
        gymnasium.make("windtunnel/dataset", dataset=name, scenarios=[240]) for name in ("car_street", "car_street@2")
    ]
    observed, measured = [], []
    for world in worlds:
        observed.append(world.reset()[0])
        over = False
        while not over:
            *_, terminated, truncated, information = world.step(np.zeros(2, np.float32))
            over = terminated or truncated
        measured.append(information["metrics"])
        world.close()
    assert np.array_equal(*observed)
    assert measured[1].keys() - measured[0].keys() == {"min_ttc_any"}
    assert {name: measured[1][name] for name in measured[0]} == measured[0]
