"""What the tests of the street share: SUMO's environment, drivers, and scenarios made by hand."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.environments import Environment, prepare
from runtimes.harness.simulators.base import Scenario
from tests.cached import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "datasets/catalogue/car_street"
BASELINES = ROOT / "runtimes/baselines/car_street"

Act = Callable[[np.ndarray], tuple[float, float]]

NAMES: list[str] = json.loads((DATASET / "dataset.json").read_text())["interface"]["observation"]["names"]
SPECS: list[dict[str, Any]] = [json.loads(line) for line in (DATASET / "scenarios.ndjson").read_text().splitlines()]


@cache
def site() -> Path:
    """Return the folder of SUMO's environment, made from the lock if it is not there."""
    lock = (ROOT / "runtimes/simulators/sumo.lock").read_text()
    return prepare(Environment("sumo", lock), ENVIRONMENTS, lambda said, done: None)


@cache
def world() -> Any:
    """Return the one world this process may have."""
    # Behind our own packages: of SUMO's environment only libsumo is wanted here.
    sys.path.append(str(site()))
    from runtimes.harness.simulators.sumo.simulator import SumoSimulator

    return SumoSimulator(DATASET, json.loads((DATASET / "dataset.json").read_text()))


def sumo() -> Any:
    """Return libsumo, to look behind the world."""
    world()
    import libsumo

    return libsumo


def spec(name: str) -> dict[str, Any]:
    """Return a scenario of the data set."""
    return next(line for line in SPECS if line["name"] == name)


def empty(street: str, route: list[str], **changes: Any) -> dict[str, Any]:
    """Return a scenario with nobody else in it."""
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


def begin(given: Mapping[str, Any], seed: int = 1, **params: Any) -> np.ndarray:
    """Reset the world."""
    first: np.ndarray = world().reset(Scenario(index=0, seed=seed, spec=given, params=params))
    return first


def step(accel: float, lane: float = 0.0) -> tuple[np.ndarray, bool]:
    """Take one step."""
    seen, over = world().step(np.array([accel, lane], dtype=np.float32))
    return seen, over


def hold(speed: float) -> Act:
    """Return a driver that holds a speed with the eyes shut."""
    return lambda o: (max(-9.0, min(3.0, (speed - float(o[0])) * 10)), 0.0)


def play(
    given: Mapping[str, Any], act: Act, seed: int = 1, watch: Callable[[np.ndarray], None] | None = None, **params: Any
) -> dict[str, Any]:
    """Play a scenario to its end and return its metrics."""
    seen, over = begin(given, seed, **params), False
    while not over:
        if watch is not None:
            watch(seen)
        seen, over = step(*act(seen))
    told: dict[str, Any] = world().outcome(None)
    return told


def model(name: str) -> Any:
    """Return a fresh yardstick."""
    return runpy.run_path(str(BASELINES / f"{name}.py"))["Model"]()


def entry(seen: np.ndarray, name: str) -> float:
    """Return one entry of an observation by its published name."""
    return float(seen[NAMES.index(name)])


@contextmanager
def put(*vehicles: dict[str, Any]) -> Iterator[None]:
    """Let the next resets find more vehicles: each a name, a type, a route, a lane, a place and a speed."""
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
