"""Validation of parameters, sweeps and scenario selections against a dataset; errors name the valid values."""

import sys
from collections.abc import Mapping
from typing import Any

from common.errors import Invalid, ScenarioOutOfRange, TooManyTasks

#: Maximum of tasks per simulation; more are refused before any list is built.
LARGEST = 10_000_000
#: What a parameter of each type takes.
WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "any": "a number, a truth value or a text of at most 1,000 characters",
}


def checked_params(
    declared: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any], dataset: str
) -> dict[str, Any]:
    """Return the defaults with ``overrides`` applied, each value checked for type and range."""
    values = {name: spec["default"] for name, spec in declared.items() if spec.get("default") is not None}
    for name, value in overrides.items():
        values[name] = checked_value(name, _spec(declared, name, dataset), value)
    return values


def _spec(declared: Mapping[str, Mapping[str, Any]], name: str, dataset: str) -> Mapping[str, Any]:
    """Return a parameter's declaration; `*` declares all parameters that are not named."""
    spec = declared.get(name, declared.get("*"))
    if spec is None:
        known = ", ".join(sorted(declared)) or "none"
        raise Invalid(f"The dataset {dataset} has no parameter {name!r}; it has: {known}.")
    return spec


def checked_value(name: str, spec: Mapping[str, Any], value: Any) -> Any:
    """Return the value if it is of the parameter's type and range."""
    kind = spec["type"]
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "string": isinstance(value, str),
        "any": isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 1000),
    }.get(kind, True)
    if not fits:
        raise Invalid(f"The parameter {name!r} takes {WORDS.get(kind, kind)}, not {value!r:.80}.")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise Invalid(f"The parameter {name!r} takes a number that a float has room for, less than 1.8e308.")
    low, high, choices = spec.get("low"), spec.get("high"), spec.get("choices")
    if (low is not None and value < low) or (high is not None and value > high):
        raise Invalid(f"The parameter {name!r} lies in {low}..{high}; {value!r:.80} does not.")
    if choices and value not in choices:
        raise Invalid(f"The parameter {name!r} is one of {', '.join(map(str, choices))}; not {value!r:.80}.")
    return value


def checked_sweep(
    declared: Mapping[str, Mapping[str, Any]], sweep: Mapping[str, Any], dataset: str
) -> dict[str, list[Any]]:
    """Return the sweep with every value checked."""
    result = {}
    for name, values in sweep.items():
        spec = _spec(declared, name, dataset)
        if not isinstance(values, list) or not values:
            raise Invalid(f"The sweep of {name!r} is a list of at least one value.")
        if len(values) > LARGEST:
            raise TooManyTasks()
        result[name] = [checked_value(name, spec, value) for value in values]
    return result


def checked_selection(
    scenarios: Mapping[str, Any] | None, total: int | None, max_scenarios: int, dataset: str
) -> dict[str, Any]:
    """Return the selection in its normal form: one of ``range``, ``tasks`` or ``sample`` (with ``seed``)."""
    if scenarios is None:
        return {"range": [0, total if total is not None else 1]}
    keys = set(scenarios) - {"seed"}
    if len(keys) != 1 or not keys <= {"range", "tasks", "sample"} or ("seed" in scenarios and keys != {"sample"}):
        raise Invalid('`scenarios` is one of {"range": [a, b]}, {"tasks": [...]} and {"sample": k, "seed": s}.')
    limit = total if total is not None else max_scenarios
    if "range" in scenarios:
        bounds = scenarios["range"]
        if not isinstance(bounds, list) or len(bounds) != 2 or not all(_whole(bound) for bound in bounds):
            raise Invalid("`scenarios.range` is [first, end], two whole numbers; the end is not included.")
        first, end = bounds
        if not 0 <= first < end <= limit:
            raise ScenarioOutOfRange(
                f"The range [{first}, {end}] is not possible: {dataset} has the scenarios 0 to {limit - 1}; the end is"
                " larger than the beginning, and not included."
            )
        return {"range": [first, end]}
    if "tasks" in scenarios:
        tasks = scenarios["tasks"]
        if not isinstance(tasks, list) or not tasks or not all(_whole(task) for task in tasks):
            raise Invalid("`scenarios.tasks` is a list of at least one scenario number.")
        if len(tasks) > 100_000:
            raise TooManyTasks("`scenarios.tasks` lists at most 100,000 scenarios; use a range or a sample.")
        if wrong := [task for task in tasks if not 0 <= task < limit]:
            raise ScenarioOutOfRange(f"{dataset} has the scenarios 0 to {limit - 1}; {wrong[0]} is not one of them.")
        return {"tasks": tasks}
    size, seed = scenarios["sample"], scenarios.get("seed", 0)
    if not _whole(size) or not _whole(seed):
        raise Invalid("`scenarios.sample` and its `seed` are whole numbers.")
    if not 1 <= size <= limit:
        raise ScenarioOutOfRange(f"A sample of {size} cannot be drawn from the {limit} scenarios of dataset {dataset}.")
    return {"sample": size, "seed": seed}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
