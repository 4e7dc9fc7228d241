"""Declared interface: observation and action of a dataset's definition, with their spaces in Gymnasium's terms.

A definition that does not say these spaces keeps its digest, which is part of every task's seed: here is what its
environment, its plant or its OpenEnv fields declare. The simulators of Gymnasium and PettingZoo ask the environment.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..dataset_definition import Definition
from . import structures
from .base import Interface
from .structures import Structure

#: Member of a space with its structure.
GYMNASIUM = "gymnasium"
#: More values than these are a number, not a choice.
CHOICES = 1 << 16

_FOUR = {"observation": structures.box((6, 7, 2), "int8"), "action_mask": structures.box((7,), "int8")}
_THREE = {"observation": structures.box((3, 3, 2), "int8"), "action_mask": structures.box((9,), "int8")}
#: Spaces of environments that are not just arrays of numbers; a test compares them with the environments.
ENVIRONMENTS: Mapping[str, Mapping[str, Structure]] = {
    "CartPole-v1": {"action": structures.discrete(2)},
    "connect_four_v3": {"observation": structures.dictionary(_FOUR), "action": structures.discrete(7)},
    "highway-fast-v0": {"action": structures.discrete(5)},
    "tictactoe_v3": {"observation": structures.dictionary(_THREE), "action": structures.discrete(9)},
}


def described_interface(definition: Definition) -> dict[str, Any] | None:
    """Return the JSON form of a definition's interface, each space with the member `gymnasium`; None without one."""
    if not definition.interface:
        return None
    return {
        name: {**space, GYMNASIUM: _structure(definition, name, space).describe()}
        for name, space in definition.interface.items()
    }


def declared_interface(definition: Definition) -> Interface:
    """Return the interface of a definition that has one."""
    described = described_interface(definition)
    if described is None:
        raise ValueError("the dataset declares no interface")
    return Interface.of(described)


def _structure(definition: Definition, name: str, space: Mapping[str, Any]) -> Structure:
    if GYMNASIUM in space:
        return structures.structure_of(space[GYMNASIUM])
    if (known := ENVIRONMENTS.get(definition.env or "", {}).get(name)) is not None:
        return known
    if definition.openenv is not None:
        return _joined(_fields(definition.openenv[name], space), space)
    if definition.plant is not None:
        ports = definition.plant["inputs" if name == "action" else "read"]
        return _joined(_variables(ports, space), space)
    return structures.box(space["shape"], space["dtype"])


def _joined(parts: Iterator[tuple[str, Structure]], space: Mapping[str, Any]) -> Structure:
    """Return the space of named parts: an array if all are numbers, the only part, or a Dict."""
    named = dict(parts)
    if all(isinstance(part, structures.Part) and part.dtype == space["dtype"] for part in named.values()):
        return structures.box(space["shape"], space["dtype"])
    return next(iter(named.values())) if len(named) == 1 else structures.dictionary(named)


def _fields(fields: Sequence[Mapping[str, Any]], space: Mapping[str, Any]) -> Iterator[tuple[str, Structure]]:
    """Yield the parts of an OpenEnv environment's fields, which are in the array one after the other."""
    at = 0
    for field in fields:
        if field.get("kind") == "constant":
            continue
        shape = tuple(field.get("shape") or ())
        whole = bool(field.get("values") or field.get("mask")) or field.get("kind") in ("integer", "boolean", "choice")
        name = space["names"][at].rsplit("_", len(shape))[0] if shape else space["names"][at]
        yield name, _part(shape, at, whole, field.get("mask") or field.get("kind") == "boolean", space)
        at += math.prod(shape)


def _variables(ports: Sequence[Mapping[str, Any]], space: Mapping[str, Any]) -> Iterator[tuple[str, Structure]]:
    """Yield the parts of a plant's variables; those that are observed come before others that are read."""
    at = 0
    for port in ports:
        if at == len(space["names"]):
            return
        shape = tuple(port["shape"] or ())
        whole = not port["type"].startswith(("Real", "Float"))
        name = space["names"][at].rpartition("[")[0] if shape else space["names"][at]
        yield name, _part(shape, at, whole, port["type"] == "Boolean", space)
        at += math.prod(shape)


def _part(shape: tuple[int, ...], at: int, whole: bool, binary: bool, space: Mapping[str, Any]) -> Structure:
    """Return the space of entries that begin ``at`` a place; ``binary``: they are zeros and ones."""
    if not whole:
        return structures.box(shape, space["dtype"])
    if binary:
        return structures.multi_binary(shape) if shape else structures.discrete(2)
    end = at + math.prod(shape)
    bounds = list(zip(space["low"][at:end], space["high"][at:end], strict=True))
    if any(low is None or high is None or not 0 <= high - low < CHOICES for low, high in bounds):
        return structures.box(shape, "int64")
    starts = [math.ceil(low) for low, _ in bounds]
    counts = [math.floor(high) - start + 1 for (_, high), start in zip(bounds, starts, strict=True)]
    return structures.multi_discrete(counts, starts, shape) if shape else structures.discrete(counts[0], starts[0])
