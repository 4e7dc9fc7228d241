"""Parts of the definitions that tables give: spaces, metrics, and the members of datasets whose scenarios are seeds.

The digest of a `dataset.json` is part of every task's seed: a change of any text changes all results of its dataset.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.catalogue.definitions import PARAMS, clipping_metric, metric, steps_metric

#: Name and unit of an entry of an observation or action space.
Entry = tuple[str, str]


def space(
    entries: Sequence[Entry], dtype: str = "float32", low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """Return the JSON form of a flat space whose entries have the same range."""
    return {
        "dtype": dtype,
        "shape": [len(entries)],
        "names": [name for name, _ in entries],
        "units": [unit for _, unit in entries],
        "low": [low] * len(entries),
        "high": [high] * len(entries),
    }


def common_metrics(
    *, reward: str, source: str, worst: float | None, steps: int, outcomes: str, among: Iterable[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the metrics of a world with rewards: return, steps, those ``among`` them, clipped actions, outcome."""
    return [
        metric("return", "Return", "", f"sum of the rewards: {reward}", "higher", source=source, worst=worst),
        steps_metric(steps),
        *among,
        clipping_metric(),
        metric("outcome", "Outcome", "", outcomes, source="Gymnasium terminated and truncated"),
    ]


def identity(name: str, *, title: str, description: str, simulator: str, env: str) -> dict[str, Any]:
    """Return the first members of a dataset whose environment is that of its simulator."""
    return {
        "name": name,
        "version": "1",
        "title": title,
        "description": description,
        "simulator": simulator,
        "environment": simulator,
        "env": env,
    }


def interaction(*, tasks: int, observation: Mapping[str, Any], action: Mapping[str, Any], dt: float) -> dict[str, Any]:
    """Return the members about scenarios, which are seeds, and about spaces, time and parameters."""
    return {
        "tasks": tasks,
        "max_tasks": tasks,
        "scenarios": None,
        "files": [],
        "interface": {"observation": observation, "action": action},
        "deadline": 1.0,
        "dt": dt,
        "params": PARAMS,
    }


def evaluation(*, metrics: list[dict[str, Any]], score: str, failures: Sequence[str], baseline: str) -> dict[str, Any]:
    """Return the members about results. ``score``: what the return is the sum of; ``failures``: outcomes."""
    return {
        "metrics": metrics,
        "score": {"name": "return", "metric": "return", "formula": score},
        **({"failure": {"metric": "outcome", "in": list(failures)}} if failures else {}),
        "record": True,
        "isolation": "scenario",
        "yardstick": baseline,
        "group_by": [],
    }


def write(folder: Path, definition: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Write a definition, and the fields that scenarios of users may have, to the dataset's folder."""
    path = folder / definition["name"]
    path.mkdir(exist_ok=True)
    (path / "dataset.json").write_text(json.dumps(definition, indent=1) + "\n")
    (path / "scenario_fields.json").write_text(json.dumps(fields) + "\n")
