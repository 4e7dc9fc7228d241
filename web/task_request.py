"""Request that runs one task of a simulation again, with its parameters or with others."""

from collections.abc import Mapping
from typing import Any

#: Label of a simulation that runs a task again: the simulation's id, a dot, and the task.
LABEL = "again"


def exact(model: Mapping[str, Any]) -> str | None:
    """Return the reference to exactly a simulation's model, under its name; None if it was never imported.

    `name@digest` is a reference of the public API: docs/api.md.
    """
    return f"{model['name']}@{model['digest']}" if model["digest"] else None


def params_of(simulation: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a task: those of its simulation, with its own of a sweep."""
    return {**simulation["spec"]["params"], **(result["scenario"].get("params") or {})}


def values_of(simulation: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a task was played with, also those that have the dataset's default."""
    return {**simulation["provenance"]["play"]["params"], **params_of(simulation, result)}


def task_request(
    simulation: Mapping[str, Any], result: Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the submission for a task's result, with ``changes`` of its parameters; None leaves one out.

    The task's seed follows from the submission's seed, the scenario and the number of the repetition, so a later
    repetition is preceded by the earlier ones. It records the actions, so that it can be replayed.
    """
    spec, scenario = simulation["spec"], result["scenario"]
    params = params_of(simulation, result) | dict(changes or {})
    body = {
        "model": exact(simulation["model"]),
        "runtime": simulation["runtime"]["name"],
        "dataset": f"{simulation['dataset']['name']}@{simulation['dataset']['version']}",
        "scenarios": {"tasks": [scenario["index"]]},
        "params": {name: value for name, value in params.items() if value is not None},
        "repeat": scenario.get("repeat", 0) + 1,
        "seed": spec["seed"],
        "record": "all",
        "labels": {LABEL: f"{simulation['id']}.{result['task']}"},
    }
    optional = {name: spec.get(name) for name in ("placement", "gang")}
    return body | {name: value for name, value in optional.items() if value}
