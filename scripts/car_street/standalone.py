"""Standalone SUMO runs without the platform: one process, one loop, direct calls of the model; a benchmark's baseline.

python -m scripts.car_street.standalone DATASET MODEL.py [--scenarios N] [--seed S] [--lines FILE]

`--loop lean` and `--loop sumo` ask no model; they take as many steps as the run whose lines `--steps FILE` has.
`lean`: same traffic, one constant action, no observation. `sumo`: same traffic, SUMO drives the ego.
"""

import argparse
import json
import runpy
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from runtimes.harness.dataset_definition import read_definition
from runtimes.harness.simulators.base import Metric, Scenario
from runtimes.harness.simulators.sumo.clock import DT
from runtimes.harness.simulators.sumo.engine import EGO, sumo
from runtimes.harness.simulators.sumo.event import ALL_CHECKS, DEFAULT_LANE_CHANGES
from runtimes.harness.simulators.sumo.simulator import SumoSimulator


def task_seed(seed: int, index: int, repeat: int) -> int:
    """Return a scenario's seed of 63 bits. It differs from the platform's, which hashes the dataset's digest too."""
    return int.from_bytes(blake2b(f"{seed}/{index}/{repeat}".encode(), digest_size=8).digest(), "little") >> 1


def scenarios(folder: Path, count: int | None, seed: int, params: Mapping[str, Any]) -> Iterator[Scenario]:
    """Yield ``count`` scenarios of the dataset, by default each once; beyond its end, again with the next repeat."""
    specs = [json.loads(line) for line in (folder / "scenarios.ndjson").read_text().splitlines()]
    for number in range(count or len(specs)):
        repeat, index = divmod(number, len(specs))
        yield Scenario(
            index=index, repeat=repeat, seed=task_seed(seed, index, repeat), spec=specs[index], params=params
        )


def run(simulator: SumoSimulator, model: Any, scenario: Scenario) -> dict[str, Metric]:
    """Run a scenario to its end and return its metrics."""
    observation = simulator.reset(scenario)
    if hasattr(model, "reset"):
        model.reset({"seed": scenario.seed})
    act, step = model.act, simulator.step
    action = np.zeros(2, dtype=np.float32)
    over = False
    while not over:
        action[:] = act(observation)
        observation, over = step(action)
    return simulator.outcome(None)


def run_without_observation(simulator: SumoSimulator, scenario: Scenario, steps: int, *, steer: bool) -> None:
    """Run a scenario's traffic for so many steps, in which the ego keeps its speed (``steer``) or is SUMO's."""
    simulator.reset(scenario)
    vehicle, advance, present = sumo.vehicle, sumo.simulationStep, True
    speed = vehicle.getSpeed(EGO)
    if not steer:
        vehicle.setSpeedMode(EGO, ALL_CHECKS)
        vehicle.setLaneChangeMode(EGO, DEFAULT_LANE_CHANGES)
    for _ in range(steps):
        if steer and present:
            vehicle.setSpeed(EGO, speed)
        advance()
        if steer:
            present = present and EGO not in sumo.simulation.getArrivedIDList()


def summary(results: list[dict[str, Metric]], seconds: float) -> dict[str, Any]:
    """Return counts, throughput and mean metrics, which the benchmark prints."""

    def mean(name: str) -> float:
        return round(sum(float(result[name] or 0) for result in results) / len(results), 4)

    return {
        "episodes": len(results),
        "seconds": round(seconds, 3),
        "episodes_per_second": round(len(results) / seconds, 2),
        "steps": round(sum(float(result["seconds"] or 0) for result in results) * 10),
        "score": mean("score"),
        "outcomes": dict(Counter(str(result["outcome"]) for result in results)),
        "collisions": mean("collision"),
        "at_fault": mean("at_fault"),
        "red_lights": mean("red_lights"),
    }


def main() -> None:
    """Parse the command line, run the scenarios, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--scenarios", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lane-guard", action="store_true")
    parser.add_argument("--plain", action="store_true", help="do not use the compiled step")
    parser.add_argument("--loop", choices=("model", "lean", "sumo"), default="model")
    parser.add_argument("--steps", type=Path, default=None, help="lines of a run before, for --loop lean and sumo")
    parser.add_argument("--lines", type=Path, default=None, help="write one result per line to this file")
    options = parser.parse_args()
    definition = read_definition((options.dataset / "dataset.json").read_bytes())
    simulator = SumoSimulator(options.dataset, definition, compiled=not options.plain)
    model = runpy.run_path(str(options.model))["Model"]()
    plan = list(scenarios(options.dataset, options.scenarios, options.seed, {"lane_guard": options.lane_guard}))
    if options.loop != "model":
        lengths = [round(json.loads(line)["seconds"] / DT) for line in options.steps.read_text().splitlines()]
        started = perf_counter()
        for scenario, steps in zip(plan, lengths, strict=True):
            run_without_observation(simulator, scenario, steps, steer=options.loop == "lean")
        seconds = perf_counter() - started
        counts = {"episodes": len(plan), "seconds": round(seconds, 3), "steps": sum(lengths)}
        print(json.dumps(counts | {"episodes_per_second": round(len(plan) / seconds, 2)}))
        return
    started = perf_counter()
    results = [run(simulator, model, scenario) for scenario in plan]
    seconds = perf_counter() - started
    if options.lines:
        lines = (
            json.dumps({"index": scenario.index, "name": scenario.spec["name"], **result})
            for scenario, result in zip(plan, results, strict=True)
        )
        options.lines.write_text("".join(line + "\n" for line in lines))
    json.dump(summary(results, seconds), sys.stdout)
    print()
    simulator.close()


if __name__ == "__main__":
    main()
