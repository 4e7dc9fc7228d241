"""Helpers of the SUMO tests: SUMO's environment, the simulator, driving models, and hand-written scenarios."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from runtimes import catalogue
from runtimes.environments import prepare
from runtimes.harness.dataset_definition import read_definition
from runtimes.harness.simulators.base import Scenario
from tests.cached import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "datasets/catalogue/car_street"
BASELINES = ROOT / "runtimes/harness/simulators/sumo/baselines"

Act = Callable[[np.ndarray], tuple[float, float]]

NAMES: list[str] = json.loads((DATASET / "dataset.json").read_text())["interface"]["observation"]["names"]
SPECS: list[dict[str, Any]] = [json.loads(line) for line in (DATASET / "scenarios.ndjson").read_text().splitlines()]


@cache
def site() -> Path:
    """Return the site folder of SUMO's environment, which is prepared from the lock if necessary."""
    return prepare(catalogue.simulators()["sumo"], ENVIRONMENTS, lambda message, part: None)


@cache
def second_version() -> Any:
    """Return a simulator of version 2, which shares SUMO with the other."""
    simulator()
    from runtimes.harness.simulators.sumo.simulator import SumoSimulator

    folder = DATASET.with_name("car_street_2")
    return SumoSimulator(folder, read_definition((folder / "dataset.json").read_bytes()))


@cache
def simulator() -> Any:
    """Return this process's only simulator."""
    # Appended after the server's own packages, because only libsumo is needed of SUMO's environment.
    sys.path.append(str(site()))
    from runtimes.harness.simulators.sumo.simulator import SumoSimulator

    return SumoSimulator(DATASET, read_definition((DATASET / "dataset.json").read_bytes()))


def sumo() -> Any:
    """Return libsumo, with the simulator's state."""
    simulator()
    import libsumo

    return libsumo


def spec(name: str) -> dict[str, Any]:
    """Return a scenario of the dataset by name."""
    return next(line for line in SPECS if line["name"] == name)


def empty(street: str, route: list[str], **changes: Any) -> dict[str, Any]:
    """Return a scenario without other traffic."""
    return {
        "street": street,
        "vehicles": 0,
        "pedestrians": 0,
        "event": "none",
        "mix": "mixed",
        "route": route,
        "start": {"lane": 0, "pos": 10.0, "speed": 8.0},
        "trigger": 0.0,
        "limit": 13.9,
        "time_limit": 60.0,
        **changes,
    }


def begin(scenario: Mapping[str, Any], seed: int = 1, **params: Any) -> np.ndarray:
    """Start a scenario; return the first observation."""
    observation: np.ndarray = simulator().reset(Scenario(index=0, seed=seed, spec=scenario, params=params))
    return observation


def step(accel: float, lane: float = 0.0) -> tuple[np.ndarray, bool]:
    """Advance the simulator by a single step."""
    observation, done = simulator().step(np.array([accel, lane], dtype=np.float32))
    return observation, done


def hold(speed: float) -> Act:
    """Return a policy that holds a speed without regard to traffic."""
    return lambda observation: (max(-9.0, min(3.0, (speed - float(observation[0])) * 10)), 0.0)


def run(
    scenario: Mapping[str, Any],
    act: Act,
    seed: int = 1,
    watch: Callable[[np.ndarray], None] | None = None,
    **params: Any,
) -> dict[str, Any]:
    """Run a scenario to its end and return its metrics; ``watch`` gets each observation."""
    observation, done = begin(scenario, seed, **params), False
    while not done:
        if watch is not None:
            watch(observation)
        observation, done = step(*act(observation))
    metrics: dict[str, Any] = simulator().outcome(None)
    return metrics


def model(name: str) -> Any:
    """Return a new instance of a baseline driver."""
    return runpy.run_path(str(BASELINES / f"{name}.py"))["Model"]()


def entry(observation: np.ndarray, name: str) -> float:
    """Return an entry of an observation by its published name."""
    return float(observation[NAMES.index(name)])


@contextmanager
def more_vehicles(*vehicles: dict[str, Any]) -> Iterator[None]:
    """Add vehicles to the scenarios that start within the context: name, type, route, lane, pos and speed of each."""
    from runtimes.harness.simulators.sumo.traffic import Traffic

    add_vehicles = Traffic.add_vehicles

    def add_more(self: Traffic, count: int, mix: str) -> None:
        for vehicle in vehicles:
            self.add_vehicle(
                vehicle["name"],
                vehicle.get("type", "actor"),
                tuple(vehicle["route"]),
                lane=str(vehicle["lane"]),
                position=str(vehicle["pos"]),
                speed=str(vehicle.get("speed", 0.0)),
            )
        add_vehicles(self, count, mix)

    Traffic.add_vehicles = add_more  # type: ignore[method-assign]
    try:
        yield
    finally:
        Traffic.add_vehicles = add_vehicles  # type: ignore[method-assign]
