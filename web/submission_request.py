"""Submission of a simulation from the fields of its form, the fields of a submission, and the number of its tasks."""

import json
import math
from collections.abc import Mapping
from typing import Any

from web.form_fields import Fields, number_of, text_of, value_of

#: Fields with the name and the kind of the member that they become.
NAMES, NUMBERS = ("dataset", "model", "runtime", "record"), ("repeat", "seed", "workers", "timeout", "max_failures")
#: Prefix of the fields of parameters; a field with several values, by commas, is swept.
PARAMETER = "param."
#: Ways to select scenarios.
SELECTIONS: Mapping[str, str] = {
    "all": "all",
    "range": "from number to number",
    "sample": "a random sample",
    "tasks": "these numbers",
}


def submission_request(fields: Fields) -> dict[str, Any]:
    """Return the body of `POST /v1/simulations`; fields that are empty are left out.

    Values that cannot be read are sent as text, so that the API says what is wrong with them. The members of the field
    `more`, a JSON object, come last.
    """
    body: dict[str, Any] = {name: value for name in NAMES if (value := text_of(fields, name))}
    if (selection := _selection(text_of(fields, "select"), text_of(fields, "scenarios"))) is not None:
        body["scenarios"] = selection
    params, sweep = _parameters(fields)
    body |= {name: values for name, values in (("params", params), ("sweep", sweep)) if values}
    body |= {name: number for name in NUMBERS if (number := number_of(text_of(fields, name))) is not None}
    if labels := text_of(fields, "labels").split():
        body["labels"] = dict(_label(label) for label in labels)
    if executor := text_of(fields, "executor"):
        body["placement"] = {"executor": executor}
    return body | _more(text_of(fields, "more"))


def submission_fields(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the fields of a submission, for a form that repeats it with changes."""
    fields = {name: [str(spec[name])] for name in (*NAMES, *NUMBERS) if spec.get(name) is not None}
    selection = spec.get("scenarios") or {}
    for kind, values in selection.items() if "seed" not in selection else ():
        listed = values if isinstance(values, list) else [values]
        fields |= {"select": [kind], "scenarios": [", ".join(str(value) for value in listed)]}
    for name, value in (spec.get("params") or {}).items():
        fields[f"{PARAMETER}{name}"] = [_text(value)]
    for name, values in (spec.get("sweep") or {}).items():
        fields[f"{PARAMETER}{name}"] = [", ".join(map(_text, values))]
    if spec.get("labels"):
        fields["labels"] = [" ".join(f"{name}={value}" for name, value in spec["labels"].items())]
    placement = dict(spec.get("placement") or {})
    if executor := placement.pop("executor", None):
        fields["executor"] = [executor]
    more = {name: spec[name] for name in ("gang", "log_to_run") if spec.get(name)}
    if "seed" in selection:  # of a sample, for which the form has no field
        more["scenarios"] = selection
    if placement:
        more["placement"] = placement | ({"executor": executor} if executor else {})
    return fields | ({"more": [json.dumps(more)]} if more else {})


def tasks_of(body: Mapping[str, Any], dataset: Mapping[str, Any] | None) -> int | None:
    """Return the number of tasks of a submission; None if it is not known.

    A dataset without a number of scenarios plays one, unless others are selected.
    """
    match body.get("scenarios"), dataset:
        case {"range": [int(first), int(end)]}, _:
            scenarios = end - first
        case {"tasks": list(tasks)}, _:
            scenarios = len(tasks)
        case {"sample": int(size)}, _:
            scenarios = size
        case None, {"tasks": int(tasks)}:
            scenarios = tasks
        case None, {"tasks": None}:
            scenarios = 1
        case _:
            return None
    match body.get("sweep", {}), body.get("repeat", 1):
        case dict(sweep), int(repeat) if all(isinstance(values, list) for values in sweep.values()):
            total = math.prod((scenarios, repeat, *(len(values) for values in sweep.values())))
            return total if total > 0 else None
    return None


def _selection(kind: str, text: str) -> dict[str, Any] | None:
    if kind not in SELECTIONS or kind == "all" or not text:
        return None
    if kind == "sample":
        return {"sample": number_of(text)}
    numbers = [number_of(part) for part in text.replace("-", " ").replace(",", " ").split()]
    return {kind: numbers}


def _parameters(fields: Fields) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return parameters with one value, and those with several."""
    params, sweep = {}, {}
    for field in fields:
        if field.startswith(PARAMETER) and (text := text_of(fields, field)):
            values = [value_of(part.strip()) for part in text.split(",") if part.strip()]
            name = field.removeprefix(PARAMETER)
            if len(values) > 1:
                sweep[name] = values
            elif values:
                params[name] = values[0]
    return params, sweep


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _more(text: str) -> dict[str, Any]:
    try:
        more = json.loads(text) if text else {}
    except ValueError:
        return {"more": text}
    return more if isinstance(more, dict) else {"more": text}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
