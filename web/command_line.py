"""Command line of a submission: `windtunnel run ...`, as `windtunnel` reads it (docs/cli.md)."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec

from web.form_fields import json_of
from web.submission_fields import FIELDS, DescribedField


class SayableScenarios(msgspec.Struct, forbid_unknown_fields=True):
    range: tuple[int, int] | None = None
    tasks: list[int] | None = None
    sample: int | None = None
    seed: int | None = None


class SayablePlacement(msgspec.Struct, forbid_unknown_fields=True):
    executor: str = ""


#: Document that the command line has a way to say.
_Document = msgspec.defstruct(
    "_Document",
    [
        ("dataset", str),
        *((name, str | None, None) for name in ("model", "model_reference")),
        ("scenarios", SayableScenarios | None, None),
        ("placement", SayablePlacement | None, None),
        *((field.name, field.type | None, None) for field in FIELDS if field.option),
    ],
    forbid_unknown_fields=True,
)


def run_line(address: str, body: Mapping[str, Any]) -> str | None:
    """Return the line that submits a document; None if the command line cannot say it.

    It cannot if the document names no model, has members without an option, or repeats a value.

    ``address``: of the platform, with a slash at its end.
    """
    try:
        msgspec.convert(body, _Document)
    except msgspec.ValidationError:
        return None
    model, placement = body.get("model") or body.get("model_reference"), body.get("placement") or {}
    if model is None or _repeats(body):
        return None
    arguments = ["windtunnel", "run", model, body["dataset"]]  # names do not begin with a dash
    lines = [shlex.join(arguments), *(shlex.join(option) for option in _options(body, placement))]
    return f"export WINDTUNNEL_URL={shlex.quote(address.rstrip('/'))}\n" + " \\\n  ".join(lines) + "\n"


def _repeats(body: Mapping[str, Any]) -> bool:
    """Return whether a scenario or a value of the sweep is there twice, or a parameter is set and swept."""
    params, sweep = body.get("params") or {}, body.get("sweep") or {}
    lists = [*sweep.values(), (body.get("scenarios") or {}).get("tasks") or []]
    return bool(params.keys() & sweep.keys()) or any(
        len({json.dumps(value, sort_keys=True) for value in values}) < len(values) for values in lists
    )


def _options(body: Mapping[str, Any], placement: Mapping[str, Any]) -> Iterator[list[str]]:
    scenarios = body.get("scenarios") or {}
    if "range" in scenarios:
        first, end = scenarios["range"]
        yield ["--scenarios", f"{first}-{int(end) - 1}"]
    elif "tasks" in scenarios:
        yield ["--scenarios", ",".join(map(str, scenarios["tasks"]))]
    elif "sample" in scenarios:
        yield ["--sample", str(scenarios["sample"])]
        if "seed" in scenarios:
            yield ["--sample-seed", str(scenarios["seed"])]
    for field in FIELDS:
        value = body.get(field.name) if field.option else None
        if isinstance(value, Mapping):
            yield from ([field.option, f"{name}={_text(field, part)}"] for name, part in value.items())
        elif field.type is bool:
            yield from [[field.option]] if value else []
        elif value is not None:
            yield [field.option, str(value)]
    if placement.get("executor"):
        yield ["--executor", placement["executor"]]


def _text(field: DescribedField, value: object) -> str:
    """Return a value of an object as the command line reads it."""
    kind = get_args(field.type)[1]
    if kind is str:
        return str(value)
    if get_origin(kind) is not Sequence or not isinstance(value, list):
        return _value(value)
    plain = len(value) > 1 and not any(isinstance(part, str | list | dict) for part in value)
    return ",".join(map(_value, value)) if plain else json.dumps(value)


def _value(value: Any) -> str:
    """Return a value as the command line reads it: a text as it is, unless it would be read as JSON."""
    if not isinstance(value, str):
        return json.dumps(value)
    return value if json_of(value) is value else json.dumps(value)
