"""Request that runs one task of a simulation again: the same model, scenario, seed and parameters."""

from collections.abc import Mapping
from typing import Any


def exact(model: Mapping[str, Any]) -> str | None:
    """Return the reference to exactly a simulation's model, under its name; None if it was never imported.

    `name@digest` is a reference of the public API: docs/api.md.
    """
    return f"{model['name']}@{model['digest']}" if model["digest"] else None


def task_request(simulation: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the submission for a task's result.

    The task's seed follows from the submission's seed, the scenario and the number of the repetition, so a later
    repetition is preceded by the earlier ones. It records the actions, so that it can be replayed.
    """
    spec, scenario = simulation["spec"], result["scenario"]
    body = {
        "model": exact(simulation["model"]),
        "runtime": simulation["runtime"]["name"],
        "dataset": f"{simulation['dataset']['name']}@{simulation['dataset']['version']}",
        "scenarios": {"tasks": [scenario["index"]]},
        "params": {**spec["params"], **(scenario.get("params") or {})},
        "repeat": scenario.get("repeat", 0) + 1,
        "seed": spec["seed"],
        "record": "all",
        "labels": {"again": f"{simulation['id']}.{result['task']}"},
    }
    optional = {name: spec.get(name) for name in ("placement", "gang")}
    return body | {name: value for name, value in optional.items() if value}
