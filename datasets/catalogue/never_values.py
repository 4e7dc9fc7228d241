"""Never values: numbers by which the metrics of a simulator say that something never happened.

`car_street` has no time to collision in a drive that closes in on nobody, and its result line has 100 s there. That is
not a time: a mean of such numbers depends on how many drives had nothing to measure, and on which number was chosen.
Statistics leave them out and count them apart. They are not part of a `dataset.json`, whose digest is part of every
task's seed, and are found by the simulator, so that datasets of users with its metrics have them too.

A number that is true in their absence is not one of them: an impact speed of 0 m/s without a collision is the speed of
the impact that there was, and no deceleration was needed where the greatest is 0.
"""

from collections.abc import Mapping
from typing import Any

#: By simulator and metric. `min_pet` also stands for a time that is longer.
_BY_SIMULATOR: Mapping[str, Mapping[str, float]] = {
    "sumo": {"min_ttc": 100.0, "min_ttc_any": 100.0, "min_headway": 100.0, "min_pet": 5.0},
}


def never_values(definition: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the values that stand for "never", by the metrics of a dataset's definition that have one."""
    values = _BY_SIMULATOR.get(definition.get("simulator", ""), {})
    declared = {metric["name"] for metric in definition.get("metrics", ())}
    return {name: value for name, value in values.items() if name in declared}


def described_metrics(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of a dataset's definition for clients: with ``never``, the value that stands for that."""
    never = never_values(definition)
    return [
        dict(metric) | ({"never": never[metric["name"]]} if metric["name"] in never else {})
        for metric in definition["metrics"]
    ]
