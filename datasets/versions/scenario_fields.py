"""Fields of scenarios: which members a user's scenarios of a built-in dataset may have, and which values.

`scenario_fields.json` in the folder of a dataset has its fields; a dataset without this file cannot be extended.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from datasets.catalogue import datasets

FILE = "scenario_fields.json"


class FieldRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allowed values of one member of a scenario. ``low`` and ``high`` also bound the lengths of strings and lists.

    ``free``: an object whose members are those of the user's own program.
    """

    kind: Literal["int", "float", "bool", "string", "list", "object"]
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    pattern: str | None = None
    members: Mapping[str, "FieldRule"] = {}
    items: "FieldRule | None" = None
    required: bool = False
    free: bool = False


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def extendable() -> Sequence[str]:
    """Return the names of the built-in datasets that datasets of users can extend, in order."""
    return [name for name, dataset in datasets().items() if (dataset.folder / FILE).exists()]


@functools.cache
def of(dataset: str) -> Mapping[str, FieldRule]:
    """Return the members of scenarios of an extendable dataset, besides those that all have."""
    return msgspec.json.decode((datasets()[dataset].folder / FILE).read_bytes(), type=dict[str, FieldRule])


def check(value: Any, rule: FieldRule, path: str = "") -> None:
    """Check a value of a scenario; raise ValueError with the reason. ``path``: its name within the scenario."""
    name = f"`{path}`" if path else "it"
    if not _KINDS[rule.kind](value):
        raise ValueError(f"{name} is not of type {rule.kind}")
    if rule.kind == "bool":
        return
    if rule.choices and value not in rule.choices:
        raise ValueError(f"{name} is one of {', '.join(map(str, rule.choices))}")
    size = len(value) if rule.kind in {"string", "list"} else value
    if rule.kind != "object" and (
        (rule.low is not None and size < rule.low) or (rule.high is not None and size > rule.high)
    ):
        subject = "its length" if rule.kind in {"string", "list"} else "it"
        low, high = ("" if bound is None else f"{bound:g}" for bound in (rule.low, rule.high))
        raise ValueError(f"{name}: {subject} lies in {low}..{high}")
    if rule.pattern is not None and not re.fullmatch(rule.pattern, value, re.ASCII):
        raise ValueError(f"{name} does not match {rule.pattern}")
    if rule.kind == "object" and not rule.free:
        _check_members(value, rule.members, f"{path}." if path else "")
    for index, item in enumerate(value if rule.items is not None else ()):
        assert rule.items is not None
        check(item, rule.items, f"{path}[{index}]")


def _check_members(value: Mapping[str, Any], rules: Mapping[str, FieldRule], prefix: str) -> None:
    for name, member in value.items():
        if name not in rules:
            allowed = ", ".join(sorted(rules))
            raise ValueError(f"`{(prefix + name)[:80]}` is not allowed; allowed are: {allowed}")
        check(member, rules[name], prefix + name)
    if missing := [name for name, rule in rules.items() if rule.required and name not in value]:
        raise ValueError(f"`{prefix}{missing[0]}` is missing")
