"""Labels of the models of a comparison: their names, with the version where several have that name."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from web import verdict_units


def labelled(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a comparison as it is shown: each model has a label."""
    comparison: dict[str, Any] = deepcopy(dict(answer))
    models = [comparison["reference"], *comparison["models"]]
    names = [model["name"] for model in models]
    for model in models:
        version = f"@{model['version']}" if names.count(model["name"]) > 1 else ""
        model["label"] = f"{model['name']}{version}"
    for model in comparison["models"]:
        if "groups" in model:
            model |= verdict_units.shown(model)
    return comparison
