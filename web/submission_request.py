"""Submission of a simulation from the fields of its form, the fields of a submission, and the number of its tasks."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from web.form_fields import Fields, UnreadableField, number_of, text_of, value_of
from web.scenario_numbers import selection_of, text_of_selection

#: Fields with the name and the kind of the member that they become.
NAMES, NUMBERS = ("dataset", "model", "runtime", "record"), ("repeat", "seed", "workers", "timeout", "max_failures")
#: Prefix of the fields of parameters; a field with several values, by commas, is swept.
PARAMETER = "param."


def submission_request(fields: Fields) -> dict[str, Any]:
    """Return the body of `POST /v1/simulations`; fields that are empty are left out. Raise UnreadableField.

    Numbers that cannot be read are sent as text, so that the API says what is wrong with them. The members of the field
    `more`, a JSON object, come last, and complete the parameters, the sweep and the labels of other fields.
    """
    body: dict[str, Any] = {name: value for name in NAMES if (value := text_of(fields, name))}
    if (selection := selection_of(text_of(fields, "select"), text_of(fields, "scenarios"))) is not None:
        body["scenarios"] = selection
    params, sweep = _parameters(fields)
    body |= {name: values for name, values in (("params", params), ("sweep", sweep)) if values}
    body |= {name: number for name in NUMBERS if (number := number_of(text_of(fields, name))) is not None}
    if labels := _labels(text_of(fields, "labels")):
        body["labels"] = labels
    if executor := text_of(fields, "executor"):
        body["placement"] = {"executor": executor}
    return merged(body, _more(text_of(fields, "more")))


def submission_fields(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the fields of a submission, for a form that repeats it with changes.

    What the form has no field for, or would read otherwise, such as a parameter with a comma in its text, is in `more`.
    """
    fields = {name: [str(spec[name])] for name in (*NAMES, *NUMBERS) if spec.get(name) is not None}
    more = {name: spec[name] for name in ("gang", "log_to_run") if spec.get(name)}
    kind, numbers = text_of_selection(spec.get("scenarios") or {})
    given = {"select": [kind], "scenarios": [numbers]} if kind != "all" else {}
    _add(fields, more, given, {"scenarios": spec.get("scenarios")})
    for name, value in (spec.get("params") or {}).items():
        _add(fields, more, {f"{PARAMETER}{name}": [_text(value)]}, {"params": {name: value}})
    for name, values in (spec.get("sweep") or {}).items():
        swept = ", ".join(map(_text, values)) + ("," if len(values) == 1 else "")
        _add(fields, more, {f"{PARAMETER}{name}": [swept]}, {"sweep": {name: values}})
    if labels := spec.get("labels"):
        _add(
            fields, more, {"labels": [" ".join(_quoted(f"{key}={labels[key]}") for key in labels)]}, {"labels": labels}
        )
    if placement := spec.get("placement"):
        _add(fields, more, {"executor": [str(placement.get("executor", ""))]}, {"placement": placement})
    return fields | ({"more": [json.dumps(more, ensure_ascii=False)]} if more else {})


def merged(body: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with more members; objects that both have are joined, and ``more`` wins."""
    joined = {
        name: {**body[name], **value}
        for name, value in more.items()
        if isinstance(value, dict) and isinstance(body.get(name), dict) and name != "scenarios"
    }
    return {**body, **more, **joined}


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


def _parameters(fields: Fields) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return parameters with one value, and those with several, or with one and a comma."""
    params, sweep = {}, {}
    for field in fields:
        if field.startswith(PARAMETER) and (text := text_of(fields, field)):
            values = [value_of(part.strip()) for part in text.split(",") if part.strip()]
            name = field.removeprefix(PARAMETER)
            if "," in text:
                sweep[name] = values
            else:
                params[name] = values[0]
    return params, sweep


def _labels(text: str) -> dict[str, str]:
    """Return the labels of a text such as `branch=main note="two words"`."""
    words = shlex.shlex(text, posix=True, punctuation_chars="")
    words.whitespace, words.whitespace_split, words.commenters = " \t\n,", True, ""
    words.quotes, words.escape = '"', ""  # an apostrophe is a letter
    try:
        pairs = [word.partition("=") for word in words]
    except ValueError:
        raise UnreadableField("labels", "Labels: a double quotation mark is not closed.") from None
    names = [name for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UnreadableField("labels", f"Labels: {twice!r} is given twice; a label has one value.")
    return {name: value for name, _, value in pairs}


def _quoted(label: str) -> str:
    return f'"{label}"' if re.search(r"[\s,]", label) else label


def _more(text: str) -> dict[str, Any]:
    try:
        more = json.loads(text) if text else {}
    except ValueError:
        more = None
    if not isinstance(more, dict):
        raise UnreadableField("more", 'Further members: write a JSON object, such as {"placement": {"cpu": 2}}.')
    return more


def _add(fields: dict[str, list[str]], more: dict[str, Any], given: Fields, members: Mapping[str, Any]) -> None:
    """Add fields that are read as the members of a submission; else add these members to ``more``."""
    wanted = {name: value for name, value in members.items() if value}
    try:
        read = submission_request(given)
    except UnreadableField:
        read = {}
    if read == wanted:
        fields |= {name: list(values) for name, values in given.items()}
    else:
        more |= merged(more, wanted)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
