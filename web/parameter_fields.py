"""Fields of a form for the parameters of a task: those that its dataset declares, with the values that it had."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from web.form_fields import Fields, number_of

#: Prefix of the names of these fields.
PREFIX = "param."
#: What a field of a parameter is for, by the parameter's type.
WORDS: Mapping[str, str] = {"bool": "true or false", "int": "a whole number", "float": "a number", "string": "a text"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterField:
    """Field of a parameter. ``choices``: the texts that it may have; empty: any. ``text``: what stands in it."""

    name: str
    text: str
    choices: tuple[str, ...] = ()
    hint: str = ""
    description: str = ""
    numeric: bool = False


def parameter_fields(
    declared: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any], given: Fields
) -> list[ParameterField]:
    """Return the fields of all parameters that a dataset declares; ``given``: what a form had, which comes first.

    A dataset that declares `*` takes any parameter: it has a field for each that the task had.
    """
    named = {name: spec for name, spec in declared.items() if name != "*"}
    if "*" in declared:
        named |= {name: declared["*"] for name in values if name not in named}
    return [_field(name, spec, values.get(name, spec.get("default")), given) for name, spec in named.items()]


def changes_of(declared: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any], given: Fields) -> dict[str, Any]:
    """Return the parameters of a form that differ from the task's values; None for one whose field was emptied.

    A parameter without a value has the dataset's default. What cannot be read is sent as text, so that the API says
    what is wrong with it.
    """
    changes: dict[str, Any] = {}
    for field in parameter_fields(declared, values, given):
        spec = declared.get(field.name) or declared["*"]
        if field.text != _text(values.get(field.name, spec.get("default"))):
            changes[field.name] = _value(spec["type"], field.text) if field.text else None
    return changes


def _field(name: str, spec: Mapping[str, Any], value: Any, given: Fields) -> ParameterField:
    texts = given.get(f"{PREFIX}{name}")
    choices = ("false", "true") if spec["type"] == "bool" else tuple(map(_text, spec.get("choices") or ()))
    between = f"{_text(spec['low'])} to {_text(spec['high'])}" if "low" in spec and "high" in spec else ""
    return ParameterField(
        name=name,
        text=texts[0].strip() if texts else _text(value),
        choices=choices,
        hint=between or WORDS.get(spec["type"], ""),
        description=spec.get("description") or "",
        numeric=spec["type"] in {"int", "float"},
    )


def _value(kind: str, text: str) -> Any:
    """Return the value of a field, of a parameter's type; text that is not of it stays text."""
    if kind == "string":
        return text
    if text in {"true", "false"}:
        return text == "true"
    return number_of(text)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
