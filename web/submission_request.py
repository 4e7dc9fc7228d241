"""Submission of a simulation from the fields of its form, the fields of a submission, and the number of its tasks."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from web.form_fields import Fields, UnreadableField, json_of, number_of, text_of, value_of
from web.scenario_numbers import selection_of, text_of_selection
from web.submission_fields import FIELDS, DescribedField

#: Fields of names, which have places of their own in the form.
NAMES = ("dataset", "model", "runtime")
#: First fields of the form's list; others follow as they are declared.
ORDER = ("repeat", "seed", "workers", "worlds", "record", "timeout", "max_failures")
SHOWN_FIELDS = {
    field.name: field
    for field in sorted(FIELDS, key=lambda field: (*ORDER, field.name).index(field.name))
    if field.label
}
#: Members that the form has otherwise, and those of a model that is stored by now.
OTHERWISE = frozenset({*NAMES, "params", "sweep", "placement", "format", "connection"})
#: Members that a form which repeats a submission has in its field `more`.
HIDDEN_MEMBERS = [field.name for field in FIELDS if not field.label and field.name not in OTHERWISE]
#: More tasks than any submission has.
MOST_TASKS = 10**15
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
    for name, field in SHOWN_FIELDS.items():
        if text := text_of(fields, name):
            body[name] = _member(field, text)
    if executor := text_of(fields, "executor"):
        body["placement"] = {"executor": executor}
    return merged(body, _more(text_of(fields, "more")))


def submission_fields(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the fields of a submission, for a form that repeats it with changes.

    What the form has no field for, or would read otherwise, such as a parameter with a comma in its text, is in `more`.
    """
    fields = {name: [spec[name]] for name in NAMES if spec.get(name) is not None}
    more = {
        name: value for name in HIDDEN_MEMBERS if (value := spec.get(name)) not in (None, {}) and value is not False
    }
    kind, numbers = text_of_selection(spec.get("scenarios") or {})
    given = {"select": [kind], "scenarios": [numbers]} if kind != "all" else {}
    _add(fields, more, given, {"scenarios": spec.get("scenarios")})
    for name, value in (spec.get("params") or {}).items():
        _add(fields, more, {f"{PARAMETER}{name}": [_text(value)]}, {"params": {name: value}})
    for name, values in (spec.get("sweep") or {}).items():
        swept = ", ".join(map(_text, values)) + ("," if len(values) == 1 else "")
        _add(fields, more, {f"{PARAMETER}{name}": [swept]}, {"sweep": {name: values}})
    for name in SHOWN_FIELDS:
        if isinstance(value := spec.get(name), dict) and value:
            pairs = " ".join(_quoted(f"{key}={text}") for key, text in value.items())
            _add(fields, more, {name: [pairs]}, {name: value})
        elif value is not None and not isinstance(value, dict):
            fields[name] = [_text(value)]
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
            return total if 0 < total < MOST_TASKS else None
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


def _member(field: DescribedField, text: str) -> object:
    """Return the member of a field of the form; what cannot be read is sent as text."""
    if field.type is str:
        return text
    if field.type == Mapping[str, str]:
        return _pairs(field, text)
    return value_of(text) if field.type is bool else number_of(text)


def _pairs(field: DescribedField, text: str) -> dict[str, str]:
    """Return the members of a text such as `branch=main note="two words"`."""
    words = shlex.shlex(text, posix=True, punctuation_chars="")
    words.whitespace, words.whitespace_split, words.commenters = " \t\n,", True, ""
    words.quotes, words.escape = '"', ""  # an apostrophe is a letter
    try:
        pairs = [word.partition("=") for word in words]
    except ValueError:
        raise UnreadableField(field.name, f"{field.label}: a double quotation mark is not closed.") from None
    names = [name for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UnreadableField(field.name, f"{field.label}: {twice!r} is given twice; a name has one value.")
    return {name: value for name, _, value in pairs}


def _quoted(label: str) -> str:
    return f'"{label}"' if re.search(r"[\s,]", label) else label


def _more(text: str) -> dict[str, Any]:
    more = json_of(text or "{}")
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
