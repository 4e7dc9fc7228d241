"""Actions of clients: a list of values, or values by name; each is a finite number."""

import math
from collections.abc import Mapping
from typing import Any

from runtimes.harness.simulators.base import Space

#: Fields of an action that are not entries of the action space.
VALUES, METADATA = "values", "metadata"
#: Entries that an error lists by name.
SHOWN = 8


class InvalidAction(ValueError):
    """The action does not fit the action space; nothing was applied."""


def action_values(fields: Mapping[str, Any], space: Space) -> list[float]:
    """Return one value per entry of the action space, in C order; raise InvalidAction with the next step."""
    named = {name: value for name, value in fields.items() if name not in (VALUES, METADATA)}
    values = fields.get(VALUES)
    if (values is None) == (not named):
        raise InvalidAction(f"An action has either `values` or one field per name. {_usage(space)}")
    if values is None:
        return _by_name(named, space)
    if not isinstance(values, list):
        raise InvalidAction(f"`values` is a list of numbers, not {values!r:.80}. {_usage(space)}")
    if len(values) != len(space.names):
        raise InvalidAction(f"The action has {_count(len(space.names))}; {len(values)} came. {_usage(space)}")
    return [_number(value, name, space) for value, name in zip(values, space.names, strict=True)]


def _by_name(named: Mapping[str, Any], space: Space) -> list[float]:
    if unknown := sorted(named.keys() - set(space.names)):
        raise InvalidAction(f"The action has no field {unknown[0]!r:.80}. {_usage(space)}")
    if missing := [name for name in space.names if name not in named]:
        raise InvalidAction(f"The action lacks the field {missing[0]!r}. {_usage(space)}")
    return [_number(named[name], name, space) for name in space.names]


def _number(value: Any, name: str, space: Space) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAction(f"The action's {name!r} is a number, not {value!r:.80}. {_usage(space)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidAction(f"The action's {name!r} is not finite ({number}). {_usage(space)}")
    return number


def _usage(space: Space) -> str:
    """Return what to send instead."""
    entries = [f"{name}{f' in {unit}' if unit else ''}" for name, unit in zip(space.names, space.units, strict=True)]
    shown = ", ".join(entries[:SHOWN]) + (", ..." if len(entries) > SHOWN else "")
    return f'The scenario goes on: step again with {{"values": [{_count(len(entries))}: {shown}]}}.'


def _count(number: int) -> str:
    return f"{number} {'number' if number == 1 else 'numbers'}"
